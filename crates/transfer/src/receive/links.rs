//! Symbolic and hard links. They are made last: a hard link needs its file, and nothing must be
//! received through a symbolic link.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::{Session, SessionState};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::link_target::LinkTarget;
use crate::manifest::{Entry, EntryKind};
use crate::part_file::{discard_remains, part_and_journal_names};

impl Session<'_> {
    /// Makes all links once every file has its result. Returns false if the transfer stops.
    pub(super) fn make_links(&self) -> Result<bool, TransferError> {
        for (index, entry) in self.list().entries.iter().enumerate().filter(|(_, entry)| entry.is_link()) {
            if self.is_stopping() {
                return Ok(false);
            }
            // A newer one was left out before.
            if self.lock().settled.contains(index as u32) {
                continue;
            }
            match self.make_link(entry) {
                Ok(()) => self.settle_queued(index as u32, Ok(None))?,
                Err(error) => self.settle_queued(index as u32, Err(&error))?,
            }
        }
        Ok(true)
    }

    /// Waits until no file is in progress. Returns false if the transfer stops.
    pub(super) fn wait_for_files(&self) -> Result<bool, TransferError> {
        self.control.flush()?;
        let in_progress = |state: &mut SessionState| !state.active.is_empty() && !self.is_stopping();
        let mut state = self.lock();
        state.is_planner_waiting = true;
        let mut state = self.changed.wait_while(state, in_progress).unwrap_or_else(PoisonError::into_inner);
        state.is_planner_waiting = false;
        drop(state);
        Ok(!self.is_stopping())
    }

    fn make_link(&self, entry: &Entry) -> Result<(), FileError> {
        match &entry.kind {
            EntryKind::SymbolicLink { target } => self.make_symbolic_link(entry, target),
            EntryKind::HardLink { file } => {
                self.take_room(entry)?;
                self.make_hard_link(entry, *file)
            }
            _ => Ok(()),
        }
    }

    fn make_symbolic_link(&self, entry: &Entry, target: &LinkTarget) -> Result<(), FileError> {
        let (directory, name) = self.tree().parent(&entry.path)?;
        let is_same =
            || rustix::fs::readlinkat(&*directory, name, []).is_ok_and(|found| found.to_bytes() == target.as_bytes());
        let make = |name: &OsStr| rustix::fs::symlinkat(target.as_os_str(), &*directory, name);
        self.place_link(entry, &directory, name, make, is_same)?;
        self.tree().set_time_at(&directory, name, entry.modified).map_err(|error| FileError::target(&error))
    }

    fn make_hard_link(&self, entry: &Entry, file: u32) -> Result<(), FileError> {
        if !self.lock().placed.contains(file) {
            return Err(FileError::new(FileErrorKind::Target, "the file that it is a further name of has failed"));
        }
        let (file_directory, file_name) = self.tree().parent(&self.list().entries[file as usize].path)?;
        let (directory, name) = self.tree().parent(&entry.path)?;
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let at =
            |directory: &OwnedFd, name| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        let is_same = || at(&directory, name).is_ok_and(|found| Ok(found) == at(&file_directory, file_name));
        // A symbolic link that took the file's place would get a name from which it leads elsewhere.
        let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_file();
        if !rustix::fs::statat(&*file_directory, file_name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_file) {
            return Err(FileError::new(FileErrorKind::Target, "the file that it is a further name of was replaced"));
        }
        // Without AT_SYMLINK_FOLLOW: a link that took the file's place meanwhile is not followed.
        let make = |name: &OsStr| rustix::fs::linkat(&*file_directory, file_name, &*directory, name, AtFlags::empty());
        self.place_link(entry, &directory, name, make, is_same)
    }

    /// Creates a link with `make`, unless it exists already. A link that replaces an entry is
    /// created under the name of a part file first.
    fn place_link(
        &self,
        entry: &Entry,
        directory: &OwnedFd,
        name: &OsStr,
        make: impl Fn(&OsStr) -> Result<(), Errno>,
        is_same: impl Fn() -> bool,
    ) -> Result<(), FileError> {
        let target = |errno: Errno| FileError::target(&errno.into());
        match make(name) {
            Ok(()) => {}
            Err(Errno::EXIST) if is_same() => return Ok(()),
            Err(Errno::EXIST) if !self.options.overwrite => return Err(FileError::new(FileErrorKind::Exists, "")),
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(target)?;
                if FileType::from_raw_mode(stat.st_mode).is_dir() {
                    return Err(FileError::new(FileErrorKind::Blocked, "the receiver has a directory with this name"));
                }
                let (part_name, _) = part_and_journal_names(name);
                discard_remains(directory, name);
                make(&part_name).map_err(|errno| match errno {
                    Errno::EXIST => FileError::new(FileErrorKind::Busy, ""),
                    errno => target(errno),
                })?;
                rustix::fs::renameat(directory, &part_name, directory, name).map_err(target)?;
            }
            Err(errno) => return Err(target(errno)),
        }
        self.tree().note_changed(&entry.path);
        Ok(())
    }
}
