//! Exchange between handles and the driver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::protocol::{Cell, Place};
use driver::shared::FIRST_QUEUE;
use driver::sync::{WakerSet, lock};
use driver::{Application, EndReason, Shared};
use layers::RecordError;
use tcp::{CloseReason, DSCP_MAX, KeepAlive, Md5Key};

use crate::info::TcpInfo;

use crate::listeners::Port;

/// Capacity that an empty queue of chunks keeps.
const PLACES_KEPT: usize = 4;

/// The application's side of TCP.
#[derive(Debug)]
pub struct TcpApplication;

/// State that handles share with one driver.
pub type TcpShared = Shared<TcpApplication>;

/// The parameters of an outgoing connection.
///
/// Begin with the default, and set others with the `with_` methods.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Connect {
    /// Local address, if it matters. Port zero lets the stack choose. Of several drivers, the
    /// [owner](crate::shard::of) of the address and port must begin the connection.
    pub local: Option<SocketAddr>,
    /// Key of the digests that all segments carry in both directions (RFC 2385).
    pub md5: Option<Md5Key>,
    /// Whether explicit congestion notification is offered. Default: the configuration of the
    /// stack.
    pub ecn: Option<bool>,
    /// Whether a router's report that the peer is unreachable ends the attempt, as in kernels.
    /// Default: false, because the problem may be transient (RFC 1122, section 4.2.3.9; RFC 5461,
    /// section 4).
    pub ends_if_unreachable: bool,
    /// See [`with_dscp`](Self::with_dscp).
    pub(crate) dscp: u8,
}

impl Connect {
    /// Sets [`local`](Self::local).
    #[must_use]
    pub fn with_local(self, local: SocketAddr) -> Self {
        Self { local: Some(local), ..self }
    }

    /// Sets [`md5`](Self::md5).
    #[must_use]
    pub fn with_md5(self, key: Md5Key) -> Self {
        Self { md5: Some(key), ..self }
    }

    /// Sets [`ecn`](Self::ecn).
    #[must_use]
    pub fn with_ecn(self, ecn: bool) -> Self {
        Self { ecn: Some(ecn), ..self }
    }

    /// Sets [`ends_if_unreachable`](Self::ends_if_unreachable).
    #[must_use]
    pub fn with_ends_if_unreachable(self, ends_if_unreachable: bool) -> Self {
        Self { ends_if_unreachable, ..self }
    }

    /// Sets the differentiated services code point (RFC 2474) of all packets, the SYN included.
    /// Default: 0. [`StreamHandle::set_dscp`](crate::StreamHandle::set_dscp) changes it.
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    #[must_use]
    pub fn with_dscp(self, dscp: u8) -> Self {
        assert!(dscp <= DSCP_MAX, "a DSCP has six bits");
        Self { dscp, ..self }
    }
}

/// Limits that handles enforce.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Limit on written bytes that the connection has not taken.
    pub outbox_bytes_max: usize,
    /// Limit on received bytes outside the connection that wait for their reader.
    pub inbox_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { outbox_bytes_max: 1 << 20, inbox_bytes_max: 1 << 20 }
    }
}

impl Application for TcpApplication {
    type Cell = TcpCell;
    type Connect = Connect;
    type Limits = Limits;
}

/// Reason why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The end of the TCP connection.
    Tcp(CloseReason),
    /// An error of the cipher above TCP.
    Records(RecordError),
    /// The driver.
    Driver(EndReason),
    /// The peer did not answer within the caller's time limit.
    ConnectTimedOut,
    /// The listener was closed.
    NotListening,
    /// The call is impossible in this configuration. Holds the reason and the remedy.
    Configuration(String),
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(reason) => reason.fmt(f),
            Self::Records(error) => error.fmt(f),
            Self::Driver(EndReason::EndpointClosed) => f.write_str("the stack is closed"),
            Self::Driver(EndReason::ProcessorGone) => f.write_str("the processor of the connection has failed"),
            Self::Driver(EndReason::TooMany) => f.write_str("there are too many connections"),
            Self::Driver(EndReason::NoSocket) => {
                f.write_str("no device has an address of the peer's family, or no port is free")
            }
            Self::Driver(_) => f.write_str("the driver has ended the connection"),
            Self::ConnectTimedOut => f.write_str("the peer has not answered in the time allowed"),
            Self::NotListening => f.write_str("the listener was closed"),
            Self::Configuration(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Closed {}

/// State that the handles of a connection share with the driver.
pub struct TcpCell {
    pub(crate) shared: Arc<TcpShared>,
    remote: SocketAddr,
    place: OnceLock<Place>,
    /// Port that a peer has connected to; `None` for outgoing connections.
    port: Option<Arc<Port>>,
    /// This side's address, once the driver has chosen it.
    local: OnceLock<SocketAddr>,
    state: Mutex<CellState>,
}

/// State behind the lock of a cell, which is held only briefly.
#[derive(Default)]
pub(crate) struct CellState {
    is_dirty: bool,
    outbox: VecDeque<Bytes>,
    outbox_len: usize,
    /// Whether the outbox was full: the writer waits until half of it is taken, not for a few
    /// bytes.
    is_outbox_full: bool,
    /// Whether the application has finished writing.
    pub(crate) is_finished: bool,
    pub(crate) is_aborted: bool,
    /// Whether the last handle was dropped.
    pub(crate) is_dropped: bool,
    pub(crate) nagle: Option<bool>,
    pub(crate) keep_alive: Option<Option<KeepAlive>>,
    pub(crate) dscp: Option<u8>,
    /// Number of queries for the state of the connection; the next field counts the answers.
    info_asked: u64,
    info_answered: u64,
    info: Option<Box<TcpInfo>>,
    inbox: VecDeque<Bytes>,
    inbox_len: usize,
    /// Whether the inbox was full: the driver waits until it is read.
    is_inbox_full: bool,
    has_ended: bool,
    is_connected: bool,
    closed: Option<Closed>,
    has_changed: bool,
    wakers: WakerSet,
}

impl Cell for TcpCell {
    fn place(&self) -> &OnceLock<Place> {
        &self.place
    }

    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn refuse(&self, reason: EndReason) {
        self.close(Closed::Driver(reason));
    }

    fn accept_queue(&self) -> u64 {
        self.port.as_ref().map_or(FIRST_QUEUE, |port| port.queue)
    }
}

impl TcpCell {
    pub(crate) fn new(shared: Arc<TcpShared>, remote: SocketAddr) -> Arc<Self> {
        Self::build(shared, remote, None)
    }

    /// Creates the cell of a peer's connection to `port`, which counts it while it waits to be
    /// accepted.
    pub(crate) fn accepted(shared: Arc<TcpShared>, remote: SocketAddr, port: Arc<Port>) -> Arc<Self> {
        Self::build(shared, remote, Some(port))
    }

    fn build(shared: Arc<TcpShared>, remote: SocketAddr, port: Option<Arc<Port>>) -> Arc<Self> {
        let (place, local) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { shared, remote, place, port, local, state: Mutex::default() })
    }

    pub(crate) const fn port(&self) -> Option<&Arc<Port>> {
        self.port.as_ref()
    }

    fn state(&self) -> MutexGuard<'_, CellState> {
        lock(&self.state)
    }

    // ── Calls of handles ─────────────────────────────────────────────────────────────────────────

    /// Returns whether the handshake is complete, also if the connection has ended since.
    pub(crate) fn poll_connected(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        let mut state = self.state();
        if state.is_connected {
            return Poll::Ready(Ok(()));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    /// Records that the application has accepted the connection.
    pub(crate) fn note_accepted(&self) {
        if let Some(port) = &self.port {
            port.on_accepted();
        }
    }

    /// Returns this side's address; `None` before the driver has seen the connection.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local.get().copied()
    }

    /// Queries the state of the connection. Returns the number of the query.
    pub(crate) fn ask_info(self: &Arc<Self>) -> u64 {
        let mut state = self.state();
        state.info_asked += 1;
        self.publish(&mut state);
        state.info_asked
    }

    /// Becomes ready when the driver has answered `question`, or with the last state if the
    /// connection has ended.
    pub(crate) fn poll_info(&self, question: u64, waker: &Waker) -> Poll<Option<TcpInfo>> {
        let mut state = self.state();
        if state.info_answered >= question || state.closed.is_some() {
            return Poll::Ready(state.info.as_deref().copied());
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    pub(crate) fn poll_closed(&self, waker: &Waker) -> Poll<Closed> {
        let mut state = self.state();
        if let Some(closed) = &state.closed {
            return Poll::Ready(closed.clone());
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    /// Takes the part of `bytes` that fits.
    pub(crate) fn poll_write(self: &Arc<Self>, bytes: &mut Bytes, waker: &Waker) -> Poll<Result<(), WriteError>> {
        let mut state = self.state();
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(WriteError::Closed(closed.clone())));
        }
        if state.is_finished {
            return Poll::Ready(Err(WriteError::Finished));
        }
        let space = self.shared.limits.outbox_bytes_max.saturating_sub(state.outbox_len);
        if space == 0 && !bytes.is_empty() {
            state.is_outbox_full = true;
            state.wakers.add(waker);
            return Poll::Pending;
        }
        let taken = bytes.split_to(space.min(bytes.len()));
        if !taken.is_empty() {
            state.outbox_len += taken.len();
            state.outbox.push_back(taken);
            self.publish(&mut state);
        }
        Poll::Ready(Ok(()))
    }

    /// Returns up to `len_max` received bytes; `None` at the end.
    pub(crate) fn poll_read(self: &Arc<Self>, len_max: usize, waker: &Waker) -> Poll<Result<Option<Bytes>, Closed>> {
        let mut state = self.state();
        if let Some(first) = state.inbox.front_mut() {
            let bytes = if first.len() <= len_max {
                state.inbox.pop_front().expect("there is a first")
            } else {
                first.split_to(len_max)
            };
            release_empty(&mut state.inbox);
            state.inbox_len -= bytes.len();
            if state.is_inbox_full && state.inbox_len <= self.shared.limits.inbox_bytes_max / 2 {
                state.is_inbox_full = false;
                self.publish(&mut state);
            }
            return Poll::Ready(Ok(Some(bytes)));
        }
        if state.has_ended {
            return Poll::Ready(Ok(None));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    /// Changes state that the driver must see.
    pub(crate) fn request(self: &Arc<Self>, change: impl FnOnce(&mut CellState)) {
        let mut state = self.state();
        change(&mut state);
        self.publish(&mut state);
    }

    /// Adds the connection to the requests of its driver, unless it is among them.
    fn publish(self: &Arc<Self>, state: &mut CellState) {
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.shared.push_dirty(Arc::clone(self));
        }
    }

    // ── Calls of the driver ──────────────────────────────────────────────────────────────────────

    /// Returns the requests other than data.
    pub(crate) fn take_requests(&self) -> Requests {
        let mut state = self.state();
        state.is_dirty = false;
        Requests {
            is_aborted: state.is_aborted,
            is_dropped: state.is_dropped,
            is_dropped_unread: state.is_dropped && state.inbox_len > 0,
            nagle: state.nagle.take(),
            keep_alive: state.keep_alive.take(),
            dscp: state.dscp.take(),
            wants_info: state.info_asked > state.info_answered,
        }
    }

    /// Passes about `len_max` bytes of written data to `each`. Returns true if everything was taken
    /// and the application has finished.
    pub(crate) fn take_written(&self, len_max: usize, mut each: impl FnMut(Bytes)) -> bool {
        let mut state = self.state();
        let mut left = len_max;
        while left > 0
            && let Some(mut first) = state.outbox.pop_front()
        {
            let taken = first.split_to(first.len().min(left));
            if !first.is_empty() {
                state.outbox.push_front(first);
            }
            left -= taken.len();
            state.outbox_len -= taken.len();
            each(taken);
        }
        if state.is_outbox_full && state.outbox_len <= self.shared.limits.outbox_bytes_max / 2 {
            (state.is_outbox_full, state.has_changed) = (false, true);
        }
        release_empty(&mut state.outbox);
        // A handle dropped after a reset has finished, too. The driver may see that before it has
        // reset the connection, and a FIN must not mark the data as complete.
        state.is_finished && !state.is_aborted && state.outbox.is_empty()
    }

    /// Returns the free space of the inbox in bytes; after zero, the reader wakes the driver.
    pub(crate) fn inbox_space(&self) -> usize {
        let mut state = self.state();
        let space = self.shared.limits.inbox_bytes_max.saturating_sub(state.inbox_len);
        state.is_inbox_full |= space == 0;
        space
    }

    pub(crate) fn deliver(&self, bytes: Bytes) {
        let mut state = self.state();
        state.inbox_len += bytes.len();
        state.inbox.push_back(bytes);
        state.has_changed = true;
    }

    /// Answers all queries for the state of the connection.
    pub(crate) fn answer_info(&self, info: TcpInfo) {
        let mut state = self.state();
        state.info = Some(Box::new(info));
        (state.info_answered, state.has_changed) = (state.info_asked, true);
    }

    /// Records this side's address, chosen by the driver.
    pub(crate) fn note_local(&self, local: SocketAddr) {
        // A connection keeps its first address.
        self.local.get_or_init(|| local);
    }

    pub(crate) fn note_end(&self) {
        let mut state = self.state();
        (state.has_ended, state.has_changed) = (true, true);
    }

    /// Records that the handshake is complete. A peer's connection now waits for the application.
    pub(crate) fn note_connected(&self) {
        if let Some(port) = &self.port {
            port.on_waiting();
        }
        let mut state = self.state();
        (state.is_connected, state.has_changed) = (true, true);
    }

    /// Wakes the waiting tasks, if anything has changed.
    pub(crate) fn wake(&self) {
        let wakers = {
            let mut state = self.state();
            if !std::mem::take(&mut state.has_changed) {
                return;
            }
            state.wakers.take()
        };
        wakers.wake();
    }

    /// Records the end of the connection. The first reason counts.
    pub(crate) fn close(&self, closed: Closed) {
        {
            let mut state = self.state();
            if state.closed.is_some() {
                return;
            }
            (state.closed, state.has_changed) = (Some(closed), true);
        }
        self.wake();
    }
}

/// Frees the memory of an empty queue, since idle connections should not hold memory for data
/// already moved.
fn release_empty(queue: &mut VecDeque<Bytes>) {
    if queue.is_empty() && queue.capacity() > PLACES_KEPT {
        *queue = VecDeque::new();
    }
}

/// See [`TcpCell::take_requests`].
pub(crate) struct Requests {
    pub(crate) is_aborted: bool,
    pub(crate) is_dropped: bool,
    /// Whether the last handle was dropped with received data unread.
    pub(crate) is_dropped_unread: bool,
    pub(crate) nagle: Option<bool>,
    pub(crate) keep_alive: Option<Option<KeepAlive>>,
    pub(crate) dscp: Option<u8>,
    pub(crate) wants_info: bool,
}

/// Reason why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The stream was finished before.
    Finished,
    /// The connection has ended.
    Closed(Closed),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finished => f.write_str("the stream was finished before"),
            Self::Closed(closed) => closed.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use driver::shared::Common;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cell(limits: Limits) -> Arc<TcpCell> {
        let shared = TcpShared::new(Waker::noop().clone(), Vec::new(), limits, Arc::new(Common::new(1)), 0);
        TcpCell::new(Arc::new(shared), ([10, 0, 0, 1], 80).into())
    }

    #[test]
    fn a_connection_that_is_reset_and_dropped_has_not_finished() {
        let cell = cell(Limits::default());
        let is_finished = || cell.take_written(0, |_| {});
        assert!(!is_finished());
        cell.request(|state| state.is_aborted = true);
        cell.request(|state| (state.is_finished, state.is_dropped) = (true, true));
        assert!(!is_finished());
        assert!(cell.take_requests().is_aborted);

        let cell = self::cell(Limits::default());
        cell.request(|state| (state.is_finished, state.is_dropped) = (true, true));
        assert!(cell.take_written(0, |_| {}), "without a reset it has");
    }

    #[test]
    fn a_writer_that_waits_is_woken_when_half_of_the_outbox_is_free() {
        let cell = cell(Limits { outbox_bytes_max: 1000, ..Limits::default() });
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let take = |len| {
            let mut taken = 0;
            cell.take_written(len, |bytes| taken += bytes.len());
            cell.wake();
            (taken, woken.0.load(Ordering::Relaxed))
        };
        let mut bytes = Bytes::from_static(&[1; 1500]);
        assert!(cell.poll_write(&mut bytes, &waker).is_ready() && bytes.len() == 500, "a part");
        assert!(cell.poll_write(&mut bytes, &waker).is_pending());
        assert_eq!(take(499), (499, 0));
        assert_eq!(take(1), (1, 1));
        assert!(cell.poll_write(&mut bytes, &waker).is_ready() && bytes.is_empty());
        assert_eq!(take(2000), (1000, 1), "no writer waits");
    }
}
