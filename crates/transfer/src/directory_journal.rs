//! The directories that unfinished transfers have made: an append-only file in the directory that is
//! received into. A later attempt completes their modes and times, as an uninterrupted transfer does,
//! and leaves those alone that were there before.
//!
//! ```text
//!   header   "litzdir1" 8
//!   record   kind 1 | path's length 2 | path | device 8 | inode 8 | check 8
//! ```
//!
//! A directory has an *intent* before it is made, is *made* when its number is known, and is *settled*
//! when its transfer is complete. Transfers that run at the same time append to the same file; the last
//! one removes it. As with the journal of a file, nothing is synced: a killed process loses no record.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::limits::ENTRIES_MAX;
use crate::manifest::PATH_BYTES_MAX;
use crate::names::RelativePath;

/// The identity of a directory: device and inode.
pub(crate) type Identity = (u64, u64);

/// What the journal knows of a directory; `None` is an intent.
pub(crate) type Made = Option<Identity>;

/// The journal, opened when it is needed first.
#[derive(Debug)]
pub(crate) struct DirectoryJournal {
    root: Arc<OwnedFd>,
    file: Option<File>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Intent = 1,
    Made = 2,
    Settled = 3,
}

impl DirectoryJournal {
    /// The journal of the directory `root`.
    pub(crate) fn new(root: Arc<OwnedFd>) -> Self {
        Self { root, file: None }
    }

    /// The directories that earlier attempts have made, parents first.
    pub(crate) fn read(&mut self) -> io::Result<BTreeMap<Vec<u8>, Made>> {
        if !self.open(false)? {
            return Ok(BTreeMap::new());
        }
        let Some(file) = &mut self.file else { return Ok(BTreeMap::new()) };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
        let (found, valid_len) = parse(&bytes);
        // A torn record, or one that is too many. If other transfers run they do the same.
        if valid_len < bytes.len() {
            file.set_len(valid_len as u64)?;
            if valid_len == 0 {
                file.write_all(MAGIC)?;
            }
        }
        Ok(found)
    }

    /// Notes that `path` is about to be made.
    pub(crate) fn intend(&mut self, path: &RelativePath) -> io::Result<()> {
        self.open(true)?;
        self.append(Kind::Intent, path.as_bytes(), (0, 0))
    }

    /// Notes that `path` was made.
    pub(crate) fn made(&mut self, path: &RelativePath, identity: Identity) -> io::Result<()> {
        self.append(Kind::Made, path.as_bytes(), identity)
    }

    /// The transfer that made `paths` is complete: forgets them, and removes the file if no other transfer
    /// uses it. Best effort: what is left only makes a later transfer set modes and times once more.
    pub(crate) fn settle<'p>(&mut self, paths: impl Iterator<Item = &'p RelativePath>) {
        if self.file.is_none() {
            return;
        }
        for path in paths {
            let _ = self.append(Kind::Settled, path.as_bytes(), (0, 0));
        }
        if self.file.as_ref().is_some_and(is_alone) && self.read().is_ok_and(|left| left.is_empty()) {
            let _ = rustix::fs::unlinkat(&*self.root, name(), AtFlags::empty());
        }
        self.file = None;
    }

    fn append(&mut self, kind: Kind, path: &[u8], identity: Identity) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        // One write at the end, whatever other transfers append.
        file.write_all(&record(kind, path, identity))
    }

    /// Opens the file, and creates it if `create`. Returns false if there is none.
    fn open(&mut self, create: bool) -> io::Result<bool> {
        while self.file.is_none() {
            let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let flags = if create { flags | OFlags::CREATE } else { flags };
            let opened = match rustix::fs::openat(&*self.root, name(), flags, Mode::RUSR | Mode::WUSR) {
                Err(rustix::io::Errno::NOENT) if !create => return Ok(false),
                opened => File::from(opened?),
            };
            // Ends with the process. Where there are no locks, the user must avoid concurrent transfers.
            let _ = rustix::fs::flock(&opened, FlockOperation::LockShared);
            let metadata = opened.metadata()?;
            if !metadata.is_file() || metadata.nlink() > 1 {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the journal of directories is not ours"));
            }
            // Before the lock was there, the last transfer may have removed the file.
            let is_named = rustix::fs::statat(&*self.root, name(), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|named| (named.st_dev, named.st_ino) == (metadata.dev(), metadata.ino()));
            if !is_named {
                continue;
            }
            if metadata.len() == 0 {
                (&opened).write_all(MAGIC)?;
            }
            self.file = Some(opened);
        }
        Ok(true)
    }
}

/// Whether no other transfer uses the file, which then belongs to this one. A process that another thread
/// is about to start holds its locks for a moment, too.
fn is_alone(file: &File) -> bool {
    for _ in 0..ALONE_TRIES {
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        let _interrupted = poll(&mut [], Some(&ALONE_WAIT));
    }
    false
}

/// The directories in `bytes`, and how many of the bytes are valid.
fn parse(bytes: &[u8]) -> (BTreeMap<Vec<u8>, Made>, usize) {
    let mut found = BTreeMap::new();
    if bytes.len() as u64 > LEN_MAX {
        return (found, 0);
    }
    let Some(mut rest) = bytes.strip_prefix(MAGIC.as_slice()) else { return (found, 0) };
    // Two transfers that began at the same time have written it both.
    while let Some(after) = rest.strip_prefix(MAGIC.as_slice()) {
        rest = after;
    }
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

/// No sender can send a file of this name.
fn name() -> &'static OsStr {
    OsStr::new(".litz-directories.litz-journal")
}

/// Together 50 ms.
const ALONE_TRIES: u32 = 10;
const ALONE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

const MAGIC: &[u8; 8] = b"litzdir1";

const CHECK_LEN: usize = 8;

/// An intent and a record for each directory of the largest transfer. A longer file is begun anew.
const LEN_MAX: u64 = 2 * (PATH_BYTES_MAX as u64 + ENTRIES_MAX as u64 * (3 + 16 + CHECK_LEN as u64));

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(folder: &tempfile::TempDir) -> DirectoryJournal {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        DirectoryJournal::new(Arc::new(rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap()))
    }

    fn path(text: &str) -> RelativePath {
        RelativePath::from_components(text.split('/').map(str::as_bytes)).unwrap()
    }

    #[test]
    fn directories_are_known_until_their_transfer_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = journal(&folder);
        assert!(first.read().unwrap().is_empty());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is made for nothing");
        first.intend(&path("a")).unwrap();
        first.made(&path("a"), (1, 2)).unwrap();
        first.intend(&path("a/b")).unwrap();
        drop(first);
        let mut second = journal(&folder);
        let known = [(b"a".to_vec(), Some((1, 2))), (b"a/b".to_vec(), None)];
        assert_eq!(second.read().unwrap(), known.clone().into());
        let mut beside = journal(&folder);
        beside.intend(&path("c")).unwrap();
        second.settle([path("a"), path("a/b")].iter());
        assert_eq!(beside.read().unwrap(), [(b"c".to_vec(), None)].into());
        beside.settle([path("c")].iter());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn records_after_a_torn_one_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name());
        let mut first = journal(&folder);
        first.made(&path("a"), (1, 2)).unwrap_err();
        for name in ["a", "b", "c"] {
            first.intend(&path(name)).unwrap();
        }
        let whole = std::fs::read(&file).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&file, &whole[..len]).unwrap();
            let mut again = journal(&folder);
            let before = again.read().unwrap().len();
            again.intend(&path("d")).unwrap();
            let after = journal(&folder).read().unwrap();
            assert!(after.contains_key(b"d".as_slice()), "{len}");
            assert_eq!(after.len(), before + 1, "{len}");
        }
    }
}
