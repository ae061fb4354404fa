//! Directories: made before their content, and given their modes and times after it. Those that an
//! earlier attempt has made count as made by this one, and if files may be overwritten, those that were
//! there before get their modes and times, too.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::Session;
use crate::error::TransferError;
use crate::manifest::{Entry, EntryKind};

impl Session<'_> {
    /// Opens up the listed directories that an earlier attempt has made.
    pub(super) fn reopen_directories(&self, entries: &[Entry]) {
        let Some(tree) = self.tree.get().filter(|_| !self.options.dry_run) else { return };
        let directories = entries.iter().filter(|entry| entry.kind == EntryKind::Directory);
        let listed: BTreeSet<_> = directories.map(|entry| entry.path.as_bytes()).collect();
        if !listed.is_empty() {
            tree.reopen_directories(&listed, self.options.busy_wait);
        }
    }

    /// Makes a directory. One whose mode and time are set has its result when it is settled.
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

    /// Once everything else has its result: syncs the directories, and sets permissions and times of those
    /// that were made or may be changed, innermost first.
    pub(super) fn settle_directories(&self) -> Result<(), TransferError> {
        let entries = &self.list().entries;
        let made = self.lock().made.clone();
        // Before: afterwards a directory above may deny access.
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

    /// Syncs the directories whose entries changed, but those that are settled `later`.
    pub(super) fn sync_directories(&self, later: &[u32]) -> Result<(), TransferError> {
        let Some(tree) = self.tree.get() else { return Ok(()) };
        let later = later.iter().map(|index| self.list().entries[*index as usize].path.as_bytes()).collect();
        tree.sync_but(&later)
            .map_err(|error| TransferError::Directory(self.directory.clone(), std::io::Error::other(error)))
    }

    /// After a complete transfer, its directories are as any others. Otherwise the next attempt goes on
    /// with them.
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
