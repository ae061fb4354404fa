//! The driver's side of a path worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use rtrb::{Producer, RingBuffer};
use units::Instant;

use super::messages::{LeaseOf, PathWorkerCommand, PathWorkerEvent};
use super::turn::PathRole;
use super::{ARRIVALS_LOW, ARRIVALS_MAX, COMMANDS_MAX, COMMANDS_RESERVED, LEASES_QUEUED_MAX};
use super::{HANG_LIMIT, SENDS_MAX, SIZES};
use crate::crypto_pool::{PoolHelper, Tally};
use crate::env::{Clock, Env};
use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::protocol::{OpenJob, Plan, Protocol};
use crate::worker::{Arrived, IoWorker, OwnerEnd, TurnCheck, WorkerSocket, link};

/// State of a worker as known to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Works,
    /// It begins no turns, and may recover.
    Hangs,
    /// Its thread has ended.
    Gone,
}

/// The driver's side of a path worker. Dropping it ends the worker.
pub struct PathWorker<P: Protocol> {
    link: OwnerEnd<P, PathWorkerCommand<P>, PathWorkerEvent<P>>,
    /// Ring that returns jobs to the worker for reuse.
    jobs_back: Producer<Box<P::OpenJob>>,
    /// Plans that were not reported as sent, in the order in which the worker received them.
    sends: VecDeque<InFlightBatch<P, Arc<P::Plan>>>,
    /// Number of plans that it has received.
    plans: u64,
    /// Whether the system refused the last batch that the worker reported.
    has_refused: bool,
    /// Number of plans in the last request to report when all are sent.
    finish_requested: Option<u64>,
    /// Number of plans in the last such report.
    finish_reported: Option<u64>,
    tally: Arc<Tally>,
    state: WorkerState,
    spare_plans: Vec<P::Plan>,
}

/// The result of a liveness check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StateChange {
    None,
    /// The worker no longer responds. Its paths are unusable until it recovers.
    Lost,
    /// The worker responds again.
    Back,
}

impl<P: Protocol> PathWorker<P> {
    /// Creates a worker that serves `sockets`, and its loop. `owner` wakes the driver, `worker` the
    /// thread that runs the loop. Through `helper` it takes work for the driver's paths.
    pub fn new<E: Env<Protocol = P>>(
        clock: E::Clock,
        owner: Waker,
        worker: Waker,
        sockets: Vec<WorkerSocket<E>>,
        helper: Option<PoolHelper<P>>,
    ) -> (Self, IoWorker<E, PathRole<P>>) {
        let tally = Arc::new(Tally::default());
        let (jobs_back, jobs) = RingBuffer::new(ARRIVALS_MAX);
        let (owners, workers) = link(SIZES, HANG_LIMIT, clock.now(), owner, worker);
        let role = PathRole::new(jobs, helper, Arc::clone(&tally));
        let path_worker = Self {
            link: owners,
            jobs_back,
            sends: VecDeque::new(),
            plans: 0,
            has_refused: false,
            finish_requested: None,
            finish_reported: None,
            tally,
            state: WorkerState::Works,
            spare_plans: Vec::new(),
        };
        (path_worker, IoWorker::new(clock, sockets, workers, role))
    }

    /// Returns its counters.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    // ── Commands ─────────────────────────────────────────────────────────────────────────────────

    /// Returns whether it accepts another plan.
    pub(crate) fn has_space(&self) -> bool {
        self.state == WorkerState::Works && self.sends.len() < SENDS_MAX
    }

    /// Returns the number of its plans.
    pub(crate) fn send_count(&self) -> usize {
        self.sends.len()
    }

    /// Returns whether it has no mandatory work.
    fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.finish_requested == self.finish_reported
    }

    /// Returns whether it has sent all plans, as far as is known. Requests a report, once after the
    /// last plan.
    pub(crate) fn has_finished(&mut self, now: Instant) -> bool {
        if self.state != WorkerState::Works {
            return true;
        }
        let all = Some(self.plans);
        if self.finish_requested != all {
            self.note_work(now);
            self.finish_requested = all;
            self.command(PathWorkerCommand::Finish { plans: self.plans });
        }
        self.finish_reported == all
    }

    /// Passes a plan to it.
    ///
    /// # Panics
    /// If it has no space.
    pub(crate) fn send(&mut self, now: Instant, connection: ConnectionRef<P>, plan: Arc<P::Plan>) {
        assert!(self.has_space(), "the caller has asked");
        self.note_work(now);
        self.plans += 1;
        let batch = InFlightBatch::new(connection, plan);
        self.sends.push_back(batch.clone());
        self.command(PathWorkerCommand::Send(batch));
    }

    /// Passes a lease to it, unless too many are in the ring.
    pub(crate) fn grant(&mut self, lease: LeaseOf<P>) {
        if self.state == WorkerState::Works && self.link.commands.slots() > COMMANDS_MAX - LEASES_QUEUED_MAX {
            self.command(PathWorkerCommand::Lease(Box::new(lease)));
        }
    }

    /// Sends packets that belong to no connection. They may be dropped.
    pub(crate) fn reply(&mut self, socket: usize, packets: &P::Sealed) {
        // Space for plans is reserved.
        if self.state == WorkerState::Works && self.link.commands.slots() > COMMANDS_RESERVED {
            self.command(PathWorkerCommand::Reply { socket, packets: packets.clone() });
        }
    }

    /// Makes it receive, because the processor that received before has ended. Has an effect at
    /// most once.
    pub(crate) fn receive_here(&mut self) {
        if self.state != WorkerState::Gone {
            self.command(PathWorkerCommand::Receive);
        }
    }

    fn note_work(&mut self, now: Instant) {
        if self.is_idle() {
            self.link.liveness.restart(now);
        }
    }

    fn command(&mut self, command: PathWorkerCommand<P>) {
        self.link.push(command);
        self.link.worker.flush();
    }

    // ── Events ───────────────────────────────────────────────────────────────────────────────────

    /// Returns whether there is an event or a batch to take.
    pub(crate) fn has_events(&self) -> bool {
        self.link.has_some()
    }

    /// Returns the number of received packets that were dropped because the ring to the driver was
    /// full.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.link.dropped_packets()
    }

    /// Returns whether the next batch is from this socket.
    pub(crate) fn has_more_of(&self, socket: usize) -> bool {
        self.link.has_more_of(socket)
    }

    /// Returns the next event. Events must be taken before arrivals, so that no acknowledgement
    /// overtakes a report.
    pub(crate) fn take_event(&mut self) -> Option<PathWorkerEvent<P>> {
        let event = self.link.events.pop().ok()?;
        match &event {
            // Plans are reported in order, except for those that wait for a full socket.
            PathWorkerEvent::Emitted { batch, .. } => {
                let at = self.sends.iter().position(|sent| Arc::ptr_eq(&sent.contents, &batch.contents));
                drop(at.and_then(|at| self.sends.remove(at)));
            }
            PathWorkerEvent::Finished { plans } => self.finish_reported = Some(*plans),
            PathWorkerEvent::EmittedLate { .. } | PathWorkerEvent::Refused { .. } => {}
        }
        Some(event)
    }

    /// Records whether the system refused the last reported batch. Returns whether it refused the
    /// one before.
    pub(crate) fn note_refused(&mut self, is_refused: bool) -> bool {
        std::mem::replace(&mut self.has_refused, is_refused)
    }

    /// Returns the next received batch.
    pub(crate) fn take_arrival(&mut self) -> Option<Arrived<P>> {
        let arrival = self.link.arrivals.pop().ok()?;
        if self.link.arrivals.slots() == ARRIVALS_LOW {
            // The worker may be waiting for space in the ring.
            self.link.worker.wake();
        }
        Some(arrival)
    }

    // ── Liveness ─────────────────────────────────────────────────────────────────────────────────

    /// Checks whether it begins turns.
    pub(crate) fn check_liveness(&mut self, now: Instant) -> StateChange {
        if self.state == WorkerState::Gone {
            return StateChange::None;
        }
        if self.link.is_abandoned() {
            if self.link.is_over() {
                // A worker that hung before cannot recover any more.
                self.state = WorkerState::Gone;
                return StateChange::Lost;
            }
            return StateChange::None;
        }
        if self.state == WorkerState::Works && self.is_idle() {
            return StateChange::None;
        }
        let Some(check) = self.link.liveness.check(now) else { return StateChange::None };
        // A worker that waits for a socket begins a turn when it is woken.
        self.link.worker.wake();
        match (self.state, check) {
            (WorkerState::Works, TurnCheck::Hangs) => {
                self.state = WorkerState::Hangs;
                StateChange::Lost
            }
            (WorkerState::Hangs, TurnCheck::Turns) => {
                self.state = WorkerState::Works;
                StateChange::Back
            }
            _ => StateChange::None,
        }
    }

    /// Returns the time of the next call of [`check_liveness`](Self::check_liveness).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_checked = match self.state {
            WorkerState::Works => !self.is_idle(),
            WorkerState::Hangs => true,
            WorkerState::Gone => false,
        };
        is_checked.then(|| self.link.liveness.deadline())
    }

    /// Returns whether its thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == WorkerState::Gone
    }

    /// Returns whether its paths are usable.
    pub(crate) fn works(&self) -> bool {
        self.state == WorkerState::Works
    }

    /// Returns the next plan that an ended worker has not reported as sent.
    pub(crate) fn take_unsent(&mut self) -> Option<InFlightBatch<P, Arc<P::Plan>>> {
        self.sends.pop_front()
    }

    // ── Reused memory ────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_plan(&mut self) -> P::Plan {
        self.spare_plans.pop().unwrap_or_default()
    }

    pub(crate) fn keep_plan(&mut self, plan: Arc<P::Plan>) {
        if let Ok(mut plan) = Arc::try_unwrap(plan)
            && self.spare_plans.len() < SENDS_MAX
        {
            plan.release();
            self.spare_plans.push(plan);
        }
    }

    pub(crate) fn keep_job(&mut self, mut job: Box<P::OpenJob>) {
        job.clear();
        // The ring holds as many jobs as there are arrivals. Any further job is freed.
        let _full = self.jobs_back.push(job);
    }
}
