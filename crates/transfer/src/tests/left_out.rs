//! Files that are newer at the receiver, and dry runs.

use std::time::{Duration, SystemTime};

use super::*;

/// Returns a time this many seconds after a fixed one.
fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn write_at(path: &Path, content: &str, modified: SystemTime) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

/// Returns the entries that an end reports as left out: name and reason.
fn left_out(events: &[serde_json::Value]) -> BTreeMap<String, String> {
    let events = events.iter().filter(|event| event["event"] == "left_out");
    events.map(|event| (text(&event["path"]), text(&event["reason"]))).collect()
}

/// Names with their reasons.
fn reasons(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(path, reason)| ((*path).to_owned(), (*reason).to_owned())).collect()
}

/// Creates a tree at the sender, and one at the receiver with a newer, an older, an equal and a
/// missing file.
fn mixed() -> Fixture {
    let fixture = Fixture::new();
    for name in ["newer", "older", "same", "missing", "deep/er/missing"] {
        write_at(&fixture.source("tree").join(name), "sent", at(10));
    }
    write_at(&fixture.target("tree/newer"), "kept", at(11));
    write_at(&fixture.target("tree/older"), "replaced", at(9));
    write_at(&fixture.target("tree/same"), "sent", at(10));
    fixture
}

#[test]
fn newer_files_are_kept_and_older_ones_replaced() {
    let mut fixture = mixed();
    fs::write(fixture.target("tree/newer.litz-part"), "of an earlier attempt").unwrap();
    (fixture.receive.overwrite, fixture.receive.update) = (true, true);
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    let (sent, received) = outcome.summaries();
    assert!(!fixture.target("tree/newer.litz-part").exists());
    assert_eq!((sent.newer, sent.files_done, sent.failed, sent.exit_code()), (1, 4, 0, 0), "{sent:?}");
    assert_eq!(sent, received);
    assert!(outcome.is_spent && !sent.dry_run);
    let expected = reasons(&[("tree/newer", "newer")]);
    assert_eq!((left_out(&outcome.sender_events), left_out(&outcome.receiver_events)), (expected.clone(), expected));
    let content = |name: &str| fs::read_to_string(fixture.target("tree").join(name)).unwrap();
    assert_eq!([content("newer"), content("older"), content("deep/er/missing")], ["kept", "sent", "sent"]);
    // A second more makes the difference, and so does a nanosecond.
    write_at(&fixture.target("tree/older"), "kept", at(10) + Duration::from_nanos(1));
    fixture.transfer(&[fixture.source("tree")]).summaries();
    assert_eq!(content("older"), "kept");
    // An entry other than a file is replaced whatever its time, as in rsync.
    fs::remove_file(fixture.target("tree/newer")).unwrap();
    std::os::unix::fs::symlink("same", fixture.target("tree/newer")).unwrap();
    fixture.transfer(&[fixture.source("tree")]).summaries();
    assert!(fs::symlink_metadata(fixture.target("tree/newer")).unwrap().is_file());
    assert_eq!(content("newer"), "sent");
}

/// Some file systems store times in coarse steps.
#[test]
fn files_whose_times_were_rounded_are_compared_and_not_sent_again() {
    let nanosecond = Duration::from_nanos(1);
    // Stored time, whether it can be a rounding, and whether it is near.
    for (kept, is_rounded, is_near) in [
        (at(10), true, true),
        (at(11), true, true),
        (at(11) + Duration::from_millis(980), true, true),
        (at(11) + Duration::from_nanos(987_654_300), true, true),
        (at(11) + Duration::from_millis(987) + nanosecond, false, true),
        (at(13), false, true),
        (at(9) + Duration::from_nanos(987_654_320), false, false),
        (at(14), false, false),
    ] {
        let mut fixture = Fixture::new();
        for name in ["tree/small", "tree/large"] {
            fixture.write(name, 1, if name == "tree/small" { 10 } else { 300_000 });
            let file = fs::File::options().write(true).open(fixture.source(name)).unwrap();
            file.set_modified(at(11) + Duration::from_nanos(987_654_321)).unwrap();
        }
        fixture.receive.overwrite = true;
        fixture.transfer(&[fixture.source("tree")]).complete();
        let targets = ["tree/small", "tree/large"].map(|name| fixture.target(name));
        let set_times = || {
            for target in &targets {
                fs::File::options().write(true).open(target).unwrap().set_modified(kept).unwrap();
            }
        };
        set_times();
        let dry = ReceiveOptions { dry_run: true, ..fixture.receive.clone() };
        let ready = std::mem::replace(&mut fixture.receive, dry);
        let unchanged = fixture.transfer(&[fixture.source("tree")]).summaries().0.unchanged;
        assert_eq!(unchanged, if is_rounded { 2 } else { 0 }, "{kept:?}");
        fixture.receive = ready;
        let moved = fixture.transfer(&[fixture.source("tree")]).complete().0.bytes_moved;
        assert_eq!(moved, if is_near { 0 } else { 300_010 }, "{kept:?}");
        assert_eq!(snapshot(&fixture.target("tree")), snapshot(&fixture.source("tree")), "with the exact time again");
        // The content decides.
        fs::write(fixture.target("tree/small"), "other text").unwrap();
        fs::write(fixture.target("tree/large"), vec![7; 300_000]).unwrap();
        set_times();
        fixture.transfer(&[fixture.source("tree")]).complete();
        assert_eq!(snapshot(&fixture.target("tree")), snapshot(&fixture.source("tree")), "{kept:?}");
    }
}

#[test]
fn further_names_of_a_file_that_is_newer_lead_to_it() {
    let mut fixture = Fixture::new();
    write_at(&fixture.source("tree/a"), "sent", at(10));
    for name in ["b", "c"] {
        fs::hard_link(fixture.source("tree/a"), fixture.source("tree").join(name)).unwrap();
    }
    write_at(&fixture.target("tree/a"), "kept", at(11));
    write_at(&fixture.target("tree/c"), "kept, too", at(12));
    (fixture.receive.overwrite, fixture.receive.update) = (true, true);
    let keep = Keep::default().with_hard_links(true);
    let source = Source::scan_keeping(&[fixture.source("tree")], keep, &CancelToken::new()).unwrap();
    let outcome = fixture.transfer_source(&source, |_| {});
    assert_eq!(outcome.summaries().0.failed, 0, "{:?}", outcome.sender_events);
    let content = |name: &str| fs::read_to_string(fixture.target("tree").join(name)).unwrap();
    assert_eq!([content("a"), content("b"), content("c")], ["kept", "kept", "kept, too"]);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_a_transfer_then_does() {
    let mut fixture = mixed();
    // Leftovers of an earlier attempt, and a directory that denies access: neither is touched.
    fs::write(fixture.target(".litz-directories.litz-journal"), "litzdir1").unwrap();
    fs::write(fixture.target("tree/older.litz-part"), "part").unwrap();
    (fixture.receive.overwrite, fixture.receive.update, fixture.receive.dry_run) = (true, true, true);
    let before = snapshot(&fixture.top.path().join("in"));
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    assert_eq!(snapshot(&fixture.top.path().join("in")), before);
    let (sent, received) = outcome.summaries();
    assert_eq!(sent, received);
    assert_eq!((sent.would_receive, sent.would_receive_bytes, sent.unchanged, sent.newer), (3, 12, 1, 1));
    assert_eq!((sent.files_done, sent.bytes_moved, sent.failed, sent.exit_code()), (0, 0, 0, 0));
    assert!(sent.dry_run && !outcome.is_spent, "the ticket is for the transfer itself");
    let expected = reasons(&[
        ("tree", "same"),
        ("tree/deep", "would_receive"),
        ("tree/deep/er", "would_receive"),
        ("tree/deep/er/missing", "would_receive"),
        ("tree/missing", "would_receive"),
        ("tree/newer", "newer"),
        ("tree/older", "would_receive"),
        ("tree/same", "same"),
    ]);
    assert_eq!((left_out(&outcome.sender_events), left_out(&outcome.receiver_events)), (expected.clone(), expected));
    fixture.receive.dry_run = false;
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    let done = outcome.sender_events.iter().filter(|event| event["event"] == "file_done" && event["hash"] != "");
    assert_eq!(
        (done.count(), outcome.summaries().0.bytes_moved),
        (4, 12),
        "three that were missing, one that was there"
    );
}

#[test]
fn a_dry_run_takes_a_missing_directory_for_an_empty_one() {
    let mut fixture = mixed();
    fs::remove_dir_all(fixture.top.path().join("in")).unwrap();
    fixture.receive.dry_run = true;
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    assert_eq!(outcome.summaries().0.would_receive, 5);
    assert!(!fixture.top.path().join("in").exists());
    fixture.receive.dry_run = false;
    assert!(matches!(fixture.transfer(&[fixture.source("tree")]).received, Err(TransferError::Directory(..))));
}

#[test]
fn a_dry_run_names_what_would_fail() {
    let mut fixture = Fixture::new();
    for name in ["file", "other", "below/file", "linked/file", "link"] {
        write_at(&fixture.source("tree").join(name), "sent", at(10));
    }
    fs::create_dir_all(fixture.target("tree/file")).unwrap();
    write_at(&fixture.target("tree/other"), "another", at(10));
    write_at(&fixture.target("tree/below"), "a file", at(10));
    std::os::unix::fs::symlink(fixture.top.path(), fixture.target("tree/linked")).unwrap();
    fixture.receive.dry_run = true;
    let dry = fixture.transfer(&[fixture.source("tree")]);
    assert_eq!(dry.summaries().0.exit_code(), 1);
    let dry = dry.failures();
    fixture.receive.dry_run = false;
    assert_eq!(dry, fixture.transfer(&[fixture.source("tree")]).failures(), "the same as without");
    assert_eq!(dry.len(), 6, "{dry:?}");
}

#[test]
fn a_stream_is_not_read_for_a_dry_run() {
    let mut fixture = Fixture::new();
    fixture.receive.dry_run = true;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"unread").unwrap();
    drop(writer);
    let input = StreamInput::new(std::os::fd::OwnedFd::from(reader.try_clone().unwrap()).into());
    let source = Source::stream(Path::new("stdin"), 0o666, 0, input).unwrap();
    let outcome = fixture.transfer_source(&source, |_| {});
    assert_eq!(outcome.summaries().0.would_receive, 1);
    drop(source);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "unread");
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn a_sender_that_is_too_old_is_refused_before_anything_is_written() {
    for option in ["update", "dry_run", "delete"] {
        let mut fixture = mixed();
        fixture.revision = Revision::Links;
        let receive = &mut fixture.receive;
        receive.update = option == "update";
        receive.dry_run = option == "dry_run";
        receive.delete = (option == "delete").then(Filter::default);
        let before = snapshot(&fixture.top.path().join("in"));
        let outcome = fixture.transfer(&[fixture.source("tree")]);
        assert!(matches!(outcome.received, Err(TransferError::LeftOutUnsupported)), "{:?}", outcome.received);
        let told = outcome.sent.unwrap_err();
        assert!(matches!(&told, TransferError::Peer(why) if why.contains("the sender is too old")), "{told:?}");
        assert_eq!(snapshot(&fixture.top.path().join("in")), before);
        // Without the option such a sender is served as usual.
        fixture.receive = ReceiveOptions { overwrite: true, ..ReceiveOptions::default() };
        fixture.transfer(&[fixture.source("tree")]).complete();
    }
}
