//! Application handles: of a connection, of the sides of its streams, and of a stream that is being
//! opened.
//!
//! Calls that may have to wait are `poll` functions. They return a value, or register the waker.
//! Handles can be used from any thread if their [`Runtime`] can.

mod datagrams;
mod incoming;
mod messages;
mod paths;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::Flush;
use quic::session::ExportError;
use quic::{Dir, RateLimit, Side, Stats, StreamId, StridedBytes};
use units::Instant;

use crate::application::{Connect, QuicShared};
use crate::cells::connection::{
    ConnectionCell, Interest, MessageMode, OPENS_WAITING_MAX, OpenReplyReceiver, OpenRequest, Query,
};
use crate::cells::reply::reply_channel;
use crate::cells::stream::StreamCells;
use crate::error::{AcceptStreamError, Closed, OpenError};
use crate::messages::join;

pub use incoming::{IncomingHandle, RetryError};
pub use stream::{RecvHandle, SendHandle};

/// Both sides of a bidirectional stream.
pub type BidiStream<R> = (SendHandle<R>, RecvHandle<R>);

/// Sides of an opened stream. Bidirectional streams have a receiving side.
pub type OpenedStream<R> = (SendHandle<R>, Option<RecvHandle<R>>);

/// Runs the drivers of the handles' connections.
pub trait Runtime: Clone {
    /// Lets the driver of `shared` process new requests: wakes its thread, or runs a turn of it.
    fn kick(&self, shared: &QuicShared, flush: Flush);

    /// Waits until `poll` is ready. Returns `None` at `deadline`. `poll` receives the waker to
    /// register when it is not ready.
    fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T>;

    /// Returns the addresses of the sockets, by socket index.
    fn local_addrs(&self) -> &[SocketAddr];
}

/// A handle of a connection. Clones and the handles of its streams refer to the same connection.
/// When the last of them is dropped, the connection is closed with code 0.
pub struct ConnectionHandle<R: Runtime> {
    guard: Arc<Guard<R>>,
}

impl<R: Runtime> Clone for ConnectionHandle<R> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

struct Guard<R: Runtime> {
    cell: Arc<ConnectionCell>,
    runtime: R,
}

impl<R: Runtime> Drop for Guard<R> {
    fn drop(&mut self) {
        close(&self.cell, &self.runtime, 0, "");
    }
}

fn close<R: Runtime>(cell: &Arc<ConnectionCell>, runtime: &R, code: u64, reason: &str) {
    let submitted = cell.submit(|state| {
        state.requests.close.get_or_insert_with(|| (code, reason.to_owned()));
    });
    // An error means that the connection is closed already.
    if submitted.is_ok() {
        runtime.kick(&cell.shared, Flush::Now);
    }
}

impl<R: Runtime> ConnectionHandle<R> {
    /// Creates the handle of a connection that a driver has
    /// [accepted](driver::Shared::poll_accept).
    pub fn from_accepted(cell: Arc<ConnectionCell>, runtime: R) -> Self {
        Self { guard: Arc::new(Guard { cell, runtime }) }
    }

    /// Begins a connection to `remote` in the driver of `shared`. `socket` is the index of the
    /// local socket; if it is `None`, the driver chooses one. The last argument is the priority
    /// among the driver's connections and the rate limit. Wait with
    /// [`poll_connected`](Self::poll_connected).
    ///
    /// # Errors
    /// If the driver is stopping, or too many connections are waiting for it to begin them.
    pub fn connect(
        runtime: &R,
        shared: &Arc<QuicShared>,
        remote: SocketAddr,
        connect: Connect,
        socket: Option<usize>,
        (priority, rate): (i32, Option<RateLimit>),
    ) -> Result<Self, Closed> {
        let cell = Arc::new(ConnectionCell::new(Arc::clone(shared), remote, Side::Client));
        {
            let mut state = cell.lock();
            state.requests.priority = Some(priority);
            if rate.is_some() {
                cell.set_rate(&mut state, rate);
            }
        }
        shared.push_connect(driver::shared::ConnectRequest { cell: Arc::clone(&cell), connect, socket })?;
        runtime.kick(shared, Flush::Now);
        Ok(Self::from_accepted(cell, runtime.clone()))
    }

    fn cell(&self) -> &Arc<ConnectionCell> {
        &self.guard.cell
    }

    /// Returns the runtime of its driver.
    pub fn runtime(&self) -> &R {
        &self.guard.runtime
    }

    /// Returns the index of its driver among the drivers of the endpoint.
    pub fn processor(&self) -> usize {
        self.cell().shared.index
    }

    /// Changes the shared state and notifies the driver.
    fn submit(&self, change: impl FnOnce(&mut crate::cells::connection::ConnectionState)) -> Result<(), Closed> {
        self.submit_with(Flush::Now, change)
    }

    /// Submits a change like [`submit`](Self::submit). With [`Flush::Cork`], data may wait for more
    /// before it is sent.
    fn submit_with(
        &self,
        flush: Flush,
        change: impl FnOnce(&mut crate::cells::connection::ConnectionState),
    ) -> Result<(), Closed> {
        if self.cell().submit(change)? {
            self.runtime().kick(&self.cell().shared, flush);
        }
        Ok(())
    }

    /// Requests more received data if `needed`, because a queue has space.
    fn refill(&self, needed: bool) {
        if needed {
            // An error means that the connection is closed and everything has been delivered.
            let _ended = self.submit(|state| state.requests.wants_delivery = true);
        }
    }

    /// Returns ready when the handshake is complete, even if the connection has ended since: later
    /// calls report its reason. Returns an error if it ended before.
    pub fn poll_connected(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        let mut state = self.cell().lock();
        if state.connected {
            return Poll::Ready(Ok(()));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        state.add_waker(Interest::Connected, waker);
        Poll::Pending
    }

    /// Returns ready when the connection is closed.
    pub fn poll_closed(&self, waker: &Waker) -> Poll<Closed> {
        let mut state = self.cell().lock();
        if let Some(closed) = &state.closed {
            return Poll::Ready(closed.clone());
        }
        state.add_waker(Interest::Closed, waker);
        Poll::Pending
    }

    /// Returns the reason why the connection is closed, if it is.
    pub fn closed(&self) -> Option<Closed> {
        self.cell().lock().closed.clone()
    }

    /// Closes the connection. The peer's application gets `code` and `reason`. Data that the peer
    /// has not acknowledged may be lost. Repeated calls have no effect.
    pub fn close(&self, code: u64, reason: &str) {
        close(self.cell(), self.runtime(), code, reason);
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Requests a new stream. Poll the result until the stream is open.
    pub fn open(&self, dir: Dir) -> PendingOpen<R> {
        PendingOpen { connection: self.clone(), dir, is_early: false, reply: None }
    }

    /// Requests a new stream like [`open`](Self::open), for an idempotent request, which an
    /// attacker may replay. While the handshake is in progress the request leaves in 0-RTT packets
    /// if the connection can send them; otherwise it waits for the end of the handshake. If the
    /// server rejects it, the stream ends with an error of its own.
    pub fn open_early(&self, dir: Dir) -> PendingOpen<R> {
        PendingOpen { connection: self.clone(), dir, is_early: true, reply: None }
    }

    /// Returns whether data of a client's stream arrived in a 0-RTT packet, so that an attacker may
    /// have sent it. Also returns true if the connection is closed, because the answer is then
    /// unknown. Waits for the driver.
    pub fn may_be_replayed(&self, id: StreamId) -> bool {
        let (reply, answer) = reply_channel();
        match self.submit(|state| state.requests.queries.push(Query::MayBeReplayed { id, answer })) {
            Ok(()) => self.runtime().block_on(None, |waker| reply.poll(waker)).flatten().unwrap_or(true),
            Err(_) => true,
        }
    }

    /// Returns the next bidirectional stream of the peer.
    pub fn poll_accept_bi(&self, waker: &Waker) -> Poll<Result<BidiStream<R>, AcceptStreamError>> {
        let polled = {
            let mut state = self.cell().lock();
            match (state.take_accepted(Dir::Bi), &state.closed) {
                (Some(taken), _) => Poll::Ready(Ok(taken)),
                (None, Some(closed)) => Poll::Ready(Err(AcceptStreamError::ConnectionClosed(closed.clone()))),
                (None, None) => {
                    state.add_waker(Interest::AcceptBi, waker);
                    Poll::Pending
                }
            }
        };
        polled.map_ok(|(cells, refill)| {
            self.refill(refill);
            self.bi(cells)
        })
    }

    /// Returns the next unidirectional stream of the peer. The first call decides that the peer's
    /// unidirectional streams are accepted as streams and not as messages.
    pub fn poll_accept_uni(&self, waker: &Waker) -> Poll<Result<RecvHandle<R>, AcceptStreamError>> {
        if let Err(closed) = self.decide(MessageMode::Streams) {
            return Poll::Ready(
                Err(closed.map_or(AcceptStreamError::MessageMode, AcceptStreamError::ConnectionClosed)),
            );
        }
        let polled = {
            let mut state = self.cell().lock();
            match (state.take_accepted(Dir::Uni), &state.closed) {
                (Some(taken), _) => Poll::Ready(Ok(taken)),
                (None, Some(closed)) => Poll::Ready(Err(AcceptStreamError::ConnectionClosed(closed.clone()))),
                (None, None) => {
                    state.add_waker(Interest::AcceptUni, waker);
                    Poll::Pending
                }
            }
        };
        polled.map_ok(|(cells, refill)| {
            self.refill(refill);
            let recv = cells.recv.expect("a stream of the peer can be read");
            RecvHandle::new(recv, self.clone())
        })
    }

    /// Sets the use of the peer's unidirectional streams, unless it is set.
    ///
    /// # Errors
    /// If it is already set to the other use.
    fn decide(&self, wanted: MessageMode) -> Result<(), Option<Closed>> {
        let mode = self.cell().lock().mode;
        if mode == MessageMode::Undecided {
            // On a closed connection the mode stays undecided, and both calls work.
            let _ended = self.submit(|state| {
                state.requests.wants_delivery = true;
                if state.mode == MessageMode::Undecided {
                    state.mode = wanted;
                }
            });
        }
        let state = self.cell().lock();
        match state.mode {
            MessageMode::Undecided => Ok(()),
            mode if mode == wanted => Ok(()),
            _ => Err(state.closed.clone()),
        }
    }

    fn bi(&self, cells: StreamCells) -> (SendHandle<R>, RecvHandle<R>) {
        let send = SendHandle::new(cells.send.expect("a bidirectional stream can be written"), self.clone());
        let recv = RecvHandle::new(cells.recv.expect("a bidirectional stream can be read"), self.clone());
        (send, recv)
    }

    // ── Classes of service ───────────────────────────────────────────────────────────────────────────────────────────

    /// Sets the priority among the connections of the driver. The driver serves connections of a
    /// higher priority first and those of equal priority in turn. At least one turn in nine goes to
    /// a lower priority. The default is 0.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn set_priority(&self, priority: i32) -> Result<(), Closed> {
        self.submit(|state| state.requests.priority = Some(priority))
    }

    /// Sets or removes the rate limit for new data of all streams and messages together.
    /// Retransmissions and datagrams do not count.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn set_rate(&self, limit: Option<RateLimit>) -> Result<(), Closed> {
        let cell = self.cell();
        self.submit(|state| cell.set_rate(state, limit))
    }

    // ── Queries ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Returns the current statistics, or the final ones of a closed connection. `None` if the
    /// connection never began. Waits for the driver.
    pub fn stats(&self) -> Option<Stats> {
        let (reply, answer) = reply_channel();
        let query = Query::Stats(answer);
        match self.submit(|state| state.requests.queries.push(query)) {
            Ok(()) => self.runtime().block_on(None, |waker| reply.poll(waker)).flatten(),
            Err(_) => self.cell().lock().last_stats(),
        }
    }

    /// Exports keying material that only the two endpoints can compute (RFC 8446, section 7.5).
    /// Waits for the driver.
    ///
    /// # Errors
    /// If the handshake is not complete, or the connection is closed.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        let (reply, answer) = reply_channel();
        let query = Query::Export { label: label.to_vec(), context: context.to_vec(), len: out.len(), answer };
        self.submit(|state| state.requests.queries.push(query)).map_err(|_| ExportError)?;
        let material = self.runtime().block_on(None, |waker| reply.poll(waker)).ok_or(ExportError)??;
        out.copy_from_slice(&material);
        Ok(())
    }

    /// Returns the peer's certificate chain or raw public key, leaf first, as authenticated by TLS.
    /// Empty if the peer presented none, and before the handshake is complete.
    pub fn peer_identity(&self) -> Vec<Vec<u8>> {
        self.cell().lock().identity.to_vec()
    }

    /// Returns the local address. If the socket is bound to the wildcard address, this is the
    /// wildcard address until a packet has been received.
    pub fn local_addr(&self) -> SocketAddr {
        self.cell().place.get().map_or_else(|| self.runtime().local_addrs()[0], |place| place.local)
    }

    /// Returns the peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.cell().remote
    }

    /// Returns whether this side is the client or the server.
    pub fn side(&self) -> Side {
        self.cell().side
    }
}

impl<R: Runtime> std::fmt::Debug for ConnectionHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionHandle").field("side", &self.side()).field("remote", &self.remote_addr()).finish()
    }
}

/// A request for a new stream. Dropping it cancels the request.
pub struct PendingOpen<R: Runtime> {
    connection: ConnectionHandle<R>,
    dir: Dir,
    is_early: bool,
    reply: Option<OpenReplyReceiver>,
}

impl<R: Runtime> std::fmt::Debug for PendingOpen<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingOpen").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl<R: Runtime> PendingOpen<R> {
    /// Returns ready when the peer's limit permits the stream and it is open. Bidirectional streams
    /// have a receiving side. Another call requests another stream.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<OpenedStream<R>, OpenError>> {
        if self.reply.is_none()
            && let Err(error) = self.begin()
        {
            return Poll::Ready(Err(error));
        }
        let Some(reply) = &self.reply else { return Poll::Pending };
        match reply.poll(waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.reply = None;
                Poll::Ready(result.map(|cells| self.handles(cells)))
            }
        }
    }

    fn begin(&mut self) -> Result<(), OpenError> {
        let (reply, answer) = reply_channel();
        let request = OpenRequest { dir: self.dir, is_early: self.is_early, answer };
        let mut accepted = false;
        let submitted = self.connection.submit(|state| {
            if state.opens_waiting < OPENS_WAITING_MAX {
                state.opens_waiting += 1;
                state.requests.opens.push(request);
                accepted = true;
            }
        });
        submitted.map_err(OpenError::ConnectionClosed)?;
        if !accepted {
            return Err(OpenError::TooManyWaiting);
        }
        self.reply = Some(reply);
        Ok(())
    }

    fn handles(&self, cells: StreamCells) -> (SendHandle<R>, Option<RecvHandle<R>>) {
        let send = SendHandle::new(cells.send.expect("a stream of ours can be written"), self.connection.clone());
        (send, cells.recv.map(|recv| RecvHandle::new(recv, self.connection.clone())))
    }
}

impl<R: Runtime> Drop for PendingOpen<R> {
    fn drop(&mut self) {
        // If the stream was opened in the meantime, dropping its handles ends it.
        if let Some(Ok(cells)) = self.reply.take().and_then(|reply| reply.cancel()) {
            drop(self.handles(cells));
        }
    }
}

impl crate::cells::connection::ConnectionState {
    /// Returns the next complete message among the accepted streams of a closed connection. This
    /// covers messages that were received before the first call decided that streams are messages.
    /// Messages longer than `len_max` are dropped, as on an open connection.
    fn take_message_after_close(&mut self, len_max: usize) -> Option<Bytes> {
        while let Some(cells) = self.accepted[Dir::Uni.index()].pop_front() {
            let Some(chunks) = cells.recv.and_then(|recv| recv.take_whole()) else { continue };
            let len = chunks.iter().map(StridedBytes::len).sum();
            if len <= len_max {
                return Some(join(chunks.iter(), len));
            }
            tracing::debug!(len, len_max, "dropped a message that is too long");
        }
        None
    }
}
