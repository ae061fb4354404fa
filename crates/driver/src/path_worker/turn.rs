//! What a path worker does in a turn.

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

/// Commands carried out before the sockets are looked at, and after each batch: what is to be sent
/// does not wait for all that has arrived.
const COMMANDS_PER_TURN: usize = 8;

/// Plans it has left when the driver is told of room for more: what it seals meanwhile bridges the
/// time until they come.
const WAITING_LOW: usize = 1;

/// Batches that are opened before the driver is told of them, if it sleeps: it absorbs them in a
/// fraction of the time.
const OPENED_PER_WAKE: usize = 4;

/// Places of the ring of events that attempts to send again leave free: every command makes two.
const EVENTS_RESERVED: usize = 2 * COMMANDS_MAX + 2;

/// When a socket is tried again while the driver has too much to read.
const RETRY_LATER: Duration = Duration::from_micros(500);

type Io<E> = WorkerIo<E, PathWorkerCommand<<E as Env>::Protocol>, PathWorkerEvent<<E as Env>::Protocol>>;

/// Seals and sends plans, and opens what arrives.
pub struct PathRole<P: Protocol> {
    /// Jobs to open with, used before.
    jobs: Consumer<Box<P::OpenJob>>,
    /// Plans whose sockets have no room: as many as a worker may have.
    waiting: VecDeque<InFlightBatch<P, Arc<P::Plan>>>,
    packets: P::Sealed,
    leases: P::Leases,
    /// The driver wants to know when nothing is left to send of so many plans.
    finish_requested: Option<u64>,
    helper: Option<PoolHelper<P>>,
    tally: Arc<Tally>,
    /// Batches sent, received and helped with that the tally does not count yet.
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
        debug_assert!(is_queued, "a ring has room for what commands make");
    }

    /// Says that nothing is left to send, if that was asked and is so.
    fn finish<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        // Commands come one after the other: those before the question were carried out.
        let is_done = self.waiting.is_empty() && io.sockets.iter().all(|known| known.socket.has_room());
        if is_done && let Some(plans) = self.finish_requested.take() {
            Self::report::<E>(io, PathWorkerEvent::Finished { plans });
        }
    }

    /// Seals a batch of the driver's own paths, if there is one. The driver gives one only while
    /// there is little to do here, so it waits no longer than its turn: those behind it on its path
    /// wait, too.
    fn help<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        if self.helper.as_mut().is_some_and(PoolHelper::run_one) {
            self.batches += 1;
            io.link.owner.note();
            io.link.owner.flush();
        }
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Sends the plans whose sockets have room, in their order.
    fn send_waiting<E: Env<Protocol = P>>(&mut self, io: &mut Io<E>) {
        let mut full = 0_u64;
        let mut at = 0;
        while let Some(batch) = self.waiting.get(at) {
            let index = batch.contents.socket().unwrap_or(0);
            if full & 1 << index != 0 || io.socket_mut(index).is_some_and(|socket| !socket.has_room()) {
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
        // Before the system call, so that no acknowledgement can overtake the report. The driver
        // looks for reports before it looks for arrivals, so it is woken only if it is to make more
        // plans.
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

    /// A socket may have room again: what waits for it leaves.
    fn retry<E: Env<Protocol = P>>(io: &mut Io<E>, at: usize) {
        if io.link.events.slots() < EVENTS_RESERVED {
            // The driver has not read what it was told: what commands make must find room.
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

    fn carry_out(&mut self, io: &mut Io<E>, command: PathWorkerCommand<P>) {
        match command {
            PathWorkerCommand::Send(batch) => {
                self.waiting.push_back(batch);
                self.send_waiting(io);
            }
            PathWorkerCommand::Lease(lease) => self.leases.insert(*lease),
            PathWorkerCommand::Reply { socket, mut packets } => {
                let now = io.clock.now();
                if let Some(socket) = io.socket_mut(socket).filter(|socket| socket.has_room()) {
                    // The peer asks again if it is lost.
                    let _sent = socket.send(now, &mut packets, || None);
                }
            }
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

    /// Opens the batch if there is a lease for it, and passes it to the driver. The lease is looked
    /// at now, after the call to the socket, so that it covers everything that the peer may have
    /// answered.
    fn handle_batch(&mut self, io: &mut Io<E>, number: usize, socket: usize, mut batch: P::Batch) {
        let jobs = &mut self.jobs;
        let opened = self.leases.open(socket, &mut batch, || jobs.pop().unwrap_or_default());
        // There was room for all batches of the call.
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

    /// When a socket that had no room is tried again.
    fn next_deadline(&self, io: &Io<E>, now: Instant) -> Option<Instant> {
        let at = io.sockets.iter().filter_map(|known| known.socket.retry_at()).min()?;
        // Not before the driver may have read something.
        Some(if io.link.events.slots() < EVENTS_RESERVED { at.max(now + RETRY_LATER) } else { at })
    }

    /// A panic is not assigned to a connection here: the worker ends.
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
