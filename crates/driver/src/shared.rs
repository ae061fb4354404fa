//! [`Shared`]: the state that handles share with their driver, and [`Common`]: the state
//! of all drivers of an endpoint.
//!
//! A call of a handle changes the cell of its connection, adds the cell to a list here, and wakes
//! the driver. Each list holds each entry at most once, or has a limit.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use crate::protocol::cell::{Cell, EndReason};
use crate::sync::{WakerSet, lock};

/// Maximum number of requests to connect that wait for the driver, which takes them in its next
/// turn.
const CONNECTS_WAITING_MAX: usize = 1024;

/// The queue of connections from peers that every endpoint has.
pub const FIRST_QUEUE: u64 = 0;

/// The types of a protocol that handles and drivers exchange.
pub trait Application: Sized {
    /// The state that the handles of a connection share with its driver.
    type Cell: Cell;
    /// The parameters of an outgoing connection.
    type Connect;
    /// The limits that handles enforce.
    type Limits;
}

/// The state that handles share with one driver.
pub struct Shared<A: Application> {
    waker: Waker,
    /// The addresses of the driver's sockets.
    pub local_addrs: Vec<SocketAddr>,
    /// The limits that handles enforce.
    pub limits: A::Limits,
    todo: Mutex<DriverTodo<A>>,
    /// Whether `todo` has requests or the driver must stop. It is changed with `todo` locked. A
    /// driver without requests reads only this flag, so its turn takes no lock.
    is_due: AtomicBool,
    /// The state that all drivers of the endpoint share.
    pub common: Arc<Common<A>>,
    /// The index of the driver among those of the endpoint.
    pub index: usize,
}

/// The state that all drivers of an endpoint share.
pub struct Common<A: Application> {
    /// Number of existing connections.
    connections: AtomicUsize,
    /// Number of connections from peers that are handshaking.
    half_open: AtomicUsize,
    accepted: Mutex<Accepted<A>>,
    /// Callers that wait until no connection exists.
    idle: Mutex<WakerSet>,
}

impl<A: Application> Common<A> {
    /// Creates the state for this number of drivers.
    pub fn new(drivers: usize) -> Self {
        let accepted = Mutex::new(Accepted { queues: BTreeMap::from([(FIRST_QUEUE, AcceptQueue::new())]), drivers });
        Self { connections: AtomicUsize::new(0), half_open: AtomicUsize::new(0), accepted, idle: Mutex::default() }
    }

    /// Returns the number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Opens a queue of connections from peers. Returns false if all drivers have ended.
    pub fn open_queue(&self, queue: u64) -> bool {
        let mut accepted = lock(&self.accepted);
        accepted.queues.entry(queue).or_insert_with(AcceptQueue::new);
        accepted.drivers > 0
    }

    /// Closes a queue, and returns the connections that were not accepted.
    pub fn close_queue(&self, queue: u64) -> impl Iterator<Item = Arc<A::Cell>> + use<A> {
        let closed = lock(&self.accepted).queues.remove(&queue).unwrap_or_else(AcceptQueue::new);
        closed.wakers.wake();
        closed.cells.into_iter()
    }

    /// Waits until no connection exists.
    pub fn poll_idle(&self, waker: &Waker) -> Poll<()> {
        // The count is read under the lock, so that the last connection either is seen here or
        // wakes the caller.
        let mut idle = lock(&self.idle);
        if self.connection_count() == 0 {
            return Poll::Ready(());
        }
        idle.add(waker);
        Poll::Pending
    }

    /// Returns the number of connections from peers that are handshaking.
    pub(crate) fn half_open_count(&self) -> usize {
        self.half_open.load(Ordering::Relaxed)
    }

    /// Counts a new connection, unless the number has reached `max`.
    pub(crate) fn enter(self: &Arc<Self>, max: usize) -> Option<Entered<A>> {
        let more = |count| (count < max).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Entered(Arc::clone(self)))
    }

    /// Counts a handshaking connection from a peer.
    pub(crate) fn half_open(self: &Arc<Self>) -> HalfOpen<A> {
        self.half_open.fetch_add(1, Ordering::Relaxed);
        HalfOpen(Arc::clone(self))
    }
}

/// Counts a connection until it is dropped.
pub(crate) struct Entered<A: Application>(Arc<Common<A>>);

impl<A: Application> Drop for Entered<A> {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            let waiting = lock(&self.0.idle).take();
            waiting.wake();
        }
    }
}

/// Counts a handshaking connection from a peer until it is dropped.
pub(crate) struct HalfOpen<A: Application>(Arc<Common<A>>);

impl<A: Application> Drop for HalfOpen<A> {
    fn drop(&mut self) {
        self.0.half_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request to connect.
pub struct ConnectRequest<A: Application> {
    /// The cell of the connection's handles.
    pub cell: Arc<A::Cell>,
    /// The protocol's parameters.
    pub connect: A::Connect,
    /// The index of the socket. `None` selects the first one of the remote address's family.
    pub socket: Option<usize>,
}

/// Requests for the driver.
struct DriverTodo<A: Application> {
    /// Connections with requests, without duplicates.
    dirty: Vec<Arc<A::Cell>>,
    connects: VecDeque<ConnectRequest<A>>,
    /// Whether the application has decided about a peer that waits to begin a connection.
    decided: bool,
    /// Whether the driver must close all connections and accept no more.
    stopping: bool,
    /// Whether the driver has ended.
    stopped: bool,
}

impl<A: Application> Default for DriverTodo<A> {
    fn default() -> Self {
        Self { dirty: Vec::new(), connects: VecDeque::new(), decided: false, stopping: false, stopped: false }
    }
}

impl<A: Application> DriverTodo<A> {
    fn due(&self) -> DueRequests {
        DueRequests {
            has_dirty: !self.dirty.is_empty(),
            has_connects: !self.connects.is_empty(),
            has_decisions: self.decided,
            is_stopping: self.stopping,
        }
    }

    fn is_due(&self) -> bool {
        self.due() != DueRequests::default()
    }
}

/// Requests of the handles and of the application that the driver has not taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DueRequests {
    /// Whether connections have requests that the driver has not taken.
    pub(crate) has_dirty: bool,
    /// Whether there are requests to connect.
    pub(crate) has_connects: bool,
    /// Whether there are decisions about peers that wait to begin a connection.
    pub(crate) has_decisions: bool,
    /// Whether the driver was requested to stop.
    pub(crate) is_stopping: bool,
}

/// Connections from peers that wait for `accept`. Their number is bounded by `half_open_max`: see
/// `driver/admit.rs`.
struct Accepted<A: Application> {
    queues: BTreeMap<u64, AcceptQueue<A>>,
    /// The number of running drivers.
    drivers: usize,
}

struct AcceptQueue<A: Application> {
    cells: VecDeque<Arc<A::Cell>>,
    wakers: WakerSet,
}

impl<A: Application> AcceptQueue<A> {
    fn new() -> Self {
        Self { cells: VecDeque::new(), wakers: WakerSet::default() }
    }
}

/// The result of [`Shared::poll_accept`].
pub enum AcceptOutcome<A: Application> {
    /// A connection.
    Connection(Arc<A::Cell>),
    /// No connection yet. The waker is registered.
    Pending,
    /// All drivers have ended, or the queue is closed.
    Stopped,
}

impl<A: Application> Shared<A> {
    /// Creates the state of driver `index` of an endpoint. `waker` wakes the driver.
    pub fn new(
        waker: Waker,
        local_addrs: Vec<SocketAddr>,
        limits: A::Limits,
        common: Arc<Common<A>>,
        index: usize,
    ) -> Self {
        Self { waker, local_addrs, limits, todo: Mutex::default(), is_due: AtomicBool::new(false), common, index }
    }

    /// Wakes the driver after a request was added.
    pub fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// Adds a connection with requests. The caller wakes the driver.
    pub fn push_dirty(&self, cell: Arc<A::Cell>) {
        let mut todo = lock(&self.todo);
        todo.dirty.push(cell);
        self.is_due.store(true, Ordering::Release);
    }

    /// Adds a request to connect. The caller wakes the driver.
    ///
    /// # Errors
    /// If the driver is stopping, or too many requests wait.
    pub fn push_connect(&self, request: ConnectRequest<A>) -> Result<(), EndReason> {
        let mut todo = lock(&self.todo);
        if todo.stopped || todo.stopping {
            return Err(EndReason::EndpointClosed);
        }
        if todo.connects.len() >= CONNECTS_WAITING_MAX {
            return Err(EndReason::TooMany);
        }
        todo.connects.push_back(request);
        self.is_due.store(true, Ordering::Release);
        Ok(())
    }

    /// Moves the connections with requests to `dirty`, unless it has some. Returns the remaining
    /// requests.
    pub(crate) fn take_dirty(&self, dirty: &mut Vec<Arc<A::Cell>>) -> DueRequests {
        if !self.is_due() {
            return DueRequests::default();
        }
        let mut todo = lock(&self.todo);
        if dirty.is_empty() {
            std::mem::swap(&mut todo.dirty, dirty);
        }
        self.is_due.store(todo.is_due(), Ordering::Release);
        todo.due()
    }

    /// Records that the application has decided about a peer that waits to begin a connection
    /// ([`Protocol::poll_decided`](crate::protocol::Protocol::poll_decided)). The caller wakes the
    /// driver.
    pub fn note_decision(&self) {
        let mut todo = lock(&self.todo);
        todo.decided = true;
        self.is_due.store(true, Ordering::Release);
    }

    /// Records that the driver takes the decisions.
    pub(crate) fn clear_decisions(&self) {
        let mut todo = lock(&self.todo);
        todo.decided = false;
        self.is_due.store(todo.is_due(), Ordering::Release);
    }

    pub(crate) fn pop_connect(&self) -> Option<ConnectRequest<A>> {
        let mut todo = lock(&self.todo);
        let request = todo.connects.pop_front();
        self.is_due.store(todo.is_due(), Ordering::Release);
        request
    }

    /// Returns whether there are requests for the driver.
    pub fn has_todo(&self) -> bool {
        let due = self.due();
        due.has_dirty || due.has_connects || due.has_decisions
    }

    /// Returns the requests that the driver has not taken.
    pub(crate) fn due(&self) -> DueRequests {
        if self.is_due() { lock(&self.todo).due() } else { DueRequests::default() }
    }

    /// Returns whether there are requests. None is missed: the code that adds one wakes the driver
    /// afterwards, and a driver that is about to sleep announces it before it looks here. Both
    /// synchronize with each other.
    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Requests the driver to stop.
    pub fn stop(&self) {
        {
            let mut todo = lock(&self.todo);
            todo.stopping = true;
            self.is_due.store(true, Ordering::Release);
        }
        self.wake();
    }

    /// Returns whether the driver was requested to stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.todo).stopping
    }

    /// Marks the driver as ended: no handle waits for it any longer. Returns the requests to
    /// connect that it has not taken.
    pub(crate) fn mark_stopped(&self) -> impl Iterator<Item = ConnectRequest<A>> + use<A> {
        let rest = {
            let mut todo = lock(&self.todo);
            let rest = std::mem::take(&mut *todo);
            todo.stopping = true;
            todo.stopped = true;
            self.is_due.store(true, Ordering::Release);
            rest
        };
        let wakers: Vec<WakerSet> = {
            let mut accepted = lock(&self.common.accepted);
            accepted.drivers -= 1;
            let is_last = accepted.drivers == 0;
            accepted.queues.values_mut().filter(|_| is_last).map(|queue| queue.wakers.take()).collect()
        };
        wakers.into_iter().for_each(WakerSet::wake);
        rest.connects.into_iter()
    }

    /// Adds a peer's connection that is ready to be accepted to its queue. Returns false if the
    /// queue is closed.
    pub(crate) fn push_accepted(&self, cell: Arc<A::Cell>) -> bool {
        let wakers = {
            let mut accepted = lock(&self.common.accepted);
            let Some(queue) = accepted.queues.get_mut(&cell.accept_queue()) else { return false };
            queue.cells.push_back(cell);
            queue.wakers.take()
        };
        wakers.wake();
        true
    }

    pub(crate) fn accepted_len(&self) -> usize {
        lock(&self.common.accepted).queues.values().map(|queue| queue.cells.len()).sum()
    }

    /// Returns the next connection from a peer, in the order in which the handshakes completed.
    /// Registers `waker` if there is none.
    pub fn poll_accept(&self, waker: &Waker) -> AcceptOutcome<A> {
        self.poll_accept_from(FIRST_QUEUE, waker)
    }

    /// Polls like [`poll_accept`](Self::poll_accept), from a queue that was
    /// [opened](Common::open_queue).
    pub fn poll_accept_from(&self, queue: u64, waker: &Waker) -> AcceptOutcome<A> {
        let mut accepted = lock(&self.common.accepted);
        let is_over = accepted.drivers == 0;
        let Some(queue) = accepted.queues.get_mut(&queue) else { return AcceptOutcome::Stopped };
        if let Some(cell) = queue.cells.pop_front() {
            return AcceptOutcome::Connection(cell);
        }
        if is_over {
            return AcceptOutcome::Stopped;
        }
        queue.wakers.add(waker);
        AcceptOutcome::Pending
    }
}
