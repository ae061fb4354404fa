//! Files that cannot arrive while the rest does, and peers that break the rules.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Asserts that two files around a failing one arrive.
fn rest_arrives(fixture: &Fixture, outcome: &Outcome, kind: &str) {
    assert_eq!(outcome.failures(), BTreeMap::from([("tree/b".into(), kind.into())]));
    let (sent, received) = outcome.summaries();
    assert_eq!((sent.files_done, sent.failed, sent.exit_code()), (2, 1, 1));
    assert_eq!((received.files_done, received.failed, received.exit_code()), (2, 1, 1));
    for name in ["tree/a", "tree/c"] {
        assert_eq!(fs::read(fixture.source(name)).unwrap(), fs::read(fixture.target(name)).unwrap());
    }
}

fn three_files(fixture: &Fixture) -> [PathBuf; 1] {
    for (index, name) in ["tree/a", "tree/b", "tree/c"].into_iter().enumerate() {
        fixture.write(name, index as u64, 20_000);
    }
    [fixture.source("tree")]
}

#[test]
fn an_existing_file_is_kept_unless_overwriting_is_allowed() {
    let mut fixture = Fixture::new();
    let tree = three_files(&fixture);
    fs::create_dir(fixture.target("tree")).unwrap();
    fs::write(fixture.target("tree/b"), "precious").unwrap();
    rest_arrives(&fixture, &fixture.transfer(&tree), "exists");
    assert_eq!(fs::read(fixture.target("tree/b")).unwrap(), b"precious");
    fixture.receive.overwrite = true;
    fixture.transfer(&tree).complete();
    assert_eq!(fs::read(fixture.target("tree/b")).unwrap(), fs::read(fixture.source("tree/b")).unwrap());
}

#[test]
fn a_file_of_the_same_size_and_time_but_other_content_is_detected() {
    let mut fixture = Fixture::new();
    let tree = three_files(&fixture);
    fs::create_dir(fixture.target("tree")).unwrap();
    fs::write(fixture.target("tree/b"), random_bytes(99, 20_000)).unwrap();
    let modified = fs::metadata(fixture.source("tree/b")).unwrap().modified().unwrap();
    fs::File::open(fixture.target("tree/b")).unwrap().set_modified(modified).unwrap();
    rest_arrives(&fixture, &fixture.transfer(&tree), "exists");
    assert_eq!(fs::read(fixture.target("tree/b")).unwrap(), random_bytes(99, 20_000));
    fixture.receive.overwrite = true;
    let outcome = fixture.transfer(&tree);
    assert_eq!(outcome.complete().0.bytes_moved, 20_000);
    assert_eq!(fs::read(fixture.target("tree/b")).unwrap(), fs::read(fixture.source("tree/b")).unwrap());
}

#[test]
fn directories_and_links_at_the_target_fail_the_file() {
    let fixture = Fixture::new();
    let tree = three_files(&fixture);
    fs::create_dir_all(fixture.target("tree/b")).unwrap();
    rest_arrives(&fixture, &fixture.transfer(&tree), "blocked");

    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    let tree = three_files(&fixture);
    symlink(outside.path(), fixture.target("tree")).unwrap();
    let failures = fixture.transfer(&tree).failures();
    assert_eq!(failures.len(), 4, "{failures:?}");
    assert!(failures.values().all(|kind| kind == "symbolic_link"), "{failures:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "nothing got out");
}

#[test]
fn sources_that_vanish_shrink_or_grow_are_reported() {
    for (kind, change) in [
        ("vanished", (|path| fs::remove_file(path).unwrap()) as fn(&Path)),
        ("source_changed", |path| fs::write(path, "short").unwrap()),
        ("source_changed", |path| fs::write(path, random_bytes(7, 50_000)).unwrap()),
        ("source_changed", |path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/hostname", path).unwrap();
        }),
    ] {
        let fixture = Fixture::new();
        let source = Source::scan(&three_files(&fixture), &CancelToken::new()).unwrap();
        change(&fixture.source("tree/b"));
        let outcome = fixture.transfer_source(&source, |_| {});
        rest_arrives(&fixture, &outcome, kind);
        assert_eq!(names(&fixture.target("tree")), ["a", "c"], "nothing of it is left");
    }
}

#[test]
fn a_source_that_shrinks_or_grows_while_it_is_sent_does_not_affect_other_files() {
    for len_after in [1_500_000, 9_000_000] {
        let fixture = Fixture::new();
        for (name, len) in [("tree/a", 20_000), ("tree/b", 8_000_000), ("tree/c", 20_000)] {
            fixture.write(name, 1, len);
        }
        let source = Source::scan(&[fixture.source("tree")], &CancelToken::new()).unwrap();
        let recorder = Recorder::default();
        let resize = |event: TransferEvent<'_>| {
            if matches!(event, TransferEvent::Progress { bytes_done, .. } if bytes_done > 1_000_000) {
                let file = fs::OpenOptions::new().write(true).open(fixture.source("tree/b")).unwrap();
                file.set_len(len_after).unwrap();
            }
            recorder.event(event);
        };
        let (sent, received) = with_sender_events(&fixture, &source, &resize);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.files_done, sent.failed, received.failed), (2, 1, 1));
        let events = recorder.0.into_inner().unwrap();
        let failed: Vec<_> = events.iter().filter(|event| event["event"] == "file_failed").collect();
        assert_eq!((failed.len(), text(&failed[0]["error"]["kind"])), (1, "source_changed".into()), "{len_after}");
        assert_eq!(names(&fixture.target("tree")), ["a", "c"]);
    }
}

/// Runs a transfer in which `events` may interfere.
fn with_sender_events(
    fixture: &Fixture,
    source: &Source,
    events: &dyn Events,
) -> (Result<Summary, TransferError>, Result<Summary, TransferError>) {
    let (sender, receiver) = pair();
    let context = fixture.context();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (link, control) = receiver;
            let (directory, mut anybody) = (fixture.top.path().join("in"), AcceptAll { completed: false });
            let silent = |_: TransferEvent<'_>| {};
            receive::run(&link, control, &context, &directory, &fixture.receive, &mut anybody, &silent)
        });
        let (link, control) = sender;
        let sent = send::run(&link, control, &context, &Credential::Key, source, &fixture.send, events);
        (sent, receiving.join().unwrap())
    })
}

#[test]
fn damaged_bytes_never_reach_a_file_and_the_rest_of_it_is_kept() {
    let mut damaged = 0;
    for seed in 0..20 {
        let fixture = Fixture::new();
        let path = fixture.write("file", seed, 50_000);
        let flip = Rng::from_seed(seed).below(50_000);
        let outcome = fixture.transfer_with(std::slice::from_ref(&path), |link| {
            link.faults().flip_in.store(flip, Ordering::SeqCst);
        });
        assert!(!fixture.target("file").exists(), "seed {seed}: flipped byte {flip}");
        // Where the flip hits the framing instead of the content, the transfer ends.
        if outcome.sent.is_ok() {
            assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "damaged".into())]), "seed {seed}");
            damaged += 1;
        }
        fixture.transfer(std::slice::from_ref(&path)).complete();
        assert_eq!(fs::read(path).unwrap(), fs::read(fixture.target("file")).unwrap());
    }
    assert!(damaged > 10, "{damaged} of 20 hit the content");
}

#[test]
fn a_full_disk_is_reported_before_anything_is_sent_and_smaller_files_arrive() {
    let mut fixture = Fixture::new();
    let mount = fixture.target("small");
    fs::create_dir(&mount).unwrap();
    let status = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k,mode=755", "litz-test"])
        .arg(&mount)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprint_skip("mounting a small tmpfs needs privileges");
        return;
    }
    let _unmount = Unmount(mount.clone());
    fixture.write("small/a", 1, 20_000);
    fixture.write("small/b", 2, 2_000_000);
    fixture.write("small/c", 3, 20_000);
    fixture.receive.threads = 1;
    let outcome = fixture.transfer(&[fixture.source("small")]);
    assert_eq!(outcome.failures(), BTreeMap::from([("small/b".into(), "no_space".into())]));
    let (sent, _) = outcome.summaries();
    assert_eq!((sent.files_done, sent.bytes_moved), (2, 40_000), "none of the large file travelled");
    assert_eq!(names(&mount), ["a", "c"]);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[expect(clippy::print_stderr, reason = "a test that could not run says so")]
fn eprint_skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_reported() {
    let fixture = Fixture::new();
    let tree = three_files(&fixture);
    fs::create_dir(fixture.target("tree")).unwrap();
    fs::set_permissions(fixture.target("tree"), fs::Permissions::from_mode(0o555)).unwrap();
    let outcome = fixture.transfer(&tree);
    fs::set_permissions(fixture.target("tree"), fs::Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        eprint_skip("root may write anywhere");
        outcome.complete();
    } else {
        assert_eq!(outcome.failures().values().collect::<Vec<_>>(), ["permission"; 3]);
    }
}

#[test]
fn a_missing_target_directory_ends_both_sides_with_a_message() {
    let fixture = Fixture::new();
    let tree = three_files(&fixture);
    fs::remove_dir(fixture.top.path().join("in")).unwrap();
    let outcome = fixture.transfer(&tree);
    assert!(matches!(outcome.received, Err(TransferError::Directory(..))));
    let Err(TransferError::Peer(reason)) = outcome.sent else { panic!("{:?}", outcome.sent) };
    assert!(reason.contains("cannot receive into"), "{reason}");
}

#[test]
fn a_transfer_above_the_size_limit_is_refused_before_the_first_byte() {
    let mut fixture = Fixture::new();
    fixture.receive.bytes_max = Some(59_999);
    let outcome = fixture.transfer(&three_files(&fixture));
    assert!(
        matches!(&outcome.sent, Err(TransferError::Peer(reason)) if reason.contains("more than")),
        "{:?}",
        outcome.sent
    );
    assert_eq!(fs::read_dir(fixture.top.path().join("in")).unwrap().count(), 0);
}

/// Runs a receiver with a sender that, once accepted, sends the bytes that `script` writes to the
/// control stream.
fn against_receiver(script: impl FnOnce(&mut dyn Write, &MemoryLink)) -> TransferError {
    let fixture = Fixture::new();
    let error = fixture.fail_receiver(|link, mut control| {
        script(&mut control.writer, link);
        // A peer would do the same: read until the receiver is done.
        while let Ok(Some(_)) = read_message(&mut control.reader) {}
    });
    assert_eq!(fs::read_dir(fixture.top.path().join("in")).unwrap().count(), 0, "nothing is left: {error}");
    error
}

fn say(out: &mut dyn Write, message: Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    out.write_all(&bytes).unwrap();
}

/// Writes a list of one file.
fn say_list(out: &mut dyn Write) {
    let entry = Entry {
        path: RelativePath::from_components([b"file".as_slice()]).unwrap(),
        kind: EntryKind::File { size: 5000 },
        modified: manifest::Modified { seconds: 0, nanoseconds: 0 },
        mode: 0o600,
    };
    say(out, Message::Entries(vec![entry]));
    say(out, Message::EntriesEnd { count: 1, skipped: None });
}

fn send_data(link: &MemoryLink, bytes: &[u8]) {
    let mut stream = link.open_uni().unwrap();
    stream.write_all(bytes).unwrap();
    stream.finish().unwrap();
}

#[test]
fn a_sender_that_violates_the_protocol_is_disconnected() {
    let protocol = |error: TransferError| match error {
        TransferError::Protocol(what) => what,
        other => panic!("{other:?}"),
    };
    let hash = FileHash::from_bytes([0; 32]);
    let cases: Vec<(&str, TransferError)> = vec![
        ("a message of invalid length", against_receiver(|out, _| out.write_all(&[0xff; 4]).unwrap())),
        ("an unknown type of message", against_receiver(|out, _| out.write_all(&[0, 0, 0, 1, 0x33]).unwrap())),
        (
            "the list of files is faulty",
            against_receiver(|out, _| say(out, Message::EntriesEnd { count: 1, skipped: None })),
        ),
        (
            "a forbidden name",
            against_receiver(|out, _| {
                let mut frame = vec![0x02, 1];
                frame.extend_from_slice(&[0; 14]);
                frame.extend_from_slice(&[1, 2, b'.', b'.']);
                out.write_all(&(frame.len() as u32).to_be_bytes()).unwrap();
                out.write_all(&frame).unwrap();
            }),
        ),
        (
            "data or a result for a file that has no plan",
            against_receiver(|out, _| {
                say_list(out);
                say(out, Message::FileDone { index: 7, hash });
            }),
        ),
        (
            "it finished before everything had a result",
            against_receiver(|out, link| {
                say_list(out);
                send_data(link, &[0]);
                say(out, Message::Finish);
            }),
        ),
        (
            "a data stream is malformed",
            against_receiver(|out, link| {
                say_list(out);
                send_data(link, &[9]);
            }),
        ),
        (
            "a data stream is malformed",
            against_receiver(|out, link| {
                say_list(out);
                std::thread::yield_now();
                send_data(link, &[&[1][..], &[0; 8], &[0x7f, 0, 0, 0]].concat());
            }),
        ),
    ];
    for (expected, error) in cases {
        // Data may come before the plan is made, which is equally forbidden.
        let what = protocol(error);
        assert!(what == expected || what.contains("no plan"), "{what} in place of {expected}");
    }
}
