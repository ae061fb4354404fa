//! [`StreamHandle`]: an application's view of a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::shared::{AcceptOutcome, ConnectRequest};
use driver::{Flush, protocol::Cell};
use tcp::{DSCP_MAX, KeepAlive};
use units::Instant;

use crate::application::{Closed, Connect, TcpCell, TcpShared, WriteError};
use crate::info::TcpInfo;
use crate::listeners::Port;

/// Runner of the drivers of the handles' connections.
pub trait Runtime: Clone {
    /// Lets the driver of `shared` process new requests: wakes its thread, or runs a turn of it.
    fn kick(&self, shared: &TcpShared, flush: Flush);

    /// Waits until `poll` is ready. Returns `None` at `deadline`. `poll` gets the waker to register
    /// when it is not ready.
    fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T>;
}

/// A connection. When the last clone is dropped, written data are still sent, and then the
/// connection ends.
pub struct StreamHandle<R: Runtime> {
    guard: Arc<Guard<R>>,
}

impl<R: Runtime> Clone for StreamHandle<R> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

struct Guard<R: Runtime> {
    cell: Arc<TcpCell>,
    runtime: R,
}

impl<R: Runtime> Drop for Guard<R> {
    fn drop(&mut self) {
        self.cell.request(|state| (state.is_finished, state.is_dropped) = (true, true));
        self.runtime.kick(&self.cell.shared, Flush::Now);
    }
}

impl<R: Runtime> StreamHandle<R> {
    /// Begins a connection from the device with index `device`. Wait with
    /// [`poll_connected`](Self::poll_connected).
    ///
    /// # Errors
    /// Fails if the stack is closed, or too many connections wait for the driver.
    pub fn connect(
        runtime: &R,
        shared: &Arc<TcpShared>,
        remote: SocketAddr,
        connect: Connect,
        device: usize,
    ) -> Result<Self, Closed> {
        let cell = TcpCell::new(Arc::clone(shared), remote);
        let request = ConnectRequest { cell: Arc::clone(&cell), connect, socket: Some(device) };
        shared.push_connect(request).map_err(Closed::Driver)?;
        let handle = Self::new(cell, runtime.clone());
        runtime.kick(shared, Flush::Now);
        Ok(handle)
    }

    /// Returns the next connection of a peer to `port`. Returns `None` if the port or the stack is
    /// closed.
    pub fn poll_accept(runtime: &R, shared: &TcpShared, port: &Port, waker: &Waker) -> Poll<Option<Self>> {
        match shared.poll_accept_from(port.queue, waker) {
            AcceptOutcome::Connection(cell) => {
                cell.note_accepted();
                Poll::Ready(Some(Self::new(cell, runtime.clone())))
            }
            AcceptOutcome::Stopped => Poll::Ready(None),
            AcceptOutcome::Pending => Poll::Pending,
        }
    }

    pub(crate) fn new(cell: Arc<TcpCell>, runtime: R) -> Self {
        Self { guard: Arc::new(Guard { cell, runtime }) }
    }

    fn cell(&self) -> &Arc<TcpCell> {
        &self.guard.cell
    }

    fn kick(&self, flush: Flush) {
        self.guard.runtime.kick(&self.cell().shared, flush);
    }

    /// Returns the runner of its driver.
    pub fn runtime(&self) -> &R {
        &self.guard.runtime
    }

    /// Returns the peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.cell().remote()
    }

    /// Returns this side's address; `None` before the driver has seen the connection.
    pub fn local(&self) -> Option<SocketAddr> {
        self.cell().local()
    }

    /// Queries the state of the connection. Pass the result to [`poll_info`](Self::poll_info).
    pub fn ask_info(&self) -> u64 {
        let question = self.cell().ask_info();
        self.kick(Flush::Now);
        question
    }

    /// Becomes ready with the answer to `question`, or with the last state of a connection that has
    /// ended; `None` if it never began.
    pub fn poll_info(&self, question: u64, waker: &Waker) -> Poll<Option<TcpInfo>> {
        self.cell().poll_info(question, waker)
    }

    /// Becomes ready when the handshake is complete, even if the connection has ended since.
    pub fn poll_connected(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        self.cell().poll_connected(waker)
    }

    /// Becomes ready when the connection has ended.
    pub fn poll_closed(&self, waker: &Waker) -> Poll<Closed> {
        self.cell().poll_closed(waker)
    }

    /// Takes the part of `bytes` that fits.
    ///
    /// # Errors
    /// Fails if the stream was finished, or the connection has ended.
    pub fn poll_write(&self, bytes: &mut Bytes, waker: &Waker) -> Poll<Result<(), WriteError>> {
        let before = bytes.len();
        let result = self.cell().poll_write(bytes, waker);
        if bytes.len() < before {
            self.kick(Flush::Cork);
        }
        result
    }

    /// Returns up to `len_max` received bytes; `None` at the end of the peer's stream.
    ///
    /// # Errors
    /// Fails if the connection ended before the peer's stream.
    pub fn poll_read(&self, len_max: usize, waker: &Waker) -> Poll<Result<Option<Bytes>, Closed>> {
        let result = self.cell().poll_read(len_max, waker);
        if result.is_ready() && self.cell().shared.has_todo() {
            self.kick(Flush::Cork);
        }
        result
    }

    /// Ends our stream after all written data.
    pub fn finish(&self) {
        self.cell().request(|state| state.is_finished = true);
        self.kick(Flush::Now);
    }

    /// Resets the connection.
    pub fn abort(&self) {
        self.cell().request(|state| state.is_aborted = true);
        self.kick(Flush::Now);
    }

    /// Sets whether small segments wait while others are outstanding (Nagle's algorithm).
    pub fn set_nagle(&self, nagle: bool) {
        self.cell().request(|state| state.nagle = Some(nagle));
        self.kick(Flush::Now);
    }

    /// Sets the keep-alive schedule; `None` disables probes.
    pub fn set_keep_alive(&self, keep_alive: Option<KeepAlive>) {
        self.cell().request(|state| state.keep_alive = Some(keep_alive));
        self.kick(Flush::Now);
    }

    /// Sets the differentiated services code point (RFC 2474) of all packets from now on.
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    pub fn set_dscp(&self, dscp: u8) {
        assert!(dscp <= DSCP_MAX, "a DSCP has six bits");
        self.cell().request(|state| state.dscp = Some(dscp));
        self.kick(Flush::Now);
    }
}
