//! The turn of the receive worker.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use units::{Duration, Instant};

use super::counters::{ReceiveWorkerCounters, add};
use super::messages::ReceiveWorkerCommand;
use super::{COMMANDS_MAX, EVENTS_MAX, HALVES_MAX};
use crate::env::{Clock, Env};
use crate::in_flight::ConnectionRef;
use crate::offload::ReceiveHalfEvent;
use crate::protocol::{Batch, ConnectionKey, Protocol, ReceiveHalf};
use crate::worker::{Arrived, IoRole, WorkerIo};

/// Limit of commands that are executed before the sockets are polled again.
const COMMANDS_PER_TURN: usize = 64;

/// Number of entries of the ring of events that reports leave free: each half may become quiet,
/// break and return.
const EVENTS_RESERVED: usize = 3 * HALVES_MAX + 1;

/// Maximum number of unreported values of a half. While a half has more, the worker does not
/// receive.
const UNREPORTED_MAX: usize = 1024;

/// Maximum number of bytes that are delivered before their readers are woken, within a turn: about
/// 100 us of work. A reader on the same core preempts the worker when it is woken, and a context
/// switch for each 64 KiB costs a sixth of the time. With more bytes, the data leaves the caches
/// before it is read.
const BYTES_PER_WAKE: usize = 256 << 10;

/// Time without received packets after which a half is reported as quiet.
const QUIET_AFTER: Duration = Duration::from_secs(1);

const _: () = assert!(EVENTS_RESERVED < EVENTS_MAX, "reports find space");

type Io<E> = WorkerIo<E, ReceiveWorkerCommand<<E as Env>::Protocol>, ReceiveHalfEvent<<E as Env>::Protocol>>;

/// Passes batches to its receive halves, and other batches to the driver.
pub struct ReceiveRole<P: Protocol> {
    halves: BTreeMap<ConnectionKey, Half<P>>,
    /// Half of each route.
    routes: BTreeMap<P::RouteId, ConnectionKey>,
    /// Bytes of batches since readers were last woken; an update counts as one byte.
    unannounced_bytes: usize,
    /// Whether receiving is paused until the driver has taken all arrivals.
    is_paused: bool,
    must_report_paused: bool,
    /// Connection that is being processed. A panic is attributed to it.
    current: Option<ConnectionKey>,
    counters: Arc<ReceiveWorkerCounters>,
}

/// A receive half with its state.
struct Half<P: Protocol> {
    half: P::ReceiveHalf,
    /// Time at which it last received a batch.
    busy_at: Instant,
    /// Whether it was reported as quiet.
    is_quiet: bool,
}

impl<P: Protocol> ReceiveRole<P> {
    pub(super) fn new(counters: Arc<ReceiveWorkerCounters>) -> Self {
        Self {
            halves: BTreeMap::new(),
            routes: BTreeMap::new(),
            unannounced_bytes: 0,
            is_paused: false,
            must_report_paused: false,
            current: None,
            counters,
        }
    }

    // ── Adding and removing halves ───────────────────────────────────────────────────────────────

    /// Updates the routes of this half.
    fn add_routes(&mut self, key: ConnectionKey) {
        self.routes.retain(|_, of| *of != key);
        if let Some(half) = self.halves.get(&key) {
            half.half.for_each_route(&mut |route| {
                self.routes.insert(route, key);
            });
        }
    }

    fn return_half<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, key: ConnectionKey) {
        let Some(Half { half, .. }) = self.halves.remove(&key) else { return };
        self.routes.retain(|_, of| *of != key);
        let is_queued = io.link.report(ReceiveHalfEvent::Returned { key, half });
        assert!(is_queued, "a ring has space for the return of all halves");
    }

    /// Drops a half that has panicked.
    fn evict<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, key: ConnectionKey) {
        self.routes.retain(|_, of| *of != key);
        let Some(half) = self.halves.remove(&key) else { return };
        if let Some(cell) = half.half.cell() {
            io.link.report(ReceiveHalfEvent::Broken { connection: ConnectionRef { key, cell } });
        }
        // Dropping the half may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(half))).is_err() {
            tracing::error!(connection = key.0, "a receive half that has panicked panicked again when it was dropped");
        }
    }

    /// Reports halves that have received nothing for a while. They stay until the driver recalls
    /// them, because there may be commands for them in the ring.
    fn note_quiet<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, now: Instant) {
        let Some(next) = self.next_quiet() else { return };
        if next > now || io.link.events.slots() <= EVENTS_RESERVED {
            return;
        }
        for (key, half) in &mut self.halves {
            if let Some(cell) = half.half.cell().filter(|_| half.busy_at + QUIET_AFTER <= now)
                && !std::mem::replace(&mut half.is_quiet, true)
            {
                io.link.report(ReceiveHalfEvent::Quiet { connection: ConnectionRef { key: *key, cell } });
            }
        }
    }

    /// Returns the time at which the next half becomes quiet.
    fn next_quiet(&self) -> Option<Instant> {
        self.halves.values().filter(|half| !half.is_quiet).map(|half| half.busy_at + QUIET_AFTER).min()
    }

    // ── Arrivals ─────────────────────────────────────────────────────────────────────────────────

    /// Passes a batch to a half.
    fn deliver<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, socket: usize, key: ConnectionKey, batch: P::Batch) {
        let Some(half) = self.halves.get_mut(&key) else { return self.pass_on(io, socket, batch) };
        let now = io.clock.now();
        self.current = Some(key);
        let len_bytes = batch.len_bytes();
        let absorbed = half.half.absorb(now, socket, batch);
        self.current = None;
        if let Err(batch) = absorbed {
            return self.pass_on(io, socket, batch);
        }
        half.busy_at = now;
        add(&self.counters.batches, 1);
        self.unannounced_bytes += len_bytes;
        if self.unannounced_bytes >= BYTES_PER_WAKE {
            self.wake_readers();
        }
        if self.halves.get(&key).is_some_and(|half| half.half.is_urgent(now)) {
            self.report(io, key);
        }
    }

    /// Passes a batch to the driver. Parts of a split batch that exceed the space are dropped.
    fn pass_on<E: Env<Protocol = P>>(&self, io: &mut Io<E>, socket: usize, batch: P::Batch) {
        add(&self.counters.passed_on, 1);
        io.link.pass_on(Arrived { socket, batch, opened: None });
    }

    /// Wakes the readers of delivered data.
    fn wake_readers(&mut self) {
        if self.unannounced_bytes == 0 {
            return;
        }
        for (key, half) in &mut self.halves {
            // A waker belongs to the application and may panic.
            self.current = Some(*key);
            half.half.wake_readers();
        }
        // This is reset last: if a waker panics, the readers after it are woken in the next call.
        self.unannounced_bytes = 0;
        self.current = None;
    }

    /// Returns whether more may be received. This bounds the unreported values of halves.
    fn takes_more(&self) -> bool {
        !self.is_paused && self.halves.values().all(|half| half.half.unreported() < UNREPORTED_MAX)
    }

    // ── Reports ──────────────────────────────────────────────────────────────────────────────────

    /// Sends a report of a half to the driver if there is space. Otherwise the half is reported
    /// later.
    fn report<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, key: ConnectionKey) {
        if io.link.events.slots() <= EVENTS_RESERVED {
            return;
        }
        let Some(half) = self.halves.get_mut(&key) else { return };
        self.current = Some(key);
        let report = half.half.report();
        self.current = None;
        if let (Some(report), Some(cell)) = (report, half.half.cell()) {
            io.link.report(ReceiveHalfEvent::Report { connection: ConnectionRef { key, cell }, report });
            add(&self.counters.reports, 1);
        }
    }

    /// Sends urgent reports, and the other ones before the worker becomes idle, so that the driver
    /// is not woken for each. All halves are queried, not only those that have received something
    /// in this turn, because a report may become urgent by time alone. No timer is needed for that:
    /// a worker with input takes turn after turn.
    fn report_all<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, now: Instant) {
        let is_busy = io.has_input(self.takes_more());
        let due = |half: &Half<P>| half.half.has_report() && (!is_busy || half.half.is_urgent(now));
        let due: Vec<ConnectionKey> = self.halves.iter().filter(|(_, half)| due(half)).map(|(key, _)| *key).collect();
        due.into_iter().for_each(|key| self.report(io, key));
    }
}

impl<P: Protocol, E: Env<Protocol = P>> IoRole<E> for ReceiveRole<P> {
    type Command = ReceiveWorkerCommand<P>;
    type Event = ReceiveHalfEvent<P>;

    const COMMANDS_PER_TURN: usize = COMMANDS_PER_TURN;
    /// Maximum number of commands executed after a receive call and before its batches, because the
    /// driver may have sent commands that precede them.
    const COMMANDS_PER_CALL: usize = COMMANDS_MAX;
    const COMMANDS_PER_BATCH: usize = 0;

    fn begin_turn(&mut self, io: &mut Io<E>) {
        // A driver that waits for space in the ring of commands is woken.
        if io.link.commands.slots() >= COMMANDS_PER_TURN {
            io.link.owner.note();
        }
    }

    fn execute(&mut self, io: &mut Io<E>, command: ReceiveWorkerCommand<P>) {
        match command {
            ReceiveWorkerCommand::Take { key, half } => {
                let busy_at = io.clock.now();
                self.halves.insert(key, Half { half, busy_at, is_quiet: false });
                self.add_routes(key);
            }
            ReceiveWorkerCommand::Update { key, update } => {
                let now = io.clock.now();
                self.current = Some(key);
                let has_routes = self.halves.get_mut(&key).is_some_and(|half| half.half.handle_update(now, update));
                self.current = None;
                self.unannounced_bytes += 1;
                if has_routes {
                    self.add_routes(key);
                }
            }
            ReceiveWorkerCommand::Return { key } => self.return_half(io, key),
            // The pause is reported at the end of the turn, because batches of a receive call may
            // not have been processed yet.
            ReceiveWorkerCommand::Pause => (self.is_paused, self.must_report_paused) = (true, true),
            ReceiveWorkerCommand::Resume => self.is_paused = false,
        }
    }

    fn may_receive(&self) -> bool {
        self.takes_more()
    }

    fn on_received(&mut self, batches: &[P::Batch]) {
        add(&self.counters.datagrams, batches.iter().map(|batch| batch.packet_count() as u64).sum());
    }

    /// Passes the packets of a batch to their half, or to the driver.
    fn handle_batch(&mut self, io: &mut Io<E>, _number: usize, socket: usize, mut batch: P::Batch) {
        // Receive offload joins packets from one address, which two connections may share.
        while batch.len_bytes() > 0 {
            let found =
                P::route_id(&batch).and_then(|(len_bytes, route)| Some((len_bytes, self.routes.get(&route).copied()?)));
            let Some((len_bytes, key)) = found else { return self.pass_on(io, socket, batch) };
            if len_bytes == batch.len_bytes() {
                return self.deliver(io, socket, key, batch);
            }
            let front = batch.split_front(len_bytes);
            self.deliver(io, socket, key, front);
        }
    }

    fn finish_turn(&mut self, io: &mut Io<E>) {
        if std::mem::take(&mut self.must_report_paused) {
            // Space is reserved for this event.
            io.link.report(ReceiveHalfEvent::Paused);
        }
        let now = io.clock.now();
        self.report_all(io, now);
        self.note_quiet(io, now);
    }

    fn after_turn(&mut self) {
        self.wake_readers();
    }

    fn has_work(&self, io: &Io<E>) -> bool {
        let may_report = io.link.events.slots() > EVENTS_RESERVED;
        may_report && self.halves.values().any(|half| half.half.has_report())
    }

    fn next_deadline(&self, _io: &Io<E>, _now: Instant) -> Option<Instant> {
        self.next_quiet()
    }

    /// Handles a panic in a half, which ends only its connection.
    fn recover(&mut self, io: &mut Io<E>) -> bool {
        let Some(key) = self.current.take() else { return false };
        tracing::error!(connection = key.0, "a receive half has panicked: its connection ends, the others continue");
        self.evict(io, key);
        true
    }

    fn on_rest(&mut self, awake: Duration, _is_idle: bool) {
        add(&self.counters.busy_ns, awake.as_nanos());
    }
}
