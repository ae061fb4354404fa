//! Streams: bytes, in order.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use engine::{ReadError, RecvHandle, SendHandle, WriteError};
use quic::{PathSet, RateLimit, StreamId, Strip};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Connection, GONE};

/// The sending side of a stream.
///
/// [`std::io::Write`] and `tokio::io::AsyncWrite` return when bytes are in the stream's outbox, and wait while that is full.
/// An engine with a thread of its own sends them as fast as the network allows, and flushing has nothing to do. With the
/// placement `inline`, what a long write leaves over that fills no batch of packets waits for the next call that writes or
/// waits, for [`finish`](Self::finish), or for a flush: who writes much and then does something else for long should flush.
///
/// Dropping it before [`finish`](Self::finish) resets the stream with code 0: its reader gets an error instead of an end that
/// was not meant. After `finish`, everything is delivered as long as the connection lives.
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
        let engine = self.handle.connection().engine().clone();
        let done = engine.block_on(None, |waker| poll(&mut self.handle, waker));
        done.unwrap_or(Err(WriteError::ConnectionClosed(GONE)))
    }

    /// Writes `chunk` without copying it; waits while the outbox is full.
    ///
    /// # Errors
    /// If the peer does not want more, the stream was finished or reset, or the connection is over.
    pub fn write_chunk(&mut self, chunk: Bytes) -> Result<(), WriteError> {
        let mut chunk = Some(chunk);
        self.wait(|handle, waker| handle.poll_write_chunk(&mut chunk, waker))
    }

    /// As [`write_chunk`](Self::write_chunk).
    ///
    /// # Errors
    /// As [`write_chunk`](Self::write_chunk).
    pub async fn write_chunk_async(&mut self, chunk: Bytes) -> Result<(), WriteError> {
        self.connection().can_async().map_err(WriteError::ConnectionClosed)?;
        let mut chunk = Some(chunk);
        poll_fn(|context| self.handle.poll_write_chunk(&mut chunk, context.waker())).await
    }

    /// Ends the stream after what was written. Never waits; repeated calls do nothing.
    ///
    /// # Errors
    /// If the peer does not want more, the stream was reset, or the connection is over.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.handle.finish()
    }

    /// Waits until the peer has everything, the end included.
    ///
    /// # Errors
    /// If the stream is not finished, the peer did not want all of it, or the connection ended before.
    pub fn wait_finished(&mut self) -> Result<(), WriteError> {
        self.wait(SendHandle::poll_acknowledged)
    }

    /// As [`wait_finished`](Self::wait_finished).
    ///
    /// # Errors
    /// As [`wait_finished`](Self::wait_finished).
    pub async fn wait_finished_async(&mut self) -> Result<(), WriteError> {
        self.connection().can_async().map_err(WriteError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_acknowledged(context.waker())).await
    }

    /// Gives the stream up: what the peer has not read is lost, and its reader gets `code`. Does nothing if it is over.
    pub fn reset(&mut self, code: u64) {
        self.handle.reset(code);
    }

    /// Streams of a higher number go first, equal ones take turns. Zero if never set.
    pub fn set_priority(&mut self, priority: i32) {
        self.handle.set_priority(priority);
    }

    /// Limits how fast the stream's bytes leave for the first time, or lifts the limit; what is lost goes again beyond it. Holds
    /// for what has been written and has not left, too.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.handle.set_rate(limit);
    }

    /// Says which paths the stream may take, all if never said ([`Stats::paths`](crate::Stats::paths) has their identifiers). From
    /// then on nothing of it goes elsewhere, also not again. Where none of its paths works it waits: for one of them, or until
    /// this is called with another set. Paths are the sender's choice: the peer's answers take the paths that the peer chooses.
    pub fn set_paths(&mut self, paths: PathSet) {
        self.handle.set_paths(paths);
    }

    /// Puts the stream into the background, or back. What is there leaves the queue in front of the narrowest place of a path
    /// short, so that messages and others that use the path hardly wait behind it ([`Class::background`](crate::Class)); it
    /// takes what they leave, and gives way to whoever fills the queue.
    pub fn set_background(&mut self, is_background: bool) {
        self.handle.set_background(is_background);
    }

    /// The stream's name on the wire.
    pub fn id(&self) -> StreamId {
        self.handle.id()
    }

    /// The connection it belongs to.
    pub fn connection(&self) -> Connection {
        Connection::new(self.handle.connection().clone())
    }
}

impl io::Write for SendStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.wait(|handle, waker| handle.poll_write(data, waker))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.handle.connection().engine().flush();
        Ok(())
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.connection().can_async()?;
        self.handle.poll_write(data, context.waker()).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Finishes the stream; does not wait for the peer.
    fn poll_shutdown(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish().map_err(Into::into))
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

    /// The next bytes, as they lie in the receive buffer; none at the end, also when asked again. Holding on to a chunk
    /// may keep 64 KiB of receive buffer alive: copy what is kept for long.
    ///
    /// # Errors
    /// If the peer reset the stream, it was stopped, or the connection ended before the stream did.
    pub fn read_chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.wait_ready()?;
        Ok(self.handle.front_mut().next_piece())
    }

    /// The next bytes, all that lie in one receive buffer; none at the end, also when asked again. A [`Strip`] has many
    /// chunks and costs what one chunk does; it too keeps 64 KiB alive.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub fn read_strip(&mut self) -> Result<Option<Strip>, ReadError> {
        Ok(if self.wait_ready()? { Some(std::mem::take(self.handle.front_mut())) } else { None })
    }

    /// As [`read_strip`](Self::read_strip).
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub async fn read_strip_async(&mut self) -> Result<Option<Strip>, ReadError> {
        self.connection().can_async().map_err(ReadError::ConnectionClosed)?;
        let has_bytes = poll_fn(|context| self.handle.poll_ready(context.waker())).await?;
        Ok(has_bytes.then(|| std::mem::take(self.handle.front_mut())))
    }

    /// As [`read_chunk`](Self::read_chunk); the outer none if nothing arrives within `timeout`.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub fn read_chunk_timeout(&mut self, timeout: Duration) -> Result<Option<Option<Bytes>>, ReadError> {
        let engine = self.handle.connection().engine().clone();
        let deadline = engine.now() + timeout.into();
        let ready = engine.block_on(Some(deadline), |waker| self.handle.poll_ready(waker)).transpose()?;
        Ok(ready.map(|_| self.handle.front_mut().next_piece()))
    }

    /// As [`read_chunk`](Self::read_chunk).
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub async fn read_chunk_async(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.connection().can_async().map_err(ReadError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_ready(context.waker())).await?;
        Ok(self.handle.front_mut().next_piece())
    }

    /// Waits until bytes can be read; false at the end.
    fn wait_ready(&mut self) -> Result<bool, ReadError> {
        if !self.handle.front_mut().is_empty() {
            return Ok(true);
        }
        let engine = self.handle.connection().engine().clone();
        let ready = engine.block_on(None, |waker| self.handle.poll_ready(waker));
        ready.unwrap_or(Err(ReadError::ConnectionClosed(GONE)))
    }

    /// Asks the peer to stop sending, with `code`; what has arrived is thrown away. Does nothing after the end.
    pub fn stop(&mut self, code: u64) {
        self.handle.stop(code);
    }

    /// The stream's name on the wire.
    pub fn id(&self) -> StreamId {
        self.handle.id()
    }

    /// The connection it belongs to.
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

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.connection().can_async()?;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.handle
            .poll_ready(context.waker())
            .map_ok(|_| {
                let front = self.handle.front_mut();
                while !front.is_empty() && buffer.remaining() > 0 {
                    let len = front.front().len().min(buffer.remaining());
                    buffer.put_slice(&front.front()[..len]);
                    front.advance(len);
                }
            })
            .map_err(Into::into)
    }
}
