//! Files of unknown length: from pipes, to files and to pipes.

use std::fs::File;
use std::io::Read;

use super::*;

/// Returns both ends of a pipe: the reader first.
fn pipe_files() -> (File, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (File::from(std::os::fd::OwnedFd::from(reader)), File::from(std::os::fd::OwnedFd::from(writer)))
}

fn stream_of(input: File) -> Source {
    Source::stream(Path::new("stdin"), 0o666, 1_000_000_000, StreamInput::new(input)).unwrap()
}

/// Sends `bytes` through a pipe.
pub(super) fn transfer(fixture: &Fixture, bytes: &[u8], prepare: impl FnOnce(&MemoryLink)) -> Outcome {
    let (reader, mut writer) = pipe_files();
    std::thread::scope(|scope| {
        // A transfer that fails closes the pipe.
        scope.spawn(move || drop(writer.write_all(bytes)));
        let source = stream_of(reader);
        let outcome = fixture.transfer_source(&source, prepare);
        drop(source);
        outcome
    })
}

#[test]
fn streams_of_all_lengths_become_files() {
    for len in [0, 1, 262_144, 262_145, 1_500_000] {
        let fixture = Fixture::new();
        let bytes = random_bytes(len as u64, len);
        let outcome = transfer(&fixture, &bytes, |_| {});
        let (sent, received) = outcome.summaries();
        assert_eq!((sent.files_done, sent.bytes, received.bytes), (1, len as u64, len as u64));
        assert!(fs::read(fixture.target("stdin")).unwrap() == bytes, "{len}");
        let done = outcome.sender_events.iter().find(|event| event["event"] == "file_done").unwrap();
        assert_eq!(text(&done["hash"]), blake3::hash(&bytes).to_string());
        assert_eq!(names(&fixture.top.path().join("in")), ["stdin"], "nothing else stays");
    }
}

#[test]
fn a_stream_goes_to_a_pipe_at_the_speed_of_its_reader() {
    let mut fixture = Fixture::new();
    let (mut reader, writer) = pipe_files();
    fixture.receive.output = Some(StreamOutput::new(writer));
    let bytes = random_bytes(1, 5_000_000);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        let outcome = transfer(&fixture, &bytes, |_| {});
        assert_eq!(outcome.summaries().1.files_done, 1);
        fixture.receive.output = None;
        assert!(reading.join().unwrap() == bytes);
    });
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn a_reader_that_ends_early_ends_the_transfer() {
    let mut fixture = Fixture::new();
    let (reader, writer) = pipe_files();
    drop(reader);
    fixture.receive.output = Some(StreamOutput::new(writer));
    let outcome = transfer(&fixture, &random_bytes(1, 3_000_000), |_| {});
    let received = outcome.received.unwrap_err();
    assert!(matches!(&received, TransferError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe));
    let sent = outcome.sent.unwrap_err();
    assert!(matches!(&sent, TransferError::Peer(reason) if reason.contains("ended before")), "{sent:?}");
}

#[test]
fn a_lost_connection_is_final_for_the_sender_and_leaves_no_part() {
    let fixture = Fixture::new();
    let outcome = transfer(&fixture, &random_bytes(1, 3_000_000), |link| {
        link.faults().bytes_left.store(1_000_000, Ordering::SeqCst);
    });
    let sent = outcome.sent.unwrap_err();
    assert!(matches!(sent, TransferError::StreamBroken(_)) && !sent.is_resumable(), "{sent:?}");
    assert!(outcome.received.unwrap_err().is_resumable(), "the sender may run its pipeline again");
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn a_damaged_piece_fails_the_stream() {
    let fixture = Fixture::new();
    let outcome = transfer(&fixture, &random_bytes(1, 1_000_000), |link| {
        link.faults().flip_in.store(600_000, Ordering::SeqCst);
    });
    assert_eq!(outcome.failures()["stdin"], "damaged");
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn a_stream_has_the_same_limits_as_files() {
    let mut fixture = Fixture::new();
    fixture.receive.bytes_max = Some(700_000);
    let outcome = transfer(&fixture, &random_bytes(1, 3_000_000), |_| {});
    assert!(matches!(outcome.received, Err(TransferError::StreamTooLong(700_000))), "{:?}", outcome.received);
    assert!(names(&fixture.top.path().join("in")).is_empty());

    fs::write(fixture.target("stdin"), "mine").unwrap();
    fixture.receive.bytes_max = None;
    let outcome = transfer(&fixture, b"new", |_| {});
    assert_eq!(outcome.failures()["stdin"], "exists");
    fixture.receive.overwrite = true;
    transfer(&fixture, b"new", |_| {}).summaries();
    assert_eq!(fs::read(fixture.target("stdin")).unwrap(), b"new");
}

#[test]
fn an_input_that_never_ends_does_not_keep_a_cancelled_sender() {
    let fixture = Fixture::new();
    let (reader, _writer) = pipe_files();
    let source = stream_of(reader);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The sender reads once the receiver has planned.
            while !source.input().is_some_and(StreamInput::was_taken) {
                std::thread::yield_now();
            }
            fixture.send.cancel.cancel();
        });
        fixture.transfer_source(&source, |_| {})
    });
    let sent = outcome.sent.unwrap_err();
    assert_eq!((sent.exit_code(), sent.is_resumable()), (130, false), "{sent:?}");
    assert!(matches!(outcome.received, Err(TransferError::CancelledByPeer)));
}

#[test]
fn a_slow_reader_does_not_keep_a_cancelled_receiver() {
    let mut fixture = Fixture::new();
    let (_reader, writer) = pipe_files();
    let output = StreamOutput::new(writer);
    fixture.receive.output = Some(output.clone());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !output.was_taken() {
                std::thread::yield_now();
            }
            fixture.receive.cancel.cancel();
        });
        transfer(&fixture, &random_bytes(1, 3_000_000), |_| {})
    });
    assert_eq!(outcome.received.unwrap_err().exit_code(), 130);
}

#[test]
fn peers_without_streams_get_a_clear_error() {
    let mut fixture = Fixture::new();
    fixture.revision = Revision::RunId;
    let outcome = transfer(&fixture, b"bytes", |_| {});
    fixture.revision = Revision::LATEST;
    assert!(matches!(outcome.sent, Err(TransferError::StreamUnsupported)), "{:?}", outcome.sent);

    let (_reader, writer) = pipe_files();
    fixture.receive.output = Some(StreamOutput::new(writer));
    let file = fixture.write("file", 1, 10);
    let outcome = fixture.transfer(&[file]);
    assert!(matches!(outcome.received, Err(TransferError::StreamOnly)), "{:?}", outcome.received);
    let sent = outcome.sent.unwrap_err();
    assert!(sent.to_string().contains("litz send - TICKET"), "{sent}");
}

/// Runs a receiver against a sender that announces `entries` and continues with `script`.
fn against_receiver(entries: &[Entry], script: impl FnOnce(&mut Control, &MemoryLink)) -> TransferError {
    let fixture = Fixture::new();
    let error = fixture.fail_receiver(|link, mut control| {
        say(&mut control, &Message::Entries(entries.to_vec())).unwrap();
        say(&mut control, &Message::EntriesEnd { count: entries.len() as u32, skipped: None }).unwrap();
        while !matches!(read_message(&mut control.reader), Ok(Some(Message::Plan { .. } | Message::Stop { .. }) | None))
        {
        }
        script(&mut control, link);
        control
    });
    assert!(names(&fixture.top.path().join("in")).is_empty());
    error
}

#[test]
fn a_sender_that_breaks_the_rules_of_a_stream_is_disconnected() {
    use crate::record::RecordWriter;
    use crate::stream::{WINDOW, hash_piece};
    let (reader, _writer) = pipe_files();
    let entry = stream_of(reader).entries()[0].clone();
    let error = against_receiver(&[entry.clone(), entry.clone()], |_, _| {});
    assert!(matches!(error, TransferError::Protocol(what) if what.contains("only entry")), "{error:?}");
    for (pieces, words) in [(&[WINDOW][..], "credit"), (&[5, 5], "twice"), (&[0, 1], "last"), (&[1, 0], "last")] {
        let error = against_receiver(std::slice::from_ref(&entry), |_, link| {
            let mut writer = RecordWriter::new();
            for number in pieces {
                writer.begin(|| link.open_uni(), 0, *number).unwrap();
                let filled = writer.chunk(
                    4,
                    |chunk| {
                        chunk.copy_from_slice(b"data");
                        Ok::<_, ()>(())
                    },
                    |_| {},
                );
                filled.unwrap().unwrap();
                writer.end(&hash_piece(*number, b"data").value).unwrap();
            }
            // The receiver may have closed the connection.
            let _sent = writer.finish();
        });
        assert!(matches!(error, TransferError::Protocol(what) if what.contains(words)), "{words}: {error:?}");
    }
}

/// Runs a sender of an endless input with a receiver that has read the list and sends `messages`.
fn against_sender(messages: &[Message]) -> Result<Summary, TransferError> {
    let fixture = Fixture::new();
    let (reader, _writer) = pipe_files();
    let source = stream_of(reader);
    let (sender, (_link, mut control)) = pair();
    let context = fixture.context();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (link, control) = sender;
            send::run(&link, control, &context, &Credential::Key, &source, &fixture.send, &())
        });
        for message in [&[Message::Accepted { version: 1, proof: None }], messages].concat() {
            say(&mut control, &message).unwrap();
        }
        while let Ok(Some(message)) = read_message(&mut control.reader) {
            if matches!(message, Message::Stop { .. }) {
                break;
            }
            if matches!(message, Message::Finish) {
                say(&mut control, &Message::Bye).unwrap();
            }
        }
        drop(control);
        sending.join().unwrap()
    })
}

#[test]
fn a_receiver_grants_more_each_time_and_plans_once() {
    let plan = || Message::Plan { index: 0, held: Vec::new() };
    let failed = || Message::Failed { index: 0, error: FileError::new(FileErrorKind::NoSpace, "") };
    let credit = |pieces| Message::Credit { index: 0, pieces };
    let late = against_sender(&[plan(), credit(300), failed(), credit(400)]);
    assert_eq!(late.unwrap().failed, 1, "a late credit is no fault");
    for messages in [
        vec![credit(300)],
        vec![plan(), credit(300), credit(300)],
        vec![plan(), credit(1)],
        vec![plan(), plan()],
        vec![Message::Plan { index: 0, held: vec![1] }],
        vec![plan(), Message::Done { index: 0, hash: Some(FileHash::from_bytes([0; 32])) }],
    ] {
        let error = against_sender(&messages).unwrap_err();
        assert!(matches!(error, TransferError::Protocol(_)), "{messages:?}: {error:?}");
    }
}
