//! A disk for tests that fails when it is told to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FileType;

use super::disk::{Disk, SystemDisk};

/// The system's disk with faults.
#[derive(Debug, Default)]
pub(crate) struct FaultyDisk {
    fail_sync: AtomicBool,
    /// Bytes that may still be written. Zero: no limit.
    pub(crate) write_limit: AtomicU64,
    written: AtomicU64,
    /// What the file system says is free. Zero: the truth.
    pub(crate) free: AtomicU64,
    /// The sizes that were allocated.
    pub(crate) allocated: Mutex<Vec<u64>>,
    /// The modes of files when they were synced.
    synced_modes: Mutex<Vec<u32>>,
    pub(crate) directory_syncs: AtomicU64,
}

impl FaultyDisk {
    /// Makes the next sync of a file fail with EIO, once.
    pub(crate) fn fail_next_sync(&self) {
        self.fail_sync.store(true, Ordering::SeqCst);
    }

    /// The modes of files when they were synced with their metadata.
    pub(crate) fn synced_modes(&self) -> Vec<u32> {
        self.synced_modes.lock().unwrap().clone()
    }

    fn sync(&self) -> io::Result<()> {
        if self.fail_sync.swap(false, Ordering::SeqCst) { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }
}

impl Disk for FaultyDisk {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst) + bytes.len() as u64;
        let limit = self.write_limit.load(Ordering::SeqCst);
        if limit > 0 && written > limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        SystemDisk.write_all_at(file, bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.sync()?;
        SystemDisk.sync_data(file)
    }

    fn sync_all(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mode = rustix::fs::fstat(file)?.st_mode;
        if FileType::from_raw_mode(mode).is_dir() {
            self.directory_syncs.fetch_add(1, Ordering::SeqCst);
            return SystemDisk.sync_all(file.as_fd());
        }
        self.synced_modes.lock().unwrap().push(mode & 0o777);
        self.sync()?;
        SystemDisk.sync_all(file)
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
