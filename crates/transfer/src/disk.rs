//! The calls to the file system that fail when a disk is full or faulty. Tests replace them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What the receiver asks of the disk below its directory.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Writes `bytes` at `offset`.
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until the written data is on the disk.
    fn sync_data(&self, file: &File) -> io::Result<()>;

    /// As [`sync_data`](Self::sync_data), with all metadata. Also for directories.
    fn sync_all(&self, file: BorrowedFd<'_>) -> io::Result<()>;

    /// Free bytes on the file system of `file`.
    fn free_bytes(&self, file: &File) -> io::Result<u64>;

    /// Reserves blocks for `size` bytes of `file` and gives it that length. Returns false if the
    /// file system does not do that, or does it slowly.
    fn allocate(&self, file: &File, size: u64) -> io::Result<bool>;
}

/// The disks of this host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_all(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fsync(file)?)
    }

    fn free_bytes(&self, file: &File) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(file)?;
        // A file system without a size limit (tmpfs with size=0, ramfs) reports zero blocks.
        Ok(if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) })
    }

    fn allocate(&self, file: &File, size: u64) -> io::Result<bool> {
        if is_in_memory(file) {
            return Ok(false);
        }
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether the file system holds its files in memory only.
#[cfg(target_os = "linux")]
pub(crate) fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_in_memory(_: &File) -> bool {
    false
}

/// statfs(2).
#[cfg(target_os = "linux")]
const TMPFS_MAGIC: u32 = 0x0102_1994;
/// statfs(2).
#[cfg(target_os = "linux")]
const RAMFS_MAGIC: u32 = 0x8584_58f6;
