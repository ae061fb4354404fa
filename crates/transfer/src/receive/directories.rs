//! Directories: created before their content, and given their modes and times after it. Directories
//! made by an earlier attempt count as made by this one; if files may be overwritten, directories
//! that existed before also get their modes and times.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::Session;
use crate::error::TransferError;
use crate::manifest::{Entry, EntryKind};

impl Session<'_> {
    /// Makes the listed directories of an earlier attempt writable again.
    pub(super) fn reopen_directories(&self, entries: &[Entry]) {
        let Some(tree) = self.tree.get().filter(|_| !self.options.dry_run) else { return };
        let directories = entries.iter().filter(|entry| entry.kind == EntryKind::Directory);
        let listed: BTreeSet<_> = directories.map(|entry| entry.path.as_bytes()).collect();
        if !listed.is_empty() {
            tree.reopen_directories(&listed, self.options.busy_wait);
        }
    }

    /// Creates a directory. If its mode and time are set later, its result comes with that.
    pub(super) fn plan_directory(&self, index: u32, entry: &Entry) -> Result<(), TransferError> {
        match self.tree().make_directory(&entry.path, entry.mode, self.options.overwrite) {
            Ok(true) => {
                self.lock().made.push(index);
                Ok(())
            }
            Ok(false) => self.settle_queued(index, Ok(None)),
            Err(error) => self.settle_queued(index, Err(&error)),
        }
    }

    /// Completes the directories once every other entry has its result: syncs them, and sets
    /// permissions and times of those that were made or may be changed, innermost first.
    pub(super) fn settle_directories(&self) -> Result<(), TransferError> {
        let entries = &self.list().entries;
        let made = self.lock().made.clone();
        // This comes first: afterwards a parent directory may deny access.
        self.sync_directories(&made)?;
        for index in made.into_iter().rev() {
            let entry = &entries[index as usize];
            match self.tree().settle_directory(&entry.path, entry.mode, entry.modified) {
                Ok(()) => self.settle_queued(index, Ok(None))?,
                Err(error) => self.settle_queued(index, Err(&error))?,
            }
        }
        Ok(())
    }

    /// Syncs the directories whose entries changed, except those that are settled `later`.
    pub(super) fn sync_directories(&self, later: &[u32]) -> Result<(), TransferError> {
        let Some(tree) = self.tree.get() else { return Ok(()) };
        let later = later.iter().map(|index| self.list().entries[*index as usize].path.as_bytes()).collect();
        tree.sync_but(&later)
            .map_err(|error| TransferError::Directory(self.directory.clone(), std::io::Error::other(error)))
    }

    /// Drops the record of the directories after a complete transfer; from then on they are like
    /// any others. Otherwise the next attempt continues with them.
    pub(super) fn forget_directories(&self) {
        if let Some(tree) = self.tree.get()
            && self.failed.load(Ordering::Relaxed) == 0
            && !self.options.dry_run
        {
            let made = self.lock().made.clone();
            tree.forget_directories(made.iter().map(|index| &self.list().entries[*index as usize].path));
        }
    }
}
