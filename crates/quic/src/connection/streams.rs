//! The application's calls about streams.

use bytes::Bytes;
use units::Instant;
use wire::quic::{Dir, StreamId};

use super::Connection;
use crate::class::{Class, PathSet, RateLimit};
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::receive::streams::{Chunk, ReadError};
use crate::send::streams::{WRITE_LEN_MAX, WriteError};

impl Connection {
    /// Opens a stream, if the peer allows another:
    /// [`Event::StreamsAvailable`](crate::Event::StreamsAvailable) reports when it does again.
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.record(|journal| journal.open(dir));
        let id = self.open_stream(dir);
        self.record_answer(|| Answer::optional(id.map(StreamId::raw)));
        id
    }

    fn open_stream(&mut self, dir: Dir) -> Option<StreamId> {
        if !self.control.may_send() {
            return None;
        }
        self.create_stream(dir)
    }

    pub(super) fn create_stream(&mut self, dir: Dir) -> Option<StreamId> {
        let id = self.send.streams.open(dir, &mut self.receive.exchange)?;
        // The receive half must know the stream before the peer's answer arrives.
        while let Some(value) = self.receive.exchange.to_receive.pop_front() {
            match &mut self.detached {
                None => self.receive.half.handle(value, &mut self.receive.exchange),
                Some(detached) => detached.push(value, &mut self.receive.half, &mut self.receive.exchange),
            }
        }
        Some(id)
    }

    /// Streams that may be opened before the peer allows more.
    pub fn streams_left(&self, dir: Dir) -> u64 {
        self.send.streams.left(dir)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        match self.receive.journal {
            None => self.receive.accept(dir),
            Some(_) => self.with_journal(|receive| receive.accept(dir)),
        }
    }

    /// Writes to a stream: all of `chunk` (at most [`WRITE_LEN_MAX`] bytes) or nothing. Each stream
    /// may hold a minimum however full the send buffer is: see
    /// [`TransportConfig::send_buffer_max`](crate::TransportConfig::send_buffer_max).
    ///
    /// # Errors
    /// [`WriteError::Blocked`] until the buffer has space for it.
    ///
    /// # Panics
    /// If the chunk is longer than [`WRITE_LEN_MAX`].
    pub fn write(&mut self, id: StreamId, chunk: Bytes) -> Result<(), WriteError> {
        assert!(chunk.len() <= WRITE_LEN_MAX, "a chunk of {} bytes is too long for one write", chunk.len());
        let len = chunk.len();
        self.record(|journal| journal.of_stream(tag::WRITE, id, len as u64));
        let is_open = self.control.may_write();
        let result = if is_open { self.send.streams.write(id, chunk) } else { Err(WriteError::Closed) };
        self.record_answer(|| Answer::written(result, len));
        result
    }

    /// Writes to a stream as much from the front of `chunk` as its buffer takes, and removes it
    /// from `chunk`.
    ///
    /// # Errors
    /// [`WriteError::Blocked`] if bytes are left.
    pub fn write_some(&mut self, id: StreamId, chunk: &mut Bytes) -> Result<(), WriteError> {
        let len = chunk.len();
        self.record(|journal| journal.of_stream(tag::WRITE_SOME, id, len as u64));
        let is_open = self.control.may_write();
        let result = if is_open { self.send.streams.write_some(id, chunk) } else { Err(WriteError::Closed) };
        self.record_answer(|| Answer::written(result, len - chunk.len()));
        result
    }

    /// Ends a stream after what was written.
    ///
    /// # Errors
    /// If it is stopped or closed.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.record(|journal| journal.finish(id));
        let result = self.send.streams.finish(id);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Resets a stream; data that the peer has not read is lost.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.record(|journal| journal.of_stream(tag::RESET, id, code));
        let result = self.send.streams.reset(id, code, &mut self.receive.events);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Sets the priority of a stream, which is 0 at first: see [`Class::priority`].
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.record(|journal| journal.priority(id, priority));
        let result = self.send.streams.set_priority(id, priority);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Limits how fast the bytes of a stream leave for the first time, or removes the limit. Credit
    /// that was used under an earlier limit stays used. The limit does not apply to retransmissions
    /// and control frames.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_stream_rate(&mut self, id: StreamId, limit: Option<RateLimit>) -> Result<(), WriteError> {
        self.record(|journal| journal.set_stream_rate(id, limit));
        let result = self.send.streams.set_rate(id, limit);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Sets the paths that a stream may take, which are all paths at first. From now on none of its
    /// data is sent on another path, also not again. While none of its paths works, the stream
    /// waits for one of them, or for another set.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_stream_paths(&mut self, id: StreamId, paths: PathSet) -> Result<(), WriteError> {
        self.record(|journal| journal.set_stream_paths(id, &paths));
        let result = self.send.streams.set_paths(id, paths);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Puts a stream into the background: see [`Class::background`].
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_background(&mut self, id: StreamId, is_background: bool) -> Result<(), WriteError> {
        self.record(|journal| journal.of_stream(tag::SET_BACKGROUND, id, u64::from(is_background)));
        let result = self.send.streams.set_background(id, is_background);
        self.record_answer(|| Answer::written(result, 0));
        result
    }

    /// Sets the class of a stream.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_class(&mut self, id: StreamId, class: &Class) -> Result<(), WriteError> {
        self.set_priority(id, class.priority)?;
        self.set_stream_rate(id, class.rate)?;
        self.set_background(id, class.background)?;
        self.set_stream_paths(id, class.paths.clone())
    }

    /// Limits how fast the bytes of all streams together leave for the first time, or removes the
    /// limit. Within it, streams go by their priority. Datagrams are not counted: the application
    /// limits their rate itself.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.record(|journal| journal.set_rate(limit));
        self.send.streams.set_connection_rate(limit);
    }

    /// The next bytes of a stream, at most `len`, or its end.
    ///
    /// # Errors
    /// [`ReadError::Blocked`] while nothing has arrived.
    pub fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        if self.receive.journal.is_some() {
            return self.read_recorded(now, id, len);
        }
        let chunk = self.receive.half.streams.read(now, id, len, &mut self.receive.exchange);
        self.settle(now);
        chunk
    }

    /// Asks the peer to stop sending on a stream.
    ///
    /// # Errors
    /// [`ReadError::Closed`] if it is over.
    pub fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
        let result = match self.receive.journal {
            None => self.receive.stop(now, id, code),
            Some(_) => self.with_journal(|receive| receive.stop(now, id, code)),
        };
        self.settle(now);
        result
    }
}
