//! The last step of a file: compare, sync, move into place. Several threads, because each waits for
//! the disk.

use std::sync::Arc;

use super::Session;
use super::incoming::{Incoming, Target};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::part_file::{complete_in_place, discard_remains};

impl Session<'_> {
    /// Runs a finishing thread.
    pub(super) fn finish_files(&self) {
        while let Some(incoming) = self.finished.pop() {
            if self.is_stopping() {
                return;
            }
            if let Err(error) = self.finish_file(&incoming) {
                return self.fatal(error);
            }
        }
    }

    fn finish_file(&self, incoming: &Arc<Incoming>) -> Result<(), TransferError> {
        let entry = &self.list().entries[incoming.index as usize];
        let overwrite = self.options.overwrite;
        match (&incoming.target, incoming.agreed_hash()) {
            (Target::Part(part), Some(hash)) => match part.commit(entry, self.tree(), overwrite) {
                Ok(()) => self.settle(incoming.index, Ok(Some(hash))),
                Err(error) => self.settle_failed(incoming, &error),
            },
            (Target::InPlace(directory), Some(hash)) => {
                let name = entry.path.split_last().1;
                discard_remains(directory, name);
                // A killed attempt may have moved it here without syncing the directory.
                self.tree().note_changed(&entry.path);
                match complete_in_place(directory, name, entry, self.tree(), overwrite) {
                    Ok(()) => self.settle(incoming.index, Ok(Some(hash))),
                    Err(error) => self.settle_failed(incoming, &error),
                }
            }
            (Target::Unopened(_), Some(_)) => self.place_empty(incoming),
            // Its hash is that of its only segment, or of no data.
            (Target::Unopened(_), None) => {
                self.settle_failed(incoming, &FileError::new(FileErrorKind::SourceChanged, ""))
            }
            // Each received segment was verified, so the mismatch is in the segments from an
            // earlier attempt, which the source no longer has.
            (Target::Part(_), None) => {
                let what = "the data of an earlier attempt was discarded";
                self.settle_failed(incoming, &FileError::new(FileErrorKind::SourceChanged, what))
            }
            (Target::InPlace(_), None) if overwrite => self.plan_again(incoming),
            (Target::InPlace(_), None) => {
                let what = "of the same size, but its content differs";
                self.settle_failed(incoming, &FileError::new(FileErrorKind::Exists, what))
            }
        }
    }
}
