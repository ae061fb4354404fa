//! File system calls that fail when a disk is full or faulty. Tests replace them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::segment::zeros;

/// The receiver's operations on the disk below its directory.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Writes `bytes` at `offset`.
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until the written data are on the disk.
    fn sync_data(&self, file: &File) -> io::Result<()>;

    /// Does the same as [`sync_data`](Self::sync_data) for data and all metadata, also for
    /// directories.
    fn sync_all(&self, file: BorrowedFd<'_>) -> io::Result<()>;

    /// Does the same as [`sync_all`](Self::sync_all) for each of `files`, the first of which was
    /// opened before the others were written. Waits only once for many small files where the file
    /// system permits it.
    fn sync_together(&self, files: &[BorrowedFd<'_>]) -> Vec<io::Result<()>> {
        files.iter().map(|file| self.sync_all(*file)).collect()
    }

    /// Returns the number of free bytes on the file system of `file`.
    fn free_bytes(&self, file: &File) -> io::Result<u64>;

    /// Reserves blocks for `size` bytes of `file` and gives it that length. Returns false if the
    /// file system does not support this, or only slowly.
    fn allocate(&self, file: &File, size: u64) -> io::Result<bool>;

    /// Turns `len` bytes at `offset` into zeros that take no space, or into plain zeros where the
    /// file system has no holes.
    fn make_hole(&self, file: &File, len: u64, offset: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            made => return Ok(made?),
        }
        let mut done = 0;
        while done < len {
            let zeros = zeros(len - done);
            self.write_all_at(file, zeros, offset + done)?;
            done += zeros.len() as u64;
        }
        Ok(())
    }
}

/// The host's disks.
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

    fn sync_together(&self, files: &[BorrowedFd<'_>]) -> Vec<io::Result<()>> {
        // After an error each file is synced individually: the error may concern another program's
        // file, and this reports it for the right ones.
        if files.len() >= SYNC_TOGETHER_MIN && can_sync_together(files) && sync_file_system(files[0]).is_ok() {
            return files.iter().map(|_| Ok(())).collect();
        }
        files.iter().map(|file| self.sync_all(*file)).collect()
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

/// Returns whether one `syncfs` brings all of `files` to the disk and reports a failed write of any
/// of them.
///
/// Linux reports such errors from 5.8 on, to descriptors opened before. For other file systems it
/// is unknown whether `syncfs` waits for everything: FUSE, for one, does not.
#[cfg(target_os = "linux")]
fn can_sync_together(files: &[BorrowedFd<'_>]) -> bool {
    let device = |file: &BorrowedFd<'_>| rustix::fs::fstat(file).map(|stat| stat.st_dev).ok();
    let Some(first) = files.first().and_then(device) else { return false };
    let is_known = rustix::fs::fstatfs(files[0])
        .is_ok_and(|found| [EXT4_MAGIC, XFS_MAGIC, BTRFS_MAGIC].contains(&(found.f_type as u32)));
    is_known && reports_errors_of_syncfs() && files.iter().all(|file| device(file) == Some(first))
}

#[cfg(target_os = "linux")]
fn reports_errors_of_syncfs() -> bool {
    let uname = rustix::system::uname();
    let mut numbers = uname.release().to_str().unwrap_or("").split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0_u32), numbers.next().unwrap_or(0)) >= (5, 8)
}

#[cfg(target_os = "linux")]
fn sync_file_system(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

#[cfg(not(target_os = "linux"))]
fn can_sync_together(_: &[BorrowedFd<'_>]) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Number of files from which one `syncfs` costs less than their `fsync` calls, although it also
/// writes other programs' data.
const SYNC_TOGETHER_MIN: usize = 4;

/// Returns whether the file system holds its files in memory only.
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
/// statfs(2).
#[cfg(target_os = "linux")]
const EXT4_MAGIC: u32 = 0xEF53;
/// statfs(2).
#[cfg(target_os = "linux")]
const XFS_MAGIC: u32 = 0x5846_5342;
/// statfs(2).
#[cfg(target_os = "linux")]
const BTRFS_MAGIC: u32 = 0x9123_683E;
