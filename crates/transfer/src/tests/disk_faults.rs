//! Transfers onto a disk that fails.

use std::sync::Arc;

use super::*;
use crate::disk::Disk;
use crate::faulty_disk::FaultyDisk;

pub(super) fn on_faulty_disk() -> (Fixture, Arc<FaultyDisk>) {
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
    // A killed attempt may have left it in this state, without a sync.
    assert_eq!(fixture.transfer(std::slice::from_ref(&path)).complete().0.bytes_resumed, 5000);
    assert_eq!(disk.directory_syncs.load(Ordering::SeqCst), before + 1);
}

/// Percentage of the rounds to run.
const SHARE: usize = 10;

/// Failed syncs, full disks, lost connections and power cuts, by seed. `LITZ_TEST_SHARE=100` runs all
/// rounds.
#[test]
fn no_fault_of_the_disk_puts_a_wrong_file_under_its_name() {
    let share = std::env::var("LITZ_TEST_SHARE").map_or(SHARE, |share| share.parse().expect("a number"));
    let (mut failed_syncs, mut resumed) = (0, 0);
    for seed in 0..(500 * share / 100) as u64 {
        let mut rng = Rng::from_seed(seed);
        let (fixture, disk) = on_faulty_disk();
        let inbox = fixture.top.path().join("in");
        // The last two have one segment at most.
        let files: Vec<_> = [40_000, 40_000, SEGMENT_BYTES, SEGMENT_BYTES]
            .into_iter()
            .zip(0..)
            .map(|(len, index)| fixture.write(&format!("f{index}"), seed * 10 + index, rng.below(len + 1) as usize))
            .collect();
        for attempt in 0.. {
            let is_last = attempt == 6;
            disk.heal();
            if !is_last && rng.below(2) == 0 {
                disk.fail_next_sync();
                failed_syncs += 1;
            }
            if !is_last && rng.below(4) == 0 {
                disk.write_limit.store(rng.between(1, 80_000), Ordering::SeqCst);
            }
            let cut = if is_last || rng.below(2) == 0 { u64::MAX } else { rng.between(1, 100_000) };
            let outcome = fixture.transfer_with(&files, |link| link.faults().bytes_left.store(cut, Ordering::SeqCst));
            // The memory is reused, now or later.
            if is_last || rng.below(2) == 0 {
                disk.evict(&inbox);
            }
            for index in 0..4 {
                let name = format!("f{index}");
                if let Ok(arrived) = fs::read(fixture.target(&name)) {
                    let is_equal = arrived == fs::read(fixture.source(&name)).unwrap();
                    assert!(is_equal, "seed {seed}, attempt {attempt}: {name} is wrong");
                }
            }
            if is_last {
                resumed += outcome.complete().0.bytes_resumed;
                break;
            }
        }
        assert_eq!(names(&inbox), ["f0", "f1", "f2", "f3"], "seed {seed}");
    }
    assert!(failed_syncs > 50 && resumed > 0, "{failed_syncs} failed syncs, {resumed} bytes resumed");
}
