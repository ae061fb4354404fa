//! Optional links, holes and modes.

use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::manifest::{Entry, EntryKind, Modified};

const ALL: Keep = Keep { modes: true, links: true, hard_links: true, holes: true };

fn transfer(fixture: &Fixture, keep: Keep, path: PathBuf) -> Outcome {
    let source = Source::scan_keeping(&[path], keep, &CancelToken::new()).unwrap();
    fixture.transfer_source(&source, |_| {})
}

/// Creates a tree with both kinds of links, and a file after them in the order of names.
fn linked_tree(fixture: &Fixture) -> PathBuf {
    fixture.write("tree/z/file", 1, 5000);
    fixture.write("tree/z/small", 2, 10);
    for (link, target) in [("a", "z/file"), ("y", "missing"), ("z/up", "../z/./small"), ("dir", "z")] {
        symlink(target, fixture.source(&format!("tree/{link}"))).unwrap();
    }
    fs::hard_link(fixture.source("tree/z/file"), fixture.source("tree/z/other")).unwrap();
    fs::hard_link(fixture.source("tree/z/file"), fixture.source("tree/zz")).unwrap();
    fixture.source("tree")
}

fn target_of(path: PathBuf) -> String {
    fs::read_link(path).unwrap().into_os_string().into_string().unwrap()
}

#[test]
fn links_arrive_as_links() {
    let fixture = Fixture::new();
    let tree = linked_tree(&fixture);
    let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, fixture.source("tree/y"), &times, flags).unwrap();
    for attempt in 0..2 {
        let outcome = transfer(&fixture, ALL, tree.clone());
        let (sent, received) = outcome.complete();
        assert_eq!((sent.files, sent.skipped, received.skipped), (2, 0, 0), "attempt {attempt}");
        for (link, target) in [("a", "z/file"), ("y", "missing"), ("z/up", "../z/./small"), ("dir", "z")] {
            assert_eq!(target_of(fixture.target(&format!("tree/{link}"))), target);
        }
        let modified = fs::symlink_metadata(fixture.target("tree/y")).unwrap().modified().unwrap();
        assert_eq!(modified, UNIX_EPOCH + Duration::new(1_000_000_000, 5));
        let inode = |name: &str| fs::metadata(fixture.target(name)).unwrap().ino();
        assert_eq!(inode("tree/zz"), inode("tree/z/file"));
        assert_eq!(inode("tree/z/other"), inode("tree/z/file"));
        assert_eq!(fs::metadata(fixture.target("tree/zz")).unwrap().nlink(), 3);
    }
}

#[test]
fn without_the_choice_links_are_skipped_and_hard_links_are_files() {
    let fixture = Fixture::new();
    let tree = linked_tree(&fixture);
    rustix::fs::mknodat(rustix::fs::CWD, fixture.source("tree/pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let outcome = transfer(&fixture, Keep::default(), tree);
    let (sent, received) = outcome.complete();
    assert_eq!((sent.files, sent.skipped, received.skipped), (4, 5, 5));
    assert_eq!(received.exit_code(), 1, "not everything is there");
    let told: Vec<_> = outcome.receiver_events.iter().filter(|event| event["event"] == "not_sent").collect();
    let skipped = serde_json::json!({ "links": 4, "special": 1, "unreadable": 0 });
    assert_eq!(told, [&serde_json::json!({ "event": "not_sent", "skipped": skipped })]);
    assert_eq!(fs::metadata(fixture.target("tree/zz")).unwrap().nlink(), 1);
}

#[test]
fn links_that_lead_out_are_skipped() {
    let fixture = Fixture::new();
    fixture.write("tree/sub/file", 1, 10);
    for (link, target) in [("tree/a", "/etc/passwd"), ("tree/b", "../x"), ("tree/sub/c", "../../x")] {
        symlink(target, fixture.source(link)).unwrap();
    }
    let outcome = transfer(&fixture, ALL, fixture.source("tree"));
    let (sent, received) = outcome.complete();
    assert_eq!((sent.skipped, received.skipped), (3, 3));
    assert_eq!(names(&fixture.target("tree")), ["sub"]);
    assert_eq!(names(&fixture.target("tree/sub")), ["file"]);
}

#[test]
fn links_replace_what_is_there_only_if_that_is_allowed() {
    let mut fixture = Fixture::new();
    let tree = linked_tree(&fixture);
    fs::create_dir_all(fixture.target("tree/z/up")).unwrap();
    fs::write(fixture.target("tree/a"), "a file").unwrap();
    fs::write(fixture.target("tree/zz"), "another").unwrap();
    symlink("elsewhere", fixture.target("tree/y")).unwrap();
    // A killed process left this behind.
    symlink("z/file", fixture.target("tree/a.litz-part")).unwrap();
    let expected = |names: &[(&str, &str)]| -> BTreeMap<String, String> {
        names.iter().map(|(name, kind)| (format!("tree/{name}"), (*kind).to_owned())).collect()
    };
    let outcome = transfer(&fixture, ALL, tree.clone());
    let refused = [("a", "exists"), ("y", "exists"), ("z/up", "exists"), ("zz", "exists")];
    assert_eq!(outcome.failures(), expected(&refused));
    assert_eq!(fs::read(fixture.target("tree/a")).unwrap(), b"a file");
    assert_eq!(target_of(fixture.target("tree/y")), "elsewhere");

    fixture.receive.overwrite = true;
    let outcome = transfer(&fixture, ALL, tree);
    assert_eq!(outcome.failures(), expected(&[("z/up", "blocked")]));
    assert_eq!(target_of(fixture.target("tree/a")), "z/file");
    assert_eq!(target_of(fixture.target("tree/y")), "missing");
    assert_eq!(fs::metadata(fixture.target("tree/zz")).unwrap().nlink(), 3);
    assert_eq!(names(&fixture.target("tree")), ["a", "dir", "y", "z", "zz"], "nothing is left over");
}

#[test]
fn the_further_names_of_a_file_that_failed_fail() {
    let fixture = Fixture::new();
    let tree = linked_tree(&fixture);
    fs::create_dir_all(fixture.target("tree/z/file")).unwrap();
    let failures = transfer(&fixture, ALL, tree).failures();
    let expected = [("tree/z/file", "blocked"), ("tree/z/other", "target"), ("tree/zz", "target")];
    assert_eq!(failures, expected.map(|(path, kind)| (path.to_owned(), kind.to_owned())).into());
}

#[test]
fn modes_are_left_out_by_choice() {
    let fixture = Fixture::new();
    fixture.write("tree/file", 1, 10);
    fs::set_permissions(fixture.source("tree/file"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(fixture.source("tree"), fs::Permissions::from_mode(0o700)).unwrap();
    transfer(&fixture, Keep::default().with_modes(false), fixture.source("tree")).complete();
    let mode = |name: &str| fs::metadata(fixture.target(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tree/file"), mode("tree")), (0o644, 0o755));
}

/// Sets the modes of some names below `top`.
fn set_modes(top: PathBuf, modes: &[(&str, u32)]) {
    for (name, mode) in modes {
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(*mode)).unwrap();
    }
}

#[test]
fn modes_and_times_of_what_is_there_change_only_if_it_may_be_overwritten() {
    let mut fixture = Fixture::new();
    for (seed, name) in ["tree/small", "tree/sub/large"].into_iter().enumerate() {
        fixture.write(name, seed as u64, if seed == 0 { 10 } else { 300_000 });
    }
    transfer(&fixture, Keep::default(), fixture.source("tree")).complete();
    let modes = [("small", 0o600), ("sub/large", 0o755), ("sub", 0o750), ("", 0o711)];
    set_modes(fixture.source("tree"), &modes);
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(fixture.source("tree/sub")).unwrap().set_modified(old).unwrap();
    let before = snapshot(&fixture.target("tree"));
    let moved = |outcome: Outcome| outcome.complete().1.bytes_moved;
    assert_eq!(moved(transfer(&fixture, Keep::default(), fixture.source("tree"))), 0);
    assert_eq!(snapshot(&fixture.target("tree")), before, "nothing may be overwritten");
    fixture.receive.overwrite = true;
    assert_eq!(moved(transfer(&fixture, Keep::default().with_modes(false), fixture.source("tree"))), 0);
    for (name, (_, _, mode)) in snapshot(&fixture.target("tree")) {
        assert_eq!(mode, before[&name].2, "no modes were sent");
    }
    assert_eq!(moved(transfer(&fixture, Keep::default(), fixture.source("tree"))), 0);
    assert_eq!(snapshot(&fixture.target("tree")), snapshot(&fixture.source("tree")));
    assert_eq!(fs::metadata(fixture.target("tree")).unwrap().mode() & 0o777, 0o711);
    // The set-group-ID bit of a directory stays, and is not sent.
    set_modes(fixture.target("tree"), &[("sub", 0o2755)]);
    assert_eq!(moved(transfer(&fixture, Keep::default(), fixture.source("tree"))), 0);
    assert_eq!(fs::metadata(fixture.target("tree/sub")).unwrap().mode() & 0o7777, 0o2750);
}

/// Writes a file of 8 MB with data at three places, which may include the last byte.
fn write_sparse(fixture: &Fixture, is_end_data: bool) -> (PathBuf, Vec<u8>) {
    let path = fixture.source("holes");
    let file = fs::File::create(&path).unwrap();
    file.set_len(8_000_000).unwrap();
    let places = [1_000_000, 1_300_000, if is_end_data { 7_999_000 } else { 5_000_000 }];
    for (seed, offset) in places.into_iter().enumerate() {
        file.write_all_at(&random_bytes(seed as u64, 1000), offset).unwrap();
    }
    let content = fs::read(&path).unwrap();
    (path, content)
}

fn blocks(path: PathBuf) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_are_neither_sent_nor_stored() {
    for (is_end_data, segment_bytes) in [(false, 1 << 22), (true, 1 << 22), (true, 1 << 10), (true, 1 << 30)] {
        let mut fixture = Fixture::new();
        fixture.send.segment_bytes = segment_bytes;
        let (path, content) = write_sparse(&fixture, is_end_data);
        let source = Source::scan_keeping(&[path], ALL, &CancelToken::new()).unwrap();
        // Records of 48 bytes for each segment, and two blocks of data at most at each place.
        let budget = 30_000 + 50 * 8_000_000 / segment_bytes;
        let outcome = fixture.transfer_source(&source, |link| {
            link.faults().bytes_left.store(budget, Ordering::SeqCst);
        });
        outcome.complete();
        assert_eq!(fs::read(fixture.target("holes")).unwrap(), content);
        assert!(blocks(fixture.target("holes")) < 200_000, "{}", blocks(fixture.target("holes")));
    }
}

#[test]
fn without_the_choice_holes_take_space() {
    let fixture = Fixture::new();
    let (path, content) = write_sparse(&fixture, true);
    transfer(&fixture, Keep::default(), path).complete();
    assert_eq!(fs::read(fixture.target("holes")).unwrap(), content);
    assert!(blocks(fixture.target("holes")) >= 8_000_000);
}

#[test]
fn a_file_with_holes_needs_the_space_of_its_data_only() {
    let mut fixture = Fixture::new();
    let disk = std::sync::Arc::new(crate::faulty_disk::FaultyDisk::default());
    fixture.receive.disk = std::sync::Arc::clone(&disk) as _;
    let (path, _) = write_sparse(&fixture, true);
    disk.free.store(1_000_000, Ordering::SeqCst);
    transfer(&fixture, Keep::default(), path.clone()).summaries();
    assert!(!fixture.target("holes").exists(), "in full it does not fit");
    transfer(&fixture, ALL, path).complete();
}

#[test]
fn an_older_receiver_is_named_as_the_reason() {
    let mut fixture = Fixture::new();
    let tree = linked_tree(&fixture);
    fixture.revision = Revision::SmallFiles;
    let outcome = transfer(&fixture, ALL, tree.clone());
    assert!(matches!(outcome.sent, Err(TransferError::KeepUnsupported)), "{:?}", outcome.sent);
    assert!(outcome.received.is_err());
    let (sent, received) = (transfer(&fixture, Keep::default(), tree), 0);
    assert_eq!(sent.complete().1.skipped, received, "it is not told");
}

fn entry(name: &str, kind: EntryKind) -> Entry {
    let path = RelativePath::from_components(name.split('/').map(str::as_bytes)).unwrap();
    Entry { path, kind, modified: Modified { seconds: 0, nanoseconds: 0 }, mode: 0o644 }
}

fn link(target: &str) -> EntryKind {
    EntryKind::SymbolicLink { target: LinkTarget::new(target.as_bytes()).unwrap() }
}

/// Returns the receiver's error for a sender that lists these entries.
fn receiver_of(fixture: &Fixture, entries: Vec<Entry>, more: impl FnOnce(&MemoryLink, &mut Control)) -> TransferError {
    fixture.fail_receiver(|sender, mut control| {
        let count = entries.len() as u32;
        say(&mut control, &Message::Entries(entries)).unwrap();
        // A receiver that has read enough is gone.
        let _is_refused = say(&mut control, &Message::EntriesEnd { count, skipped: None });
        more(sender, &mut control);
        let _read = control.reader.read_to_end(&mut Vec::new());
        control
    })
}

#[test]
fn a_sender_that_lists_impossible_links_is_disconnected() {
    let file = || entry("tree/file", EntryKind::File { size: 10 });
    let lists = [
        vec![entry("tree/link", link("../../etc"))],
        vec![entry("tree/link", link("/etc"))],
        // A requested name would lead to something beside it.
        vec![entry("report.pdf", link(".ssh/authorized_keys"))],
        vec![entry("tree/sub/link", link("x/../../../etc"))],
        vec![entry("tree/name", EntryKind::HardLink { file: 0 })],
        vec![entry("tree/name", EntryKind::HardLink { file: 1 }), file()],
        vec![entry("tree", EntryKind::Directory), entry("tree/name", EntryKind::HardLink { file: 0 })],
        vec![file(), entry("tree/name", EntryKind::HardLink { file: u32::MAX })],
        vec![entry("tree/l", link("x")), entry("tree/name", EntryKind::HardLink { file: 0 })],
        vec![entry("tree/holes", EntryKind::SparseFile { size: 1_000_000, data: 1_000_000 })],
    ];
    for entries in lists {
        let (fixture, shown) = (Fixture::new(), format!("{entries:?}"));
        let error = receiver_of(&fixture, entries, |_, _| {});
        assert!(matches!(error, TransferError::Protocol(_)), "{shown}: {error}");
        assert!(names(&fixture.top.path().join("in")).is_empty(), "{shown}");
    }
    let mut fixture = Fixture::new();
    fixture.revision = Revision::SmallFiles;
    let error = receiver_of(&fixture, vec![entry("tree/link", link("file"))], |_, _| {});
    assert!(matches!(error, TransferError::Protocol(_)), "{error}");
}

#[test]
fn a_hole_in_a_file_without_holes_or_beyond_its_end_ends_the_transfer() {
    let (misplaced, malformed) = ("a hole where there cannot be one", "a data stream is malformed");
    for (kind, hole, expected) in [
        (EntryKind::File { size: 1_000_000 }, 1000, misplaced),
        (EntryKind::SparseFile { size: 1_000_000, data: 0 }, 1025, misplaced),
        (EntryKind::SparseFile { size: 1_000_000, data: 0 }, 1 << 30, misplaced),
        (EntryKind::SparseFile { size: 1_000_000, data: 0 }, (1 << 30) + 1, malformed),
    ] {
        let (fixture, shown) = (Fixture::new(), format!("{kind:?} {hole}"));
        let error = receiver_of(&fixture, vec![entry("file", kind)], |link, control| {
            assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Plan { .. }))));
            let mut stream = link.open_uni().unwrap();
            let record = [&[1][..], &[0; 8], &(1_u32 << 31 | hole).to_be_bytes()].concat();
            // A receiver that has read enough is gone.
            let _is_refused = stream.write_all(&record);
            let _finished = stream.finish();
        });
        assert!(matches!(error, TransferError::Protocol(what) if what == expected), "{shown}: {error}");
    }
}

#[test]
fn nothing_is_received_through_a_link() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.top.path().join("outside")).unwrap();
    // The link is listed first and made last.
    let entries = vec![entry("tree/l", link("m")), entry("tree/l/file", EntryKind::File { size: 0 })];
    let error = receiver_of(&fixture, entries, |link, _| link.close("enough"));
    assert!(matches!(error, TransferError::Connection(_)), "{error}");
    assert!(!fixture.target("tree/l").is_symlink());
}

#[test]
fn a_hard_link_to_a_symbolic_link_that_took_the_place_of_its_file_fails() {
    let mut fixture = Fixture::new();
    fixture.receive.overwrite = true;
    fs::create_dir_all(fixture.target("r/a")).unwrap();
    let entries = vec![
        entry("r/a/f", EntryKind::File { size: 0 }),
        entry("r/a/f", link("../x")),
        entry("top", EntryKind::HardLink { file: 0 }),
    ];
    let error = receiver_of(&fixture, entries, |sender, control| {
        assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Plan { .. }))));
        let hash = FileHash::from_bytes(*blake3::hash(b"").as_bytes());
        say(control, &Message::FileDone { index: 0, hash }).unwrap();
        let mut failed = 0;
        for _ in 0..3 {
            match read_message(&mut control.reader).unwrap() {
                Some(Message::Failed { index: 2, .. }) => failed += 1,
                Some(Message::Done { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(failed, 1);
        sender.close("enough");
    });
    assert!(matches!(error, TransferError::Connection(_)), "{error}");
    assert!(fs::symlink_metadata(fixture.target("top")).is_err());
}

#[test]
fn holes_count_for_the_bound_on_a_transfer() {
    let mut fixture = Fixture::new();
    fixture.receive.bytes_max = Some(1 << 30);
    // Their zeros would occupy a core for hours: BLAKE3 binds each chunk to its place, so they have
    // no closed form.
    fs::File::create(fixture.source("file")).unwrap().set_len(15 << 40).unwrap();
    let outcome = transfer(&fixture, ALL, fixture.source("file"));
    assert!(matches!(outcome.received, Err(TransferError::TooLarge(_, _))), "{:?}", outcome.received);
}
