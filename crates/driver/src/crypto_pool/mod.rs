//! The crypto pool: several cores seal plans, open batches and run jobs on absorbed data. Results
//! are taken in the order of their flows.
//!
//! ```text
//!            ┌▶ ring ─▶ worker 1 ─▶ ring ─┐
//!   driver ──┼▶ ring ─▶ worker 2 ─▶ ring ─┼─▶ slots, flow by flow in order ─▶ driver: emit, absorb
//!            └── processes it itself ─────┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | this file | [`CryptoPool`]: the driver's side |
//! | `order` | slots and flows: the order of results |
//! | `worker` | the pool's side of a worker, with its two rings |
//! | `turn` | the worker's side |
//! | `job` | the work of a worker |
//! | `counters` | statistics |
//!
//! Under `path(n)` the workers are path workers: they seal for the driver's own paths while they
//! are idle.
//!
//! If the workers have no space, the driver seals and opens itself, so it never waits while there
//! is work. A worker that panics or hangs only reduces throughput. The driver seals the plans of
//! such a worker again. Batches that the worker had to open count as lost, as if the network had
//! dropped them. The driver runs its jobs again, because the peer may have an acknowledgement of
//! their data.

mod counters;
mod job;
pub(crate) mod order;
mod turn;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::{Duration, Instant};

pub use self::counters::PoolCounters;
pub use self::counters::{WorkerPoolStats, WorkerStats};
use self::job::PoolJob;
use self::order::{Ordered, Ticket};
pub use self::turn::CryptoWorkerLoop;
pub use self::worker::{CryptoWorker, PoolHelper, Tally};
use self::worker::{JOBS_MAX, JobOutcome, LONG_JOB_BYTES_MIN, LONG_JOBS_AHEAD_MAX};
use crate::driver::RECV_BATCHES_MAX;
use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::offload::{JobOutput, PathFlow};
use crate::protocol::{OpenJob, Plan, Protocol};

/// Time after which a worker is late if a flow waits for it. A batch takes a thousandth of this
/// time. On a machine with too few cores a thread may wait some milliseconds for a processor. The
/// driver seals the plans of a late worker.
const LATE_AFTER: Duration = Duration::from_millis(20);

/// Time after which a batch that a worker has not opened counts as lost, because later batches of
/// its path wait for it. The time is longer than the scheduling delay of any working machine, and
/// shorter than the time after which a peer declares a path failed.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// Finished work of the pool.
pub(crate) enum Finished<P: Protocol> {
    /// A plan, with its packets unless its worker was late or has failed.
    Sealed {
        plan: Arc<P::Plan>,
        packets: Option<P::Sealed>,
    },
    Opened {
        job: Box<P::OpenJob>,
        batch: P::Batch,
    },
    /// A batch to be opened is lost.
    Lost,
    /// A job, with its output unless its worker was late or has failed.
    Ran {
        job: Arc<P::Job>,
        output: Option<JobOutput<P>>,
    },
}

/// A batch in its slot.
type PoolBatch<P> = InFlightBatch<P, PoolWork<P>>;

/// The record of work that a worker has.
struct PoolWork<P: Protocol> {
    /// The index of the worker.
    worker: usize,
    /// Time at which the worker received it.
    since: Instant,
    /// Work to repeat if the worker fails. `None` for a batch to open, which cannot be repeated.
    redo: Option<Redo<P>>,
    finished: Finished<P>,
}

/// Work that the driver can repeat.
enum Redo<P: Protocol> {
    Seal(Arc<P::Plan>),
    Run(Arc<P::Job>),
}

/// The workers of one driver, and the work in flight.
pub struct CryptoPool<P: Protocol> {
    workers: Vec<CryptoWorker<P>>,
    order: Ordered<PathFlow, PoolBatch<P>>,
    counters: Arc<PoolCounters>,
    spare_buffers: Vec<P::Sealed>,
    spare_plans: Vec<P::Plan>,
    spare_opens: Vec<Box<P::OpenJob>>,
    spare_outputs: Vec<JobOutput<P>>,
}

impl<P: Protocol> CryptoPool<P> {
    /// Creates a pool of these workers, either threads of its own or path workers that help while
    /// they are idle, with their `counters`.
    pub fn new(workers: Vec<CryptoWorker<P>>, counters: Arc<PoolCounters>) -> Self {
        let order = Ordered::new();
        let (spare_buffers, spare_plans) = (Vec::new(), Vec::new());
        let (spare_opens, spare_outputs) = (Vec::new(), Vec::new());
        Self { workers, order, counters, spare_buffers, spare_plans, spare_opens, spare_outputs }
    }

    /// Sets the amount of other work of a worker.
    pub(crate) fn set_load(&mut self, worker: usize, load: usize) {
        self.workers[worker].load = load;
    }

    /// Returns the number of batches in flight at which no further plan is made: the maximum for
    /// all workers, and the same number of batches that the driver has finished and that wait for
    /// their turn. They are sent within a fraction of a millisecond.
    fn len_max(&self) -> usize {
        2 * JOBS_MAX * (self.workers.len() + 1)
    }

    /// Returns whether no further plans may be made.
    pub(crate) fn is_full(&self) -> bool {
        self.counted(self.order.len() >= self.len_max())
    }

    /// Returns whether no further batches may be received. The batches of two receive calls may be
    /// in flight in addition to the maximum for all workers.
    pub(crate) fn has_enough_to_open(&self) -> bool {
        self.counted(self.order.len() >= self.len_max() + 2 * RECV_BATCHES_MAX)
    }

    fn counted(&self, is_full: bool) -> bool {
        self.counters.full.fetch_add(u64::from(is_full), Ordering::Relaxed);
        is_full
    }

    /// Returns the number of processors: the driver and its workers.
    pub(crate) fn processors(&self) -> usize {
        1 + self.workers.len()
    }

    /// Returns whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// Returns whether a worker has space for a batch.
    pub(crate) fn has_space(&self) -> bool {
        self.workers.iter().any(|worker| worker.has_space() && worker.long_jobs() <= LONG_JOBS_AHEAD_MAX)
    }

    /// Returns whether a worker has space for a job of this work. A long job goes to another
    /// processor even if it is the last one for now.
    pub(crate) fn has_space_for(&self, work: usize, is_last: bool) -> bool {
        if work < LONG_JOB_BYTES_MIN {
            return !is_last && self.has_space();
        }
        let has_space = |worker: &CryptoWorker<P>| {
            worker.has_space()
                && worker.long_jobs() <= LONG_JOBS_AHEAD_MAX
                && worker.work_in_flight() <= LONG_JOBS_AHEAD_MAX * work
        };
        self.workers.iter().any(has_space)
    }

    /// Returns whether a batch of this flow is in flight. Later batches of the flow must wait for
    /// their turn.
    pub(crate) fn is_busy(&self, flow: PathFlow) -> bool {
        self.order.is_busy(flow)
    }

    /// Returns whether there are results for [`collect`](Self::collect).
    pub(crate) fn has_returned(&self) -> bool {
        self.workers.iter().any(CryptoWorker::has_returned)
    }

    // ── Work ─────────────────────────────────────────────────────────────────────────────────────

    /// Lets the worker of the lowest [rank](CryptoWorker::rank) seal a plan.
    ///
    /// # Panics
    /// If no worker [has space](Self::has_space).
    pub(crate) fn seal_by_worker(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: ConnectionRef<P>,
        plan: Arc<P::Plan>,
    ) {
        let packets = self.spare_packets();
        self.push_job(now, flow, connection, PoolJob::Seal { plan, packets });
    }

    /// Lets the worker of the lowest [rank](CryptoWorker::rank) open a batch.
    ///
    /// # Panics
    /// If no worker [has space](Self::has_space).
    pub(crate) fn open_by_worker(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: ConnectionRef<P>,
        job: Box<P::OpenJob>,
        batch: P::Batch,
    ) {
        self.push_job(now, flow, connection, PoolJob::Open { job, batch });
    }

    /// Lets the worker of the lowest [rank](CryptoWorker::rank) run a job.
    ///
    /// # Panics
    /// If no worker [has space](Self::has_space).
    pub(crate) fn run_by_worker(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: ConnectionRef<P>,
        job: Arc<P::Job>,
    ) {
        let output = self.spare_output();
        self.push_job(now, flow, connection, PoolJob::Run { job, output });
    }

    fn push_job(&mut self, now: Instant, flow: PathFlow, connection: ConnectionRef<P>, job: PoolJob<P>) {
        let free = self.workers.iter().enumerate().filter(|(_, worker)| worker.has_space());
        let (worker, _) = free.min_by_key(|(_, worker)| worker.rank()).expect("the caller has checked for space");
        let redo = match &job {
            PoolJob::Seal { plan, .. } => Some(Redo::Seal(Arc::clone(plan))),
            PoolJob::Open { .. } => None,
            PoolJob::Run { job, .. } => Some(Redo::Run(Arc::clone(job))),
        };
        let work = PoolWork { worker, since: now, redo, finished: Finished::Lost };
        let ticket = self.order.reserve(flow, InFlightBatch::new(connection, work));
        self.workers[worker].push_job(ticket, job);
    }

    /// Queues work that the driver has finished itself, behind the work of its flow that is in
    /// flight.
    pub(crate) fn put(&mut self, now: Instant, flow: PathFlow, connection: ConnectionRef<P>, finished: Finished<P>) {
        let work = PoolWork { worker: usize::MAX, since: now, redo: None, finished };
        let ticket = self.order.reserve(flow, InFlightBatch::new(connection, work));
        self.order.finish(ticket);
        self.counters.by_driver.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes results from the workers. Work that a failed worker had not begun is left to the
    /// driver, which can attribute a panic to the connection.
    pub(crate) fn collect(&mut self, now: Instant) {
        for index in 0..self.workers.len() {
            let was_gone = self.workers[index].is_gone;
            while let Some(returned) = self.workers[index].take_back() {
                match returned.outcome {
                    JobOutcome::Done(job) => self.settle(returned.ticket, Some(job)),
                    JobOutcome::NotBegun(PoolJob::Open { mut job, mut batch }) => {
                        self.counters.redone.fetch_add(1, Ordering::Relaxed);
                        job.open(&mut batch);
                        self.settle(returned.ticket, Some(PoolJob::Open { job, batch }));
                    }
                    JobOutcome::NotBegun(_) | JobOutcome::Broken => self.settle(returned.ticket, None),
                }
            }
            self.workers[index].check_gone();
            if self.workers[index].is_gone {
                if !was_gone {
                    self.counters.gone.fetch_add(1, Ordering::Relaxed);
                }
                // Work that was queued while the worker ended does not return.
                self.settle_all_of(index);
            }
        }
        self.check_late(now);
    }

    /// Finishes a slot with the result of a job, or without one if its worker cannot do it.
    fn settle(&mut self, ticket: Ticket, job: Option<PoolJob<P>>) {
        let Some(batch) = self.order.waiting(ticket) else {
            // The worker took too long, and the driver has done the work.
            return;
        };
        let redo = batch.contents.redo.take();
        let finished = match (job, redo) {
            (Some(PoolJob::Seal { packets, plan: theirs }), Some(Redo::Seal(plan))) => {
                drop(theirs);
                Finished::Sealed { plan, packets: Some(packets) }
            }
            (Some(PoolJob::Open { job, batch }), _) => Finished::Opened { job, batch },
            (Some(PoolJob::Run { job, output }), _) => Finished::Ran { job, output: Some(output) },
            (_, Some(Redo::Run(job))) => {
                self.counters.redone.fetch_add(1, Ordering::Relaxed);
                Finished::Ran { job, output: None }
            }
            (_, Some(Redo::Seal(plan))) => {
                self.counters.redone.fetch_add(1, Ordering::Relaxed);
                Finished::Sealed { plan, packets: None }
            }
            (None, None) => {
                self.counters.lost.fetch_add(1, Ordering::Relaxed);
                Finished::Lost
            }
            (Some(PoolJob::Seal { .. }), None) => unreachable!("a slot keeps the plan of its job"),
        };
        if let Some(batch) = self.order.finish(ticket) {
            batch.contents.finished = finished;
        }
    }

    /// Finishes all slots of a worker that has ended.
    fn settle_all_of(&mut self, index: usize) {
        let waiting = self.order.all_waiting();
        let of_worker: Vec<Ticket> =
            waiting.filter(|(_, batch)| batch.contents.worker == index).map(|(ticket, _)| ticket).collect();
        for ticket in of_worker {
            self.settle(ticket, None);
        }
    }

    /// Marks workers for which a flow has waited too long as late, and finishes the slots that can
    /// be finished without them.
    fn check_late(&mut self, now: Instant) {
        let late: Vec<(Ticket, usize, bool)> = self
            .order
            .awaited()
            .map(|(ticket, batch)| (ticket, &batch.contents))
            .filter(|(_, work)| work.due_at(&self.workers) <= now)
            .map(|(ticket, work)| (ticket, work.worker, work.redo.is_some() || work.is_lost(now)))
            .collect();
        for (ticket, worker, settles) in late {
            if !std::mem::replace(&mut self.workers[worker].is_late, true) {
                tracing::warn!(worker = worker + 1, "a worker is late: others do its work until it responds");
                self.counters.late.fetch_add(1, Ordering::Relaxed);
            }
            if settles {
                self.settle(ticket, None);
            }
        }
    }

    /// Takes back plans that flows wait for, from all workers, so that the driver seals them. The
    /// same plan gives the same bytes, and a later result is ignored. Returns false if no flow
    /// waits for a plan.
    pub(crate) fn take_back_awaited(&mut self) -> bool {
        let is_plan = |work: &PoolWork<P>| matches!(work.redo, Some(Redo::Seal(_)));
        let awaited: Vec<Ticket> =
            self.order.awaited().filter(|(_, batch)| is_plan(&batch.contents)).map(|(ticket, _)| ticket).collect();
        for ticket in &awaited {
            let redo = self.order.waiting(*ticket).and_then(|batch| batch.contents.redo.take());
            let Some(Redo::Seal(plan)) = redo else { continue };
            if let Some(batch) = self.order.finish(*ticket) {
                batch.contents.finished = Finished::Sealed { plan, packets: None };
                self.counters.by_driver.fetch_add(1, Ordering::Relaxed);
            }
        }
        !awaited.is_empty()
    }

    /// Returns the time at which [`collect`](Self::collect) must check for late workers.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.awaited().map(|(_, batch)| batch.contents.due_at(&self.workers)).min()
    }

    /// Returns the next finished work that is first in its flow and that `may_go` accepts.
    pub(crate) fn take(
        &mut self,
        mut may_go: impl FnMut(PathFlow, &Finished<P>) -> bool,
    ) -> Option<(PathFlow, InFlightBatch<P, Finished<P>>)> {
        let (flow, batch) = self.order.take(|flow, batch| may_go(flow, &batch.contents.finished))?;
        Some((flow, batch.map(|work| work.finished)))
    }

    // ── Reused memory ────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_packets(&mut self) -> P::Sealed {
        self.spare_buffers.pop().unwrap_or_default()
    }

    pub(crate) fn spare_plan(&mut self) -> P::Plan {
        self.spare_plans.pop().unwrap_or_default()
    }

    pub(crate) fn spare_job(&mut self) -> Box<P::OpenJob> {
        self.spare_opens.pop().unwrap_or_default()
    }

    pub(crate) fn spare_output(&mut self) -> JobOutput<P> {
        self.spare_outputs.pop().unwrap_or_default()
    }

    pub(crate) fn keep_output(&mut self, output: JobOutput<P>) {
        if self.spare_outputs.len() < self.len_max() {
            self.spare_outputs.push(output);
        }
    }

    pub(crate) fn keep(&mut self, plan: Arc<P::Plan>, packets: P::Sealed) {
        let max = self.len_max();
        if self.spare_buffers.len() < max {
            self.spare_buffers.push(packets);
        }
        // A worker that hangs may still hold a reference.
        if let Ok(mut plan) = Arc::try_unwrap(plan)
            && self.spare_plans.len() < max
        {
            plan.release();
            self.spare_plans.push(plan);
        }
    }

    pub(crate) fn keep_job(&mut self, mut job: Box<P::OpenJob>) {
        if self.spare_opens.len() < self.len_max() {
            job.clear();
            self.spare_opens.push(job);
        }
    }
}

impl<P: Protocol> PoolWork<P> {
    /// Returns the next deadline: the time when its worker becomes late or, if it is late already
    /// and the work cannot be repeated, the time when the work counts as lost.
    fn due_at(&self, workers: &[CryptoWorker<P>]) -> Instant {
        let is_late = workers.get(self.worker).is_some_and(|worker| worker.is_late);
        let limit = if is_late && self.redo.is_none() { LOST_AFTER } else { LATE_AFTER };
        self.since + limit
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.since + LOST_AFTER <= now
    }
}
