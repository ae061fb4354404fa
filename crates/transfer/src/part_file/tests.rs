use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use quic_endpoint::identity::PublicKey;

use super::*;
use crate::disk::SystemDisk;
use crate::faulty_disk::FaultyDisk;
use crate::manifest::EntryKind;
use crate::names::RelativePath;

struct Fixture {
    directory: tempfile::TempDir,
    tree: TargetTree,
}

impl Fixture {
    fn new() -> Self {
        Self::on(Arc::new(SystemDisk))
    }

    fn on(disk: Arc<dyn Disk>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = TargetTree::open(directory.path(), 0o022, disk).unwrap();
        Self { directory, tree }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, entry: &Entry, sender: u8) -> Result<(PartFile, Recorded), FileError> {
        let (parent, name) = self.tree.parent(&entry.path)?;
        let size = entry.size().unwrap();
        let sender = PublicKey::from_bytes([sender; 32]);
        let key = JournalKey { base_log2: 10, size, modified: entry.modified, sender };
        PartFile::open(&self.tree, parent, name, &key, Layout::new(size, 10).unwrap(), None)
    }

    fn look(&self, entry: &Entry, overwrite: bool) -> Result<Found, FileError> {
        let (parent, name) = self.tree.parent(&entry.path)?;
        look(&parent, name, entry, overwrite)
    }
}

fn entry(path: &str, size: u64) -> Entry {
    Entry {
        path: RelativePath::from_components(path.split('/').map(str::as_bytes)).unwrap(),
        kind: EntryKind::File { size },
        modified: Modified { seconds: 1_000_000, nanoseconds: 5 },
        mode: 0o777,
    }
}

#[test]
fn a_committed_file_has_its_name_time_and_masked_mode_and_no_part_file() {
    let fixture = Fixture::new();
    let entry = entry("dir/file", 3);
    let (part, recorded) = fixture.open(&entry, 1).unwrap();
    assert!(recorded.is_empty());
    part.write_at(b"abc", 0).unwrap();
    part.commit(&entry, &fixture.tree, false).unwrap();
    fixture.tree.sync_but(&std::collections::BTreeSet::new()).unwrap();
    let metadata = fs::metadata(fixture.path("dir/file")).unwrap();
    assert_eq!(fs::read(fixture.path("dir/file")).unwrap(), b"abc");
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000, 5));
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(fixture.path("dir")).unwrap().count(), 1);
}

#[test]
fn recorded_segments_are_found_by_the_same_sender_only() {
    let fixture = Fixture::new();
    let entry = entry("file", 3000);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    assert_eq!(fs::metadata(fixture.path("file.litz-part")).unwrap().len(), 3000, "the space is reserved");
    part.record(2, &[7; 32]).unwrap();
    drop(part);
    assert_eq!(fixture.open(&entry, 1).unwrap().1, Recorded::from([(2, [7; 32])]));
    assert!(fixture.open(&entry, 2).unwrap().1.is_empty(), "another sender begins afresh");
    assert!(fixture.open(&entry, 1).unwrap().1.is_empty(), "and so does the first after it");
}

#[test]
fn a_part_file_in_use_is_an_error() {
    let fixture = Fixture::new();
    let entry = entry("file", 10);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    assert_eq!(fixture.open(&entry, 1).unwrap_err().kind, FileErrorKind::Busy);
    drop(part);
    fixture.open(&entry, 1).unwrap();
}

#[test]
fn existing_files_and_links_are_neither_overwritten_nor_followed() {
    let fixture = Fixture::new();
    let entry = entry("file", 3);
    fs::write(fixture.path("file"), "older").unwrap();
    assert!(matches!(fixture.look(&entry, false), Err(error) if error.kind == FileErrorKind::Exists));
    assert!(matches!(fixture.look(&entry, true), Ok(Found::Free)));
    fs::write(fixture.path("file"), "old").unwrap();
    assert!(matches!(fixture.look(&entry, false), Ok(Found::Same(_))), "it may be the same file");
    assert!(matches!(fixture.look(&entry, true), Ok(Found::Free)), "it has another time");
    // A file that appears after the check.
    let (part, _) = fixture.open(&entry, 1).unwrap();
    assert_eq!(part.commit(&entry, &fixture.tree, false).unwrap_err().kind, FileErrorKind::Exists);
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"old");
    part.commit(&entry, &fixture.tree, true).unwrap();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), [0; 3]);
    assert!(matches!(fixture.look(&entry, false), Ok(Found::Same(_))), "same size and time");
    fs::create_dir(fixture.path("directory")).unwrap();
    let directory = self::entry("directory", 3);
    assert!(matches!(fixture.look(&directory, true), Err(error) if error.kind == FileErrorKind::Blocked));
}

#[test]
fn links_at_the_target_are_not_followed() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    symlink(outside.path(), fixture.path("dir")).unwrap();
    let error = fixture.open(&entry("dir/file", 3), 1).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::SymbolicLink);
    for name in ["file.litz-part", "other.litz-journal"] {
        symlink(outside.path().join("precious"), fixture.path(name)).unwrap();
    }
    assert_eq!(fixture.open(&entry("file", 3), 1).unwrap_err().kind, FileErrorKind::SymbolicLink);
    assert_eq!(fixture.open(&entry("other", 3000), 1).unwrap_err().kind, FileErrorKind::SymbolicLink);
    fs::hard_link(outside.path().join("precious"), fixture.path("third.litz-part")).unwrap();
    assert_eq!(fixture.open(&entry("third", 3), 1).unwrap_err().kind, FileErrorKind::Target);
    assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    symlink(outside.path().join("new"), fixture.path("link")).unwrap();
    let link = entry("link", 3);
    assert!(matches!(fixture.look(&link, false), Err(error) if error.kind == FileErrorKind::Exists));
    let (part, _) = fixture.open(&link, 1).unwrap();
    part.commit(&link, &fixture.tree, true).unwrap();
    assert!(fs::symlink_metadata(fixture.path("link")).unwrap().is_file(), "the link itself is replaced");
    assert!(!outside.path().join("new").exists());
}

#[test]
fn the_longest_names_have_part_files_and_journals_too() {
    let fixture = Fixture::new();
    let long = entry(&"x".repeat(255), 1);
    let (part, _) = fixture.open(&long, 1).unwrap();
    part.commit(&long, &fixture.tree, false).unwrap();
    assert!(fixture.path(&"x".repeat(255)).exists());
}

#[test]
fn a_file_larger_than_any_disk_is_refused_and_leaves_no_files() {
    let fixture = Fixture::new();
    let error = fixture.open(&entry("huge", u64::MAX >> 2), 1).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoSpace, "{error}");
    assert_eq!(fs::read_dir(fixture.directory.path()).unwrap().count(), 0);
}

#[test]
fn bytes_that_wait_for_the_disk_are_bounded() {
    let fixture = Fixture::new();
    let bytes = vec![1; 16 << 20];
    let entry = entry("large", 12 * bytes.len() as u64);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (part, bytes) = (&part, &bytes);
            scope.spawn(move || {
                for round in 0..6 {
                    part.write_at(bytes, (2 * round + thread) * bytes.len() as u64).unwrap();
                    let dirty = part.dirty_bytes.load(Ordering::SeqCst);
                    assert!(dirty <= DIRTY_BYTES_MAX + 2 * bytes.len() as u64, "{dirty}");
                }
            });
        }
    });
    // Twelve pieces are 192 MiB: without a flush all of them would be left.
    assert!(part.dirty_bytes.load(Ordering::SeqCst) < DIRTY_BYTES_MAX);
}

#[test]
fn a_failed_sync_leaves_only_what_an_earlier_one_brought_to_the_disk() {
    let disk = Arc::new(FaultyDisk::default());
    let fixture = Fixture::on(Arc::clone(&disk) as Arc<dyn Disk>);
    let entry = entry("file", 5000);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    for segment in [0, 3] {
        part.record(segment, &[1; 32]).unwrap();
    }
    part.sync(|disk, file| disk.sync_data(file)).unwrap();
    // Segment 3 is written again after that, segment 1 for the first time.
    for segment in [1, 3] {
        part.record(segment, &[2; 32]).unwrap();
    }
    disk.fail_next_sync();
    part.sync(|disk, file| disk.sync_data(file)).unwrap_err();
    // The next sync succeeds, as on Linux: the kernel no longer knows of the lost pages.
    part.record(2, &[1; 32]).unwrap_err();
    part.commit(&entry, &fixture.tree, false).unwrap_err();
    drop(part);
    assert!(!fixture.path("file").exists());
    assert_eq!(fixture.open(&entry, 1).unwrap().1, Recorded::from([(0, [1; 32])]));
}

#[test]
fn a_failed_sync_without_an_earlier_one_leaves_nothing() {
    for size in [1000, 5000] {
        let disk = Arc::new(FaultyDisk::default());
        let fixture = Fixture::on(Arc::clone(&disk) as Arc<dyn Disk>);
        let entry = entry("file", size);
        let (part, _) = fixture.open(&entry, 1).unwrap();
        part.record(0, &[1; 32]).unwrap();
        disk.fail_next_sync();
        assert_eq!(part.commit(&entry, &fixture.tree, false).unwrap_err().kind, FileErrorKind::Target);
        assert_eq!(fs::read_dir(fixture.directory.path()).unwrap().count(), 0, "{size}");
    }
}

#[test]
fn an_error_of_the_disk_that_no_process_has_seen_is_found_before_resuming() {
    let disk = Arc::new(FaultyDisk::default());
    let fixture = Fixture::on(Arc::clone(&disk) as Arc<dyn Disk>);
    let entry = entry("file", 5000);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    part.record(0, &[1; 32]).unwrap();
    drop(part);
    disk.fail_next_sync();
    assert!(fixture.open(&entry, 1).unwrap().1.is_empty());
}

#[test]
fn others_cannot_read_a_part_file_before_it_is_complete() {
    let disk = Arc::new(FaultyDisk::default());
    let fixture = Fixture::on(Arc::clone(&disk) as Arc<dyn Disk>);
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o777;
    let entry = entry("file", 3);
    let (part, _) = fixture.open(&entry, 1).unwrap();
    assert_eq!(mode("file.litz-part"), 0o600);
    fs::write(fixture.path("file"), "old").unwrap();
    assert_eq!(part.commit(&entry, &fixture.tree, false).unwrap_err().kind, FileErrorKind::Exists);
    assert_eq!(mode("file.litz-part"), 0o600);
    drop(part);
    // A kill between the change of the mode and the rename leaves this state.
    fs::set_permissions(fixture.path("file.litz-part"), fs::Permissions::from_mode(0o755)).unwrap();
    let (part, _) = fixture.open(&entry, 1).unwrap();
    assert_eq!(mode("file.litz-part"), 0o600);
    part.commit(&entry, &fixture.tree, true).unwrap();
    assert_eq!(mode("file"), 0o755);
    assert_eq!(disk.synced_modes(), [0o600; 2], "the data is on the disk before others may read it");
}

#[test]
fn a_hole_takes_no_space_whatever_was_there() {
    let fixture = Fixture::new();
    let (part, _) = fixture.open(&entry("file", 1_000_000), 1).unwrap();
    part.write_at(&[0xff; 1_000_000], 0).unwrap();
    part.make_hole(900_000, 50_000).unwrap();
    let content = fs::read(fixture.path("file.litz-part")).unwrap();
    assert!(content[..50_000].iter().chain(&content[950_000..]).all(|byte| *byte == 0xff));
    assert!(content[50_000..950_000].iter().all(|byte| *byte == 0));
    assert!(fs::metadata(fixture.path("file.litz-part")).unwrap().blocks() * 512 < 200_000);
}

#[test]
fn a_folder_that_denies_new_files_is_reported_as_such() {
    let fixture = Fixture::new();
    let mode = |mode| fs::set_permissions(fixture.directory.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let opened = unprivileged(|| fixture.open(&entry("file", 3), 1).map(|_| ()));
    mode(0o755);
    let error = opened.unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Permission, "{error}");
}

/// Runs `act` without root's permission to write anywhere, on a separate thread.
fn unprivileged<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(65_534), None).unwrap();
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join()).unwrap()
}
