//! The receiver that serves a ticket: it holds a lock on a separate file while it runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use credentials::private_file::NON_BLOCKING;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A ticket being served by a receiver. Dropping it, also by the end of the process, frees the
/// ticket for another receiver.
#[derive(Debug)]
pub struct Serving {
    /// Closing it releases the lock.
    _file: File,
    path: PathBuf,
}

impl Serving {
    /// Locks the file at `path`; returns `None` if another process holds the lock.
    pub(super) fn lock(path: PathBuf) -> io::Result<Option<Self>> {
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(NON_BLOCKING)
                .open(&path)?;
            if !try_lock(&file)? {
                return Ok(None);
            }
            // The process that held the lock may have removed the file meanwhile. Then the lock is
            // on a file that no other process can open.
            if is_at(&file, &path)? {
                return Ok(Some(Self { _file: file, path }));
            }
        }
    }

    /// Returns whether a process holds the lock on the file at `path`.
    pub(super) fn is_locked(path: &Path) -> io::Result<bool> {
        match OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path) {
            Ok(file) => try_lock(&file).map(|locked| !locked),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Best effort: a file left behind is empty and unlocked.
        let _removed = fs::remove_file(&self.path);
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether `path` still leads to `file`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, found) = (file.metadata()?, fs::metadata(path));
    match found {
        Ok(found) => Ok((opened.dev(), opened.ino()) == (found.dev(), found.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
