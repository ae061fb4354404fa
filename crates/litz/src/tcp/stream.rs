//! [`TcpStream`]: a connection of a [`TcpStack`](super::TcpStack).

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes};
use driver::sync::lock;
use tcp::CloseReason;
use tcp_driver::{Closed, Runtime, StreamHandle, WriteError};

use super::stack::TcpRuntime;

/// The largest piece that one call of `write` copies.
const WRITE_MAX: usize = 256 << 10;

/// A connection. Reading and writing may happen on two threads at a time. When the last reference is
/// dropped, what was written is still sent; if received data are unread, the connection is reset, as
/// by the kernel.
pub struct TcpStream {
    handle: StreamHandle<TcpRuntime>,
    /// What was received and not given to a reader.
    rest: Mutex<Bytes>,
}

impl TcpStream {
    pub(super) fn new(handle: StreamHandle<TcpRuntime>) -> Self {
        Self { handle, rest: Mutex::default() }
    }

    fn wait<T>(&self, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.handle.runtime().block_on(None, poll)
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.handle.remote()
    }

    /// The next received bytes, without a copy; `None` at the end of the peer's stream.
    ///
    /// # Errors
    /// If the connection ends before.
    pub fn read_chunk(&self) -> Result<Option<Bytes>, Closed> {
        let rest = std::mem::take(&mut *lock(&self.rest));
        if !rest.is_empty() {
            return Ok(Some(rest));
        }
        let read = self.wait(|waker| self.handle.poll_read(usize::MAX, waker));
        read.unwrap_or(Err(Closed::Driver(driver::EndReason::EndpointClosed)))
    }

    /// Writes all of `bytes`, without a copy. Waits while the peer does not take more.
    ///
    /// # Errors
    /// If the stream was finished, or the connection has ended.
    pub fn write_chunk(&self, mut bytes: Bytes) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let written = self.wait(|waker| self.handle.poll_write(&mut bytes, waker));
            written.unwrap_or(Err(WriteError::Closed(Closed::Driver(driver::EndReason::EndpointClosed))))?;
        }
        Ok(())
    }

    /// Ends the stream to the peer: it reads an end after everything that was written. Reading goes on.
    pub fn finish(&self) {
        self.handle.finish();
    }

    /// Waits until the connection has ended, and returns the reason.
    pub fn closed(&self) -> Closed {
        let closed = self.wait(|waker| self.handle.poll_closed(waker));
        closed.unwrap_or(Closed::Driver(driver::EndReason::EndpointClosed))
    }

    /// Resets the connection: what the peer has not acknowledged may be lost.
    pub fn reset(&self) {
        self.handle.abort();
    }

    /// Sets whether a small segment leaves at once although others are outstanding.
    pub fn set_nodelay(&self, nodelay: bool) {
        self.handle.set_nagle(!nodelay);
    }

    fn read_into(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let Some(mut chunk) = self.read_chunk().map_err(io_error)? else { return Ok(0) };
        let count = chunk.len().min(buffer.len());
        chunk.copy_to_slice(&mut buffer[..count]);
        *lock(&self.rest) = chunk;
        Ok(count)
    }

    fn write_from(&self, buffer: &[u8]) -> io::Result<usize> {
        let count = buffer.len().min(WRITE_MAX);
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        self.write_chunk(bytes).map_err(|error| match error {
            WriteError::Closed(closed) => io_error(closed),
            finished => io::Error::new(io::ErrorKind::BrokenPipe, finished),
        })?;
        Ok(count)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // The rest of a chunk counts as unread, too.
        if !lock(&self.rest).is_empty() {
            self.handle.abort();
        }
    }
}

/// The error of a socket of the kernel for the same reason.
fn io_error(closed: Closed) -> io::Error {
    let kind = match &closed {
        Closed::Tcp(CloseReason::Reset) => io::ErrorKind::ConnectionReset,
        Closed::Tcp(CloseReason::Refused) => io::ErrorKind::ConnectionRefused,
        Closed::Tcp(CloseReason::TimedOut) => io::ErrorKind::TimedOut,
        Closed::Tcp(CloseReason::Unreachable) => io::ErrorKind::HostUnreachable,
        Closed::Tcp(CloseReason::Aborted | CloseReason::Finished) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, closed)
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_into(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_from(buffer)
    }

    /// Has no effect: data leave as soon as they may.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_into(buffer)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_from(buffer)
    }

    /// Has no effect: data leave as soon as they may.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
