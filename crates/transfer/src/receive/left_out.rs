//! Entries that are left out: files that are newer here, and everything in a dry run.

use rustix::fs::FileType;

use super::Session;
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::events::TransferEvent;
use crate::left_out::LeftOutReason;
use crate::manifest::{Entry, EntryKind, Modified};
use crate::message::Message;
use crate::tree::Located;

impl Session<'_> {
    /// Settles an entry as left out, and reports it with the next message.
    pub(super) fn leave_out(&self, index: u32, reason: LeftOutReason) -> Result<(), TransferError> {
        let entry = &self.list().entries[index as usize];
        let bytes = entry.size().unwrap_or(0);
        {
            let mut state = self.lock();
            if !state.settled.insert(index) {
                return Ok(());
            }
            if entry.size().is_some() || entry.is_stream() {
                state.left_out.count(reason, bytes);
            }
            // This allows further names of it to be created.
            if reason == LeftOutReason::Newer {
                state.placed.insert(index);
            }
        }
        self.events.event(TransferEvent::LeftOut { path: &entry.path, bytes, reason });
        self.control.queue(&Message::LeftOut { index, reason })
    }

    /// Returns the receiver's file that the user wants to keep instead of `entry`.
    pub(super) fn newer_here(&self, entry: &Entry) -> Option<Located> {
        let is_file = entry.size().is_some() || matches!(entry.kind, EntryKind::HardLink { .. });
        if !self.options.update || !is_file {
            return None;
        }
        // The following steps report an error.
        let located = self.tree.get()?.locate(&entry.path).ok()??;
        is_newer(&located, entry).then_some(located)
    }

    /// Reports the outcome that an entry would have. Writes nothing.
    pub(super) fn plan_dry(&self, index: u32, entry: &Entry) -> Result<(), TransferError> {
        match self.judge(entry) {
            Ok(reason) => self.leave_out(index, reason),
            Err(error) => self.settle_queued(index, Err(&error)),
        }
    }

    /// Determines the outcome that an entry would have from the present entry under its name.
    /// Contents are not compared.
    fn judge(&self, entry: &Entry) -> Result<LeftOutReason, FileError> {
        let Some(tree) = self.tree.get() else { return Ok(LeftOutReason::WouldReceive) };
        let Some(found) = tree.locate(&entry.path)? else { return Ok(LeftOutReason::WouldReceive) };
        let kind = FileType::from_raw_mode(found.stat.st_mode);
        let blocked = |what: &str| Err(FileError::new(FileErrorKind::Blocked, what));
        if kind.is_dir() != (entry.kind == EntryKind::Directory) {
            return match kind {
                FileType::Directory => blocked("the receiver has a directory with this name"),
                FileType::Symlink => Err(FileError::new(FileErrorKind::SymbolicLink, "")),
                _ => blocked("the receiver has a file with this name"),
            };
        }
        if self.newer_here(entry).is_some() {
            return Ok(LeftOutReason::Newer);
        }
        let identity = |located: &Located| (located.stat.st_dev, located.stat.st_ino);
        let is_same = match &entry.kind {
            EntryKind::Directory => true,
            EntryKind::File { size } | EntryKind::SparseFile { size, .. } => {
                let is_time = !self.options.overwrite || Modified::of_stat(&found.stat).is_rounded(entry.modified);
                kind.is_file() && *size == found.stat.st_size as u64 && is_time
            }
            EntryKind::SymbolicLink { target } => {
                let read = rustix::fs::readlinkat(&*found.directory, &found.name, []);
                read.is_ok_and(|read| read.to_bytes() == target.as_bytes())
            }
            EntryKind::HardLink { file } => {
                let file = tree.locate(&self.list().entries[*file as usize].path)?;
                file.is_some_and(|file| identity(&file) == identity(&found))
            }
            EntryKind::Stream => false,
        };
        match (is_same, self.options.overwrite) {
            (true, _) => Ok(LeftOutReason::Same),
            (false, true) => Ok(LeftOutReason::WouldReceive),
            (false, false) => Err(FileError::new(FileErrorKind::Exists, "")),
        }
    }
}

/// Returns whether a found file is newer than `entry`. Like in rsync, anything but a file is
/// replaced whatever its time. Rounding by a file system makes a time earlier, so it makes no file
/// newer.
fn is_newer(located: &Located, entry: &Entry) -> bool {
    FileType::from_raw_mode(located.stat.st_mode).is_file() && Modified::of_stat(&located.stat) > entry.modified
}
