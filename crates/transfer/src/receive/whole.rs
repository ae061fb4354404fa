//! Small files, if both ends support `litz/1.3`: nothing is opened for them before all their bytes
//! have arrived and are verified, and the files of one data stream are synced together.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Session;
use super::data::data_error;
use super::incoming::{Incoming, Target};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::manifest::Entry;
use crate::open_files::FilePermit;
use crate::part_file::{Found, PartFile, look, sync_together};
use crate::record::{CHUNK_LEN_MAX, Part, RecordReader};
use crate::segment::{FileHash, HashTree, Layout};

/// Files that a worker has written but not moved into place, and their number of bytes.
#[derive(Default)]
pub(super) struct Batch(Vec<Written>, usize);

struct Written {
    incoming: Arc<Incoming>,
    part: PartFile,
    _permit: Option<Arc<FilePermit>>,
}

impl Drop for Written {
    fn drop(&mut self) {
        // Moved into place, or useless to a later attempt, because it has no journal.
        if !self.incoming.is_placed() {
            self.part.discard();
        }
    }
}

impl Session<'_> {
    /// Returns whether a file may be received as a whole.
    pub(super) fn is_small(&self, layout: Layout) -> bool {
        self.knows_small_files() && layout.count() <= 1 && layout.size() <= CHUNK_LEN_MAX as u64
    }

    /// Returns the directory of a file whose name is free; `None` if the file may exist already.
    pub(super) fn find_free(&self, entry: &Entry) -> Result<Option<Arc<OwnedFd>>, FileError> {
        let (directory, name) = self.tree().parent(&entry.path)?;
        let found = look(&directory, name, entry, self.options.overwrite)?;
        Ok(matches!(found, Found::Free).then_some(directory))
    }

    /// Announces a small file to the workers, then to the sender.
    pub(super) fn announce_small(
        &self,
        index: u32,
        layout: Layout,
        directory: Arc<OwnedFd>,
    ) -> Result<(), TransferError> {
        self.announce_queued(Incoming::new(index, layout, Target::Unopened(directory), None, HashTree::new(layout)))
    }

    /// Receives the only segment of a small file, verifies it, and writes the file.
    pub(super) fn take_whole(
        &self,
        reader: &mut RecordReader,
        incoming: &Arc<Incoming>,
        buffer: &mut [u8],
        batch: &mut Batch,
    ) -> Result<(), TransferError> {
        let (_, len) = incoming.layout.range(0);
        let len = len as usize;
        let mut taken = 0;
        let value = loop {
            match reader.part(&mut buffer[taken..]).map_err(data_error)? {
                Part::Chunk(count) if count > len - taken => {
                    return Err(TransferError::Protocol("a segment is longer than it can be"));
                }
                Part::Chunk(count) => {
                    taken += count;
                    incoming.count(count as u64);
                    self.progress.add_moved(count as u64);
                }
                Part::Hole(_) => return Err(TransferError::Protocol("a hole where there cannot be one")),
                Part::Abort => {
                    self.progress.take_back(taken as u64);
                    return Ok(());
                }
                Part::End(_) if taken < len => {
                    return Err(TransferError::Protocol("a segment is shorter than it must be"));
                }
                Part::End(value) => break value,
            }
        };
        let bytes = &buffer[..len];
        let mut hasher = incoming.layout.hasher(0);
        hasher.update(bytes);
        if value != hasher.finish() {
            self.progress.take_back(taken as u64);
            return self.settle_failed(incoming, &FileError::new(FileErrorKind::Damaged, ""));
        }
        // The hash comes first, so that no other thread finds the file complete.
        if incoming.on_hash(FileHash::from_bytes(value)).is_none() {
            return Err(TransferError::Protocol("a file has two hashes"));
        }
        if incoming.on_segment(0, value) { self.write_whole(incoming, bytes, batch) } else { Ok(()) }
    }

    /// Writes a verified file and adds it to `batch`.
    fn write_whole(&self, incoming: &Arc<Incoming>, bytes: &[u8], batch: &mut Batch) -> Result<(), TransferError> {
        let permit = self.open_files.try_acquire();
        // Waiting for one could mean waiting for files that only this thread can receive. Without
        // it, only one file is open in this thread.
        if permit.is_none() {
            self.place(batch)?;
        }
        let Target::Unopened(directory) = &incoming.target else { return Ok(()) };
        let entry = &self.list().entries[incoming.index as usize];
        let name = entry.path.split_last().1;
        match PartFile::create_whole(self.tree(), Arc::clone(directory), name, entry, bytes) {
            Ok(part) => {
                let has_permit = permit.is_some();
                batch.1 += bytes.len();
                batch.0.push(Written { incoming: Arc::clone(incoming), part, _permit: permit });
                let is_full = !has_permit || batch.0.len() >= BATCH_MAX || batch.1 >= BATCH_BYTES_MAX;
                if is_full { self.place(batch) } else { Ok(()) }
            }
            Err(error) => self.settle_failed(incoming, &error),
        }
    }

    /// Creates an empty file, which has no segment.
    pub(super) fn place_empty(&self, incoming: &Arc<Incoming>) -> Result<(), TransferError> {
        let mut batch = Batch::default();
        self.write_whole(incoming, &[], &mut batch)?;
        self.place(&mut batch)
    }

    /// Syncs the files of `batch` and moves them into place.
    pub(super) fn place(&self, batch: &mut Batch) -> Result<(), TransferError> {
        let Batch(mut written, _) = std::mem::take(batch);
        written.retain(|written| !written.incoming.is_failed());
        if written.is_empty() {
            return Ok(());
        }
        let parts: Vec<_> = written.iter().map(|written| &written.part).collect();
        let synced = sync_together(self.tree(), &parts);
        for (written, synced) in written.iter().zip(synced) {
            let incoming = &written.incoming;
            let entry = &self.list().entries[incoming.index as usize];
            let placed = synced
                .map_err(|error| FileError::target(&error))
                .and_then(|()| written.part.publish(entry, self.tree(), self.options.overwrite));
            match placed {
                Ok(()) => {
                    incoming.set_placed();
                    self.settle_queued(incoming.index, Ok(incoming.agreed_hash()))?;
                }
                Err(error) => self.settle_failed(incoming, &error)?,
            }
        }
        self.control.flush()
    }
}

/// Number of files that one worker keeps open. Syncing more of them takes hardly less time for
/// each.
const BATCH_MAX: usize = 64;

/// Number of bytes from which files do not wait for more, which could take long on a slow path.
const BATCH_BYTES_MAX: usize = 256 * 1024;
