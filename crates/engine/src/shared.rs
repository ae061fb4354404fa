//! What all handles of an engine and its driver share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::clock::Clock;
use net::RecvMeta;
use quic::session::SessionFactory;

use crate::cells::ConnectionCell;
use crate::meter::{Meter, Stage};
use crate::receive::Arrived;
use crate::sync::{WakerSet, lock};
use crate::wake::EngineWaker;

/// Wishes to connect that the driver has not taken; it takes them within a turn.
const CONNECTS_WAITING_MAX: usize = 1024;

/// What handles need without asking the driver.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) waker: Arc<EngineWaker>,
    pub(crate) local_addrs: Vec<SocketAddr>,
    pub(crate) limits: Limits,
    /// Present if the owner wants to know where the time goes.
    pub(crate) meter: Option<Box<Meter>>,
    todo: Mutex<EngineTodo>,
    pub(crate) common: Arc<Common>,
    /// Its number among the drivers of the engine, and all of them, once there are several.
    pub(crate) index: usize,
    peers: OnceLock<Vec<Weak<Shared>>>,
}

/// Batches that arrived at another driver's socket and were not taken yet, at most: 16 MiB. More are dropped, as the network
/// would.
const STRAYS_MAX: usize = 256;

/// A batch that arrived at the socket of number `port` of another driver.
pub(crate) struct Stray {
    pub(crate) port: usize,
    pub(crate) meta: RecvMeta,
    pub(crate) batch: Arrived,
}

/// What all drivers of an engine share.
pub(crate) struct Common {
    /// Connections that exist.
    connections: AtomicUsize,
    /// Connections of clients whose handshake goes on.
    half_open: AtomicUsize,
    accepted: Mutex<Accepted>,
}

impl Common {
    /// For so many drivers.
    pub(crate) fn new(drivers: usize) -> Self {
        let accepted = Mutex::new(Accepted { queue: VecDeque::new(), wakers: WakerSet::default(), drivers });
        Self { connections: AtomicUsize::new(0), half_open: AtomicUsize::new(0), accepted }
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections of clients whose handshake goes on.
    pub(crate) fn half_open_count(&self) -> usize {
        self.half_open.load(Ordering::Relaxed)
    }

    /// A connection begins, unless there are `max`.
    pub(crate) fn enter(self: &Arc<Self>, max: usize) -> Option<Entered> {
        let more = |count| (count < max).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Entered(Arc::clone(self)))
    }

    /// The handshake of a client goes on.
    pub(crate) fn half_open(self: &Arc<Self>) -> HalfOpen {
        self.half_open.fetch_add(1, Ordering::Relaxed);
        HalfOpen(Arc::clone(self))
    }
}

/// A connection is counted as long as this lives.
pub(crate) struct Entered(Arc<Common>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handshake of a client is counted as long as this lives.
pub(crate) struct HalfOpen(Arc<Common>);

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.0.half_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limits that handles apply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) outbox_bytes_max: usize,
    pub(crate) inbox_bytes_max: usize,
    pub(crate) message_len_max: usize,
    pub(crate) is_listening: bool,
}

/// A wish to connect.
pub(crate) struct ConnectRequest {
    pub(crate) cell: Arc<ConnectionCell>,
    pub(crate) server_name: String,
    pub(crate) factory: Arc<dyn SessionFactory>,
    /// Which socket; none: the first of the remote address's family.
    pub(crate) socket: Option<usize>,
}

/// What the driver has to do.
#[derive(Default)]
pub(crate) struct EngineTodo {
    /// Connections with work, each once.
    pub(crate) dirty: Vec<Arc<ConnectionCell>>,
    pub(crate) connects: VecDeque<ConnectRequest>,
    pub(crate) strays: VecDeque<Stray>,
    /// Say goodbye to all and take no more.
    pub(crate) stopping: bool,
    /// The driver is gone.
    stopped: bool,
}

/// Connections of clients, ready for the application. Bounded by `half_open_max`: see the drivers' admission.
struct Accepted {
    queue: VecDeque<Arc<ConnectionCell>>,
    wakers: WakerSet,
    /// Drivers that live.
    drivers: usize,
}

/// What `accept` found.
pub(crate) enum AcceptOutcome {
    Connection(Arc<ConnectionCell>),
    Pending,
    Stopped,
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        waker: Arc<EngineWaker>,
        local_addrs: Vec<SocketAddr>,
        limits: Limits,
        measure: bool,
        common: Arc<Common>,
        index: usize,
    ) -> Self {
        Self {
            meter: measure.then(|| Box::new(Meter::new(clock.clone()))),
            clock,
            waker,
            local_addrs,
            limits,
            todo: Mutex::default(),
            common,
            index,
            peers: OnceLock::new(),
        }
    }

    /// Makes it known to the others, itself among them, in the order of their numbers.
    pub(crate) fn meet(&self, peers: &[Arc<Self>]) {
        // Said once, when the engine starts.
        let _first = self.peers.set(peers.iter().map(Arc::downgrade).collect());
    }

    /// How many drivers the engine has.
    pub(crate) fn driver_count(&self) -> usize {
        self.peers.get().map_or(1, Vec::len)
    }

    /// Hands a batch over to the driver of number `index`.
    pub(crate) fn pass_on(&self, index: usize, stray: Stray) {
        let peer = self.peers.get().and_then(|peers| peers.get(index)).and_then(Weak::upgrade);
        let Some(peer) = peer else { return };
        {
            let mut todo = lock(&peer.todo);
            if todo.stopped || todo.strays.len() >= STRAYS_MAX {
                return;
            }
            todo.strays.push_back(stray);
        }
        peer.waker.wake();
    }

    /// The next batch that another driver has handed over, and whether the one after it has arrived at the same socket.
    pub(crate) fn pop_stray(&self) -> Option<(Stray, bool)> {
        let mut todo = lock(&self.todo);
        let stray = todo.strays.pop_front()?;
        let has_more = todo.strays.front().is_some_and(|next| next.port == stray.port);
        Some((stray, has_more))
    }

    /// A stage of the driver ends; see [`Meter::lap`].
    pub(crate) fn lap(&self, stage: Stage) {
        if let Some(meter) = &self.meter {
            meter.lap(stage);
        }
    }

    /// Names a connection that has work. The caller wakes the driver.
    pub(crate) fn push_dirty(&self, cell: Arc<ConnectionCell>) {
        lock(&self.todo).dirty.push(cell);
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn push_connect(&self, request: ConnectRequest) -> Result<(), crate::error::Closed> {
        let mut todo = lock(&self.todo);
        if todo.stopped || todo.stopping {
            return Err(crate::error::Closed::EndpointClosed);
        }
        if todo.connects.len() >= CONNECTS_WAITING_MAX {
            return Err(crate::error::Closed::TooMany);
        }
        todo.connects.push_back(request);
        Ok(())
    }

    /// Moves the named connections into `dirty`, which is empty, and says whether to stop.
    pub(crate) fn take_dirty(&self, dirty: &mut Vec<Arc<ConnectionCell>>) -> bool {
        debug_assert!(dirty.is_empty());
        let mut todo = lock(&self.todo);
        std::mem::swap(&mut todo.dirty, dirty);
        todo.stopping
    }

    pub(crate) fn pop_connect(&self) -> Option<ConnectRequest> {
        lock(&self.todo).connects.pop_front()
    }

    /// True if the driver has something to do.
    pub(crate) fn has_todo(&self) -> bool {
        let todo = lock(&self.todo);
        !todo.dirty.is_empty() || !todo.connects.is_empty() || !todo.strays.is_empty()
    }

    /// Asks the driver to end.
    pub(crate) fn stop(&self) {
        lock(&self.todo).stopping = true;
        self.waker.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.todo).stopping
    }

    /// The driver is gone: nobody waits for it any longer. What it had not taken is handed back.
    pub(crate) fn mark_stopped(&self) -> EngineTodo {
        let rest = {
            let mut todo = lock(&self.todo);
            let rest = std::mem::take(&mut *todo);
            todo.stopping = true;
            todo.stopped = true;
            rest
        };
        let wakers = {
            let mut accepted = lock(&self.common.accepted);
            accepted.drivers -= 1;
            if accepted.drivers == 0 { accepted.wakers.take() } else { WakerSet::default() }
        };
        wakers.wake();
        rest
    }

    /// A client's connection is ready.
    pub(crate) fn push_accepted(&self, cell: Arc<ConnectionCell>) {
        let wakers = {
            let mut accepted = lock(&self.common.accepted);
            accepted.queue.push_back(cell);
            accepted.wakers.take()
        };
        wakers.wake();
    }

    pub(crate) fn accepted_len(&self) -> usize {
        lock(&self.common.accepted).queue.len()
    }

    pub(crate) fn poll_accept(&self, waker: &std::task::Waker) -> AcceptOutcome {
        let mut accepted = lock(&self.common.accepted);
        if let Some(cell) = accepted.queue.pop_front() {
            return AcceptOutcome::Connection(cell);
        }
        if accepted.drivers == 0 {
            return AcceptOutcome::Stopped;
        }
        accepted.wakers.add(waker);
        AcceptOutcome::Pending
    }
}
