//! The sides of a stream.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use quic::{PathSet, RateLimit, StreamId, Strip};

use super::ConnectionHandle;
use crate::cells::{RecvCell, SendCell, StreamTask};
use crate::driver::Tails;
use crate::error::{ReadError, WriteError};

/// The sending side of a stream. Dropped before [`finish`](Self::finish) it resets the stream with code 0, because what was
/// written may be incomplete, and only the writer can know; after it, what was written is delivered as long as the
/// connection lives.
pub struct SendHandle {
    cell: Arc<SendCell>,
    connection: ConnectionHandle,
}

impl SendHandle {
    pub(super) fn new(cell: Arc<SendCell>, connection: ConnectionHandle) -> Self {
        Self { cell, connection }
    }

    /// The stream's name on the wire.
    pub fn id(&self) -> StreamId {
        self.cell.id
    }

    /// The connection it belongs to.
    pub fn connection(&self) -> &ConnectionHandle {
        &self.connection
    }

    fn tell(&self, must_tell: bool) {
        self.tell_with(Tails::Sent, must_tell);
    }

    fn tell_with(&self, tails: Tails, must_tell: bool) {
        if must_tell {
            let task = StreamTask::Send(Arc::clone(&self.cell));
            // If the connection is over, its driver has ended this side or will.
            let _over = self.connection.submit_with(tails, |state| state.todo.streams.push(task));
        }
    }

    /// Copies bytes from the front of `data`: as many as there is room for, at least one unless `data` is empty.
    ///
    /// Where the caller drives the engine, what a long write leaves over that fills no batch may wait for the next call that
    /// writes or waits, or for [`Engine::flush`](crate::Engine::flush).
    pub fn poll_write(&mut self, data: &[u8], waker: &Waker) -> Poll<Result<usize, WriteError>> {
        self.cell.poll_room(waker).map_ok(|room| {
            let len = data.len().min(room);
            if len > 0 {
                self.tell_with(Tails::Held, self.cell.write(&data[..len]));
            }
            len
        })
    }

    /// Takes `chunk` without copying it once there is any room, and leaves none.
    pub fn poll_write_chunk(&mut self, chunk: &mut Option<Bytes>, waker: &Waker) -> Poll<Result<(), WriteError>> {
        self.cell.poll_room(waker).map_ok(|_| {
            if let Some(chunk) = chunk.take() {
                self.tell_with(Tails::Held, self.cell.write_chunk(chunk));
            }
        })
    }

    /// Ends the stream after what was written. Repeated calls do nothing.
    ///
    /// # Errors
    /// If the stream is over.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        let must_tell = self.cell.finish()?;
        self.tell(must_tell);
        Ok(())
    }

    /// Ready when all that was written has left the engine's memory for that of the connection, or is not wanted any more. Who writes many
    /// streams one after the other has few under way so.
    pub fn poll_taken(&mut self, waker: &Waker) -> Poll<()> {
        self.cell.poll_taken(waker)
    }

    /// Ready when the peer has everything, the end included.
    pub fn poll_acknowledged(&mut self, waker: &Waker) -> Poll<Result<(), WriteError>> {
        self.cell.poll_acknowledged(waker)
    }

    /// Gives the stream up: what the peer has not read is lost, and it gets `code`.
    pub fn reset(&mut self, code: u64) {
        self.tell(self.cell.reset(code));
    }

    /// Streams of a higher number go first, equal ones take turns. Zero if never set.
    pub fn set_priority(&mut self, priority: i32) {
        self.tell(self.cell.set_priority(priority));
    }

    /// Limits how fast the bytes of the stream leave for the first time, or lifts the limit; what is lost goes again beyond it.
    /// Holds for what is written from now on, and for what has been written and has not left.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.tell(self.cell.set_rate(limit));
    }

    /// Says which paths the stream may take, all if never said. From then on nothing of it goes elsewhere, also not again; where
    /// none of its paths works it waits for one of them, or for another set.
    pub fn set_paths(&mut self, paths: PathSet) {
        self.tell(self.cell.set_paths(paths));
    }

    /// Puts the stream into the background, or back: there it leaves queues on the way short.
    pub fn set_background(&mut self, is_background: bool) {
        self.tell(self.cell.set_background(is_background));
    }
}

impl Drop for SendHandle {
    fn drop(&mut self) {
        self.tell(self.cell.abandon());
    }
}

/// The receiving side of a stream. Dropped before its end it asks the peer to stop, with code 0.
pub struct RecvHandle {
    cell: Arc<RecvCell>,
    connection: ConnectionHandle,
    /// Taken from the cell and not yet read.
    front: Strip,
}

impl RecvHandle {
    pub(super) fn new(cell: Arc<RecvCell>, connection: ConnectionHandle) -> Self {
        Self { cell, connection, front: Strip::default() }
    }

    /// The stream's name on the wire.
    pub fn id(&self) -> StreamId {
        self.cell.id
    }

    /// The connection it belongs to.
    pub fn connection(&self) -> &ConnectionHandle {
        &self.connection
    }

    fn tell(&self, must_tell: bool) {
        if must_tell {
            let task = StreamTask::Recv(Arc::clone(&self.cell));
            // If the connection is over, its driver has ended this side or will.
            let _over = self.connection.submit(|state| state.todo.streams.push(task));
        }
    }

    /// Ready when bytes can be read (true) or the end is reached (false, also when asked again).
    pub fn poll_ready(&mut self, waker: &Waker) -> Poll<Result<bool, ReadError>> {
        if !self.front.is_empty() {
            return Poll::Ready(Ok(true));
        }
        self.cell.poll_take(waker).map_ok(|(strip, must_tell)| {
            self.tell(must_tell);
            self.front = strip.unwrap_or_default();
            !self.front.is_empty()
        })
    }

    /// What can be read without asking anybody: to be taken from the front. Filled by [`poll_ready`](Self::poll_ready).
    pub fn front_mut(&mut self) -> &mut Strip {
        &mut self.front
    }

    /// Asks the peer to stop, with `code`; what has arrived is thrown away. Does nothing after the end.
    pub fn stop(&mut self, code: u64) {
        self.front = Strip::default();
        self.tell(self.cell.stop(code));
    }
}

impl Drop for RecvHandle {
    fn drop(&mut self) {
        self.stop(0);
    }
}

impl std::fmt::Debug for SendHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RecvHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}
