//! Directories made by unfinished transfers: append-only files in the target directory, one per
//! transfer. A later attempt completes their modes and times, like an uninterrupted transfer, and
//! leaves alone those that existed before.
//!
//! ```text
//!   header   "litzdir2" 8
//!   record   kind 1 | path's length 2 | path | device 8 | inode 8 | check 8
//! ```
//!
//! A directory has an *intent* before it is made, is *made* when its number is known, and is
//! *settled* when its transfer is complete. A transfer keeps its file locked. Unlocked files belong
//! to earlier attempts; if one names a directory of the list, it is taken over. Like the journal of
//! a file, it is not synced: a killed process loses no record.
//!
//! Other users may write to the directory. Therefore files that another user could have created or
//! written to are ignored, each wait for a lock is limited, and a transfer continues without a
//! journal if need be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::limits::ENTRIES_MAX;
use crate::manifest::PATH_BYTES_MAX;
use crate::names::RelativePath;
use crate::own_file::is_own;

/// Identity of a directory: inode, and device relative to that of the target directory, because the
/// device number may change at a restart (btrfs, NFS, USB).
pub(crate) type Identity = (u64, u64);

/// The journal's record of a directory; `None` is an intent.
pub(crate) type Made = Option<Identity>;

/// Directories of a journal.
type Known = BTreeMap<Vec<u8>, Made>;

/// The journal of one transfer, opened on first use.
#[derive(Debug)]
pub(crate) struct DirectoryJournal {
    root: Arc<OwnedFd>,
    root_device: u64,
    own: Option<Own>,
    /// Whether no journal can be created, so that the transfer continues without one.
    is_denied: bool,
}

/// The locked file of this transfer.
#[derive(Debug)]
struct Own {
    name: OsString,
    file: File,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Intent = 1,
    Made = 2,
    Settled = 3,
}

impl DirectoryJournal {
    /// Returns the journal of a transfer into the directory `root`.
    pub(crate) fn new(root: Arc<OwnedFd>) -> io::Result<Self> {
        let root_device = rustix::fs::fstat(&*root)?.st_dev;
        Ok(Self { root, root_device, own: None, is_denied: false })
    }

    /// Returns the identity of the directory with this state.
    pub(crate) fn identity(&self, stat: &Stat) -> Identity {
        (stat.st_dev.wrapping_sub(self.root_device), stat.st_ino)
    }

    /// Continues the journals of earlier attempts that name a directory in `listed`. Waits up to
    /// `busy_wait` for an attempt that is about to end. Returns the directories that they made,
    /// parents first. Best effort: without a journal, the directories are treated like any others.
    pub(crate) fn take_over(&mut self, listed: &BTreeSet<&[u8]>, busy_wait: Duration) -> Known {
        let mut known = Known::new();
        let mut left = busy_wait.max(LOCK_WAIT);
        for name in names() {
            let Some(file) = self.open_own(&name) else { continue };
            // Before the lock: a transfer of other directories is left alone.
            let is_wanted = |found: &Known| found.keys().any(|path| listed.contains(path.as_slice()));
            let is_free = match read(&file) {
                Ok((found, _)) if is_wanted(&found) => lock_within(&file, &mut left),
                // Its process was killed right after creating it.
                Ok((found, _)) if found.is_empty() => {
                    if try_lock(&file) && self.is_named(&name, &file) {
                        let _ = rustix::fs::unlinkat(&*self.root, &name, AtFlags::empty());
                    }
                    false
                }
                _ => false,
            };
            if !is_free || !self.is_named(&name, &file) {
                continue;
            }
            let Ok(found) = self.adopt(name, file) else { continue };
            known.extend(found);
        }
        known
    }

    /// Adopts an abandoned file as that of this transfer, or moves its records there.
    fn adopt(&mut self, name: OsString, file: File) -> io::Result<Known> {
        let (found, valid_len) = read(&file)?;
        if let Some(own) = &mut self.own {
            for (path, made) in &found {
                let kind = if made.is_some() { Kind::Made } else { Kind::Intent };
                own.file.write_all(&record(kind, path, made.unwrap_or_default()))?;
            }
            rustix::fs::unlinkat(&*self.root, &name, AtFlags::empty())?;
        } else {
            // Data after a torn record would not be read.
            file.set_len(valid_len as u64)?;
            self.own = Some(Own { name, file });
        }
        Ok(found)
    }

    /// Records that `path` is about to be made.
    pub(crate) fn intend(&mut self, path: &RelativePath) -> io::Result<()> {
        if self.own.is_none() && !self.is_denied {
            self.own = match self.create() {
                Err(error) if is_denial(&error) => None,
                created => created?,
            };
            self.is_denied = self.own.is_none();
        }
        self.append(Kind::Intent, path.as_bytes(), (0, 0))
    }

    /// Records that `path` was made.
    pub(crate) fn made(&mut self, path: &RelativePath, identity: Identity) -> io::Result<()> {
        self.append(Kind::Made, path.as_bytes(), identity)
    }

    /// Forgets the directories `paths` of a complete transfer, and removes the file if it holds
    /// nothing else. Best effort: leftovers only make a later transfer set modes and times once
    /// more.
    pub(crate) fn settle<'p>(&mut self, paths: impl Iterator<Item = &'p RelativePath>) {
        for path in paths {
            let _ = self.append(Kind::Settled, path.as_bytes(), (0, 0));
        }
        if let Some(own) = self.own.take()
            && read(&own.file).is_ok_and(|(left, _)| left.is_empty())
            && self.is_named(&own.name, &own.file)
        {
            let _ = rustix::fs::unlinkat(&*self.root, &own.name, AtFlags::empty());
        }
    }

    fn append(&mut self, kind: Kind, path: &[u8], identity: Identity) -> io::Result<()> {
        self.own.as_mut().map_or(Ok(()), |own| own.file.write_all(&record(kind, path, identity)))
    }

    /// Opens the journal `name`, if it exists and only this user can have written it.
    fn open_own(&self, name: &OsString) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.root, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_regular = FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink == 1;
        (is_regular && is_own(&stat) && stat.st_mode & OTHERS_WRITE == 0).then(|| file.into())
    }

    /// Creates a file for this transfer. If all names are taken, clears an abandoned one.
    fn create(&self) -> io::Result<Option<Own>> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for name in names() {
            let mut file = match rustix::fs::openat(&*self.root, &name, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => continue,
                opened => File::from(opened?),
            };
            // Until it was locked, another transfer may have taken it for an abandoned one.
            if try_lock(&file) && self.is_named(&name, &file) {
                file.write_all(MAGIC)?;
                return Ok(Some(Own { name, file }));
            }
        }
        for name in names() {
            if let Some(mut file) = self.open_own(&name).filter(try_lock)
                && self.is_named(&name, &file)
            {
                file.set_len(0)?;
                file.write_all(MAGIC)?;
                return Ok(Some(Own { name, file }));
            }
        }
        Ok(None)
    }

    /// Returns whether `file` still has its name.
    fn is_named(&self, name: &OsString, file: &File) -> bool {
        let named = rustix::fs::statat(&*self.root, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_it = |metadata: std::fs::Metadata| {
            named.is_ok_and(|named| (named.st_dev, named.st_ino) == (metadata.dev(), metadata.ino()))
        };
        file.metadata().is_ok_and(is_it)
    }
}

/// Locks the file; returns false if another transfer holds the lock. The lock ends with the
/// process. Where locks are not supported, the user must avoid concurrent transfers.
fn try_lock(file: &File) -> bool {
    !matches!(rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK))
}

/// Does the same as [`try_lock`], but retries within the time `left`: an attempt whose connection
/// was lost may be about to end, and a process that another thread starts holds its locks for a
/// moment, too.
#[expect(clippy::disallowed_methods, reason = "the end of another process's lock is not signalled")]
fn lock_within(file: &File, left: &mut Duration) -> bool {
    loop {
        if try_lock(file) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(LOCK_STEP);
        *left = left.saturating_sub(LOCK_STEP);
    }
}

/// Returns whether the error means that no journal can be created, although directories perhaps
/// can.
fn is_denial(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Returns the directories in a file, and how many of its bytes are valid.
fn read(mut file: &File) -> io::Result<(Known, usize)> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

/// Returns the directories in `bytes`, and how many of the bytes are valid.
fn parse(bytes: &[u8]) -> (Known, usize) {
    let mut found = Known::new();
    if bytes.len() as u64 > LEN_MAX {
        return (found, 0);
    }
    let Some(mut rest) = bytes.strip_prefix(MAGIC.as_slice()) else { return (found, 0) };
    while let Some((kind, path, identity, after)) = parse_record(rest) {
        rest = after;
        match kind {
            // A directory that is gone is made again.
            Kind::Intent => found.insert(path.to_vec(), None),
            Kind::Made => found.insert(path.to_vec(), Some(identity)),
            Kind::Settled => found.remove(path),
        };
    }
    (found, bytes.len() - rest.len())
}

fn parse_record(bytes: &[u8]) -> Option<(Kind, &[u8], Identity, &[u8])> {
    let (head, rest) = bytes.split_at_checked(3)?;
    let kind = [Kind::Intent, Kind::Made, Kind::Settled].into_iter().find(|kind| *kind as u8 == head[0])?;
    let (path, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[1], head[2]])))?;
    let (device, rest) = rest.split_first_chunk()?;
    let (inode, rest) = rest.split_first_chunk()?;
    let (_, after) = rest.split_at_checked(CHECK_LEN)?;
    let identity = (u64::from_be_bytes(*device), u64::from_be_bytes(*inode));
    bytes.starts_with(&record(kind, path, identity)).then_some((kind, path, identity, after))
}

fn record(kind: Kind, path: &[u8], (device, inode): Identity) -> Vec<u8> {
    let mut record = vec![kind as u8];
    // A path has at most PATH_LEN_MAX bytes.
    record.extend_from_slice(&(path.len() as u16).to_be_bytes());
    record.extend_from_slice(path);
    record.extend_from_slice(&device.to_be_bytes());
    record.extend_from_slice(&inode.to_be_bytes());
    let check = blake3::hash(&record);
    record.extend_from_slice(&check.as_bytes()[..CHECK_LEN]);
    record
}

/// Returns the names of journals. No sender can send files with these names.
fn names() -> impl Iterator<Item = OsString> {
    (0..JOURNALS_MAX).map(|number| match number {
        0 => ".litz-directories.litz-journal".into(),
        number => format!(".litz-directories-{number}.litz-journal").into(),
    })
}

/// Limit on unfinished transfers into one directory that are kept apart.
const JOURNALS_MAX: u32 = 64;

/// Mode bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Minimum time granted to an earlier attempt to end.
const LOCK_WAIT: Duration = Duration::from_millis(50);
const LOCK_STEP: Duration = Duration::from_millis(5);

const MAGIC: &[u8; 8] = b"litzdir2";

const CHECK_LEN: usize = 8;

/// Size limit: an intent and a record for each directory of the largest transfer. A longer file is
/// ignored.
const LEN_MAX: u64 = 2 * (PATH_BYTES_MAX as u64 + ENTRIES_MAX as u64 * (3 + 16 + CHECK_LEN as u64));

#[cfg(test)]
mod tests;
