//! [`TcpStream`]: a connection of a [`TcpStack`](crate::TcpStack).

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use driver::sync::lock;
use tcp::{CloseReason, KeepAlive};
use tcp_driver::{Closed, Runtime, StreamHandle, TcpInfo, WriteError};

use crate::runtime::TcpRuntime;

/// Length of the largest piece that one call of `write` copies.
pub(crate) const WRITE_MAX: usize = 256 << 10;

/// Result of a wait that ends without an outcome: the stack has ended.
pub(crate) const GONE: Closed = Closed::Driver(driver::EndReason::EndpointClosed);

/// A connection. Reading and writing may happen on two threads concurrently. When the last
/// reference is dropped, written data are still sent; if received data are unread, the connection
/// is reset, as by the kernel.
pub struct TcpStream {
    pub(crate) handle: StreamHandle<TcpRuntime>,
    /// Received data not passed to a reader yet.
    pub(crate) rest: Mutex<Bytes>,
    read_timeout: Timeout,
    write_timeout: Timeout,
}

/// Time limit of a call in nanoseconds; zero for no limit.
#[derive(Default)]
struct Timeout(AtomicU64);

impl Timeout {
    fn set(&self, timeout: Option<Duration>) {
        let nanoseconds = timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.0.store(nanoseconds, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos)
    }
}

impl TcpStream {
    pub(crate) fn new(handle: StreamHandle<TcpRuntime>) -> Self {
        Self { handle, rest: Mutex::default(), read_timeout: Timeout::default(), write_timeout: Timeout::default() }
    }

    fn wait<T>(&self, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.handle.runtime().block_on(None, poll)
    }

    /// Waits until `poll` is ready, for at most the time of `timeout`.
    fn wait_for<T>(&self, timeout: &Timeout, poll: impl FnMut(&Waker) -> Poll<T>) -> io::Result<Option<T>> {
        let runtime = self.handle.runtime();
        let deadline = timeout.get().map(|timeout| runtime.deadline_after(timeout));
        match runtime.block_on(deadline, poll) {
            None if deadline.is_some() => Err(io::ErrorKind::WouldBlock.into()),
            done => Ok(done),
        }
    }

    /// Returns this side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local().expect("a connected stream has been seen by its driver")
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.handle.remote()
    }

    /// Returns the next received bytes, without a copy; `None` at the end of the peer's stream.
    ///
    /// # Errors
    /// Fails if the connection ends earlier.
    pub fn read_chunk(&self) -> Result<Option<Bytes>, Closed> {
        if let Some(rest) = self.take_rest() {
            return Ok(Some(rest));
        }
        let read = self.wait(|waker| self.handle.poll_read(usize::MAX, waker));
        read.unwrap_or(Err(GONE))
    }

    /// Takes the part of a chunk left by a reader.
    pub(crate) fn take_rest(&self) -> Option<Bytes> {
        Some(std::mem::take(&mut *lock(&self.rest))).filter(|rest| !rest.is_empty())
    }

    /// Writes all of `bytes`, without a copy. Waits while the peer accepts no more.
    ///
    /// # Errors
    /// Fails if the stream was finished, or the connection has ended.
    pub fn write_chunk(&self, mut bytes: Bytes) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let written = self.wait(|waker| self.handle.poll_write(&mut bytes, waker));
            written.unwrap_or(Err(WriteError::Closed(GONE)))?;
        }
        Ok(())
    }

    /// Ends our stream: the peer reads an end after all written data. Reading can continue.
    pub fn finish(&self) {
        self.handle.finish();
    }

    /// Waits until the connection has ended, and returns the reason.
    pub fn closed(&self) -> Closed {
        let closed = self.wait(|waker| self.handle.poll_closed(waker));
        closed.unwrap_or(GONE)
    }

    /// Resets the connection: data not acknowledged by the peer may be lost.
    pub fn reset(&self) {
        self.handle.abort();
    }

    /// Sets whether small segments leave at once although others are outstanding.
    pub fn set_nodelay(&self, nodelay: bool) {
        self.handle.set_nagle(!nodelay);
    }

    /// Sets the keep-alive schedule; `None` disables probes.
    pub fn set_keep_alive(&self, keep_alive: Option<KeepAlive>) {
        self.handle.set_keep_alive(keep_alive);
    }

    /// Sets the differentiated services code point (RFC 2474) of all packets from now on.
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    pub fn set_dscp(&self, dscp: u8) {
        self.handle.set_dscp(dscp);
    }

    /// Sets the time limit of [`Read`]; `None` removes it. After it, the error is
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), as with the kernel's sockets.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.read_timeout.set(timeout);
    }

    /// Sets the time limit of [`Write`], like [`set_read_timeout`](Self::set_read_timeout).
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.write_timeout.set(timeout);
    }

    /// Returns the state of the connection and its counters; after its end, the last ones. Returns
    /// `None` if the stack ended first.
    pub fn info(&self) -> Option<TcpInfo> {
        let question = self.handle.ask_info();
        self.wait(|waker| self.handle.poll_info(question, waker)).flatten()
    }

    /// Copies the beginning of `chunk` to `buffer`, and keeps the rest for the next call.
    pub(crate) fn keep_rest(&self, mut chunk: Bytes, buffer: &mut [u8]) -> usize {
        let count = chunk.len().min(buffer.len());
        chunk.copy_to_slice(&mut buffer[..count]);
        *lock(&self.rest) = chunk;
        count
    }

    fn read_into(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(rest) = self.take_rest() {
            return Ok(self.keep_rest(rest, buffer));
        }
        let read = self.wait_for(&self.read_timeout, |waker| self.handle.poll_read(usize::MAX, waker))?;
        let chunk = read.unwrap_or(Err(GONE)).map_err(io_error)?;
        Ok(chunk.map_or(0, |chunk| self.keep_rest(chunk, buffer)))
    }

    fn write_from(&self, buffer: &[u8]) -> io::Result<usize> {
        let count = buffer.len().min(WRITE_MAX);
        let mut bytes = Bytes::copy_from_slice(&buffer[..count]);
        let written = self.wait_for(&self.write_timeout, |waker| self.handle.poll_write(&mut bytes, waker))?;
        written.unwrap_or(Err(WriteError::Closed(GONE))).map_err(write_error)?;
        Ok(count - bytes.len())
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

/// Counterpart of [`io_error`] for writing.
pub(crate) fn write_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Closed(closed) => io_error(closed),
        finished => io::Error::new(io::ErrorKind::BrokenPipe, finished),
    }
}

/// Returns the error that a socket of the kernel has for the same reason.
pub(crate) fn io_error(closed: Closed) -> io::Error {
    let kind = match &closed {
        Closed::Tcp(CloseReason::Reset) => io::ErrorKind::ConnectionReset,
        Closed::Tcp(CloseReason::Refused) => io::ErrorKind::ConnectionRefused,
        Closed::Tcp(CloseReason::TimedOut) | Closed::ConnectTimedOut => io::ErrorKind::TimedOut,
        Closed::Tcp(CloseReason::Unreachable) => io::ErrorKind::HostUnreachable,
        Closed::Configuration(_) => io::ErrorKind::Unsupported,
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
