//! Files of one segment, received as a whole.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

use super::disk_faults::on_faulty_disk;
use super::*;
use crate::disk::{Disk, SystemDisk};

const COUNT: usize = 300;

fn write_tree(fixture: &Fixture) -> PathBuf {
    for index in 0..COUNT {
        fixture.write(&format!("tree/{}/f{index:03}", index / 100), index as u64, index * 3);
    }
    fixture.source("tree")
}

fn assert_same_trees(fixture: &Fixture) {
    for index in 0..COUNT {
        let name = format!("tree/{}/f{index:03}", index / 100);
        assert!(fs::read(fixture.target(&name)).unwrap() == fs::read(fixture.source(&name)).unwrap(), "{name}");
    }
    for folder in 0..3 {
        assert_eq!(names(&fixture.target(&format!("tree/{folder}"))).len(), 100, "leftovers in {folder}");
    }
}

#[test]
fn small_files_are_synced_together_before_they_get_their_names() {
    let (fixture, disk) = on_faulty_disk();
    let tree = write_tree(&fixture);
    fixture.transfer(&[tree]).complete();
    assert_same_trees(&fixture);
    let batches = disk.batches.lock().unwrap();
    assert_eq!(batches.iter().sum::<usize>(), COUNT);
    assert!(batches.len() < COUNT / 2, "{batches:?}");
    // Until then they were for their owner only.
    assert!(disk.synced_modes().iter().all(|mode| *mode == 0o600));
}

#[test]
fn ends_without_the_rules_for_small_files_transfer_as_before() {
    let (mut fixture, disk) = on_faulty_disk();
    fixture.revision = Revision::Streams;
    let tree = write_tree(&fixture);
    fixture.transfer(&[tree]).complete();
    assert_same_trees(&fixture);
    assert!(disk.batches.lock().unwrap().is_empty());
}

#[test]
fn few_descriptors_are_enough() {
    for files in [0, 1, 2] {
        let mut fixture = Fixture::new();
        fixture.receive.open_files = OpenFiles::new(files);
        let tree = write_tree(&fixture);
        fixture.transfer(&[tree]).complete();
        assert_same_trees(&fixture);
    }
}

#[test]
fn a_failed_sync_fails_its_file_only_and_leaves_nothing_of_it() {
    let (fixture, disk) = on_faulty_disk();
    let tree = write_tree(&fixture);
    disk.fail_next_sync();
    let outcome = fixture.transfer(std::slice::from_ref(&tree));
    let failures = outcome.failures();
    assert_eq!(failures.values().collect::<Vec<_>>(), ["target"]);
    let failed = failures.keys().next().unwrap();
    assert!(!fixture.target(failed).exists() && !fixture.target(&format!("{failed}.litz-part")).exists());
    disk.evict(fixture.target(failed).parent().unwrap());
    fixture.transfer(&[tree]).complete();
    assert_same_trees(&fixture);
}

#[test]
fn a_damaged_small_file_is_never_written() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 1000);
    let outcome = fixture.transfer_with(std::slice::from_ref(&path), |link| {
        link.faults().flip_in.store(500, Ordering::SeqCst);
    });
    assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "damaged".into())]));
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn the_rest_of_an_earlier_attempt_is_replaced_unless_another_transfer_has_locked_it() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 1000);
    let part = fixture.target("file.litz-part");
    fs::write(&part, vec![7; 5000]).unwrap();
    let locked = File::open(&part).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "busy".into())]));
    assert_eq!(fs::read(&part).unwrap(), vec![7; 5000]);
    drop(locked);
    fixture.transfer(std::slice::from_ref(&path)).complete();
    assert_eq!(fs::read(fixture.target("file")).unwrap(), fs::read(path).unwrap());
    assert!(!part.exists());
}

#[test]
fn a_source_that_changes_is_given_up_before_its_end_is_sent() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 1000);
    let source = Source::scan(std::slice::from_ref(&path), &CancelToken::new()).unwrap();
    fs::write(&path, random_bytes(2, 1000)).unwrap();
    let changed = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
    File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
    let outcome = fixture.transfer_source(&source, |_| {});
    assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "source_changed".into())]));
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn a_second_hash_of_a_small_file_ends_the_transfer() {
    let fixture = Fixture::new();
    let error = fixture.fail_receiver(|_, mut control| {
        let entry = Entry {
            path: RelativePath::from_components([b"file".as_slice()]).unwrap(),
            kind: EntryKind::File { size: 500 },
            modified: manifest::Modified { seconds: 0, nanoseconds: 0 },
            mode: 0o600,
        };
        say(&mut control, &Message::Entries(vec![entry])).unwrap();
        say(&mut control, &Message::EntriesEnd { count: 1, skipped: None }).unwrap();
        assert!(matches!(read_message(&mut control.reader), Ok(Some(Message::Plan { .. }))));
        let hash = crate::segment::FileHash::from_bytes([1; 32]);
        for _ in 0..2 {
            say(&mut control, &Message::FileDone { index: 0, hash }).unwrap();
        }
        while let Ok(Some(_)) = read_message(&mut control.reader) {}
        control
    });
    assert!(matches!(error, TransferError::Protocol("a file has two hashes")), "{error:?}");
    assert!(names(&fixture.top.path().join("in")).is_empty());
}

#[test]
fn the_disk_of_this_host_syncs_files_together() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let files: Vec<_> = (0..10).map(|index| File::create(folder.path().join(index.to_string())).unwrap()).collect();
    for file in &files {
        SystemDisk.write_all_at(file, b"content", 0).unwrap();
    }
    let files: Vec<_> = files.iter().map(std::os::fd::AsFd::as_fd).collect();
    let synced = SystemDisk.sync_together(&files);
    assert!(synced.len() == files.len() && synced.iter().all(Result::is_ok), "{synced:?}");
}
