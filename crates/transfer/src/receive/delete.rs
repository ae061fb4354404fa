//! Deletes what is in the listed directories and not in the list, if the user of this host wants that.
//!
//! The sender decides only what is in its list: nothing outside the listed directories is looked at, and
//! nothing is deleted unless the transfer is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType};

use super::Session;
use crate::control::next_input;
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::events::TransferEvent;
use crate::filter::Filter;
use crate::left_out::NothingDeletedReason;
use crate::manifest::EntryKind;
use crate::message::Message;
use crate::names::RelativePath;
use crate::tree::{names_in, open_directory};

/// What was deleted, and what should have been and was not.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Deletions {
    pub(super) done: u64,
    pub(super) failed: u64,
}

/// A walk through the directories.
struct Walk<'s, 'a> {
    session: &'s Session<'a>,
    listed: BTreeSet<&'s [u8]>,
    /// The number of listed names in each directory.
    children: BTreeMap<&'s [u8], usize>,
    filter: &'s Filter,
    deletions: Deletions,
}

impl Session<'_> {
    /// Deletes what is not in the list. After everything else, when each entry has its result.
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
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Directory) {
            let opened = match tree.locate(&entry.path) {
                Ok(Some(found)) => open_directory(&found.directory, &found.name),
                // A dry run has not made it.
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match opened {
                Ok(directory) => {
                    walk.clean(&directory, &entry.path, true)?;
                }
                Err(error) => walk.fail(&entry.path, &error)?,
            }
        }
        self.control.flush()?;
        Ok(walk.deletions)
    }

    /// Why the list may not say all that the sender has.
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
    /// Deletes what is not listed in `directory`, whose name is `path`. Returns whether nothing is left in
    /// it. Its depth is that of a [`RelativePath`].
    fn clean(&mut self, directory: &OwnedFd, path: &RelativePath, is_listed: bool) -> Result<bool, TransferError> {
        let names = match names_in(directory) {
            Ok(names) => names,
            Err(error) => {
                self.fail(path, &FileError::target(&error))?;
                return Ok(false);
            }
        };
        // Otherwise the file system has other names for what was stored, as one does that ignores case, and what
        // is not in the list may be in it under another name.
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

    /// Whether all that is listed in the directory `path` is among the `names` in it.
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
        // What no sender can list stays: unfinished files of other transfers, above all.
        let Ok(child) = path.join(name.as_bytes()) else { return Ok(false) };
        if self.listed.contains(child.as_bytes()) {
            return Ok(false);
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Another program was faster.
            Err(rustix::io::Errno::NOENT) => return Ok(true),
            Err(_) if !self.filter.admits_bytes(child.as_bytes(), None) => return Ok(false),
            Err(errno) => return self.fail(&child, &FileError::target(&errno.into())).map(|()| false),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        if !self.filter.admits(&child, is_directory) {
            return Ok(false);
        }
        if is_directory {
            match open_directory(directory, name) {
                // Something in it is excluded, or could not be deleted.
                Ok(inner) if !self.clean(&inner, &child, false)? => return Ok(false),
                Ok(_) => {}
                Err(error) => return self.fail(&child, &error).map(|()| false),
            }
        }
        self.delete(directory, name, &child, is_directory, is_listed)
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
