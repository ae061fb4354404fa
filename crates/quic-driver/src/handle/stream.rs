//! Handles of the sending and the receiving side of a stream.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::Flush;
use quic::{PathSet, RateLimit, StreamId, StridedBytes};

use super::{ConnectionHandle, Runtime};
use crate::cells::recv::RecvCell;
use crate::cells::send::SendCell;
use crate::cells::stream::StreamRequest;
use crate::error::{ReadError, WriteError};

/// The sending side of a stream. If it is dropped before [`finish`](Self::finish), the stream is
/// reset with code 0, because the written data may be incomplete. After `finish` the data is
/// delivered even if the handle is dropped.
pub struct SendHandle<R: Runtime> {
    cell: Arc<SendCell>,
    connection: ConnectionHandle<R>,
}

impl<R: Runtime> SendHandle<R> {
    pub(super) fn new(cell: Arc<SendCell>, connection: ConnectionHandle<R>) -> Self {
        Self { cell, connection }
    }

    /// Returns the stream ID.
    pub fn id(&self) -> StreamId {
        self.cell.id
    }

    /// Returns the connection of the stream.
    pub fn connection(&self) -> &ConnectionHandle<R> {
        &self.connection
    }

    fn notify_driver(&self, must_notify: bool) {
        self.notify_driver_with(Flush::Now, must_notify);
    }

    fn notify_driver_with(&self, flush: Flush, must_notify: bool) {
        if must_notify {
            let request = StreamRequest::Send(Arc::clone(&self.cell));
            // An error means that the connection is closed, which ends this side.
            let _ended = self.connection.submit_with(flush, |state| state.requests.streams.push(request));
        }
    }

    /// Copies bytes from the front of `data` into the outbox while it has space, and returns their
    /// number, at least one unless `data` is empty.
    ///
    /// If the caller's thread runs the driver (placement `inline`), the last bytes of a long write
    /// that do not fill a batch may wait for the next call that writes or waits, or for a flush.
    pub fn poll_write(&mut self, data: &[u8], waker: &Waker) -> Poll<Result<usize, WriteError>> {
        self.cell.poll_space(waker).map_ok(|free_bytes| {
            let len = data.len().min(free_bytes);
            if len > 0 {
                self.notify_driver_with(Flush::Cork, self.cell.write(&data[..len]));
            }
            len
        })
    }

    /// Takes `chunk` without copying it once the outbox has any space.
    pub fn poll_write_chunk(&mut self, chunk: &mut Option<Bytes>, waker: &Waker) -> Poll<Result<(), WriteError>> {
        self.cell.poll_space(waker).map_ok(|_| {
            if let Some(chunk) = chunk.take() {
                self.notify_driver_with(Flush::Cork, self.cell.write_chunk(chunk));
            }
        })
    }

    /// Finishes the stream after the written data. Repeated calls have no effect.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        let must_notify = self.cell.finish()?;
        self.notify_driver(must_notify);
        Ok(())
    }

    /// Returns ready when the connection has taken all written data from the outbox, or the stream
    /// has ended. An application that writes many streams in sequence can use this to bound the
    /// number of open streams.
    pub fn poll_drained(&mut self, waker: &Waker) -> Poll<()> {
        self.cell.poll_drained(waker)
    }

    /// Returns ready when the peer has acknowledged all data and the end of the stream.
    pub fn poll_acknowledged(&mut self, waker: &Waker) -> Poll<Result<(), WriteError>> {
        self.cell.poll_acknowledged(waker)
    }

    /// Returns ready with the code when the peer has stopped the stream, or without one when it has
    /// acknowledged all of it.
    pub fn poll_stopped(&mut self, waker: &Waker) -> Poll<Result<Option<u64>, WriteError>> {
        self.cell.poll_stopped(waker)
    }

    /// Resets the stream with `code`. Data that the peer has not read may be lost.
    pub fn reset(&mut self, code: u64) {
        self.notify_driver(self.cell.reset(code));
    }

    /// Sets the priority. Streams of a higher priority are sent first, those of equal priority in
    /// turn. The default is 0.
    pub fn set_priority(&mut self, priority: i32) {
        self.notify_driver(self.cell.set_priority(priority));
    }

    /// Sets or removes the rate limit for new data of the stream. Retransmissions do not count. The
    /// limit applies to data that is written later and to data that has not been sent yet.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.notify_driver(self.cell.set_rate(limit));
    }

    /// Sets the paths that the stream may use. By default all paths are permitted. Retransmissions
    /// use these paths as well. While none of them works, the stream waits.
    pub fn set_paths(&mut self, paths: PathSet) {
        self.notify_driver(self.cell.set_paths(paths));
    }

    /// Sets whether the stream has background class. Background streams keep network queues short
    /// and yield to other traffic.
    pub fn set_background(&mut self, is_background: bool) {
        self.notify_driver(self.cell.set_background(is_background));
    }
}

impl<R: Runtime> Drop for SendHandle<R> {
    fn drop(&mut self) {
        self.notify_driver(self.cell.drop_writer());
    }
}

/// The receiving side of a stream. If it is dropped before the end of the stream, the peer is asked
/// to stop sending with code 0.
pub struct RecvHandle<R: Runtime> {
    cell: Arc<RecvCell>,
    connection: ConnectionHandle<R>,
    /// Bytes taken from the cell that the application has not read.
    front: StridedBytes,
}

impl<R: Runtime> RecvHandle<R> {
    pub(super) fn new(cell: Arc<RecvCell>, connection: ConnectionHandle<R>) -> Self {
        Self { cell, connection, front: StridedBytes::default() }
    }

    /// Returns the stream ID.
    pub fn id(&self) -> StreamId {
        self.cell.id
    }

    /// Returns the connection of the stream.
    pub fn connection(&self) -> &ConnectionHandle<R> {
        &self.connection
    }

    fn notify_driver(&self, must_notify: bool) {
        if must_notify {
            let request = StreamRequest::Recv(Arc::clone(&self.cell));
            // An error means that the connection is closed, which ends this side.
            let _ended = self.connection.submit(|state| state.requests.streams.push(request));
        }
    }

    /// Returns ready with `true` when bytes can be read, and with `false` at the end of the stream.
    pub fn poll_ready(&mut self, waker: &Waker) -> Poll<Result<bool, ReadError>> {
        if !self.front.is_empty() {
            return Poll::Ready(Ok(true));
        }
        self.cell.poll_take(waker).map_ok(|(chunk, must_notify)| {
            self.notify_driver(must_notify);
            self.front = chunk.unwrap_or_default();
            !self.front.is_empty()
        })
    }

    /// Returns the bytes that can be read now. [`poll_ready`](Self::poll_ready) fills them; the
    /// caller removes bytes from the front.
    pub fn front_mut(&mut self) -> &mut StridedBytes {
        &mut self.front
    }

    /// Asks the peer to stop sending, with `code`, and discards received bytes. Has no effect after
    /// the end of the stream.
    pub fn stop(&mut self, code: u64) {
        self.front = StridedBytes::default();
        self.notify_driver(self.cell.stop(code));
    }
}

impl<R: Runtime> Drop for RecvHandle<R> {
    fn drop(&mut self) {
        self.stop(0);
    }
}

impl<R: Runtime> std::fmt::Debug for SendHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl<R: Runtime> std::fmt::Debug for RecvHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}
