//! Deletion of unlisted entries in the listed directories, if the user of this host requests it.
//!
//! The sender controls only its list: nothing outside the listed directories is touched, and
//! nothing is deleted unless the transfer is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Stat};

use super::Session;
use crate::control::next_input;
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::events::TransferEvent;
use crate::filter::Filter;
use crate::left_out::NothingDeletedReason;
use crate::manifest::{Entry, EntryKind};
use crate::message::Message;
use crate::names::RelativePath;
use crate::own_file::{chmod_at, is_own};
use crate::tree::{TargetTree, names_in, open_directory};

/// Mode bits with which the owner of a directory can delete in it.
const OWNER_ALL: u32 = 0o700;

/// Counts of deleted entries, and of those that could not be deleted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Deletions {
    pub(super) done: u64,
    pub(super) failed: u64,
}

/// A walk through the directories.
struct Walk<'s, 'a> {
    session: &'s Session<'a>,
    listed: BTreeSet<&'s [u8]>,
    /// Number of listed names in each directory.
    children: BTreeMap<&'s [u8], usize>,
    filter: &'s Filter,
    deletions: Deletions,
}

impl Session<'_> {
    /// Deletes unlisted entries. Runs last, when each entry has its result, so directories have
    /// their modes and times already and need them again.
    pub(super) fn delete_unlisted(&self) -> Result<Deletions, TransferError> {
        let Some(filter) = &self.options.delete else { return Ok(Deletions::default()) };
        if let Some(reason) = self.hindrance() {
            self.events.event(TransferEvent::NothingDeleted { reason });
            self.control.queue(&Message::NothingDeleted { reason })?;
            return Ok(Deletions::default());
        }
        let Some(tree) = self.tree.get() else { return Ok(Deletions::default()) };
        let entries = &self.list().entries;
        let listed: BTreeSet<_> = entries.iter().map(|entry| entry.path.as_bytes()).collect();
        let mut children = BTreeMap::new();
        for path in &listed {
            let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            *children.entry(&path[..end]).or_default() += 1;
        }
        let mut walk = Walk { session: self, listed, children, filter, deletions: Deletions::default() };
        let opened = self.open_settled_directories(tree);
        let walked = walk.clean_listed(tree, entries);
        // This also runs if the walk ended early.
        let settled = self.settle_again(tree, &opened);
        walked.and(settled)?;
        self.control.flush()?;
        Ok(walk.deletions)
    }

    /// Makes settled directories writable for their owner where they are not. Returns those
    /// directories.
    fn open_settled_directories(&self, tree: &TargetTree) -> BTreeSet<u32> {
        if self.options.dry_run {
            return BTreeSet::new();
        }
        let made = self.lock().made.clone();
        let is_closed = |entry: &Entry| tree.mode(entry.mode) & OWNER_ALL != OWNER_ALL;
        let opens = |index: &u32| {
            let entry = &self.list().entries[*index as usize];
            // If this is not permitted, the failing deletions report it.
            is_closed(entry) && tree.open_up(&entry.path).is_ok()
        };
        made.into_iter().filter(opens).collect()
    }

    /// Restores the modes and times of the `opened` directories, and of those in which something
    /// was deleted.
    fn settle_again(&self, tree: &TargetTree, opened: &BTreeSet<u32>) -> Result<(), TransferError> {
        let made = self.lock().made.clone();
        let mut outcome = Ok(());
        for index in made.into_iter().rev() {
            let entry = &self.list().entries[index as usize];
            if opened.contains(&index) || tree.has_changed(&entry.path) {
                let settled = tree.settle_directory(&entry.path, entry.mode, entry.modified);
                outcome = outcome.and(settled);
            }
        }
        outcome.map_err(|error| TransferError::Directory(self.directory.clone(), std::io::Error::other(error)))
    }

    /// Returns the reason why the list may be incomplete.
    fn hindrance(&self) -> Option<NothingDeletedReason> {
        if self.failed.load(Ordering::Relaxed) > 0 {
            return Some(NothingDeletedReason::Failed);
        }
        (self.list().skipped.total() > 0).then_some(NothingDeletedReason::Skipped)
    }

    /// Ends the walk if a user interrupts it, or if the sender has left.
    fn check_interrupt(&self) -> Result<(), TransferError> {
        if self.is_stopping() {
            return Err(TransferError::Cancelled);
        }
        if !self.inbox.is_empty() && next_input(&self.inbox, &self.options.cancel)?.is_some() {
            return Err(TransferError::Protocol("a message after Finish"));
        }
        Ok(())
    }
}

impl Walk<'_, '_> {
    /// Cleans the listed directories.
    fn clean_listed(&mut self, tree: &TargetTree, entries: &[Entry]) -> Result<(), TransferError> {
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Directory) {
            let opened = match tree.locate(&entry.path) {
                Ok(Some(found)) => open_directory(&found.directory, &found.name),
                // A dry run has not created it.
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match opened {
                Ok(directory) => {
                    self.clean(&directory, &entry.path, true)?;
                }
                Err(error) => self.fail(&entry.path, &error)?,
            }
        }
        Ok(())
    }

    /// Deletes the unlisted entries of `directory`, whose name is `path`. Returns whether it is
    /// empty afterwards. Its depth is that of a [`RelativePath`].
    fn clean(&mut self, directory: &OwnedFd, path: &RelativePath, is_listed: bool) -> Result<bool, TransferError> {
        let names = match names_in(directory) {
            Ok(names) => names,
            Err(error) => {
                self.fail(path, &FileError::target(&error))?;
                return Ok(false);
            }
        };
        // Otherwise the file system changes names, for example because it ignores case, and an
        // unlisted entry may be a listed one under another name.
        let is_whole = self.session.options.dry_run || !is_listed || self.has_all_listed(path, &names);
        if !is_whole {
            let what = "names in it are not as they were stored, so nothing is deleted there";
            self.fail(path, &FileError::new(FileErrorKind::Target, what))?;
            return Ok(false);
        }
        let mut is_empty = true;
        for name in names {
            self.session.check_interrupt()?;
            is_empty &= self.clean_one(directory, path, &name, is_listed)?;
        }
        Ok(is_empty)
    }

    /// Returns whether all listed entries of the directory `path` are among its `names`.
    fn has_all_listed(&self, path: &RelativePath, names: &[OsString]) -> bool {
        let is_listed =
            |name: &&OsString| path.join(name.as_bytes()).is_ok_and(|child| self.listed.contains(child.as_bytes()));
        let expected = self.children.get(path.as_bytes()).copied().unwrap_or(0);
        names.iter().filter(is_listed).count() == expected
    }

    /// Deletes `name` unless it is listed or excluded. Returns whether it is gone.
    fn clean_one(
        &mut self,
        directory: &OwnedFd,
        path: &RelativePath,
        name: &OsString,
        is_listed: bool,
    ) -> Result<bool, TransferError> {
        // Names that no sender can list stay, above all unfinished files of other transfers.
        let Ok(child) = path.join(name.as_bytes()) else { return Ok(false) };
        if self.listed.contains(child.as_bytes()) {
            return Ok(false);
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Another program has already deleted it.
            Err(rustix::io::Errno::NOENT) => return Ok(true),
            Err(_) if !self.filter.admits_bytes(child.as_bytes(), None) => return Ok(false),
            Err(errno) => return self.fail(&child, &FileError::target(&errno.into())).map(|()| false),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        if !self.filter.admits(&child, is_directory) {
            return Ok(false);
        }
        if is_directory {
            self.delete_directory(directory, &child, &stat, is_listed)
        } else {
            self.delete(directory, name, &child, false, is_listed)
        }
    }

    /// Deletes the directory `path`, whose parent is `parent`, with its contents. Like in rsync, it
    /// is made writable for its owner first; if it stays, it keeps its mode.
    fn delete_directory(
        &mut self,
        parent: &OwnedFd,
        path: &RelativePath,
        stat: &Stat,
        is_parent_listed: bool,
    ) -> Result<bool, TransferError> {
        let name = path.split_last().1;
        let is_closed = stat.st_mode & OWNER_ALL != OWNER_ALL && !self.session.options.dry_run;
        let is_it = |found: &Stat| is_own(found) && (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino);
        let opened =
            if is_closed { chmod_at(parent, name, |mode| mode | OWNER_ALL, is_it).ok().flatten() } else { None };
        let is_gone = match open_directory(parent, name) {
            Ok(inner) => match self.clean(&inner, path, false) {
                Ok(true) => self.delete(parent, name, path, true, is_parent_listed),
                // An entry in it is excluded, or could not be deleted.
                outcome => outcome,
            },
            Err(error) => self.fail(path, &error).map(|()| false),
        };
        if opened.is_some() && !matches!(is_gone, Ok(true)) {
            // Best effort: it had another mode before this command, and its owner can set it.
            let _ = chmod_at(parent, name, |_| stat.st_mode & 0o777, is_it);
        }
        is_gone
    }

    fn delete(
        &mut self,
        directory: &OwnedFd,
        name: &OsStr,
        path: &RelativePath,
        is_directory: bool,
        is_parent_listed: bool,
    ) -> Result<bool, TransferError> {
        let session = self.session;
        let is_dry_run = session.options.dry_run;
        if !is_dry_run {
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            if let Err(errno) = rustix::fs::unlinkat(directory, name, flags) {
                return self.fail(path, &FileError::target(&errno.into())).map(|()| false);
            }
            // Another parent is about to be deleted, too.
            if is_parent_listed {
                session.tree().note_changed(path);
            }
        }
        self.deletions.done += 1;
        session.events.event(TransferEvent::Deleted { path, dry_run: is_dry_run });
        session.control.queue(&Message::Deleted { is_dry_run, path: path.clone() })?;
        Ok(true)
    }

    fn fail(&mut self, path: &RelativePath, error: &FileError) -> Result<(), TransferError> {
        self.deletions.failed += 1;
        self.session.events.event(TransferEvent::NotDeleted { path, error });
        self.session.control.queue(&Message::NotDeleted { path: path.clone(), error: error.clone() })
    }
}
