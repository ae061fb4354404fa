//! What the receive worker does in a turn.

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

/// Commands carried out before the sockets are looked at again.
const COMMANDS_PER_TURN: usize = 64;

/// Places of the ring of events that reports leave free: every half that is here may be quiet, and
/// return.
const EVENTS_RESERVED: usize = 3 * HALVES_MAX + 1;

/// Values that one half may have found out and not reported before nothing more is received.
const UNREPORTED_MAX: usize = 1024;

/// Batches that are unannounced to readers before they are woken, within a turn: a quarter of a
/// megabyte, some 100 us of work. A reader that runs on this very core takes it over when it is
/// woken, and changing threads for each batch costs a sixth of the time. More would leave the
/// caches before they are read.
const BATCHES_PER_WAKE: usize = 4;

/// A half that nothing arrives for in so long may return.
const QUIET_AFTER: Duration = Duration::from_secs(1);

const _: () = assert!(EVENTS_RESERVED < EVENTS_MAX, "reports find room");

type Io<E> = WorkerIo<E, ReceiveWorkerCommand<<E as Env>::Protocol>, ReceiveHalfEvent<<E as Env>::Protocol>>;

/// Gives batches to the receive halves that are here, and the other batches to the driver.
pub struct ReceiveRole<P: Protocol> {
    halves: BTreeMap<ConnectionKey, Half<P>>,
    /// The half that each route leads to.
    routes: BTreeMap<P::RouteId, ConnectionKey>,
    /// Batches, and updates of the driver, that may have unannounced something since readers were last
    /// woken.
    unannounced: usize,
    /// The driver takes all that has arrived before more does.
    is_paused: bool,
    must_report_paused: bool,
    /// The connection at work: a panic is its fault.
    current: Option<ConnectionKey>,
    counters: Arc<ReceiveWorkerCounters>,
}

/// A receive half that is here.
struct Half<P: Protocol> {
    half: P::ReceiveHalf,
    /// When a batch last arrived for it.
    busy_at: Instant,
    /// The driver was told that nothing arrives for it.
    is_quiet: bool,
}

impl<P: Protocol> ReceiveRole<P> {
    pub(super) fn new(counters: Arc<ReceiveWorkerCounters>) -> Self {
        Self {
            halves: BTreeMap::new(),
            routes: BTreeMap::new(),
            unannounced: 0,
            is_paused: false,
            must_report_paused: false,
            current: None,
            counters,
        }
    }

    // ── Halves come and go ───────────────────────────────────────────────────────────────────────

    /// Notes which routes lead to this half.
    fn learn_routes(&mut self, key: ConnectionKey) {
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
        assert!(is_queued, "a ring has room for all that are here");
    }

    /// Drops a half that has panicked.
    fn evict<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, key: ConnectionKey) {
        self.routes.retain(|_, of| *of != key);
        let Some(half) = self.halves.remove(&key) else { return };
        if let Some(cell) = half.half.cell() {
            io.link.report(ReceiveHalfEvent::Broken { connection: ConnectionRef { key, cell } });
        }
        // Dropping it may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(half))).is_err() {
            tracing::error!(connection = key.0, "a receive half that has panicked panics again as it is dropped");
        }
    }

    /// Tells of those that nothing arrived for in a while. They stay until they are recalled: there
    /// may be commands on their way.
    fn note_quiet<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        let Some(next) = self.next_quiet() else { return };
        let now = io.clock.now();
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

    /// When the next one has been quiet for long enough.
    fn next_quiet(&self) -> Option<Instant> {
        self.halves.values().filter(|half| !half.is_quiet).map(|half| half.busy_at + QUIET_AFTER).min()
    }

    // ── Arrivals ─────────────────────────────────────────────────────────────────────────────────

    /// A batch of one half.
    fn deliver<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, socket: usize, key: ConnectionKey, batch: P::Batch) {
        let Some(half) = self.halves.get_mut(&key) else { return self.pass_on(io, socket, batch) };
        let now = io.clock.now();
        self.current = Some(key);
        let absorbed = half.half.absorb(now, socket, batch);
        self.current = None;
        if let Err(batch) = absorbed {
            return self.pass_on(io, socket, batch);
        }
        half.busy_at = now;
        add(&self.counters.batches, 1);
        self.unannounced += 1;
        if self.unannounced >= BATCHES_PER_WAKE {
            self.wake_readers();
        }
        if self.halves.get(&key).is_some_and(|half| half.half.is_urgent()) {
            self.report(io, key);
        }
    }

    /// Passes a batch to the driver. A batch of many pieces may find no room for all of them.
    fn pass_on<E: Env<Protocol = P>>(&self, io: &mut Io<E>, socket: usize, batch: P::Batch) {
        add(&self.counters.passed_on, 1);
        io.link.pass_on(Arrived { socket, batch, opened: None });
    }

    /// Wakes the readers of what was unannounced.
    fn wake_readers(&mut self) {
        if self.unannounced == 0 {
            return;
        }
        for (key, half) in &mut self.halves {
            // A waker is the application's, and may panic.
            self.current = Some(*key);
            half.half.wake_readers();
        }
        // Only now: if one panicked, those after it still wait.
        self.unannounced = 0;
        self.current = None;
    }

    /// What halves have found out and not reported is bounded.
    fn takes_more(&self) -> bool {
        !self.is_paused && self.halves.values().all(|half| half.half.unreported() < UNREPORTED_MAX)
    }

    // ── Reports ──────────────────────────────────────────────────────────────────────────────────

    /// Tells the driver what a half has found out, if there is room; otherwise it is told later.
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

    /// Reports what was found out: what is urgent, and the rest before there is nothing else to do.
    /// The driver need not wake for it meanwhile.
    fn report_all<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        let is_busy = io.has_input(self.takes_more());
        let due = |half: &Half<P>| half.half.has_findings() && (!is_busy || half.half.is_urgent());
        let due: Vec<ConnectionKey> = self.halves.iter().filter(|(_, half)| due(half)).map(|(key, _)| *key).collect();
        due.into_iter().for_each(|key| self.report(io, key));
    }
}

impl<P: Protocol, E: Env<Protocol = P>> IoRole<E> for ReceiveRole<P> {
    type Command = ReceiveWorkerCommand<P>;
    type Event = ReceiveHalfEvent<P>;

    const COMMANDS_PER_TURN: usize = COMMANDS_PER_TURN;
    /// What caused the batches of a call may have been commanded meanwhile.
    const COMMANDS_PER_CALL: usize = COMMANDS_MAX;
    const COMMANDS_PER_BATCH: usize = 0;

    fn begin_turn(&mut self, io: &mut Io<E>) {
        // A driver that found the ring of commands full is told that it is not.
        if io.link.commands.slots() >= COMMANDS_PER_TURN {
            io.link.owner.note();
        }
    }

    fn carry_out(&mut self, io: &mut Io<E>, command: ReceiveWorkerCommand<P>) {
        match command {
            ReceiveWorkerCommand::Take { key, half } => {
                let busy_at = io.clock.now();
                self.halves.insert(key, Half { half, busy_at, is_quiet: false });
                self.learn_routes(key);
            }
            ReceiveWorkerCommand::Update { key, update } => {
                let now = io.clock.now();
                self.current = Some(key);
                let has_routes = self.halves.get_mut(&key).is_some_and(|half| half.half.handle_update(now, update));
                self.current = None;
                self.unannounced += 1;
                if has_routes {
                    self.learn_routes(key);
                }
            }
            ReceiveWorkerCommand::Return { key } => self.return_half(io, key),
            // Said at the end of the turn: batches of a call may not have been handled yet.
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

    /// Gives the packets of a batch to the half they belong to, or to the driver.
    fn handle_batch(&mut self, io: &mut Io<E>, _number: usize, socket: usize, mut batch: P::Batch) {
        // Receive offload joins what comes from one address, and two connections may share one.
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
            // Room is kept for it.
            io.link.report(ReceiveHalfEvent::Paused);
        }
        self.report_all(io);
        self.note_quiet(io);
    }

    fn after_turn(&mut self) {
        self.wake_readers();
    }

    fn has_work(&self, io: &Io<E>) -> bool {
        let may_tell = io.link.events.slots() > EVENTS_RESERVED;
        may_tell && self.halves.values().any(|half| half.half.has_findings())
    }

    fn next_deadline(&self, _io: &Io<E>, _now: Instant) -> Option<Instant> {
        self.next_quiet()
    }

    /// A panic in one half ends its connection, and no other.
    fn recover(&mut self, io: &mut Io<E>) -> bool {
        let Some(key) = self.current.take() else { return false };
        tracing::error!(connection = key.0, "a receive half has panicked: its connection ends, the others go on");
        self.evict(io, key);
        true
    }

    fn on_rest(&mut self, awake: Duration, _is_idle: bool) {
        add(&self.counters.busy_ns, awake.as_nanos());
    }
}
