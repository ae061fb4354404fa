//! Disk space, reserved for a file before its bytes arrive.
//!
//! A disk file system reserves blocks quickly. A file system in memory allocates every page, one
//! after the other (0.4 s per GB, a quarter of a fast transfer), and nothing can be sent meanwhile.
//! So on file systems in memory, and where reserving is not supported, the receiver checks the free
//! space and accounts for the space reserved for other files. Other programs may use that space
//! first; then a write fails, and the file with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The space that the files of one transfer will still need, where it is not reserved.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    /// Bytes reserved and not written, by device. One for each file system below the target
    /// directory.
    reserved: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
}

/// The space accounted to one file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The counter that includes it, if there is one; its value is at least `left`.
    reserved: Option<Arc<AtomicU64>>,
    /// Bytes that are not written yet.
    left: AtomicU64,
}

impl DiskSpace {
    /// Sets the length of `file` to `size` and reserves the space for the bytes that it does not
    /// hold yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is not enough space; otherwise the file system's
    /// error.
    pub(crate) fn reserve(&self, file: &File, size: u64) -> io::Result<Reservation> {
        if size == 0 {
            return Ok(Reservation { reserved: None, left: AtomicU64::new(0) });
        }
        if !is_in_memory(file) {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                outcome => return Ok(outcome.map(|()| Reservation { reserved: None, left: AtomicU64::new(0) })?),
            }
        }
        let metadata = file.metadata()?;
        let left = size.saturating_sub(metadata.blocks().saturating_mul(BLOCK_LEN));
        let mut accounts = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = accounts.entry(metadata.dev()).or_default();
        let space = rustix::fs::fstatvfs(file)?;
        // A file system without a size limit (tmpfs with size=0, ramfs) reports zero blocks.
        let free = if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) };
        if left > free.saturating_sub(reserved.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.set_len(size)?;
        reserved.fetch_add(left, Ordering::Relaxed);
        Ok(Reservation { reserved: Some(Arc::clone(reserved)), left: AtomicU64::new(left) })
    }
}

impl Reservation {
    /// `bytes` are about to be written. It is called before the write: a check in between finds
    /// slightly more space than there is, and a failing write is reported anyway. Called after the
    /// write, a check in between would refuse a file that fits.
    pub(crate) fn use_up(&self, bytes: u64) {
        if let Some(reserved) = &self.reserved {
            // Bytes that are written again after an interrupted attempt were not accounted for.
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

/// Whether the file system holds its files in memory only.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &File) -> bool {
    false
}

/// The unit in which `stat` counts, whatever the file system's blocks (POSIX leaves it open, Linux
/// does not).
const BLOCK_LEN: u64 = 512;

/// statfs(2).
#[cfg(target_os = "linux")]
const TMPFS_MAGIC: u32 = 0x0102_1994;
/// statfs(2).
#[cfg(target_os = "linux")]
const RAMFS_MAGIC: u32 = 0x8584_58f6;

#[cfg(test)]
mod tests;
