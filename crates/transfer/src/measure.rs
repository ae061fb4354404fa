//! The length of files whose file system reports a wrong one. Files generated while they are read
//! have length 0 (procfs, many FUSE file systems) or one page (sysfs), whatever their contents.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::link::CancelToken;

/// Source of the bytes of a listed file.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// The file, which has the length reported by its file system.
    File,
    /// The file, whose length was found by reading it: its file system may report any. `stated` is
    /// the reported length.
    Measured { stated: u64 },
    /// The bytes read when the file was listed. Such files often have different bytes at each
    /// reading.
    Held(Arc<[u8]>),
}

/// Finds the lengths of files.
#[derive(Default)]
pub(crate) struct Measure {
    /// By device, whether files have the reported lengths.
    exact: BTreeMap<u64, bool>,
    /// Number of bytes held.
    held: usize,
}

impl Measure {
    /// Returns the length of the file at `path`, and the source of its bytes. For a file that
    /// cannot be opened, the reported length is used: sending it fails.
    ///
    /// # Errors
    /// Fails if reading fails, or `cancel` is used.
    pub(crate) fn measure(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        cancel: &CancelToken,
    ) -> io::Result<(u64, Content)> {
        let stated = metadata.len();
        let is_exact = *self.exact.entry(metadata.dev()).or_insert_with(|| states_lengths(path));
        // A file without blocks may be generated, even below an otherwise trusted file system.
        if is_exact && stated > 0 && metadata.blocks() > 0 {
            return Ok((stated, Content::File));
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let Ok(mut file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
            return Ok((stated, Content::File));
        };
        // Generated files may not support reads in their middle. Whether they can be read at all is
        // determined below.
        match ends_at(&file, stated) {
            Ok(true) if is_exact => Ok((stated, Content::File)),
            Ok(true) if stated > 0 => Ok((stated, Content::Measured { stated })),
            _ => self.read_to_end(&mut file, stated, cancel),
        }
    }

    fn read_to_end(&mut self, file: &mut File, stated: u64, cancel: &CancelToken) -> io::Result<(u64, Content)> {
        let held_max = (HELD_FILE_MAX as usize).min(HELD_MAX - self.held);
        let mut bytes = Vec::new();
        file.take(held_max as u64).read_to_end(&mut bytes)?;
        let mut buffer = vec![0; if bytes.len() < held_max { 1 } else { READ_LEN }];
        let mut len = bytes.len() as u64;
        loop {
            match file.read(&mut buffer) {
                Ok(0) if len == bytes.len() as u64 => {
                    self.held += bytes.len();
                    return Ok((len, Content::Held(bytes.into())));
                }
                Ok(0) => return Ok((len, Content::Measured { stated })),
                Ok(_) if cancel.is_cancelled() => return Err(io::ErrorKind::Interrupted.into()),
                Ok(count) => len += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns whether exactly `len` bytes can be read from `file`.
pub(crate) fn ends_at(file: &File, len: u64) -> io::Result<bool> {
    let has_byte = |offset| loop {
        match file.read_at(&mut [0], offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map(|count| count == 1),
        }
    };
    Ok((len == 0 || has_byte(len - 1)?) && !has_byte(len)?)
}

/// Returns whether the file system at `path` is known to report the lengths of its files.
#[cfg(target_os = "linux")]
fn states_lengths(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| EXACT.contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn states_lengths(_: &Path) -> bool {
    false
}

/// Magic numbers of file systems that store files, and so know their lengths (statfs(2) and the
/// kernel's `magic.h`): ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS, bcachefs, NFS, SMB,
/// FAT, exFAT, NTFS, ISO 9660, UDF, SquashFS, EROFS, UBIFS, JFS, NILFS. Files on other file systems
/// are read at both ends of their reported length.
#[cfg(target_os = "linux")]
const EXACT: [u32; 22] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x6969,
    0xFF53_4D42,
    0xFE53_4D42,
    0x4D44,
    0x2011_BAB0,
    0x7366_746E,
    0x9660,
    0x1501_3346,
    0x7371_7368,
    0xE0F5_E1E2,
    0x2405_1905,
    0x3153_464A,
    0x3434,
];

/// Size limit of a file held in memory: 1 MiB. Files of procfs and sysfs are far smaller. Longer
/// ones are read again when they are sent.
const HELD_FILE_MAX: u64 = 1 << 20;

/// Limit on bytes held for all files of a transfer: 64 MiB.
const HELD_MAX: usize = 64 << 20;

/// Number of bytes read at a time when they are only counted.
const READ_LEN: usize = 256 * 1024;
