//! Receives a file of unknown length: verifies its pieces, and writes them in order to a part file or
//! to the one output of the receiver.

use std::io;

use super::Session;
use super::data::data_error;
use super::incoming_stream::{IncomingStream, StreamTarget};
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::events::TransferEvent;
use crate::journal::JournalKey;
use crate::manifest::Entry;
use crate::message::Message;
use crate::part_file::{PartFile, look};
use crate::record::{CHUNK_LEN_MAX, Part, RecordReader};
use crate::segment::{FileHash, Layout};
use crate::stream::{PIECE_LEN, hash_piece};

impl Session<'_> {
    pub(super) fn plan_stream(&self, index: u32, entry: &Entry) -> Result<(), TransferError> {
        let target = match &self.options.output {
            Some(output) => {
                let in_use = || TransferError::Output(io::Error::other("an earlier transfer has written to it"));
                Ok(StreamTarget::Output(output.open().ok_or_else(in_use)?))
            }
            None => self.open_stream_part(entry).map(|part| StreamTarget::Part(Box::new(part))),
        };
        let target = match target {
            Ok(target) => target,
            Err(error) => return self.settle(index, Err(&error)),
        };
        let _ = self.stream.set(IncomingStream::new(target));
        self.events.event(TransferEvent::FileStarted { path: &entry.path, bytes: 0, bytes_resumed: 0 });
        self.control.send(&Message::Plan { index, held: Vec::new() })
    }

    fn open_stream_part(&self, entry: &Entry) -> Result<PartFile, FileError> {
        let (directory, name) = self.tree().parent(&entry.path)?;
        look(&directory, name, entry, self.options.overwrite)?;
        let base_log2 = self.list().base_log2;
        let layout = Layout::new(0, base_log2).ok_or_else(|| FileError::new(FileErrorKind::Target, ""))?;
        let key = JournalKey { base_log2, size: 0, modified: entry.modified, sender: self.context.sender() };
        Ok(PartFile::open(self.tree(), directory, name, &key, layout, None)?.0)
    }

    /// Receives the piece `number` from a data stream.
    pub(super) fn take_piece(
        &self,
        stream: &IncomingStream,
        reader: &mut RecordReader,
        number: u32,
        buffer: &mut [u8],
    ) -> Result<(), TransferError> {
        let mut bytes = vec![0; CHUNK_LEN_MAX];
        let len = match reader.part(&mut bytes).map_err(data_error)? {
            Part::Chunk(len) => len,
            Part::Hole(_) | Part::End(_) | Part::Abort => {
                return Err(TransferError::Protocol("a piece of a stream without bytes"));
            }
        };
        bytes.truncate(len);
        let Part::End(value) = reader.part(buffer).map_err(data_error)? else {
            return Err(TransferError::Protocol("a piece of a stream is longer than it can be"));
        };
        let hash = hash_piece(number, &bytes);
        if value != hash.value {
            return self.abort_stream(stream, &FileError::new(FileErrorKind::Damaged, ""));
        }
        stream.state().assembly.insert(number, bytes, hash).map_err(TransferError::Protocol)?;
        self.write_pieces(stream)
    }

    /// Handles the sender's end of the stream.
    pub(super) fn on_stream_end(&self, index: u32, size: u64, hash: FileHash) -> Result<(), TransferError> {
        match self.stream.get() {
            Some(stream) if index == 0 => {
                stream.state().assembly.on_end(size, hash).map_err(TransferError::Protocol)?;
                self.write_pieces(stream)
            }
            _ => Err(TransferError::Protocol("the end of a stream that has no plan")),
        }
    }

    /// Writes the pieces that are next in order, and finishes the stream after the last. Returns at
    /// once if another thread is writing, which then checks for more.
    fn write_pieces(&self, stream: &IncomingStream) -> Result<(), TransferError> {
        loop {
            let Ok(mut target) = stream.target.try_lock() else { return Ok(()) };
            while !self.is_stopping() {
                let start = stream.state().assembly.bytes();
                let Some(bytes) = stream.state().assembly.take().map_err(TransferError::Protocol)? else { break };
                let end = start + bytes.len() as u64;
                if let Some(bytes_max) = self.options.bytes_max.filter(|bytes_max| end > *bytes_max) {
                    return Err(TransferError::StreamTooLong(bytes_max));
                }
                if let Some(room) = self.options.room.as_ref().filter(|room| !room.take(bytes.len() as u64)) {
                    return Err(TransferError::NoRoom(bytes.len() as u64, room.left()));
                }
                if !self.write_piece(stream, &mut target, &bytes, start)? {
                    return Ok(());
                }
                self.progress.add_moved(bytes.len() as u64);
                if let Some(pieces) = stream.state().assembly.credit() {
                    self.control.send(&Message::Credit { index: 0, pieces })?;
                }
            }
            self.finish_stream(stream, &target)?;
            drop(target);
            // A piece that came after the last check and before the unlocking was left to this
            // thread.
            let state = stream.state();
            if self.is_stopping() || state.is_settled || !state.assembly.is_ready() {
                return Ok(());
            }
        }
    }

    /// Writes a piece. Returns false if nothing more shall be written.
    fn write_piece(
        &self,
        stream: &IncomingStream,
        target: &mut StreamTarget,
        bytes: &[u8],
        offset: u64,
    ) -> Result<bool, TransferError> {
        if stream.state().is_settled {
            return Ok(false);
        }
        match target {
            StreamTarget::Output(output) => {
                output.write_all(bytes, &|| self.is_stopping()).map_err(TransferError::Output)
            }
            StreamTarget::Part(part) => match part.write_at(bytes, offset) {
                Ok(()) => Ok(true),
                Err(error) => {
                    part.discard();
                    self.fail_stream(stream, &FileError::target(&error))?;
                    Ok(false)
                }
            },
        }
    }

    /// Moves a complete stream into place.
    fn finish_stream(&self, stream: &IncomingStream, target: &StreamTarget) -> Result<(), TransferError> {
        let outcome = {
            let mut state = stream.state();
            if state.is_settled {
                return Ok(());
            }
            let Some(outcome) = state.assembly.outcome().map_err(TransferError::Protocol)? else { return Ok(()) };
            state.is_settled = true;
            outcome
        };
        let entry = &self.list().entries[0];
        let settled = match (outcome, target) {
            (Err(_), _) => Err(FileError::new(FileErrorKind::Damaged, "the hash of the whole stream differs")),
            (Ok(hash), StreamTarget::Output(_)) => Ok(hash),
            (Ok(hash), StreamTarget::Part(part)) => {
                part.commit(entry, self.tree(), self.options.overwrite).map(|()| hash)
            }
        };
        if let (Err(_), StreamTarget::Part(part)) = (&settled, target) {
            part.discard();
        }
        match settled {
            Ok(hash) => self.settle(0, Ok(Some(hash))),
            Err(error) => self.settle(0, Err(&error)),
        }
    }

    /// Settles a stream as failed and discards it. Not to be called by the thread that writes.
    pub(super) fn abort_stream(&self, stream: &IncomingStream, error: &FileError) -> Result<(), TransferError> {
        // This comes first, so that nothing more is written to the discarded target.
        stream.state().is_settled = true;
        stream.discard();
        self.fail_stream(stream, error)
    }

    /// Settles a stream as failed.
    fn fail_stream(&self, stream: &IncomingStream, error: &FileError) -> Result<(), TransferError> {
        stream.state().is_settled = true;
        self.settle(0, Err(error))
    }
}

const _: () = assert!(PIECE_LEN == CHUNK_LEN_MAX);
