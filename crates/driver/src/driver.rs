//! [`Driver`]: its turn processes requests, receives, fires timers, reports events and sends.
//!
//! Every part of a turn is bounded, and connections are served in turn. Idle connections are not
//! visited, so the cost of a turn depends on the work and not on the number of connections.

mod admit;
mod interactive;
mod jobs;
mod limits;
mod offloaded;
mod panic_isolation;
mod receive;
mod send;
mod visit;

use std::sync::Arc;

use units::Instant;

use self::interactive::Interactive;
pub use self::limits::{INTERACTIVE_MAX, PLAN_PACKETS_MAX, RECV_BATCHES_MAX, RECV_CALLS_PER_TURN, SOCKETS_MAX};
pub(crate) use self::send::PLANS_PER_VISIT;
use crate::activity::Activity;
use crate::entry::ConnectionEntry;
use crate::env::Env;
use crate::in_flight::InFlightBatch;
use crate::inlet::Inlet;
use crate::offload::Offload;
use crate::protocol::{Cell, CellOf, Connection, ConnectionKey, EndReason, Protocol};
use crate::run_queue::RunQueue;
use crate::shared::Shared;
use crate::slab::Slab;
use crate::socket::{LocalSocket, Socket, SocketPlace, SocketSlot};
use crate::timers::Timers;

/// Limit of timers fired in one turn.
const TIMERS_PER_TURN: usize = 256;

/// Limit of connections begun for the application in one turn. Each costs a key exchange.
const CONNECTS_PER_TURN: usize = 16;

/// Whether a turn sends data that does not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The data is sent.
    Now,
    /// If a full batch of the connection was just sent, the rest waits for the next call, which
    /// usually brings more data. Otherwise a writer that runs the driver itself would pay for a
    /// system call for every remainder.
    Cork,
}

/// Work done in a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Connections with requests.
    pub requests: usize,
    /// Batches received.
    pub received: usize,
    /// Timers fired.
    pub fired: usize,
    /// Batches sent.
    pub sent: usize,
    /// Whether connections have more to send than a turn allows, or [corked](Flush::Cork) data.
    pub has_more: bool,
}

/// The limits of a driver.
#[derive(Debug, Clone, Copy)]
pub struct DriverLimits {
    /// Maximum number of connections from peers that are handshaking or wait to be accepted.
    /// Further peers get no answer, so that they retry.
    pub half_open_max: usize,
    /// Maximum number of connections, including those that are closing.
    pub connections_max: usize,
}

/// A socket that the driver serves.
pub type DriverSocket<E> =
    LocalSocket<<E as Env>::Protocol, <E as Env>::Socket, Option<InFlightBatch<<E as Env>::Protocol>>>;

/// Processor that serves a socket of a driver.
pub enum Place<E: Env> {
    /// The driver.
    Local(DriverSocket<E>),
    /// A worker.
    Offloaded {
        /// The index of the worker.
        worker: usize,
        /// The number of packets that the worker takes at a time.
        batch_max: usize,
    },
}

type AppOf<E> = <<E as Env>::Protocol as Protocol>::Application;

type Buffers<E> = <<E as Env>::Socket as Socket<<E as Env>::Protocol>>::Buffers;

/// A driver: runs the protocol of all connections over all sockets of one endpoint, or of one of
/// several drivers of it.
pub struct Driver<E: Env> {
    env: E,
    shared: Arc<Shared<AppOf<E>>>,
    /// The inlets of all drivers of the endpoint. Empty if this driver is the only one.
    inlets: Vec<Arc<Inlet<<E::Protocol as Protocol>::Batch>>>,
    protocol: E::Protocol,
    sockets: Vec<SocketSlot<DriverSocket<E>>>,
    offload: E::Offload,
    entries: Slab<ConnectionEntry<E::Protocol>>,
    timers: Timers,
    /// Connections that wait for a visit, without duplicates.
    run: RunQueue,
    interactive: Interactive,
    buffers: Buffers<E>,
    limits: DriverLimits,
    /// Connection that is being processed. A panic is attributed to it.
    visited: Option<ConnectionKey>,
    /// Connections that wait for space in the crypto pool.
    await_pool: Vec<ConnectionKey>,
    /// Connections whose receive half has updates that wait for space in the ring of the receive
    /// worker.
    await_receiver: Vec<ConnectionKey>,
    /// Connections whose receive half will be detached when the receive worker pauses.
    detaching: Vec<ConnectionKey>,
    /// Whether the receive worker waits until the driver has detached them.
    is_receiver_paused: bool,
    closes_all: bool,
    /// Whether further batches from the socket of the current one are waiting.
    has_more_arrivals: bool,
    /// See [`Driver::unrouted_packets`] and [`Driver::replies`].
    unrouted_packets: u64,
    replies: u64,
    // Reused from turn to turn, so that the steady state needs no allocation.
    dirty: Vec<Arc<CellOf<E::Protocol>>>,
    arrived: Vec<<E::Protocol as Protocol>::Batch>,
    plan: <E::Protocol as Protocol>::Plan,
    packets: <E::Protocol as Protocol>::Sealed,
}

impl<E: Env> Driver<E> {
    /// Creates a driver of `sockets`, whose local addresses are in `shared`. `inlets` holds the
    /// inlets of all drivers of the endpoint by index, or nothing if this driver is the only one.
    ///
    /// # Panics
    /// If there are more sockets than [`SOCKETS_MAX`], or another number of addresses.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is independent, and there is one caller for each kind of environment"
    )]
    pub fn new(
        env: E,
        shared: Arc<Shared<AppOf<E>>>,
        inlets: Vec<Arc<Inlet<<E::Protocol as Protocol>::Batch>>>,
        protocol: E::Protocol,
        sockets: Vec<Place<E>>,
        buffers: Buffers<E>,
        offload: E::Offload,
        limits: DriverLimits,
    ) -> Self {
        assert!(sockets.len() <= SOCKETS_MAX, "{} sockets", sockets.len());
        assert_eq!(sockets.len(), shared.local_addrs.len(), "an address for each socket");
        let slot = |(place, local)| {
            let place = match place {
                Place::Local(socket) => SocketPlace::Local(Box::new(socket)),
                Place::Offloaded { worker, batch_max } => SocketPlace::Offloaded { worker, batch_max },
            };
            SocketSlot { local, place, waiting: Default::default() }
        };
        let sockets = sockets.into_iter().zip(shared.local_addrs.iter().copied()).map(slot).collect();
        Self {
            env,
            shared,
            inlets,
            protocol,
            sockets,
            offload,
            entries: Slab::new(limits.connections_max),
            timers: Timers::default(),
            run: RunQueue::default(),
            interactive: Interactive::default(),
            buffers,
            limits,
            visited: None,
            await_pool: Vec::new(),
            await_receiver: Vec::new(),
            detaching: Vec::new(),
            is_receiver_paused: false,
            closes_all: false,
            has_more_arrivals: false,
            unrouted_packets: 0,
            replies: 0,
            dirty: Vec::new(),
            arrived: Vec::new(),
            plan: Default::default(),
            packets: Default::default(),
        }
    }

    /// Returns its environment.
    pub fn env(&self) -> &E {
        &self.env
    }

    /// Returns its environment.
    pub fn env_mut(&mut self) -> &mut E {
        &mut self.env
    }

    /// Returns the state that it shares with its handles.
    pub fn shared(&self) -> &Arc<Shared<AppOf<E>>> {
        &self.shared
    }

    /// Returns the socket with this index, if the driver serves it.
    pub fn socket(&self, index: usize) -> Option<&DriverSocket<E>> {
        self.sockets.get(index)?.as_local()
    }

    /// Returns the socket with this index, if the driver serves it.
    pub fn socket_mut(&mut self, index: usize) -> Option<&mut DriverSocket<E>> {
        self.sockets.get_mut(index)?.as_local_mut()
    }

    /// Returns the number of sockets, including those of workers.
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the connections.
    pub fn connections(&self) -> impl Iterator<Item = &<E::Protocol as Protocol>::Connection> {
        self.entries.iter().map(|entry| &entry.connection)
    }

    /// Returns the number of received packets that were passed to no connection and no other
    /// driver, including those that workers dropped.
    pub fn unrouted_packets(&self) -> u64 {
        self.unrouted_packets + self.offload.dropped_packets()
    }

    /// Returns the number of sent packets that belong to no connection, through sockets of the
    /// driver.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    fn do_turn(&mut self, flush: Flush) -> Work {
        self.env.lap(Activity::Application);
        let requests = self.take_todo();
        self.env.lap(Activity::Serve);
        let sent = self.send_interactive(flush);
        let received = self.receive();
        self.end_arrivals();
        self.env.lap(Activity::Route);
        let fired = self.fire_timers();
        self.env.lap(Activity::Timers);
        self.take_finished(None);
        let sent = sent + self.visit_scheduled(flush);
        Work { requests, received, fired, sent, has_more: !self.run.is_empty() }
    }

    /// Returns the time at which the next turn is due; `now` if there is work.
    pub fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() { Some(now) } else { self.next_deadline().map(|at| at.max(now)) }
    }

    /// Returns whether there is work now.
    pub fn is_busy(&self) -> bool {
        let receives = self.offload.has_space_for_arrivals();
        let is_busy = !self.run.is_empty()
            || !self.dirty.is_empty()
            || (receives && self.local_sockets().any(LocalSocket::is_readable))
            || self.offload.has_work()
            || (!self.await_receiver.is_empty() && self.offload.has_space_for_updates())
            || self.inlet().is_some_and(|inlet| !inlet.is_empty());
        is_busy || {
            let due = self.shared.due();
            due.has_dirty || due.has_connects || due.has_decisions || (due.is_stopping && !self.closes_all)
        }
    }

    /// Returns the next deadline for which nothing wakes the driver.
    pub fn next_deadline(&self) -> Option<Instant> {
        let retries = self.local_sockets().filter_map(LocalSocket::retry_at);
        let others = self.timers.next().into_iter().chain(self.offload.deadline()).chain(self.protocol.poll_timeout());
        others.chain(retries).min()
    }

    /// Returns whether the driver's thread should yield the processor, because background bulk has
    /// used it while interactive data is expected. Resets the condition.
    pub fn take_yield_due(&mut self) -> bool {
        self.interactive.take_yield_due()
    }

    /// Returns the queue into which other drivers put batches for this one. `None` if there are no
    /// others.
    fn inlet(&self) -> Option<&Inlet<<E::Protocol as Protocol>::Batch>> {
        self.inlets.get(self.shared.index).map(|inlet| &**inlet)
    }

    /// Returns the sockets that the driver serves.
    fn local_sockets(&self) -> impl Iterator<Item = &DriverSocket<E>> {
        self.sockets.iter().filter_map(SocketSlot::as_local)
    }

    /// Returns whether this socket accepts packets now.
    fn socket_has_space(&self, index: usize) -> bool {
        match &self.sockets[index].place {
            SocketPlace::Local(socket) => socket.has_space(),
            SocketPlace::Offloaded { worker, .. } => self.offload.has_space(*worker),
        }
    }

    // ── Requests of the application ──────────────────────────────────────────────────────────────

    fn take_todo(&mut self) -> usize {
        // A turn that a panic ended early may have left requests, which are processed first.
        let due = self.shared.take_dirty(&mut self.dirty);
        let mut requests = 0;
        while let Some(cell) = self.dirty.pop() {
            let Some(place) = cell.place().get() else { continue };
            let now = self.env.now();
            let Some(entry) = self.entries.get_mut(place.key.0) else { continue };
            // The key may have been reused for another connection.
            if Arc::ptr_eq(&entry.cell, &cell) {
                self.visited = Some(place.key);
                let served = entry.connection.serve(now);
                self.visited = None;
                entry.priority = served.priority.unwrap_or(entry.priority);
                if served.is_interactive {
                    self.interactive.note(now, place.key);
                }
                self.schedule(place.key);
                requests += 1;
            }
        }
        if due.is_stopping {
            self.close_all();
        }
        if due.has_decisions {
            self.take_decisions(CONNECTS_PER_TURN);
            requests += 1;
        }
        let connects_max = if due.has_connects { CONNECTS_PER_TURN } else { 0 };
        for _ in 0..connects_max {
            let Some(request) = self.shared.pop_connect() else { break };
            self.connect(request);
            requests += 1;
        }
        requests
    }

    /// Closes every connection, once.
    fn close_all(&mut self) {
        if std::mem::replace(&mut self.closes_all, true) {
            return;
        }
        let now = self.env.now();
        let keys: Vec<u32> = self.entries.keys().collect();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.connection.close(now, EndReason::EndpointClosed);
            }
            self.schedule(ConnectionKey(key));
        }
    }

    /// Returns whether all connections are closed and the sockets have accepted the last packets.
    pub fn is_drained(&mut self) -> bool {
        let holds_packets = self.local_sockets().any(|socket| !socket.has_space());
        if !self.closes_all || !self.run.is_empty() || holds_packets {
            return false;
        }
        // A close packet that the system refused is sent again after a wait. A connection with a
        // detached receive half closes after the half has returned.
        let keys: Vec<u32> = self.entries.keys().collect();
        let is_drained =
            |entry: &mut ConnectionEntry<E::Protocol>| entry.refused_until.is_none() && !entry.connection.is_detached();
        if !keys.into_iter().all(|key| self.entries.get_mut(key).is_none_or(is_drained)) {
            return false;
        }
        // This is checked last because it sends a request to the workers. A batch may still wait
        // there for socket space.
        self.offload.is_drained(self.env.now())
    }

    // ── Timers ───────────────────────────────────────────────────────────────────────────────────

    fn fire_timers(&mut self) -> usize {
        let now = self.env.now();
        for index in 0..self.sockets.len() {
            let Some(socket) = self.sockets[index].as_local_mut() else { continue };
            if socket.take_retry_due(now) {
                self.retry_socket(now, index);
            }
        }
        if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
            self.send_replies(now);
        }
        let mut fired = 0;
        while fired < TIMERS_PER_TURN
            && let Some(key) = self.timers.pop_due(now)
        {
            fired += 1;
            let Some(entry) = self.entries.get_mut(key) else { continue };
            entry.deadline = None;
            self.visited = Some(ConnectionKey(key));
            entry.connection.handle_timeout(now);
            self.visited = None;
            self.schedule(ConnectionKey(key));
        }
        fired
    }

    /// Queues a connection for a visit, unless it is already queued.
    fn schedule(&mut self, key: ConnectionKey) {
        if let Some(entry) = self.entries.get_mut(key.0)
            && !std::mem::replace(&mut entry.is_scheduled, true)
        {
            self.run.push(entry.priority, key);
        }
    }

    /// Removes a connection.
    fn forget(&mut self, key: ConnectionKey) {
        let Some(mut entry) = self.entries.remove(key.0) else { return };
        self.timers.replace(key.0, entry.deadline, None);
        self.protocol.update_routes(key, &mut entry.connection);
        let now = self.env.now();
        let dropped = entry.connection.lose_receive_half(now, EndReason::EndpointClosed);
        self.note_unrouted(dropped);
        // The call has no effect if the handles have ended already.
        entry.connection.end(now, EndReason::EndpointClosed);
    }
}

/// Ends the handles, which must not wait for a driver that has ended for any reason.
impl<E: Env> Drop for Driver<E> {
    fn drop(&mut self) {
        let keys: Vec<u32> = self.entries.keys().collect();
        for key in keys {
            if !std::thread::panicking() {
                self.forget(ConnectionKey(key));
            } else if let Some(mut entry) = self.entries.remove(key) {
                // If there are other drivers, the endpoint continues.
                let is_last = self.inlets.len() <= 1;
                entry.connection.abandon(if is_last { EndReason::EndpointClosed } else { EndReason::ProcessorGone });
            }
        }
        if let Some(inlet) = self.inlet() {
            inlet.close();
        }
        for request in self.shared.mark_stopped() {
            request.cell.refuse(EndReason::EndpointClosed);
        }
    }
}
