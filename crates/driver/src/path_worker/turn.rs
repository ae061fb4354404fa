//! The turn of a path worker.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;
use units::{Duration, Instant};

use super::COMMANDS_MAX;
use super::messages::{PathWorkerCommand, PathWorkerEvent};
use crate::crypto_pool::{PoolHelper, Tally};
use crate::env::{Clock, Env};
use crate::in_flight::InFlightBatch;
use crate::protocol::{LeaseCache, Plan, Protocol};
use crate::socket::Sent;
use crate::worker::{Arrived, IoRole, WorkerIo};

/// Maximum number of commands that are executed before the sockets are polled, and after each
/// batch, so that plans do not wait for all received batches.
const COMMANDS_PER_TURN: usize = 8;

/// Number of remaining plans at which the worker wakes the driver to make more. It seals the
/// remaining plans until new ones arrive.
const WAITING_LOW: usize = 1;

/// Number of opened batches after which the worker wakes the driver. The driver absorbs them in a
/// fraction of the time that opening takes.
const OPENED_PER_WAKE: usize = 4;

/// Number of entries of the ring of events that retries leave free, because each command causes up
/// to two.
const EVENTS_RESERVED: usize = 2 * COMMANDS_MAX + 2;

/// Wait before a retry while the ring of events is too full.
const RETRY_LATER: Duration = Duration::from_micros(500);

type Io<E> = WorkerIo<E, PathWorkerCommand<<E as Env>::Protocol>, PathWorkerEvent<<E as Env>::Protocol>>;

/// Seals and sends plans, and opens received batches.
pub struct PathRole<P: Protocol> {
    /// Jobs for reuse.
    jobs: Consumer<Box<P::OpenJob>>,
    /// Plans whose sockets are full. Their number is bounded by the number of plans that a worker
    /// may have.
    waiting: VecDeque<InFlightBatch<P, Arc<P::Plan>>>,
    packets: P::Sealed,
    leases: P::Leases,
    /// Number of plans after whose sending the driver has requested a report.
    finish_requested: Option<u64>,
    helper: Option<PoolHelper<P>>,
    tally: Arc<Tally>,
    /// Number of batches sent, received, and sealed for the driver that the tally does not contain
    /// yet.
    batches: u64,
}

impl<P: Protocol> PathRole<P> {
    pub(super) fn new(jobs: Consumer<Box<P::OpenJob>>, helper: Option<PoolHelper<P>>, tally: Arc<Tally>) -> Self {
        Self {
            jobs,
            waiting: VecDeque::new(),
            packets: P::Sealed::default(),
            leases: P::Leases::default(),
            finish_requested: None,
            helper,
            tally,
            batches: 0,
        }
    }

    fn report<E: Env<Protocol = P>>(io: &mut Io<E>, event: PathWorkerEvent<P>) {
        let is_queued = io.link.report(event);
        debug_assert!(is_queued, "a ring has space for the events of all commands");
    }

    /// Reports that all plans are sent, if the driver has requested it.
    fn finish<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        // Commands are executed in order, so those before the request are complete.
        let is_done = self.waiting.is_empty() && io.sockets.iter().all(|known| known.socket.has_space());
        if is_done && let Some(plans) = self.finish_requested.take() {
            Self::report::<E>(io, PathWorkerEvent::Finished { plans });
        }
    }

    /// Runs a job of the driver's own paths, if there is one. The driver queues a job only while
    /// this worker has little work, and later batches of the path wait for it, so it runs at once.
    fn help<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        if self.helper.as_mut().is_some_and(PoolHelper::run_one) {
            self.batches += 1;
            io.link.owner.note();
            io.link.owner.flush();
        }
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Sends, in order, the plans whose sockets have space.
    fn send_waiting<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        let mut full = 0_u64;
        let mut at = 0;
        while let Some(batch) = self.waiting.get(at) {
            let index = batch.contents.socket().unwrap_or(0);
            if full & 1 << index != 0 || io.socket_mut(index).is_some_and(|socket| !socket.has_space()) {
                full |= 1 << index;
                at += 1;
                continue;
            }
            if let Some(batch) = self.waiting.remove(at) {
                self.send(io, batch);
            }
        }
    }

    fn send<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>, batch: InFlightBatch<P, Arc<P::Plan>>) {
        let mut packets = std::mem::take(&mut self.packets);
        batch.contents.seal(&mut packets);
        self.batches += 1;
        let now = io.clock.now();
        let (index, sealed) = (batch.contents.socket(), batch.sealed());
        // The report precedes the system call, so that no acknowledgement overtakes it. The driver
        // takes reports before arrivals, so it is woken only if it must make more plans.
        Self::report::<E>(io, PathWorkerEvent::Emitted { batch, at: now });
        if self.waiting.len() + io.link.commands.slots() <= WAITING_LOW {
            io.link.owner.flush();
        }
        if let Some(socket) = index.and_then(|index| io.socket_mut(index))
            && let Sent::Lost(error) = socket.send(now, &mut packets, || Some(sealed.clone()))
        {
            Self::report::<E>(io, PathWorkerEvent::Refused { batch: sealed, at: now, error });
        }
        self.packets = packets;
    }

    /// Sends the packets that a socket holds, if it may have space again.
    fn retry<E: Env<Protocol = P>>(io: &mut Io<E>, at: usize) {
        if io.link.events.slots() < EVENTS_RESERVED {
            // The driver has not taken the earlier events, and the events of commands need space.
            return;
        }
        let now = io.clock.now();
        let socket = &mut io.sockets[at].socket;
        if !socket.take_retry_due(now) {
            return;
        }
        if let Some(batch) = socket.held().cloned().flatten() {
            Self::report::<E>(io, PathWorkerEvent::EmittedLate { batch, at: now });
        }
        if let Some((Some(batch), error)) = io.sockets[at].socket.retry(now) {
            Self::report::<E>(io, PathWorkerEvent::Refused { batch, at: now, error });
        }
    }
}

impl<P: Protocol, E: Env<Protocol = P>> IoRole<E> for PathRole<P> {
    type Command = PathWorkerCommand<P>;
    type Event = PathWorkerEvent<P>;

    const COMMANDS_PER_TURN: usize = COMMANDS_PER_TURN;
    const COMMANDS_PER_CALL: usize = 0;
    const COMMANDS_PER_BATCH: usize = COMMANDS_PER_TURN;

    fn execute(&mut self, io: &mut Io<E>, command: PathWorkerCommand<P>) {
        match command {
            PathWorkerCommand::Send(batch) => {
                self.waiting.push_back(batch);
                self.send_waiting(io);
            }
            PathWorkerCommand::Lease(lease) => self.leases.insert(*lease),
            PathWorkerCommand::Reply { socket, mut packets } => {
                let now = io.clock.now();
                if let Some(socket) = io.socket_mut(socket).filter(|socket| socket.has_space()) {
                    // A lost answer does no harm: the peer retries.
                    let _sent = socket.send(now, &mut packets, || None);
                }
            }
            PathWorkerCommand::Receive => io.sockets.iter_mut().for_each(|known| known.socket.receive_here()),
            PathWorkerCommand::Finish { plans } => self.finish_requested = Some(plans),
        }
        self.help(io);
    }

    fn before_receiving(&mut self, io: &mut Io<E>) {
        (0..io.sockets.len()).for_each(|at| Self::retry(io, at));
        self.send_waiting(io);
    }

    fn on_received(&mut self, batches: &[P::Batch]) {
        self.batches += batches.len() as u64;
    }

    /// Opens the batch if there is a lease for it, and passes it to the driver. The lease is read
    /// after the receive call, so that it covers every packet that the peer may have answered.
    fn handle_batch(&mut self, io: &mut Io<E>, number: usize, socket: usize, mut batch: P::Batch) {
        let jobs = &mut self.jobs;
        let opened = self.leases.open(socket, &mut batch, || jobs.pop().unwrap_or_default());
        // The receive call was made with space for all its batches.
        io.link.pass_on(Arrived { socket, batch, opened });
        if number % OPENED_PER_WAKE == OPENED_PER_WAKE - 1 {
            io.link.owner.flush();
        }
    }

    fn after_receiving(&mut self, io: &mut Io<E>, at: usize) {
        let now = io.clock.now();
        io.sockets[at].socket.flush(now);
    }

    fn finish_turn(&mut self, io: &mut Io<E>) {
        self.help(io);
        self.finish(io);
    }

    fn has_work(&self, _io: &Io<E>) -> bool {
        self.helper.as_ref().is_some_and(PoolHelper::has_work)
    }

    /// Returns the next retry of a full socket.
    fn next_deadline(&self, io: &Io<E>, now: Instant) -> Option<Instant> {
        let at = io.sockets.iter().filter_map(|known| known.socket.retry_at()).min()?;
        // Retry no earlier than the driver may have taken events.
        Some(if io.link.events.slots() < EVENTS_RESERVED { at.max(now + RETRY_LATER) } else { at })
    }

    /// Returns false: a panic here cannot be attributed to a connection, so the worker ends.
    fn recover(&mut self, _io: &mut Io<E>) -> bool {
        false
    }

    fn on_rest(&mut self, awake: Duration, is_idle: bool) {
        if is_idle {
            self.leases.sweep();
        }
        self.tally.add_some(std::mem::take(&mut self.batches), awake);
    }
}
