//! The receiving side's first step: checking the sender's list and accepting it or not.

use super::Session;
use crate::control::{Input, next_input};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::manifest::{Entry, EntryKind, Limits, SkippedCounts, Totals};
use crate::message::Message;
use crate::tree::TargetTree;

/// The list of files that the sender announced.
pub(super) struct List {
    pub(super) entries: Vec<Entry>,
    pub(super) totals: Totals,
    /// Entries that the sender found but does not send, if it reported them.
    pub(super) skipped: SkippedCounts,
    pub(super) base_log2: u8,
}

impl Session<'_> {
    /// Receives the whole list, and refuses it if the transfer is impossible.
    pub(super) fn take_list(&self, base_log2: u8) -> Result<List, TransferError> {
        if self.options.needs_left_out() && !self.knows_left_out() {
            return Err(TransferError::LeftOutUnsupported);
        }
        let mut limits = Limits::default();
        let mut entries = Vec::new();
        let skipped = loop {
            match next_input(&self.inbox, &self.options.cancel)? {
                Some(Input::Message(Message::Entries(batch))) => {
                    batch.iter().try_for_each(|entry| limits.admit(entry))?;
                    for entry in batch {
                        self.check_root(&entry)?;
                        self.check_link(&entry, &entries)?;
                        entries.push(entry);
                    }
                }
                Some(Input::Message(Message::EntriesEnd { count, skipped }))
                    if count as usize == entries.len() && (skipped.is_none() || self.knows_links()) =>
                {
                    break skipped.unwrap_or_default();
                }
                Some(_) => return Err(TransferError::Protocol("the list of files is faulty")),
                None => {}
            }
        };
        let totals = limits.totals();
        if let Some(bytes_max) = self.options.bytes_max.filter(|bytes_max| totals.bytes > *bytes_max) {
            return Err(TransferError::TooLarge(totals.bytes, bytes_max));
        }
        if entries.len() > 1 && entries.iter().any(Entry::is_stream) {
            return Err(TransferError::Protocol("a stream is not the only entry"));
        }
        if self.options.output.is_some() && !entries.iter().all(Entry::is_stream) {
            return Err(TransferError::StreamOnly);
        }
        self.reopen_directories(&entries);
        self.check_growth(&entries)
            .inspect_err(|_| self.tree.get().into_iter().for_each(TargetTree::close_directories))?;
        Ok(List { entries, totals, skipped, base_log2 })
    }

    /// Checks that the entry was requested, or is below a requested one.
    fn check_root(&self, entry: &Entry) -> Result<(), TransferError> {
        let Some(roots) = &self.options.roots else { return Ok(()) };
        if roots.contains(&entry.path.root()) {
            return Ok(());
        }
        Err(TransferError::Unrequested(entry.path.to_string()))
    }

    /// Checks entries that only the newest senders may list; `before` has the preceding ones.
    fn check_link(&self, entry: &Entry, before: &[Entry]) -> Result<(), TransferError> {
        if entry.needs_links() && !self.knows_links() {
            return Err(TransferError::Protocol("an entry that this version of the protocol does not have"));
        }
        if let EntryKind::HardLink { file } = entry.kind
            && before.get(file as usize).and_then(Entry::size).is_none()
        {
            return Err(TransferError::Protocol("a hard link to something else than an earlier file"));
        }
        Ok(())
    }

    /// Refuses files that exceed the quota.
    fn check_growth(&self, entries: &[Entry]) -> Result<(), TransferError> {
        let Some(room) = &self.options.room else { return Ok(()) };
        let growth = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(self.growth_by(entry, entries)));
        if growth > room.left() { Err(TransferError::NoRoom(growth, room.left())) } else { Ok(()) }
    }

    /// Returns the number of bytes by which a file grows beyond its present part. Each name of a
    /// file counts: another transfer may replace it by a separate file.
    fn growth_by(&self, entry: &Entry, entries: &[Entry]) -> u64 {
        let there = self.tree.get().map_or(0, |tree| tree.len_of(&entry.path));
        let size = match entry.kind {
            EntryKind::HardLink { file } => entries[file as usize].size(),
            _ => entry.size(),
        };
        size.unwrap_or(0).saturating_sub(there)
    }

    /// Takes quota for a file that is about to be received. Concurrent transfers share it, so less
    /// may be left than when the list was accepted.
    pub(super) fn take_room(&self, entry: &Entry) -> Result<(), FileError> {
        let has_room =
            self.options.room.as_ref().is_none_or(|room| room.take(self.growth_by(entry, &self.list().entries)));
        has_room.then_some(()).ok_or_else(|| FileError::new(FileErrorKind::NoSpace, "of what the sender may store"))
    }
}
