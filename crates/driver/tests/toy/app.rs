//! The application's side of toy connections: the cell that handles and driver share, and the calls
//! of an application.

use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use driver::protocol::{Cell, Place};
use driver::shared::{AcceptOutcome, ConnectRequest};
use driver::sync::{WakerSet, lock};
use driver::{Application, EndReason, Shared};

pub(crate) type ToyShared = Shared<ToyApplication>;

/// Limit of written bytes that the connection has not taken yet.
const OUTBOX_MAX: usize = 256 << 10;

pub(crate) struct ToyApplication;

impl Application for ToyApplication {
    type Cell = ToyCell;
    type Connect = ();
    type Limits = ();
}

/// End of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides have sent and acknowledged everything.
    Finished,
    /// The peer has reset the connection.
    Reset,
    /// The peer has not answered.
    TimedOut,
    /// The driver or the application has closed the connection.
    Closed(EndReason),
}

/// The call in which a connection panics, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Serve,
    Absorb,
    Job,
    FinishJob,
    Events,
    Plan,
    Seal,
    Timeout,
}

pub(crate) struct ToyCell {
    shared: Arc<ToyShared>,
    remote: SocketAddr,
    place: OnceLock<Place>,
    state: Mutex<CellState>,
}

#[derive(Default)]
pub(crate) struct CellState {
    is_dirty: bool,
    outbox: VecDeque<Arc<[u8]>>,
    outbox_len: usize,
    /// Whether the application has finished writing.
    finished: bool,
    aborted: bool,
    fault: Option<Fault>,
    inbox: VecDeque<Vec<u8>>,
    /// The number of bytes that the application has read.
    read: u64,
    /// Whether the stream of the peer has ended and the inbox holds all of it.
    eof: bool,
    is_connected: bool,
    end: Option<End>,
    /// Whether there is a change that the application may be waiting for.
    has_changed: bool,
    wakers: WakerSet,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Data(Vec<u8>),
    Finished,
    Ended(End),
    Pending,
}

impl Cell for ToyCell {
    fn place(&self) -> &OnceLock<Place> {
        &self.place
    }

    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn refuse(&self, reason: EndReason) {
        self.end(End::Closed(reason));
    }
}

impl ToyCell {
    pub(crate) fn new(shared: Arc<ToyShared>, remote: SocketAddrV4) -> Arc<Self> {
        Arc::new(Self { shared, remote: remote.into(), place: OnceLock::new(), state: Mutex::default() })
    }

    // ── Calls of the application ─────────────────────────────────────────────────────────────────

    /// Requests a connection.
    pub(crate) fn connect(shared: &Arc<ToyShared>, remote: SocketAddrV4) -> Result<Arc<Self>, EndReason> {
        let cell = Self::new(Arc::clone(shared), remote);
        shared.push_connect(ConnectRequest { cell: Arc::clone(&cell), connect: (), socket: None })?;
        shared.wake();
        Ok(cell)
    }

    /// Returns the next connection of a peer. Registers the waker if there is none.
    pub(crate) fn accept(shared: &ToyShared, waker: &Waker) -> Option<Arc<Self>> {
        match shared.poll_accept(waker) {
            AcceptOutcome::Connection(cell) => Some(cell),
            AcceptOutcome::Pending | AcceptOutcome::Stopped => None,
        }
    }

    /// Writes a chunk if there is space, and registers the waker otherwise.
    pub(crate) fn write(self: &Arc<Self>, chunk: &Arc<[u8]>, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        if state.end.is_some() || state.outbox_len + chunk.len() > OUTBOX_MAX {
            state.wakers.add(waker);
            return false;
        }
        state.outbox_len += chunk.len();
        state.outbox.push_back(Arc::clone(chunk));
        self.publish(&mut state);
        true
    }

    pub(crate) fn read(self: &Arc<Self>, waker: &Waker) -> Read {
        let mut state = lock(&self.state);
        if let Some(data) = state.inbox.pop_front() {
            state.read += data.len() as u64;
            self.publish(&mut state);
            return Read::Data(data);
        }
        match (state.eof, &state.end) {
            (true, _) => Read::Finished,
            (false, Some(end)) => Read::Ended(end.clone()),
            (false, None) => {
                state.wakers.add(waker);
                Read::Pending
            }
        }
    }

    /// Finishes the stream.
    pub(crate) fn finish(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.finished = true;
        self.publish(&mut state);
    }

    /// Aborts the connection.
    pub(crate) fn abort(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.aborted = true;
        self.publish(&mut state);
    }

    /// Makes the connection panic.
    pub(crate) fn inject(self: &Arc<Self>, fault: Fault) {
        let mut state = lock(&self.state);
        state.fault = Some(fault);
        self.publish(&mut state);
    }

    /// Returns the end of the connection. Registers the waker if it has not ended.
    pub(crate) fn poll_end(&self, waker: &Waker) -> Option<End> {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.wakers.add(waker);
        }
        state.end.clone()
    }

    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.state).is_connected
    }

    /// Adds the connection to the requests of its driver, unless it is among them, and wakes the
    /// driver.
    fn publish(self: &Arc<Self>, state: &mut CellState) {
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.shared.push_dirty(Arc::clone(self));
        }
        self.shared.wake();
    }

    // ── Calls of the connection ──────────────────────────────────────────────────────────────────

    /// Returns the requests of the application other than data: whether it aborts, and the fault
    /// that a test requests.
    pub(crate) fn begin_service(&self) -> (bool, Option<Fault>) {
        let mut state = lock(&self.state);
        state.is_dirty = false;
        (state.aborted, state.fault)
    }

    /// Takes the written chunks that begin within `len_bytes`. Also returns whether the stream is
    /// finished.
    pub(crate) fn take_written(&self, len_bytes: u64) -> (Vec<Arc<[u8]>>, bool) {
        let mut state = lock(&self.state);
        let (mut chunks, mut taken) = (Vec::new(), 0);
        while taken < len_bytes
            && let Some(chunk) = state.outbox.pop_front()
        {
            taken += chunk.len() as u64;
            state.outbox_len -= chunk.len();
            chunks.push(chunk);
        }
        state.has_changed |= !chunks.is_empty();
        (chunks, state.finished && state.outbox.is_empty())
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        lock(&self.state).read
    }

    pub(crate) fn bring(&self, data: Vec<u8>) {
        let mut state = lock(&self.state);
        state.inbox.push_back(data);
        state.has_changed = true;
    }

    pub(crate) fn bring_eof(&self) {
        let mut state = lock(&self.state);
        (state.eof, state.has_changed) = (true, true);
    }

    pub(crate) fn note_connected(&self) {
        let mut state = lock(&self.state);
        (state.is_connected, state.has_changed) = (true, true);
    }

    /// Wakes the waiting tasks if there was a change.
    pub(crate) fn wake(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            if !std::mem::take(&mut state.has_changed) {
                return;
            }
            state.wakers.take()
        };
        wakers.wake();
    }

    /// Ends the connection. Only the first reason counts.
    pub(crate) fn end(&self, end: End) {
        {
            let mut state = lock(&self.state);
            if state.end.is_some() {
                return;
            }
            (state.end, state.has_changed) = (Some(end), true);
        }
        self.wake();
    }
}
