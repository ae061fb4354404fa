use std::path::Path;

use super::*;

fn file_in(directory: &Path) -> File {
    tempfile::tempfile_in(directory).unwrap()
}

/// A folder in memory, where the machine has one.
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
        let _reservation = DiskSpace::default().reserve(&file, 5_000_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5_000_000);
    }
}

#[test]
fn memory_is_not_taken_before_it_is_written() {
    let Some(memory) = memory() else { return };
    let file = file_in(memory);
    let _reservation = DiskSpace::default().reserve(&file, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
}

#[test]
fn disk_space_is_reserved_once() {
    let Some(memory) = memory() else { return };
    let disk_space = DiskSpace::default();
    let (first, second) = (file_in(memory), file_in(memory));
    let size = free(&first) / 5 * 3;
    let reservation = disk_space.reserve(&first, size).unwrap();
    let refused = disk_space.reserve(&second, size).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(second.metadata().unwrap().len(), 0, "a file without space is left unchanged");
    drop(reservation);
    let reservation = disk_space.reserve(&second, size).unwrap();
    // Once written, the file system counts it.
    reservation.use_up(size);
    let _reservation = disk_space.reserve(&first, size).unwrap();
}

#[test]
fn bytes_written_twice_are_not_counted_twice() {
    let Some(memory) = memory() else { return };
    let disk_space = DiskSpace::default();
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
