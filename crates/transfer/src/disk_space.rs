//! Disk space reservation for a file before its bytes arrive.
//!
//! A disk file system reserves blocks quickly. A file system in memory allocates every page, one
//! after the other (0.4 s per GB, a quarter of a fast transfer), and nothing can be sent meanwhile.
//! So on file systems in memory, and where reserving is not supported, the receiver only compares
//! the free space with the remaining bytes of this and its other files. Other programs may use that
//! space first; then a write fails, and the file with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::Disk;

/// Space that the files of one transfer still need, where it is not reserved.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    disk: Arc<dyn Disk>,
    /// Bytes reserved and not written, by device. One counter for each file system below the target
    /// directory.
    reserved: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
}

/// Space accounted to one file until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Counter that includes it, if any; its value is at least `left`.
    reserved: Option<Arc<AtomicU64>>,
    /// Bytes not written yet.
    left: AtomicU64,
}

impl DiskSpace {
    /// Creates the accounting for the files on `disk`.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, reserved: Mutex::default() }
    }

    /// Returns an empty reservation for a file whose bytes are written at once: the write itself
    /// shows whether there is space.
    pub(crate) fn reserve_nothing(&self) -> Reservation {
        Reservation { reserved: None, left: AtomicU64::new(0) }
    }

    /// Sets the length of `file` to `size` and reserves the space for the bytes that it does not
    /// hold yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is not enough space; otherwise the file system's
    /// error.
    pub(crate) fn reserve(&self, file: &File, size: u64) -> io::Result<Reservation> {
        if size == 0 {
            return Ok(self.reserve_nothing());
        }
        self.reserve_bytes(file, size, size, || self.disk.allocate(file, size))
    }

    /// Does the same as [`reserve`](Self::reserve) for a file of which only `data` bytes take
    /// space. The positions of its holes are unknown yet, so no blocks are reserved: the free space
    /// is compared.
    ///
    /// # Errors
    /// Same errors as [`reserve`](Self::reserve).
    pub(crate) fn reserve_with_holes(&self, file: &File, size: u64, data: u64) -> io::Result<Reservation> {
        self.reserve_bytes(file, size, data, || Ok(false))
    }

    /// Reserves `bytes` for a file of length `size`: by `allocate`, or if that returns false, by
    /// accounting for them.
    fn reserve_bytes(
        &self,
        file: &File,
        size: u64,
        bytes: u64,
        allocate: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<Reservation> {
        let metadata = file.metadata()?;
        let left = bytes.saturating_sub(metadata.blocks().saturating_mul(BLOCK_LEN));
        let mut accounts = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = accounts.entry(metadata.dev()).or_default();
        // This precedes the allocation: a file that does not fit would take all free space for a
        // moment, and the writes of other programs would fail.
        if left > self.disk.free_bytes(file)?.saturating_sub(reserved.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match allocate() {
            Ok(true) => return Ok(self.reserve_nothing()),
            Ok(false) => {}
            Err(error) => {
                // Frees the part allocated before the failure.
                let _ = file.set_len(metadata.len());
                return Err(error);
            }
        }
        file.set_len(size)?;
        reserved.fetch_add(left, Ordering::Relaxed);
        Ok(Reservation { reserved: Some(Arc::clone(reserved)), left: AtomicU64::new(left) })
    }
}

impl Reservation {
    /// Accounts for `bytes` that are about to be written. Call it before the write: a check in
    /// between finds slightly more space than there is, and a failing write is reported anyway.
    /// Called after the write, a check in between would refuse a file that fits.
    pub(crate) fn use_up(&self, bytes: u64) {
        if let Some(reserved) = &self.reserved {
            // Bytes rewritten after an interrupted attempt were not accounted for.
            let before =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
            reserved.fetch_sub(before.unwrap_or_else(|left| left).min(bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.use_up(self.left.load(Ordering::Relaxed));
    }
}

/// Unit in which `stat` counts, whatever the file system's blocks (POSIX leaves it open, Linux does
/// not).
pub(crate) const BLOCK_LEN: u64 = 512;

#[cfg(test)]
mod tests;
