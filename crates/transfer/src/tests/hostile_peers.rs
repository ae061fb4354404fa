//! Authorised peers that try to hold up or exhaust the other side.

use std::io::Read;

use super::*;
use crate::open_files::{FILES_AHEAD, SMALL_FILES_AHEAD};

/// Runs a sender of `paths` with a receiver that has read the list and continues with `script`.
fn against_sender(
    fixture: &Fixture,
    paths: &[PathBuf],
    script: impl FnOnce(&mut Control, &MemoryLink),
) -> TransferError {
    let source = Source::scan(paths, &CancelToken::new()).unwrap();
    let (sender, (link, mut control)) = pair();
    *link.faults().revision.lock().unwrap() = fixture.revision;
    let context = fixture.context();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (link, control) = sender;
            send::run(&link, control, &context, &Credential::Key, &source, &fixture.send, &())
        });
        assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Hello { .. }))));
        say(&mut control, &Message::Accepted { version: 1, proof: None }).unwrap();
        script(&mut control, &link);
        sending.join().unwrap().unwrap_err()
    })
}

fn read_list(control: &mut Control) {
    while !matches!(read_message(&mut control.reader).unwrap(), Some(Message::EntriesEnd { .. })) {}
}

fn plan(index: u32, held: &[u8]) -> Message {
    Message::Plan { index, held: held.to_vec() }
}

#[test]
fn a_receiver_that_plans_a_file_again_is_disconnected() {
    // A file of three segments. A second plan is allowed if the first one held all of them.
    for plans in [&[&[0][..], &[]][..], &[&[1], &[1]], &[&[7], &[0], &[0]], &[&[7], &[7], &[7]]] {
        let fixture = Fixture::new();
        let path = fixture.write("file", 1, 3000);
        let error = against_sender(&fixture, &[path], |control, _| {
            read_list(control);
            for held in plans {
                let held: &[u8] = if *held == [0] { &[] } else { held };
                say(control, &plan(0, held)).unwrap();
            }
            // Reads until the sender ends it.
            while let Ok(Some(_)) = read_message(&mut control.reader) {}
        });
        assert!(matches!(error, TransferError::Protocol(what) if what.contains("one plan")), "{plans:?}: {error:?}");
    }
}

/// The sender waits until the peer has the reason, before it closes the connection.
#[test]
fn a_peer_that_sends_no_message_reads_the_reason() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 3000);
    let source = Source::scan(&[path], &CancelToken::new()).unwrap();
    // Two threads decide whether the reason or the end of the connection comes first.
    for _ in 0..100 {
        let ((send_link, send_control), (_link, Control { mut reader, mut writer })) = pair();
        let context = fixture.context();
        let (error, last) = std::thread::scope(|scope| {
            let sending = scope
                .spawn(|| send::run(&send_link, send_control, &context, &Credential::Key, &source, &fixture.send, &()));
            assert!(matches!(read_message(&mut reader), Ok(Some(Message::Hello { .. }))));
            writer.write_all(&[0xff; 64]).unwrap();
            let mut last = None;
            while let Ok(Some(message)) = read_message(&mut reader) {
                last = Some(message);
            }
            let _over = writer.finish();
            (sending.join().unwrap().unwrap_err(), last)
        });
        assert!(matches!(error, TransferError::Protocol(_)), "{error:?}");
        assert!(matches!(last, Some(Message::Stop { .. })), "{last:?}");
    }
}

#[test]
fn a_receiver_that_plans_every_file_at_once_is_disconnected() {
    for (revision, limit) in [(Revision::Streams, FILES_AHEAD), (Revision::SmallFiles, SMALL_FILES_AHEAD)] {
        let mut fixture = Fixture::new();
        fixture.revision = revision;
        let count = limit as u32 + 40;
        for index in 0..count {
            fixture.write(&format!("tree/{index}"), 1, 10);
        }
        let error = against_sender(&fixture, &[fixture.source("tree")], |control, _| {
            read_list(control);
            // The directory is the first entry and has no plan.
            for index in 1..=count {
                if say(control, &plan(index, &[])).is_err() {
                    break;
                }
            }
            while let Ok(Some(_)) = read_message(&mut control.reader) {}
        });
        assert!(matches!(error, TransferError::Protocol(what) if what.contains("too many")), "{error:?}");
    }
}

#[test]
fn a_receiver_leaves_out_only_what_it_has_not_planned_and_only_if_the_sender_knows_it() {
    let left_out = Message::LeftOut { index: 0, reason: LeftOutReason::Newer };
    for (revision, first, words) in [
        (Revision::LATEST, plan(0, &[]), "that it has planned"),
        (Revision::LATEST, left_out.clone(), "settled"),
        (Revision::Links, left_out.clone(), "out of place"),
    ] {
        let mut fixture = Fixture::new();
        fixture.revision = revision;
        let paths = [fixture.write("file", 1, 3000), fixture.write("other", 1, 10)];
        let error = against_sender(&fixture, &paths, |control, _| {
            read_list(control);
            say(control, &first).unwrap();
            let _ended = say(control, &left_out);
            while let Ok(Some(_)) = read_message(&mut control.reader) {}
        });
        assert!(matches!(error, TransferError::Protocol(what) if what.contains(words)), "{words}: {error:?}");
    }
}

#[test]
fn a_receiver_that_tells_of_deletions_too_early_is_disconnected() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 3000);
    let error = against_sender(&fixture, std::slice::from_ref(&path), |control, _| {
        read_list(control);
        let path = RelativePath::from_components([b"file".as_slice()]).unwrap();
        say(control, &Message::Deleted { is_dry_run: false, path }).unwrap();
        while let Ok(Some(_)) = read_message(&mut control.reader) {}
    });
    assert!(matches!(error, TransferError::Protocol(_)), "{error:?}");
    assert!(path.exists(), "the sender deletes nothing");
}

#[test]
fn a_receiver_that_reads_nothing_does_not_keep_a_cancelled_sender() {
    let fixture = Fixture::new();
    // The list does not fit into the stream, so the sender waits in the middle of it.
    for index in 0..600 {
        fixture.write(&format!("{}/{index}", "x".repeat(200)), 1, 0);
    }
    let error = against_sender(&fixture, &[fixture.source(&"x".repeat(200))], |control, link| {
        // The sender has begun to write the list.
        control.reader.read_exact(&mut [0]).unwrap();
        fixture.send.cancel.cancel();
        // Returns when the sender has closed the connection.
        assert!(link.accept_closed());
    });
    assert!(matches!(error, TransferError::Cancelled), "{error:?}");
}

#[test]
fn a_sender_that_reads_nothing_does_not_keep_a_cancelled_receiver() {
    let fixture = Fixture::new();
    let error = fixture.fail_receiver(|link, mut control| {
        // As many as the receiver opens at a time for one transfer, so that each gets a plan at
        // once.
        let entries: Vec<_> = (0..FILES_AHEAD / 2).map(|index| file_entry(&format!("file{index}"))).collect();
        let count = entries.len() as u32;
        say(&mut control, &Message::Entries(entries)).unwrap();
        say(&mut control, &Message::EntriesEnd { count, skipped: None }).unwrap();
        // A result for a file without a plan would be an error of this side.
        for _ in 0..count {
            assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Plan { .. }))));
        }
        // The receiver answers each file that this side gives up with Failed and a long text.
        // Nothing reads the answers, so the receiver's coordinator waits to send one, and takes no
        // more from this side.
        let detail = "x".repeat(200);
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || {
                for index in 0..count {
                    let error = FileError::new(FileErrorKind::Source, &detail);
                    if say(&mut control, &Message::FileAbort { index, error }).is_err() {
                        break;
                    }
                }
                control
            });
            link.wait_until_full();
            fixture.receive.cancel.cancel();
            assert!(link.accept_closed());
            drop(writing.join().unwrap());
        });
    });
    assert!(matches!(error, TransferError::Cancelled), "{error:?}");
}

#[test]
fn a_peer_that_goes_on_talking_does_not_keep_a_failed_side() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 3000);
    let error = against_sender(&fixture, &[path], |control, _| {
        read_list(control);
        // This is not allowed, so the sender stops; but this side keeps sending, as fast as the
        // sender reads.
        say(control, &Message::Bye).unwrap();
        while say(control, &Message::Verifying { index: 0, bytes_done: 1, bytes_total: 2 }).is_ok() {}
    });
    assert!(matches!(error, TransferError::Protocol(_)), "{error:?}");
}

#[test]
fn a_peer_that_talks_slowly_does_not_keep_a_failed_side() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 3000);
    let said = std::sync::atomic::AtomicU32::new(0);
    let error = against_sender(&fixture, &[path], |control, _| {
        read_list(control);
        say(control, &Message::Bye).unwrap();
        // One message within each interval in which the sender waits for one.
        let pause = crate::queue::Queue::<()>::new(1);
        while say(control, &Message::Verifying { index: 0, bytes_done: 1, bytes_total: 2 }).is_ok() {
            said.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _nothing = pause.pop_timeout(std::time::Duration::from_millis(30));
        }
    });
    assert!(matches!(error, TransferError::Protocol(_)), "{error:?}");
    // Five seconds have space for 167.
    let said = said.into_inner();
    assert!(said < 500, "{said} messages, as many as it liked");
}

fn file_entry(name: &str) -> Entry {
    Entry {
        path: RelativePath::from_components([name.as_bytes()]).unwrap(),
        kind: EntryKind::File { size: 5000 },
        modified: manifest::Modified { seconds: 0, nanoseconds: 0 },
        mode: 0o600,
    }
}
