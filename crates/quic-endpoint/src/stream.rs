//! Streams of ordered bytes.

#[cfg(feature = "tokio")]
mod tokio_io;

use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use quic::{PathSet, RateLimit, StreamId, StridedBytes};
use quic_driver::error::{ReadError, WriteError};

use crate::connection::Connection;
use crate::connection::waiting::GONE;
use crate::runtime::{RecvHandle, SendHandle};

/// The sending side of a stream.
///
/// [`std::io::Write`] and, with the feature `tokio`, `tokio::io::AsyncWrite` return when the bytes are in the stream's outbox,
/// and wait while that is full. An engine with its own thread sends them as fast as the network
/// allows, and flushing does nothing. With [`Placement::Inline`](crate::Placement::Inline), the end
/// of a long write that does not fill a batch of packets stays in the outbox until the next call
/// that writes or waits, [`finish`](Self::finish), or a flush. Flush after a long write if no other
/// call follows soon.
///
/// Dropping it before [`finish`](Self::finish) resets the stream with code 0: its reader gets an
/// error, so that a truncated stream is not taken for a complete one. After `finish`, all data is
/// delivered unless the connection closes first.
#[derive(Debug)]
pub struct SendStream {
    handle: SendHandle,
}

impl SendStream {
    pub(crate) fn new(handle: SendHandle) -> Self {
        Self { handle }
    }

    fn wait<T>(
        &mut self,
        mut poll: impl FnMut(&mut SendHandle, &Waker) -> Poll<Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let engine = self.handle.connection().runtime().clone();
        let done = engine.block_on(None, |waker| poll(&mut self.handle, waker));
        done.unwrap_or(Err(WriteError::ConnectionClosed(GONE)))
    }

    /// Writes `chunk` without copying it; waits while the outbox is full.
    ///
    /// # Errors
    /// If the peer stopped the stream, the stream was finished or reset, or the connection is
    /// closed.
    pub fn write_chunk(&mut self, chunk: Bytes) -> Result<(), WriteError> {
        let mut chunk = Some(chunk);
        self.wait(|handle, waker| handle.poll_write_chunk(&mut chunk, waker))
    }

    /// Asynchronous form of [`write_chunk`](Self::write_chunk).
    ///
    /// # Errors
    /// Same errors as [`write_chunk`](Self::write_chunk).
    pub async fn write_chunk_async(&mut self, chunk: Bytes) -> Result<(), WriteError> {
        self.connection().can_async().map_err(WriteError::ConnectionClosed)?;
        let mut chunk = Some(chunk);
        poll_fn(|context| self.handle.poll_write_chunk(&mut chunk, context.waker())).await
    }

    /// Ends the stream after the data written so far. Never waits; repeated calls do nothing.
    ///
    /// # Errors
    /// If the peer stopped the stream, the stream was reset, or the connection is closed.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.handle.finish()
    }

    /// Waits until the peer has acknowledged all data and the end of the stream.
    ///
    /// # Errors
    /// If the stream is not finished, the peer stopped it, or the connection closed before.
    pub fn wait_finished(&mut self) -> Result<(), WriteError> {
        self.wait(SendHandle::poll_acknowledged)
    }

    /// Asynchronous form of [`wait_finished`](Self::wait_finished).
    ///
    /// # Errors
    /// Same errors as [`wait_finished`](Self::wait_finished).
    pub async fn wait_finished_async(&mut self) -> Result<(), WriteError> {
        self.connection().can_async().map_err(WriteError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_acknowledged(context.waker())).await
    }

    /// Waits until the peer stops the stream, and returns its code; `None` if the peer has
    /// acknowledged all data and the end of the stream instead. The stream need not be finished.
    ///
    /// # Errors
    /// If this side has reset the stream, or the connection closed before.
    pub fn stopped(&mut self) -> Result<Option<u64>, WriteError> {
        self.wait(SendHandle::poll_stopped)
    }

    /// Asynchronous form of [`stopped`](Self::stopped).
    ///
    /// # Errors
    /// Same errors as [`stopped`](Self::stopped).
    pub async fn stopped_async(&mut self) -> Result<Option<u64>, WriteError> {
        self.connection().can_async().map_err(WriteError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_stopped(context.waker())).await
    }

    /// Resets the stream: data that the peer has not read is lost, and its reader gets `code`. Does
    /// nothing after the end of the stream.
    pub fn reset(&mut self, code: u64) {
        self.handle.reset(code);
    }

    /// Sets the priority of this stream. Streams with a higher priority are sent first; streams of
    /// equal priority take turns. The default is 0.
    pub fn set_priority(&mut self, priority: i32) {
        self.handle.set_priority(priority);
    }

    /// Limits the rate at which the stream sends new bytes; `None` removes the limit.
    /// Retransmissions are not counted. The limit also applies to data that is written and not yet
    /// sent.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.handle.set_rate(limit);
    }

    /// Restricts the stream to a set of paths; the default is all
    /// ([`Stats::paths`](crate::Stats::paths) has their identifiers). The restriction also applies
    /// to retransmissions. If none of its paths works, the stream waits until one does, or until it
    /// gets another set. It applies to data that this side sends; the peer chooses the paths for
    /// its own data.
    pub fn set_paths(&mut self, paths: PathSet) {
        self.handle.set_paths(paths);
    }

    /// Makes the stream a background (less-than-best-effort, RFC 6817) stream, or an ordinary one
    /// again. A background stream keeps the queue at the bottleneck of a path short, so that
    /// messages and other traffic on the path hardly wait behind it
    /// ([`Class::background`](crate::Class)). It uses the capacity that they leave and yields to
    /// other flows that fill the queue.
    pub fn set_background(&mut self, is_background: bool) {
        self.handle.set_background(is_background);
    }

    /// Returns the stream identifier (RFC 9000, section 2.1).
    pub fn id(&self) -> StreamId {
        self.handle.id()
    }

    /// Returns the connection of the stream.
    pub fn connection(&self) -> Connection {
        Connection::new(self.handle.connection().clone())
    }
}

impl io::Write for SendStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.wait(|handle, waker| handle.poll_write(data, waker))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.handle.connection().runtime().flush();
        Ok(())
    }
}

/// The receiving side of a stream. Dropping it before the end asks the peer to stop, with code 0.
#[derive(Debug)]
pub struct RecvStream {
    handle: RecvHandle,
}

impl RecvStream {
    pub(crate) fn new(handle: RecvHandle) -> Self {
        Self { handle }
    }

    /// Returns whether data of this stream arrived in 0-RTT, so that an attacker may have replayed
    /// or forged it. Also returns true if the connection is closed. Waits for the endpoint's
    /// thread.
    pub fn may_be_replayed(&self) -> bool {
        self.handle.connection().may_be_replayed(self.handle.id())
    }

    /// Returns the next bytes, without copying them from the receive buffer; `None` at the end of
    /// the stream, also on later calls. A chunk may keep 64 KiB of receive buffer allocated: copy
    /// data that is kept for long.
    ///
    /// # Errors
    /// If the peer reset the stream, it was stopped, or the connection ended before the stream did.
    pub fn read_chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.wait_ready()?;
        Ok(self.handle.front_mut().next_piece())
    }

    /// Returns the next received bytes, all from one receive buffer, without a copy. `None` at the
    /// end of the stream, also in later calls. A [`StridedBytes`] holds many chunks for the cost of
    /// one. Like a chunk, it keeps 64 KiB of memory alive.
    ///
    /// # Errors
    /// Same errors as [`read_chunk`](Self::read_chunk).
    pub fn read_strided(&mut self) -> Result<Option<StridedBytes>, ReadError> {
        Ok(if self.wait_ready()? { Some(std::mem::take(self.handle.front_mut())) } else { None })
    }

    /// Asynchronous form of [`read_strided`](Self::read_strided).
    ///
    /// # Errors
    /// Same errors as [`read_chunk`](Self::read_chunk).
    pub async fn read_strided_async(&mut self) -> Result<Option<StridedBytes>, ReadError> {
        self.connection().can_async().map_err(ReadError::ConnectionClosed)?;
        let has_bytes = poll_fn(|context| self.handle.poll_ready(context.waker())).await?;
        Ok(has_bytes.then(|| std::mem::take(self.handle.front_mut())))
    }

    /// Like [`read_chunk`](Self::read_chunk), but returns the outer `None` if nothing arrives
    /// within `timeout`.
    ///
    /// # Errors
    /// Same errors as [`read_chunk`](Self::read_chunk).
    pub fn read_chunk_timeout(&mut self, timeout: Duration) -> Result<Option<Option<Bytes>>, ReadError> {
        let engine = self.handle.connection().runtime().clone();
        let deadline = engine.now() + timeout.into();
        let ready = engine.block_on(Some(deadline), |waker| self.handle.poll_ready(waker)).transpose()?;
        Ok(ready.map(|_| self.handle.front_mut().next_piece()))
    }

    /// Asynchronous form of [`read_chunk`](Self::read_chunk).
    ///
    /// # Errors
    /// Same errors as [`read_chunk`](Self::read_chunk).
    pub async fn read_chunk_async(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.connection().can_async().map_err(ReadError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_ready(context.waker())).await?;
        Ok(self.handle.front_mut().next_piece())
    }

    /// Waits until bytes can be read; returns false at the end.
    fn wait_ready(&mut self) -> Result<bool, ReadError> {
        if !self.handle.front_mut().is_empty() {
            return Ok(true);
        }
        let engine = self.handle.connection().runtime().clone();
        let ready = engine.block_on(None, |waker| self.handle.poll_ready(waker));
        ready.unwrap_or(Err(ReadError::ConnectionClosed(GONE)))
    }

    /// Asks the peer to stop sending, with `code`; data that has arrived is discarded. Does nothing
    /// after the end.
    pub fn stop(&mut self, code: u64) {
        self.handle.stop(code);
    }

    /// Returns the stream identifier (RFC 9000, section 2.1).
    pub fn id(&self) -> StreamId {
        self.handle.id()
    }

    /// Returns the connection of the stream.
    pub fn connection(&self) -> Connection {
        Connection::new(self.handle.connection().clone())
    }
}

impl io::Read for RecvStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.wait_ready()?;
        Ok(self.handle.front_mut().copy_to(buffer))
    }
}
