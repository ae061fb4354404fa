use std::path::Path;

use super::*;
use crate::disk::{SystemDisk, is_in_memory};
use crate::faulty_disk::FaultyDisk;

fn file_in(directory: &Path) -> File {
    tempfile::tempfile_in(directory).unwrap()
}

/// Returns a folder in memory, if the machine has one.
fn memory() -> Option<&'static Path> {
    let memory = Path::new("/dev/shm");
    (memory.is_dir() && is_in_memory(&file_in(memory))).then_some(memory)
}

fn free(file: &File) -> u64 {
    let space = rustix::fs::fstatvfs(file).unwrap();
    space.f_bavail * space.f_frsize
}

#[test]
fn a_file_has_its_length_at_once() {
    for directory in [Some(std::env::temp_dir().as_path()), memory()].into_iter().flatten() {
        let file = file_in(directory);
        let _reservation = DiskSpace::new(Arc::new(SystemDisk)).reserve(&file, 5_000_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5_000_000);
    }
}

#[test]
fn memory_is_not_taken_before_it_is_written() {
    let Some(memory) = memory() else { return };
    let file = file_in(memory);
    let _reservation = DiskSpace::new(Arc::new(SystemDisk)).reserve(&file, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
}

#[test]
fn disk_space_is_reserved_once() {
    let Some(memory) = memory() else { return };
    let disk_space = DiskSpace::new(Arc::new(SystemDisk));
    let (first, second) = (file_in(memory), file_in(memory));
    let size = free(&first) / 5 * 3;
    let reservation = disk_space.reserve(&first, size).unwrap();
    let refused = disk_space.reserve(&second, size).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(second.metadata().unwrap().len(), 0, "a file without space is left unchanged");
    drop(reservation);
    let reservation = disk_space.reserve(&second, size).unwrap();
    // After the write, the file system counts it.
    reservation.use_up(size);
    let _reservation = disk_space.reserve(&first, size).unwrap();
}

#[test]
fn bytes_written_twice_are_not_counted_twice() {
    let Some(memory) = memory() else { return };
    let disk_space = DiskSpace::new(Arc::new(SystemDisk));
    let file = file_in(memory);
    let reserved = || disk_space.reserved.lock().unwrap()[&file.metadata().unwrap().dev()].load(Ordering::Relaxed);
    let (one, other) = (disk_space.reserve(&file, 1000).unwrap(), disk_space.reserve(&file, 100).unwrap());
    assert_eq!(reserved(), 1100);
    one.use_up(999);
    one.use_up(999);
    assert_eq!(reserved(), 100);
    drop((one, other));
    assert_eq!(reserved(), 0);
}

#[test]
fn a_file_that_does_not_fit_takes_no_space_for_a_moment() {
    let disk = Arc::new(FaultyDisk::default());
    disk.free.store(1_000_000, Ordering::SeqCst);
    let disk_space = DiskSpace::new(Arc::clone(&disk) as Arc<dyn Disk>);
    let file = file_in(&std::env::temp_dir());
    let refused = disk_space.reserve(&file, 2_000_000).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(disk.allocated.lock().unwrap().is_empty(), "nothing was allocated");
    let _reservation = disk_space.reserve(&file, 900_000).unwrap();
    assert_eq!(*disk.allocated.lock().unwrap(), [900_000]);
}
