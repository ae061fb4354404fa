//! A disk for tests that fails on request.
//!
//! Like on Linux, data written before a failed sync can still be read, and the next sync succeeds,
//! until the memory is reused ([`FaultyDisk::evict`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FileType;

use super::disk::{Disk, SystemDisk};

/// The system's disk with faults.
#[derive(Debug, Default)]
pub(crate) struct FaultyDisk {
    fail_sync: AtomicBool,
    fail_directory_sync: AtomicBool,
    /// Bytes that may still be written. Zero: no limit.
    pub(crate) write_limit: AtomicU64,
    written: AtomicU64,
    /// Bytes that each file may hold. Zero: no limit.
    pub(crate) file_limit: AtomicU64,
    /// Free space that the file system reports. Zero: the actual value.
    pub(crate) free: AtomicU64,
    /// Sizes that were allocated.
    pub(crate) allocated: Mutex<Vec<u64>>,
    /// Modes of files when they were synced.
    synced_modes: Mutex<Vec<u32>>,
    pub(crate) directory_syncs: AtomicU64,
    /// Numbers of files synced together.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// By file: the offsets of writes not synced, and of those that a failed sync has lost.
    writes: Mutex<BTreeMap<u64, Writes>>,
}

#[derive(Debug, Default)]
struct Writes {
    unsynced: BTreeMap<u64, usize>,
    lost: BTreeMap<u64, usize>,
}

impl FaultyDisk {
    /// Makes the next sync of a file fail with EIO, once.
    pub(crate) fn fail_next_sync(&self) {
        self.fail_sync.store(true, Ordering::SeqCst);
    }

    /// Makes the next sync of a directory fail with EIO, once.
    pub(crate) fn fail_next_directory_sync(&self) {
        self.fail_directory_sync.store(true, Ordering::SeqCst);
    }

    /// Returns the modes of files when they were synced with their metadata.
    pub(crate) fn synced_modes(&self) -> Vec<u32> {
        self.synced_modes.lock().unwrap().clone()
    }

    /// Makes syncs succeed again.
    pub(crate) fn heal(&self) {
        self.fail_sync.store(false, Ordering::SeqCst);
        self.fail_directory_sync.store(false, Ordering::SeqCst);
        self.write_limit.store(0, Ordering::SeqCst);
        self.written.store(0, Ordering::SeqCst);
        self.file_limit.store(0, Ordering::SeqCst);
    }

    /// Drops the files below `directory` from memory: lost writes read as zeros from now on.
    pub(crate) fn evict(&self, directory: &Path) {
        let mut writes = self.writes.lock().unwrap();
        for path in std::fs::read_dir(directory).unwrap().map(|child| child.unwrap().path()) {
            let file = File::options().write(true).open(path).unwrap();
            let metadata = file.metadata().unwrap();
            let lost = writes.remove(&metadata.ino()).unwrap_or_default().lost;
            // Entries beyond the end are writes to an earlier file with this number.
            for (offset, len) in lost.into_iter().filter(|(offset, len)| offset + *len as u64 <= metadata.len()) {
                file.write_all_at(&vec![0; len], offset).unwrap();
            }
            file.set_modified(metadata.modified().unwrap()).unwrap();
        }
    }

    fn sync(&self, ino: u64) -> io::Result<()> {
        let mut writes = self.writes.lock().unwrap();
        let writes = writes.entry(ino).or_default();
        let unsynced = std::mem::take(&mut writes.unsynced);
        if self.fail_sync.swap(false, Ordering::SeqCst) {
            writes.lost.extend(unsynced);
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(())
    }
}

impl Disk for FaultyDisk {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst) + bytes.len() as u64;
        let limit = self.write_limit.load(Ordering::SeqCst);
        let file_limit = self.file_limit.load(Ordering::SeqCst);
        if (limit > 0 && written > limit) || (file_limit > 0 && offset + bytes.len() as u64 > file_limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut writes = self.writes.lock().unwrap();
        let writes = writes.entry(file.metadata()?.ino()).or_default();
        writes.lost.remove(&offset);
        writes.unsynced.insert(offset, bytes.len());
        SystemDisk.write_all_at(file, bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.sync(file.metadata()?.ino())?;
        SystemDisk.sync_data(file)
    }

    fn sync_all(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        let mode = stat.st_mode;
        if FileType::from_raw_mode(mode).is_dir() {
            self.directory_syncs.fetch_add(1, Ordering::SeqCst);
            if self.fail_directory_sync.swap(false, Ordering::SeqCst) {
                return Err(rustix::io::Errno::IO.into());
            }
            return SystemDisk.sync_all(file.as_fd());
        }
        self.synced_modes.lock().unwrap().push(mode & 0o777);
        self.sync(stat.st_ino)?;
        SystemDisk.sync_all(file)
    }

    fn sync_together(&self, files: &[BorrowedFd<'_>]) -> Vec<io::Result<()>> {
        self.batches.lock().unwrap().push(files.len());
        files.iter().map(|file| self.sync_all(*file)).collect()
    }

    fn free_bytes(&self, file: &File) -> io::Result<u64> {
        match self.free.load(Ordering::SeqCst) {
            0 => SystemDisk.free_bytes(file),
            free => Ok(free),
        }
    }

    fn allocate(&self, file: &File, size: u64) -> io::Result<bool> {
        self.allocated.lock().unwrap().push(size);
        SystemDisk.allocate(file, size)
    }
}
