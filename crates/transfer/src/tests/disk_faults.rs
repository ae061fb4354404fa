//! Transfers onto a disk that fails.

use std::sync::Arc;

use super::*;
use crate::disk::Disk;
use crate::faulty_disk::FaultyDisk;

fn on_faulty_disk() -> (Fixture, Arc<FaultyDisk>) {
    let mut fixture = Fixture::new();
    let disk = Arc::new(FaultyDisk::default());
    fixture.receive.disk = Arc::clone(&disk) as Arc<dyn Disk>;
    (fixture, disk)
}

#[test]
fn what_was_written_before_a_failed_sync_is_sent_again() {
    for len in [500, 100_000] {
        let (fixture, disk) = on_faulty_disk();
        let path = fixture.write("file", 1, len);
        disk.fail_next_sync();
        let outcome = fixture.transfer(std::slice::from_ref(&path));
        assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "target".into())]));
        assert!(names(&fixture.top.path().join("in")).is_empty(), "{len}");
        let again = fixture.transfer(std::slice::from_ref(&path));
        assert_eq!(again.complete().0.bytes_resumed, 0, "{len}");
        assert_eq!(fs::read(fixture.target("file")).unwrap(), fs::read(path).unwrap());
    }
}

#[test]
fn a_disk_that_becomes_full_fails_the_file_and_the_next_attempt_resumes() {
    let (fixture, disk) = on_faulty_disk();
    let path = fixture.write("file", 1, 100_000);
    disk.write_limit.store(60_000, Ordering::SeqCst);
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "no_space".into())]));
    disk.write_limit.store(0, Ordering::SeqCst);
    assert!(fixture.transfer(std::slice::from_ref(&path)).complete().0.bytes_resumed > 0);
    assert_eq!(fs::read(fixture.target("file")).unwrap(), fs::read(path).unwrap());
}

#[test]
fn the_directory_of_a_file_that_is_in_place_already_is_synced() {
    let (fixture, disk) = on_faulty_disk();
    let path = fixture.write("file", 1, 5000);
    fixture.transfer(std::slice::from_ref(&path)).complete();
    let before = disk.directory_syncs.load(Ordering::SeqCst);
    // An attempt that was killed may have left it so, without a sync.
    assert_eq!(fixture.transfer(std::slice::from_ref(&path)).complete().0.bytes_resumed, 5000);
    assert_eq!(disk.directory_syncs.load(Ordering::SeqCst), before + 1);
}
