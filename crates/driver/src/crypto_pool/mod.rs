//! The crypto pool: batches are sealed and opened on several cores and leave in order, as do jobs
//! on what connections have absorbed.
//!
//! ```text
//!            ┌▶ ring ─▶ worker 1 ─▶ ring ─┐
//!   driver ──┼▶ ring ─▶ worker 2 ─▶ ring ─┼─▶ slots, flow by flow in order ─▶ driver: emit, absorb
//!            └── does it itself ──────────┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | this one | [`CryptoPool`]: the driver's end |
//! | `order` | slots and flows: which batches may leave |
//! | `worker` | a worker with its two rings, as the pool sees it |
//! | `turn` | the worker's end |
//! | `job` | a batch to seal or to open, or a job |
//! | `counters` | what was done, counted |
//!
//! Under `path(n)` the workers are path workers: they seal for the driver's own paths while they
//! are idle.
//!
//! The driver seals and opens whatever the workers have no room for, so it never waits while there
//! is work. A worker that panics or hangs costs only its share of the throughput: what it was to seal
//! is sealed again by the driver, what it was to open counts as lost, as if the network had dropped
//! it, and a job is done again by the driver, since the peer may know that its bytes have arrived.

mod counters;
mod job;
mod order;
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
use self::worker::{JOBS_MAX, JobOutcome};
use crate::driver::RECV_BATCHES_MAX;
use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::offload::{JobOutput, PathFlow};
use crate::protocol::{OpenJob, Plan, Protocol};

/// A worker that a flow waits for this long is late. A batch takes a thousandth of it; on a machine
/// with too few cores a thread may have to wait some milliseconds for its turn. What it was to seal
/// is sealed by the driver.
const LATE_AFTER: Duration = Duration::from_millis(20);

/// What a worker has not opened after so long counts as lost: the batches behind it on its path
/// wait for it. Longer than any machine makes a thread wait that is not stuck; shorter than what a
/// peer takes for a dead path.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// A batch that went through the pool.
pub(crate) enum Finished<P: Protocol> {
    /// A plan, with its packets unless its worker is late or gone.
    Sealed {
        plan: Arc<P::Plan>,
        packets: Option<P::Sealed>,
    },
    Opened {
        job: Box<P::OpenJob>,
        batch: P::Batch,
    },
    /// What was to be opened is lost.
    Lost,
    /// A job, with its output unless its worker is late or gone.
    Ran {
        job: Arc<P::Job>,
        output: Option<JobOutput<P>>,
    },
}

/// A batch in its slot.
type PoolBatch<P> = InFlightBatch<P, PoolWork<P>>;

/// What is kept of a batch that a worker has.
struct PoolWork<P: Protocol> {
    /// The worker that has it, and since when.
    worker: usize,
    since: Instant,
    /// What is to be done again if need be; none if it is to be opened.
    redo: Option<Redo<P>>,
    finished: Finished<P>,
}

/// What can be done without the worker that has it.
enum Redo<P: Protocol> {
    Seal(Arc<P::Plan>),
    Run(Arc<P::Job>),
}

/// The workers of one driver, and the batches they have.
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
    /// A pool of these workers: threads of its own, or path workers, which help while they have
    /// nothing to do for their own paths. `counters` are theirs.
    pub fn new(workers: Vec<CryptoWorker<P>>, counters: Arc<PoolCounters>) -> Self {
        let order = Ordered::new();
        let (spare_buffers, spare_plans) = (Vec::new(), Vec::new());
        let (spare_opens, spare_outputs) = (Vec::new(), Vec::new());
        Self { workers, order, counters, spare_buffers, spare_plans, spare_opens, spare_outputs }
    }

    /// How much a worker has to do beside what it has from here.
    pub(crate) fn set_load(&mut self, worker: usize, load: usize) {
        self.workers[worker].load = load;
    }

    /// Batches under way, at most, before another plan is made: all that workers may have, and as
    /// many done by the driver that wait for their turn. They leave within a fraction of a
    /// millisecond.
    fn len_max(&self) -> usize {
        2 * JOBS_MAX * (self.workers.len() + 1)
    }

    /// No more plans may be made.
    pub(crate) fn is_full(&self) -> bool {
        self.counted(self.order.len() >= self.len_max())
    }

    /// Nothing more may be received: beside what workers may have, the batches of two calls to a
    /// socket are under way.
    pub(crate) fn has_enough_to_open(&self) -> bool {
        self.counted(self.order.len() >= self.len_max() + 2 * RECV_BATCHES_MAX)
    }

    fn counted(&self, is_full: bool) -> bool {
        self.counters.full.fetch_add(u64::from(is_full), Ordering::Relaxed);
        is_full
    }

    /// The driver and its workers.
    pub(crate) fn processors(&self) -> usize {
        1 + self.workers.len()
    }

    /// Nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// A worker has room.
    pub(crate) fn has_room(&self) -> bool {
        self.workers.iter().any(CryptoWorker::has_room)
    }

    /// A batch of this flow is under way: what follows must wait for its turn.
    pub(crate) fn is_busy(&self, flow: PathFlow) -> bool {
        self.order.is_busy(flow)
    }

    /// Whether something came back that [`collect`](Self::collect) would take.
    pub(crate) fn has_returned(&self) -> bool {
        self.workers.iter().any(CryptoWorker::has_returned)
    }

    // ── Work ─────────────────────────────────────────────────────────────────────────────────────

    /// Has a plan sealed by the worker that has least to do.
    ///
    /// # Panics
    /// If none [has room](Self::has_room).
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

    /// Has a batch opened by the worker that has least to do.
    ///
    /// # Panics
    /// If none [has room](Self::has_room).
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

    /// Has a job done by the worker that has least to do.
    ///
    /// # Panics
    /// If none [has room](Self::has_room).
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
        let free = self.workers.iter().enumerate().filter(|(_, worker)| worker.has_room());
        let (worker, _) = free.min_by_key(|(_, worker)| worker.in_flight()).expect("the caller has asked");
        let redo = match &job {
            PoolJob::Seal { plan, .. } => Some(Redo::Seal(Arc::clone(plan))),
            PoolJob::Open { .. } => None,
            PoolJob::Run { job, .. } => Some(Redo::Run(Arc::clone(job))),
        };
        let work = PoolWork { worker, since: now, redo, finished: Finished::Lost };
        let ticket = self.order.reserve(flow, InFlightBatch::new(connection, work));
        self.workers[worker].push_job(ticket, job);
    }

    /// Puts a batch in its flow that the driver has done itself, behind those under way.
    pub(crate) fn put(&mut self, now: Instant, flow: PathFlow, connection: ConnectionRef<P>, finished: Finished<P>) {
        let work = PoolWork { worker: usize::MAX, since: now, redo: None, finished };
        let ticket = self.order.reserve(flow, InFlightBatch::new(connection, work));
        self.order.finish(ticket);
        self.counters.by_driver.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what came back from the workers. What they did not do is left to the driver, which knows the
    /// connection at fault if it panics.
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
                // What was given to it while it ended does not come back.
                self.settle_all_of(index);
            }
        }
        self.check_late(now);
    }

    /// A batch is done, or cannot be done by the worker that had it.
    fn settle(&mut self, ticket: Ticket, job: Option<PoolJob<P>>) {
        let Some(batch) = self.order.waiting(ticket) else {
            // It took too long, and was done by another.
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

    /// Does without what a worker has that is gone.
    fn settle_all_of(&mut self, index: usize) {
        let waiting = self.order.all_waiting();
        let left: Vec<Ticket> =
            waiting.filter(|(_, batch)| batch.contents.worker == index).map(|(ticket, _)| ticket).collect();
        for ticket in left {
            self.settle(ticket, None);
        }
    }

    /// Does without workers that a flow has waited for too long.
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
                tracing::warn!(worker = worker + 1, "a worker is late: others do its work until it is back");
                self.counters.late.fetch_add(1, Ordering::Relaxed);
            }
            if settles {
                self.settle(ticket, None);
            }
        }
    }

    /// Takes back plans that flows wait for, whichever worker has them, for the driver to seal: the same
    /// plan gives the same bytes, and what comes back later is not looked at. False if they wait for
    /// nothing that can be done here.
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

    /// When [`collect`](Self::collect) is to look for workers that are late.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.awaited().map(|(_, batch)| batch.contents.due_at(&self.workers)).min()
    }

    /// The next batch that may leave, of a flow that `may_go`.
    pub(crate) fn take(
        &mut self,
        mut may_go: impl FnMut(PathFlow, &Finished<P>) -> bool,
    ) -> Option<(PathFlow, InFlightBatch<P, Finished<P>>)> {
        let (flow, batch) = self.order.take(|flow, batch| may_go(flow, &batch.contents.finished))?;
        Some((flow, batch.map(|work| work.finished)))
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────

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
        // A worker that hangs may still look at it.
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
    /// When something is to be done about it: when its worker is late, or if that is known, when it
    /// is given up.
    fn due_at(&self, workers: &[CryptoWorker<P>]) -> Instant {
        let is_known = workers.get(self.worker).is_some_and(|worker| worker.is_late);
        let patience = if is_known && self.redo.is_none() { LOST_AFTER } else { LATE_AFTER };
        self.since + patience
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.since + LOST_AFTER <= now
    }
}
