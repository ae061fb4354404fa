//! The receiving side's data streams: one thread accepts them, several threads read segments from
//! them.

use std::io;
use std::sync::Arc;

use super::Session;
use super::incoming::{Claim, Incoming, Target};
use super::whole::Batch;
use crate::control::Input;
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::record::{CHUNK_LEN_MAX, Part, RecordReader, malformed};
use crate::segment::{FileHash, SegmentHasher, ZEROS_STEP};

impl Session<'_> {
    /// Runs the accepting thread until the sender's last stream.
    pub(super) fn accept(&self) {
        loop {
            match self.link.accept_uni().and_then(RecordReader::open) {
                Ok(Some(reader)) => {
                    if !self.streams.push(reader) {
                        return;
                    }
                }
                Ok(None) => {
                    self.inbox.push(Input::DataEnded);
                    return;
                }
                Err(error) => return self.fatal(data_error(error)),
            }
        }
    }

    /// Runs a worker.
    pub(super) fn take_streams(&self) {
        let mut buffer = vec![0; CHUNK_LEN_MAX];
        while let Some(mut reader) = self.streams.pop() {
            if let Err(error) = self.take_stream(&mut reader, &mut buffer) {
                return self.fatal(error);
            }
        }
    }

    fn take_stream(&self, reader: &mut RecordReader, buffer: &mut [u8]) -> Result<(), TransferError> {
        let mut batch = Batch::default();
        let taken = self.take_records(reader, buffer, &mut batch);
        // This runs after an error of the connection, too: these files are complete.
        let placed = if self.is_stopping() { Ok(()) } else { self.place(&mut batch) };
        taken.and(placed)
    }

    fn take_records(
        &self,
        reader: &mut RecordReader,
        buffer: &mut [u8],
        batch: &mut Batch,
    ) -> Result<(), TransferError> {
        while let Some((index, segment)) = reader.next().map_err(data_error)? {
            if let Some(stream) = self.stream.get().filter(|_| index == 0) {
                self.take_piece(stream, reader, segment, buffer)?;
                continue;
            }
            let incoming = match self.find(index)? {
                Some(incoming) => match incoming.claim(segment) {
                    Claim::Write => Some(incoming),
                    Claim::Drop => None,
                    Claim::Forbidden => return Err(TransferError::Protocol("a segment that was not asked for")),
                },
                None => None,
            };
            match incoming {
                Some(incoming) if matches!(incoming.target, Target::Unopened(_)) => {
                    self.take_whole(reader, &incoming, buffer, batch)?;
                }
                Some(incoming) => self.take_segment(reader, &incoming, segment, buffer)?,
                None => drop_record(reader, buffer)?,
            }
        }
        Ok(())
    }

    /// Writes a segment as it arrives, then verifies and records it.
    fn take_segment(
        &self,
        reader: &mut RecordReader,
        incoming: &Arc<Incoming>,
        segment: u32,
        buffer: &mut [u8],
    ) -> Result<(), TransferError> {
        // A file in place holds all its segments, so none can be claimed.
        let Target::Part(part) = &incoming.target else { return Err(not_asked_for()) };
        let (start, len) = incoming.layout.range(segment);
        let mut hasher = incoming.layout.hasher(segment);
        let mut taken = 0;
        loop {
            match reader.part(buffer).map_err(data_error)? {
                Part::Chunk(count) => {
                    let bytes = &buffer[..count];
                    if count as u64 > len - taken {
                        return Err(TransferError::Protocol("a segment is longer than it can be"));
                    }
                    hasher.update(bytes);
                    if let Err(error) = part.write_at(bytes, start + taken) {
                        self.settle_failed(incoming, &FileError::target(&error))?;
                        return drop_record(reader, buffer);
                    }
                    taken += count as u64;
                    incoming.count(count as u64);
                    self.progress.add_moved(count as u64);
                    if incoming.is_failed() {
                        return drop_record(reader, buffer);
                    }
                }
                Part::Hole(count) => {
                    let count = u64::from(count);
                    let is_sparse = self.list().entries[incoming.index as usize].data().is_some();
                    if count > len - taken || !is_sparse {
                        return Err(TransferError::Protocol("a hole where there cannot be one"));
                    }
                    if let Err(error) = part.make_hole(count, start + taken) {
                        self.settle_failed(incoming, &FileError::target(&error))?;
                        return drop_record(reader, buffer);
                    }
                    taken += count;
                    if !self.hash_hole(incoming, &mut hasher, count) {
                        return drop_record(reader, buffer);
                    }
                }
                Part::Abort => {
                    self.progress.take_back(taken);
                    return Ok(());
                }
                Part::End(_) if taken < len => {
                    return Err(TransferError::Protocol("a segment is shorter than it must be"));
                }
                Part::End(value) if value == hasher.finish() => {
                    return self.on_segment(incoming, segment, value);
                }
                Part::End(_) => {
                    self.progress.take_back(taken);
                    return self.settle_failed(incoming, &FileError::new(FileErrorKind::Damaged, ""));
                }
            }
        }
    }

    /// Hashes the zeros of a hole, which cost the sender a few bytes and this end the time for all
    /// of them. Returns false if they are no longer needed.
    fn hash_hole(&self, incoming: &Incoming, hasher: &mut SegmentHasher, len: u64) -> bool {
        let mut left = len;
        while left > 0 {
            if incoming.is_failed() || self.is_stopping() {
                return false;
            }
            let step = left.min(ZEROS_STEP);
            hasher.update_with_zeros(step);
            incoming.count(step);
            self.progress.add_moved(step);
            left -= step;
        }
        true
    }

    fn on_segment(&self, incoming: &Arc<Incoming>, segment: u32, value: [u8; 32]) -> Result<(), TransferError> {
        if let Target::Part(part) = &incoming.target
            && let Err(error) = part.record(segment, &value)
        {
            return self.settle_failed(incoming, &FileError::target(&error));
        }
        // The only segment is the file.
        if self.knows_small_files()
            && incoming.layout.count() == 1
            && incoming.on_hash(FileHash::from_bytes(value)).is_none()
        {
            return Err(TransferError::Protocol("a file has two hashes"));
        }
        if incoming.on_segment(segment, value) {
            self.finished.push(Arc::clone(incoming));
        }
        Ok(())
    }
}

/// Reads and discards the rest of a record that is no longer needed, because the following records
/// on the stream may be needed.
fn drop_record(reader: &mut RecordReader, buffer: &mut [u8]) -> Result<(), TransferError> {
    while let Part::Chunk(_) | Part::Hole(_) = reader.part(buffer).map_err(data_error)? {}
    Ok(())
}

/// Returns the error for a failed read of a data stream.
pub(super) fn data_error(error: io::Error) -> TransferError {
    if error.kind() == malformed("").kind() {
        TransferError::Protocol("a data stream is malformed")
    } else {
        TransferError::Connection(error)
    }
}

fn not_asked_for() -> TransferError {
    TransferError::Protocol("a segment that was not asked for")
}
