//! The receive worker as the driver sees it.

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

/// The driver's end.
pub struct ReceiveWorker<P: Protocol> {
    link: OwnerEnd<P, ReceiveWorkerCommand<P>, ReceiveHalfEvent<P>>,
    /// Receive halves that are there.
    halves: usize,
    is_gone: bool,
    counters: Arc<ReceiveWorkerCounters>,
    spare_updates: Vec<P::HalfUpdate>,
    spent_reports: Vec<P::HalfReport>,
}

impl<P: Protocol> ReceiveWorker<P> {
    /// One that receives from these sockets, in the order of their indices, and its turns. `owner`
    /// wakes the driver, `worker` the thread that does the turns.
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

    /// What it did.
    pub fn counters(&self) -> &Arc<ReceiveWorkerCounters> {
        &self.counters
    }

    // ── Commands ─────────────────────────────────────────────────────────────────────────────────

    /// Whether it takes another receive half.
    pub(crate) fn takes_halves(&self) -> bool {
        !self.is_gone && self.halves < HALVES_MAX && self.has_room()
    }

    /// Whether it takes more updates for the halves that are there.
    pub(crate) fn has_room(&self) -> bool {
        self.is_gone || self.link.commands.slots() > COMMANDS_RESERVED
    }

    /// Passes a receive half to it.
    pub(crate) fn take(&mut self, now: Instant, key: ConnectionKey, half: P::ReceiveHalf) {
        self.command(now, ReceiveWorkerCommand::Take { key, half });
        self.halves += 1;
        add(&self.counters.departed, 1);
    }

    /// Updates a receive half that is there.
    pub(crate) fn update(&mut self, now: Instant, key: ConnectionKey, mut update: P::HalfUpdate) {
        if let Some(report) = self.spent_reports.pop() {
            update.set_spare(report);
        }
        self.command(now, ReceiveWorkerCommand::Update { key, update });
    }

    /// Asks for a receive half.
    pub(crate) fn recall(&mut self, now: Instant, key: ConnectionKey) {
        self.command(now, ReceiveWorkerCommand::Return { key });
    }

    /// Asks it to receive nothing for a moment; an event says when it does.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.command(now, ReceiveWorkerCommand::Pause);
    }

    /// Lets it receive again.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.command(now, ReceiveWorkerCommand::Resume);
    }

    fn command(&mut self, now: Instant, command: ReceiveWorkerCommand<P>) {
        if !self.is_watched() {
            self.link.liveness.restart(now);
        }
        self.link.push(command);
    }

    /// Wakes it if there are commands that it was not woken for.
    pub(crate) fn wake(&mut self) {
        self.link.worker.flush();
    }

    // ── Events ───────────────────────────────────────────────────────────────────────────────────

    /// Whether there is an event or a batch to take.
    pub(crate) fn has_events(&self) -> bool {
        !self.is_gone && self.link.has_some()
    }

    /// Whether the batch that is taken next has arrived at this socket.
    pub(crate) fn has_more_of(&self, socket: usize) -> bool {
        !self.is_gone && self.link.has_more_of(socket)
    }

    /// The next event. To be taken before a plan is made.
    pub(crate) fn take_event(&mut self) -> Option<ReceiveHalfEvent<P>> {
        if self.is_gone {
            // One that hung and is back: the connections of its halves have ended.
            return None;
        }
        let was_full = self.link.events.slots() > EVENTS_MAX / 2;
        let event = self.link.events.pop().ok()?;
        if was_full {
            // It may wait for room.
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

    /// The next batch of a connection whose receive half is attached, or of no connection.
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

    /// True once it turns out that it has died, or hangs, which counts the same: the halves it had
    /// are lost.
    pub(crate) fn check_liveness(&mut self, now: Instant) -> bool {
        if self.is_gone {
            return false;
        }
        if self.link.is_abandoned() {
            return self.link.is_over() && self.abandon();
        }
        if !self.is_watched() {
            return false;
        }
        let Some(check) = self.link.liveness.check(now) else { return false };
        // One that sleeps does a turn for being woken.
        self.link.worker.wake();
        check == TurnCheck::Hangs && self.abandon()
    }

    /// It is gone. If it comes back, it sees that there will be no more commands, and ends.
    fn abandon(&mut self) -> bool {
        self.link.close();
        self.is_gone = true;
        add(&self.counters.lost, self.halves as u64);
        self.halves = 0;
        true
    }

    /// It has something to do.
    fn is_watched(&self) -> bool {
        !self.is_gone && (self.halves > 0 || self.link.commands.slots() < COMMANDS_MAX)
    }

    /// When [`check_liveness`](Self::check_liveness) has something to see.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.is_watched().then(|| self.link.liveness.deadline())
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────

    pub(crate) fn spare_update(&mut self) -> P::HalfUpdate {
        self.spare_updates.pop().unwrap_or_default()
    }

    pub(crate) fn keep_update(&mut self, update: P::HalfUpdate) {
        // At most as many as there were under way.
        self.spare_updates.push(update);
    }

    pub(crate) fn keep_report(&mut self, mut report: P::HalfReport) {
        self.spare_updates.extend(report.take_spare());
        if self.spent_reports.len() < HALVES_MAX {
            self.spent_reports.push(report);
        }
    }
}
