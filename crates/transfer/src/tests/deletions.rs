//! Deletions of entries that the sender does not have, and entries that are never deleted.

use std::os::unix::fs::symlink;

use crate::left_out::NothingDeletedReason;

use super::*;

/// Returns a sender's `tree` with `a` and `sub/b`, and a receiver's with those and more.
fn grown() -> Fixture {
    let mut fixture = Fixture::new();
    for name in ["tree/a", "tree/sub/b"] {
        fixture.write(name, 1, 10);
        put(&fixture, name);
    }
    for name in ["tree/old", "tree/sub/old.o", "tree/gone/x", "tree/gone/deep/y", "neighbour/z", "file"] {
        put(&fixture, name);
    }
    fs::create_dir(fixture.target("outside")).unwrap();
    put(&fixture, "outside/kept");
    symlink(fixture.target("outside"), fixture.target("tree/link")).unwrap();
    symlink("nowhere", fixture.target("tree/gone/dangling")).unwrap();
    fixture.receive.overwrite = true;
    fixture.receive.delete = Some(Filter::default());
    fixture
}

fn put(fixture: &Fixture, name: &str) {
    fs::create_dir_all(fixture.target(name).parent().unwrap()).unwrap();
    fs::write(fixture.target(name), name).unwrap();
}

/// Returns everything below the receiver's directory.
fn there(fixture: &Fixture) -> Vec<String> {
    let found = snapshot(&fixture.top.path().join("in"));
    found.into_keys().map(|path| path.to_str().unwrap().to_owned()).collect()
}

fn deleted(events: &[serde_json::Value]) -> Vec<String> {
    let events = events.iter().filter(|event| event["event"] == "deleted");
    let mut deleted: Vec<_> = events.map(|event| text(&event["path"])).collect();
    deleted.sort();
    deleted
}

/// Unlisted entries in listed directories.
const UNLISTED: [&str; 8] = [
    "tree/gone",
    "tree/gone/dangling",
    "tree/gone/deep",
    "tree/gone/deep/y",
    "tree/gone/x",
    "tree/link",
    "tree/old",
    "tree/sub/old.o",
];

#[test]
fn what_the_sender_does_not_have_goes_and_nothing_else() {
    let mut fixture = grown();
    fixture.receive.dry_run = true;
    let before = there(&fixture);
    let dry = fixture.transfer(&[fixture.source("tree")]);
    assert_eq!(there(&fixture), before);
    assert_eq!((dry.summaries().0.deleted, deleted(&dry.sender_events)), (8, UNLISTED.map(str::to_owned).to_vec()));
    fixture.receive.dry_run = false;
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    let (sent, received) = outcome.complete();
    assert_eq!((sent.deleted, received.deleted, sent.exit_code()), (8, 8, 0));
    for events in [&outcome.sender_events, &outcome.receiver_events] {
        assert_eq!(deleted(events), UNLISTED);
    }
    let expected: Vec<_> = before.into_iter().filter(|name| !UNLISTED.contains(&name.as_str())).collect();
    assert_eq!(there(&fixture), expected, "a link is deleted, and not what it leads to");
    // Without the option nothing is deleted.
    put(&fixture, "tree/old");
    fixture.receive.delete = None;
    assert_eq!(fixture.transfer(&[fixture.source("tree")]).complete().0.deleted, 0);
    assert!(fixture.target("tree/old").exists());
}

#[test]
fn excluded_names_and_unfinished_files_are_kept_with_their_directories() {
    let mut fixture = grown();
    put(&fixture, "tree/gone/deep/kept.o");
    put(&fixture, "tree/other/file.litz-part");
    let mut filter = Filter::default();
    filter.exclude("*.o").unwrap();
    fixture.receive.delete = Some(filter);
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    assert_eq!(outcome.summaries().0.exit_code(), 0, "what is kept on purpose is no failure");
    let names = there(&fixture);
    for (name, is_there) in [
        ("tree/sub/old.o", true),
        ("tree/gone/deep/kept.o", true),
        ("tree/gone/deep/y", false),
        ("tree/gone/x", false),
        ("tree/other/file.litz-part", true),
    ] {
        assert_eq!(names.iter().any(|found| found == name), is_there, "{name}: {names:?}");
    }
}

#[test]
fn nothing_is_deleted_after_a_failure_or_if_the_sender_has_skipped_something() {
    for (name, reason) in [("a", NothingDeletedReason::Failed), ("link", NothingDeletedReason::Skipped)] {
        for dry_run in [false, true] {
            let mut fixture = grown();
            fixture.receive.dry_run = dry_run;
            if reason == NothingDeletedReason::Failed {
                fs::remove_file(fixture.target("tree").join(name)).unwrap();
                fs::create_dir(fixture.target("tree").join(name)).unwrap();
            } else {
                symlink("a", fixture.source("tree").join(name)).unwrap();
            }
            let before = there(&fixture);
            let outcome = fixture.transfer(&[fixture.source("tree")]);
            let (sent, received) = outcome.summaries();
            assert_eq!((sent.deleted, received.deleted, sent.exit_code()), (0, 0, 1));
            assert_eq!(there(&fixture), before);
            let expected = serde_json::json!({ "event": "nothing_deleted", "reason": reason });
            for events in [&outcome.sender_events, &outcome.receiver_events] {
                assert!(events.contains(&expected), "{events:?}");
            }
        }
    }
}

#[test]
fn a_file_that_fails_while_it_is_sent_prevents_deletions() {
    let fixture = grown();
    let source = Source::scan(&[fixture.source("tree")], &CancelToken::new()).unwrap();
    // The list was made before this.
    fs::remove_file(fixture.source("tree/a")).unwrap();
    fixture.write("tree/sub/b", 2, 20);
    fs::remove_file(fixture.target("tree/a")).unwrap();
    let outcome = fixture.transfer_source(&source, |_| {});
    assert!(outcome.summaries().0.failed > 0);
    assert!(deleted(&outcome.receiver_events).is_empty() && fixture.target("tree/old").exists());
}

/// Returns a frame of entries with this one directory, whose components need not be allowed.
fn raw_directory(components: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![0x02, 1];
    frame.extend_from_slice(&[0x01, 0xed]);
    frame.extend_from_slice(&[0; 8 + 4]);
    frame.push(components.len() as u8);
    for component in components {
        frame.push(component.len() as u8);
        frame.extend_from_slice(component);
    }
    let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&frame);
    bytes
}

/// Sends the list in `frames`, reports that everything is done, and leaves.
fn finish_with(link: &MemoryLink, mut control: Control, frames: &[Vec<u8>], count: u32) -> Control {
    for frame in frames {
        let _refused = control.writer.write_all(frame);
    }
    let end = Message::EntriesEnd { count, skipped: Some(SkippedCounts::default()) };
    if say(&mut control, &end).is_ok() && say(&mut control, &Message::Finish).is_ok() {
        let _ended = Link::open_uni(link).and_then(record::write_last);
    }
    while let Ok(Some(_)) = read_message(&mut control.reader) {}
    control
}

#[test]
fn names_that_lead_out_end_the_transfer_before_anything_is_deleted() {
    let hostile: &[&[&[u8]]] =
        &[&[b".."], &[b"tree", b".."], &[b"."], &[b"/"], &[b"/etc"], &[b""], &[], &[b"tree", b"..", b"outside"]];
    for components in hostile {
        let fixture = grown();
        let before = there(&fixture);
        let frames = [raw_directory(&[b"tree"]), raw_directory(components)];
        let error = fixture.fail_receiver(|link, control| finish_with(link, control, &frames, 2));
        assert!(matches!(error, TransferError::Protocol("a forbidden name")), "{components:?}: {error:?}");
        assert_eq!(there(&fixture), before, "{components:?}");
    }
}

#[test]
fn directories_that_were_not_asked_for_are_not_cleaned() {
    let mut fixture = grown();
    fixture.receive.roots = Some([RelativePath::from_components([b"tree".as_slice()]).unwrap()].into());
    let before = there(&fixture);
    let frames = [raw_directory(&[b"tree"]), raw_directory(&[b"neighbour"])];
    let error = fixture.fail_receiver(|link, control| finish_with(link, control, &frames, 2));
    assert!(matches!(error, TransferError::Unrequested(_)), "{error:?}");
    assert_eq!(there(&fixture), before);
}

/// Runs a receiver with a sender that sends `frames` and reports that everything is done.
fn receive_list(fixture: &Fixture, frames: &[Vec<u8>], events: &dyn Events) -> Result<Summary, TransferError> {
    let ((link, mut control), receiver) = pair();
    let context = fixture.context();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (link, control) = receiver;
            let (directory, mut anybody) = (fixture.top.path().join("in"), AcceptAll { completed: false });
            receive::run(&link, control, &context, &directory, &fixture.receive, &mut anybody, events)
        });
        say(&mut control, &Message::Hello { version: 1, base_log2: 10, proof: None, run: None }).unwrap();
        assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Accepted { .. }))));
        let count = frames.len() as u32;
        for frame in frames {
            control.writer.write_all(frame).unwrap();
        }
        say(&mut control, &Message::EntriesEnd { count, skipped: Some(SkippedCounts::default()) }).unwrap();
        for _ in 0..count {
            let result = read_message(&mut control.reader);
            assert!(matches!(result, Ok(Some(Message::Done { .. } | Message::Failed { .. }))), "{result:?}");
        }
        say(&mut control, &Message::Finish).unwrap();
        Link::open_uni(&link).and_then(record::write_last).unwrap();
        while !matches!(read_message(&mut control.reader), Ok(None | Some(Message::Bye)) | Err(_)) {}
        drop(control);
        receiving.join().unwrap()
    })
}

#[test]
fn a_hostile_list_deletes_at_most_what_lies_in_the_directory_that_it_names() {
    // An empty list, as if the sender had nothing.
    let fixture = grown();
    let before = there(&fixture);
    assert_eq!(receive_list(&fixture, &[], &()).unwrap().deleted, 0);
    assert_eq!(there(&fixture), before);
    // A link in the place of the directory.
    let summary = receive_list(&fixture, &[raw_directory(&[b"tree"]), raw_directory(&[b"tree", b"link"])], &());
    assert_eq!(summary.map(|summary| (summary.failed, summary.deleted)).unwrap(), (1, 0));
    assert_eq!(there(&fixture), before);
    // An empty directory.
    receive_list(&fixture, &[raw_directory(&[b"tree"])], &()).unwrap();
    let expected: Vec<_> = before.into_iter().filter(|name| !name.starts_with("tree/")).collect();
    assert_eq!(there(&fixture), expected);
}

#[test]
fn a_sender_whose_scan_fails_deletes_nothing() {
    let fixture = grown();
    let before = there(&fixture);
    let reason = "cannot read the directory".to_owned();
    let stop = Message::Stop { code: message::StopCode::Failed, reason };
    let error = fixture.fail_receiver(|_, mut control| {
        control.writer.write_all(&raw_directory(&[b"tree"])).unwrap();
        say(&mut control, &stop).unwrap();
        control
    });
    assert!(matches!(error, TransferError::Peer(_)), "{error:?}");
    assert_eq!(there(&fixture), before);
}

/// Calls a function when the deletion of this name is reported.
struct OnDeleted<F>(&'static str, F);

impl<F: Fn() + Sync> Events for OnDeleted<F> {
    fn event(&self, event: TransferEvent<'_>) {
        if matches!(event, TransferEvent::Deleted { path, .. } if path.to_string() == self.0) {
            self.1();
        }
    }
}

#[test]
fn a_link_that_takes_the_place_of_a_directory_meanwhile_is_not_followed() {
    // Before the directory is opened, and while it is walked.
    for (when, replaced, failed) in [("tree/a", "tree/gone", 0), ("tree/gone/dangling", "tree/gone", 1)] {
        let fixture = grown();
        put(&fixture, "outside/x");
        let target = fixture.target(replaced);
        let swap = OnDeleted(when, || {
            fs::rename(&target, fixture.target("moved")).unwrap();
            symlink(fixture.target("outside"), &target).unwrap();
        });
        let summary = receive_list(&fixture, &[raw_directory(&[b"tree"])], &swap).unwrap();
        assert_eq!(summary.not_deleted, failed, "{when}");
        assert_eq!(names(&fixture.target("outside")), ["kept", "x"], "{when}");
        assert!(fixture.target("moved").is_dir(), "it was replaced");
    }
}

#[test]
fn nothing_is_deleted_where_what_was_stored_has_other_names() {
    // A file system that ignores case behaves this way: a listed entry exists, but not under the
    // listed name.
    let fixture = grown();
    let inner = fixture.target("tree/sub/Inner");
    let rename = OnDeleted("tree/old", || fs::rename(&inner, fixture.target("tree/sub/inner")).unwrap());
    let list: [&[&[u8]]; 3] = [&[b"tree"], &[b"tree", b"sub"], &[b"tree", b"sub", b"Inner"]];
    let summary = receive_list(&fixture, &list.map(raw_directory), &rename).unwrap();
    assert_eq!((summary.not_deleted, summary.exit_code()), (1, 1));
    assert_eq!(names(&fixture.target("tree/sub")), ["b", "inner", "old.o"]);
    assert!(!fixture.target("tree/old").exists() && !fixture.target("tree/gone").exists());
}

#[test]
fn an_interrupt_ends_the_deletions() {
    let fixture = grown();
    let interrupt = OnDeleted("tree/a", || fixture.receive.cancel.cancel());
    let error = receive_list(&fixture, &[raw_directory(&[b"tree"])], &interrupt).unwrap_err();
    assert!(matches!(error, TransferError::Cancelled), "{error:?}");
    assert!(!fixture.target("tree/a").exists() && fixture.target("tree/gone/x").exists());
}
