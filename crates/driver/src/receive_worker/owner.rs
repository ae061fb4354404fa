//! The driver's side of the receive worker.

use std::sync::Arc;
use std::task::Waker;

use units::Instant;

use super::counters::{ReceiveWorkerCounters, add};
use super::messages::ReceiveWorkerCommand;
use super::turn::ReceiveRole;
use super::{ARRIVALS_MAX, COMMANDS_MAX, COMMANDS_RESERVED, EVENTS_MAX, HALVES_MAX, HANG_LIMIT, SIZES};
use crate::driver::RECV_BATCHES_MAX;
use crate::env::{Clock, Env};
use crate::offload::ReceiveHalfEvent;
use crate::protocol::{ConnectionKey, HalfReport, HalfUpdate, Protocol};
use crate::worker::{Arrived, IoWorker, OwnerEnd, TurnCheck, WorkerSocket, link};

/// The driver's side of the receive worker. Dropping it ends the worker.
pub struct ReceiveWorker<P: Protocol> {
    link: OwnerEnd<P, ReceiveWorkerCommand<P>, ReceiveHalfEvent<P>>,
    /// Number of its receive halves.
    halves: usize,
    is_gone: bool,
    counters: Arc<ReceiveWorkerCounters>,
    spare_updates: Vec<P::HalfUpdate>,
    spent_reports: Vec<P::HalfReport>,
}

impl<P: Protocol> ReceiveWorker<P> {
    /// Creates a worker that receives from these sockets, in the order of their indices, and its
    /// loop. `owner` wakes the driver, `worker` the thread that runs the loop.
    pub fn new<E: Env<Protocol = P>>(
        clock: E::Clock,
        owner: Waker,
        worker: Waker,
        sockets: Vec<WorkerSocket<E>>,
    ) -> (Self, IoWorker<E, ReceiveRole<P>>) {
        let (owners, workers) = link(SIZES, HANG_LIMIT, clock.now(), owner, worker);
        let counters = Arc::new(ReceiveWorkerCounters::default());
        let role = ReceiveRole::new(Arc::clone(&counters));
        let receive_worker = Self {
            link: owners,
            halves: 0,
            is_gone: false,
            counters,
            spare_updates: Vec::new(),
            spent_reports: Vec::new(),
        };
        (receive_worker, IoWorker::new(clock, sockets, workers, role))
    }

    /// Returns its counters.
    pub fn counters(&self) -> &Arc<ReceiveWorkerCounters> {
        &self.counters
    }

    // ── Commands ─────────────────────────────────────────────────────────────────────────────────

    /// Returns whether it accepts another receive half.
    pub(crate) fn takes_halves(&self) -> bool {
        !self.is_gone && self.halves < HALVES_MAX && self.has_space()
    }

    /// Returns whether it accepts more updates for its halves.
    pub(crate) fn has_space(&self) -> bool {
        self.is_gone || self.link.commands.slots() > COMMANDS_RESERVED
    }

    /// Passes a receive half to it.
    pub(crate) fn take(&mut self, now: Instant, key: ConnectionKey, half: P::ReceiveHalf) {
        self.command(now, ReceiveWorkerCommand::Take { key, half });
        self.halves += 1;
        add(&self.counters.detached, 1);
    }

    /// Sends an update to a receive half.
    pub(crate) fn update(&mut self, now: Instant, key: ConnectionKey, mut update: P::HalfUpdate) {
        if let Some(report) = self.spent_reports.pop() {
            update.set_spare(report);
        }
        self.command(now, ReceiveWorkerCommand::Update { key, update });
    }

    /// Recalls a receive half.
    pub(crate) fn recall(&mut self, now: Instant, key: ConnectionKey) {
        self.command(now, ReceiveWorkerCommand::Return { key });
    }

    /// Requests a pause of receiving. An event reports that it has paused.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.command(now, ReceiveWorkerCommand::Pause);
    }

    /// Resumes receiving.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.command(now, ReceiveWorkerCommand::Resume);
    }

    fn command(&mut self, now: Instant, command: ReceiveWorkerCommand<P>) {
        if !self.is_checked() {
            self.link.liveness.restart(now);
        }
        self.link.push(command);
    }

    /// Wakes it if there are new commands.
    pub(crate) fn wake(&mut self) {
        self.link.worker.flush();
    }

    // ── Events ───────────────────────────────────────────────────────────────────────────────────

    /// Returns whether there is an event or a batch to take.
    pub(crate) fn has_events(&self) -> bool {
        !self.is_gone && self.link.has_some()
    }

    /// Returns the number of received packets that were dropped because the ring to the driver was
    /// full.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.link.dropped_packets()
    }

    /// Returns whether the next batch is from this socket.
    pub(crate) fn has_more_of(&self, socket: usize) -> bool {
        !self.is_gone && self.link.has_more_of(socket)
    }

    /// Returns the next event. Events must be taken before a plan is made.
    pub(crate) fn take_event(&mut self) -> Option<ReceiveHalfEvent<P>> {
        if self.is_gone {
            // A worker that hung may recover, but the connections of its halves have ended.
            return None;
        }
        let was_full = self.link.events.slots() > EVENTS_MAX / 2;
        let event = self.link.events.pop().ok()?;
        if was_full {
            // The worker may be waiting for space.
            self.link.worker.wake();
        }
        match &event {
            ReceiveHalfEvent::Returned { .. } => {
                self.halves -= 1;
                add(&self.counters.returned, 1);
            }
            ReceiveHalfEvent::Broken { .. } => {
                self.halves -= 1;
                add(&self.counters.lost, 1);
            }
            _ => {}
        }
        Some(event)
    }

    /// Returns the next batch of a connection whose receive half is attached, or of no connection.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrived<P>> {
        if self.is_gone {
            return None;
        }
        let was_full = self.link.arrivals.slots() > ARRIVALS_MAX - RECV_BATCHES_MAX;
        let arrival = self.link.arrivals.pop().ok()?;
        if was_full {
            self.link.worker.wake();
        }
        Some(arrival)
    }

    // ── Liveness ─────────────────────────────────────────────────────────────────────────────────

    /// Checks whether it begins turns. Returns true once, when it has ended or hangs. Both cases
    /// have the same effect: its receive halves are lost.
    pub(crate) fn check_liveness(&mut self, now: Instant) -> bool {
        if self.is_gone {
            return false;
        }
        if self.link.is_abandoned() {
            return self.link.is_over() && self.abandon();
        }
        if !self.is_checked() {
            return false;
        }
        let Some(check) = self.link.liveness.check(now) else { return false };
        // A sleeping worker begins a turn when it is woken.
        self.link.worker.wake();
        check == TurnCheck::Hangs && self.abandon()
    }

    /// Treats the worker as failed. If it recovers, it finds its ring of commands closed, and ends.
    fn abandon(&mut self) -> bool {
        self.link.close();
        self.is_gone = true;
        add(&self.counters.lost, self.halves as u64);
        self.halves = 0;
        true
    }

    /// Returns whether its liveness is checked: it has receive halves or commands.
    fn is_checked(&self) -> bool {
        !self.is_gone && (self.halves > 0 || self.link.commands.slots() < COMMANDS_MAX)
    }

    /// Returns the time of the next call of [`check_liveness`](Self::check_liveness).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.is_checked().then(|| self.link.liveness.deadline())
    }

    // ── Reused memory ────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_update(&mut self) -> P::HalfUpdate {
        self.spare_updates.pop().unwrap_or_default()
    }

    pub(crate) fn keep_update(&mut self, update: P::HalfUpdate) {
        // The list is bounded by the number of updates in flight.
        self.spare_updates.push(update);
    }

    pub(crate) fn keep_report(&mut self, mut report: P::HalfReport) {
        self.spare_updates.extend(report.take_spare());
        if self.spent_reports.len() < HALVES_MAX {
            self.spent_reports.push(report);
        }
    }
}
