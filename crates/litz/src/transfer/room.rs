//! Room on the disk, kept for a file before its bytes come.
//!
//! A disk reserves blocks in a moment. A file system in memory has nothing to put in order: there, to reserve is to take
//! every page, one after the other (0.4 s for each GB, a quarter of a fast transfer), and nothing can be sent meanwhile. So
//! on such a one, and where nothing can be reserved, we look whether there is room and remember what we promised of it.
//! Others may take that room before us; then a write fails, and the file with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What one transfer's files are still to take, where that is not reserved.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Bytes promised and not written, by device. One for each file system below the target directory.
    promised: Mutex<BTreeMap<u64, Arc<AtomicU64>>>,
}

/// Room kept for one file until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Where it counts, if it does; at least `left`.
    promised: Option<Arc<AtomicU64>>,
    /// Bytes to come.
    left: AtomicU64,
}

impl Room {
    /// Gives `file` the length `size` and keeps room for what of it is not there yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is less room than that; whatever the file system says.
    pub(crate) fn reserve(&self, file: &File, size: u64) -> io::Result<Reservation> {
        if size == 0 {
            return Ok(Reservation { promised: None, left: AtomicU64::new(0) });
        }
        if !is_in_memory(file) {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                outcome => return Ok(outcome.map(|()| Reservation { promised: None, left: AtomicU64::new(0) })?),
            }
        }
        let metadata = file.metadata()?;
        let left = size.saturating_sub(metadata.blocks().saturating_mul(BLOCK_LEN));
        let mut accounts = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        let promised = accounts.entry(metadata.dev()).or_default();
        let space = rustix::fs::fstatvfs(file)?;
        // A file system without a bound of its own (tmpfs with size=0, ramfs) says that it has no blocks at all.
        let free = if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) };
        if left > free.saturating_sub(promised.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.set_len(size)?;
        promised.fetch_add(left, Ordering::Relaxed);
        Ok(Reservation { promised: Some(Arc::clone(promised)), left: AtomicU64::new(left) })
    }
}

impl Reservation {
    /// `bytes` are about to be written. Before, not after: whoever looks between the two finds a little more room than there
    /// is, and a write that fails is told as well; the other way round, a file that fits would be refused.
    pub(crate) fn use_up(&self, bytes: u64) {
        if let Some(promised) = &self.promised {
            // What is written again, after an interrupted attempt, was not promised.
            let before =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
            promised.fetch_sub(before.unwrap_or_else(|left| left).min(bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.use_up(self.left.load(Ordering::Relaxed));
    }
}

/// Whether the file's pages are all there is of it.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &File) -> bool {
    false
}

/// The unit in which `stat` counts, whatever the file system's blocks (POSIX leaves it open, Linux does not).
const BLOCK_LEN: u64 = 512;

/// statfs(2).
#[cfg(target_os = "linux")]
const TMPFS_MAGIC: u32 = 0x0102_1994;
/// statfs(2).
#[cfg(target_os = "linux")]
const RAMFS_MAGIC: u32 = 0x8584_58f6;

#[cfg(test)]
mod tests;
