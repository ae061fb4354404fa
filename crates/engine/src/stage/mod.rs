//! The ordered parallel stage: batches are sealed and opened on several processors and go on in order.
//!
//! ```text
//!            ┌▶ ring ─▶ worker 1 ─▶ ring ─┐
//!   driver ──┼▶ ring ─▶ worker 2 ─▶ ring ─┼─▶ slots, lane by lane in order ─▶ driver: emit, absorb
//!            └── does it itself ──────────┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `order` | slots and lanes: what may go on |
//! | `worker` | a processor with its two rings |
//! | `doze` | how a worker sleeps |
//! | `job` | what a worker does |
//! | `figures` | what was done, counted |
//!
//! Under `path(n)` the workers are the processors of paths: they seal for the driver's own paths while they have little to do.
//!
//! The driver is a processor like the others: it seals and opens whatever the workers have no room for, so nobody waits while
//! there is work. A worker that dies or hangs takes nothing along but its share of the speed: what it was to seal is sealed
//! again here, what it was to open counts as lost on the way, as if the network had dropped it.

mod doze;
mod figures;
mod job;
mod order;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Clock;
use quic::{ConnectionKey, OpenJob, PathId, Plan, seal};
use units::{Duration, Instant};

pub(crate) use self::figures::Figures;
use self::order::{Ordered, Ticket};
use self::worker::{Fate, JOBS_MAX, Start};
use crate::cells::ConnectionCell;
use crate::crew::Crew;
use crate::receive::{Arrived, RECV_BUFFERS};
use crate::wake::EngineWaker;

pub use self::figures::{StageStats, WorkerStats};
pub(crate) use self::job::Job;
pub(crate) use self::worker::{Helper, Tally, Worker};

/// A worker that others wait for this long is late. A batch takes a thousandth of it; on a machine with too few processors a
/// thread may have to wait some milliseconds for its turn. What it was to seal is sealed by another.
const LATE_AFTER: Duration = Duration::from_millis(20);

/// What a worker has not opened after so long counts as lost: its path waits for it. Longer than any machine makes a thread wait
/// that is not stuck; shorter than what a peer takes for a dead path.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// One direction of a path of a connection: what is kept in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) key: ConnectionKey,
    pub(crate) path: PathId,
    pub(crate) way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// A batch that went through the stage.
pub(crate) enum Finished {
    Sealed {
        plan: Arc<Plan>,
        sealed: Vec<u8>,
    },
    Opened {
        open: Box<OpenJob>,
        batch: Arrived,
    },
    /// What was to be opened is lost.
    Lost,
}

/// What a slot holds.
struct Item {
    /// Tells the connection from a later one of the same key.
    cell: Arc<ConnectionCell>,
    /// Who has the work, and since when.
    worker: usize,
    since: Instant,
    /// What is to be sealed, to be done again if need be; none if it is to be opened.
    plan: Option<Arc<Plan>>,
    finished: Finished,
}

/// The workers of one driver, and what goes through them.
pub(crate) struct Stage {
    workers: Vec<Worker>,
    order: Ordered<Lane, Item>,
    figures: Arc<Figures>,
    spare_buffers: Vec<Vec<u8>>,
    spare_plans: Vec<Plan>,
    #[expect(clippy::vec_box, reason = "jobs travel through rings in the boxes they are kept in")]
    spare_opens: Vec<Box<OpenJob>>,
}

impl Stage {
    /// A stage of `count` workers beside the driver; `cores` are for them to stay on, in turn.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub(crate) fn start(
        count: usize,
        cores: &[usize],
        clock: Clock,
        busy_poll: Duration,
        owner: &Arc<EngineWaker>,
        crew: &mut Crew,
    ) -> std::io::Result<Self> {
        let start = |index: usize| Start {
            name: format!("litz-worker-{}", index + 1),
            core: cores.get(index).copied(),
            clock: clock.clone(),
            busy_poll,
            owner: Arc::clone(owner),
        };
        let workers = (0..count).map(|index| Worker::start(start(index), crew)).collect::<Result<Vec<_>, _>>()?;
        let figures = Figures::new(workers.iter().map(|worker| worker.tally.clone()).collect());
        Ok(Self::new(workers, Arc::new(figures)))
    }

    /// A stage whose workers are processors of paths: they help while they have nothing to do for their own. `figures` are theirs.
    pub(crate) fn of_helpers(workers: Vec<Worker>, figures: Arc<Figures>) -> Self {
        Self::new(workers, figures)
    }

    fn new(workers: Vec<Worker>, figures: Arc<Figures>) -> Self {
        let order = Ordered::new();
        let (spare_buffers, spare_plans, spare_opens) = (Vec::new(), Vec::new(), Vec::new());
        Self { workers, order, figures, spare_buffers, spare_plans, spare_opens }
    }

    /// How much a worker has to do beside what it has from here.
    pub(crate) fn set_load(&mut self, worker: usize, load: usize) {
        self.workers[worker].load = load;
    }

    /// What the workers have done, for people.
    pub(crate) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Batches under way, at most, before another plan is made: all that workers may have, and as many done by the driver that
    /// wait for their turn. They leave within a fraction of a millisecond.
    fn len_max(&self) -> usize {
        2 * JOBS_MAX * (self.workers.len() + 1)
    }

    /// No more plans can be made.
    pub(crate) fn is_full(&self) -> bool {
        self.counted(self.order.len() >= self.len_max())
    }

    /// Nothing more can be received: beside what workers may have, the batches of two calls to a socket are under way.
    pub(crate) fn has_enough_to_open(&self) -> bool {
        self.counted(self.order.len() >= self.len_max() + 2 * RECV_BUFFERS)
    }

    fn counted(&self, is_full: bool) -> bool {
        self.figures.full.fetch_add(u64::from(is_full), Ordering::Relaxed);
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
        self.workers.iter().any(Worker::has_room)
    }

    /// Something of this lane is under way: what follows must wait for its turn.
    pub(crate) fn is_busy(&self, lane: Lane) -> bool {
        self.order.is_busy(lane)
    }

    /// Whether something came back that [`collect`](Self::collect) would take.
    pub(crate) fn has_news(&self) -> bool {
        self.workers.iter().any(Worker::has_returned)
    }

    // ── Work ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives a job to the worker that has least to do.
    ///
    /// # Panics
    /// If none [has room](Self::has_room).
    pub(crate) fn give(&mut self, now: Instant, lane: Lane, cell: Arc<ConnectionCell>, job: Job) {
        let free = self.workers.iter().enumerate().filter(|(_, worker)| worker.has_room());
        let (worker, _) = free.min_by_key(|(_, worker)| worker.in_flight()).expect("the caller has asked");
        let plan = match &job {
            Job::Seal { plan, .. } => Some(Arc::clone(plan)),
            Job::Open { .. } => None,
        };
        let item = Item { cell, worker, since: now, plan, finished: Finished::Lost };
        let ticket = self.order.reserve(lane, item);
        self.workers[worker].give(ticket, job);
    }

    /// Puts a batch in its lane that the driver has done itself, behind those under way.
    pub(crate) fn put(&mut self, now: Instant, lane: Lane, cell: Arc<ConnectionCell>, finished: Finished) {
        let ticket = self.order.reserve(lane, Item { cell, worker: usize::MAX, since: now, plan: None, finished });
        self.order.finish(ticket);
        self.figures.by_driver.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what came back from the workers, and does what they did not.
    pub(crate) fn collect(&mut self, now: Instant) {
        for index in 0..self.workers.len() {
            let was_gone = self.workers[index].is_gone;
            while let Some(returned) = self.workers[index].take_back() {
                match returned.fate {
                    Fate::Done(job) => self.settle(returned.ticket, Some(job)),
                    Fate::Returned(mut job) => {
                        self.figures.redone.fetch_add(1, Ordering::Relaxed);
                        job.run();
                        self.settle(returned.ticket, Some(job));
                    }
                    Fate::Broken => self.settle(returned.ticket, None),
                }
            }
            self.workers[index].look();
            if self.workers[index].is_gone {
                if !was_gone {
                    self.figures.gone.fetch_add(1, Ordering::Relaxed);
                }
                // What was given to it while it ended came back to nobody.
                self.give_up(index);
            }
        }
        self.look_for_late(now);
    }

    /// A batch is done, or cannot be done by the one who had it.
    fn settle(&mut self, ticket: Ticket, job: Option<Job>) {
        let Some(item) = self.order.waiting(ticket) else {
            // It took too long, and was done by another.
            return;
        };
        let plan = item.plan.take();
        let finished = match (job, plan) {
            (Some(Job::Seal { sealed, plan: theirs }), Some(plan)) => {
                drop(theirs);
                Finished::Sealed { plan, sealed }
            }
            (Some(Job::Open { open, batch }), _) => Finished::Opened { open, batch },
            (_, Some(plan)) => {
                self.figures.redone.fetch_add(1, Ordering::Relaxed);
                let mut sealed = self.spare_buffers.pop().unwrap_or_default();
                seal(&plan, &mut sealed);
                Finished::Sealed { plan, sealed }
            }
            (None, None) => {
                self.figures.lost.fetch_add(1, Ordering::Relaxed);
                Finished::Lost
            }
            (Some(Job::Seal { .. }), None) => unreachable!("a slot keeps the plan of its job"),
        };
        if let Some(item) = self.order.finish(ticket) {
            item.finished = finished;
        }
    }

    /// Does without what a worker has that is gone.
    fn give_up(&mut self, index: usize) {
        let left: Vec<Ticket> =
            self.order.all_waiting().filter(|(_, item)| item.worker == index).map(|(ticket, _)| ticket).collect();
        for ticket in left {
            self.settle(ticket, None);
        }
    }

    /// Does without those for whom a lane has waited too long.
    fn look_for_late(&mut self, now: Instant) {
        let late: Vec<(Ticket, usize, bool)> = self
            .order
            .awaited()
            .filter(|(_, item)| item.due_at(&self.workers) <= now)
            .map(|(ticket, item)| (ticket, item.worker, item.plan.is_some() || item.is_lost(now)))
            .collect();
        for (ticket, worker, settles) in late {
            if !std::mem::replace(&mut self.workers[worker].is_late, true) {
                tracing::warn!(worker = worker + 1, "a worker is late: others do its work until it is back");
                self.figures.late.fetch_add(1, Ordering::Relaxed);
            }
            if settles {
                self.settle(ticket, None);
            }
        }
    }

    /// Seals here what lanes wait for, whoever has it: the same plan gives the same bytes, and what comes back later is not looked
    /// at. False if they wait for nothing that can be done here.
    pub(crate) fn take_back_awaited(&mut self) -> bool {
        let awaited: Vec<Ticket> =
            self.order.awaited().filter(|(_, item)| item.plan.is_some()).map(|(ticket, _)| ticket).collect();
        for ticket in &awaited {
            let Some(plan) = self.order.waiting(*ticket).and_then(|item| item.plan.take()) else { continue };
            let mut sealed = self.spare_buffers.pop().unwrap_or_default();
            seal(&plan, &mut sealed);
            if let Some(item) = self.order.finish(*ticket) {
                item.finished = Finished::Sealed { plan, sealed };
                self.figures.by_driver.fetch_add(1, Ordering::Relaxed);
            }
        }
        !awaited.is_empty()
    }

    /// When [`collect`](Self::collect) is to look for workers that are late.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.awaited().map(|(_, item)| item.due_at(&self.workers)).min()
    }

    /// The next batch that may go on, of a lane that `may_go`, with its connection.
    pub(crate) fn take(
        &mut self,
        mut may_go: impl FnMut(&Finished) -> bool,
    ) -> Option<(Lane, Arc<ConnectionCell>, Finished)> {
        let (lane, item) = self.order.take(|_, item| may_go(&item.finished))?;
        Some((lane, item.cell, item.finished))
    }

    // ── Memory that is used again ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn spare_buffer(&mut self) -> Vec<u8> {
        self.spare_buffers.pop().unwrap_or_default()
    }

    pub(crate) fn spare_plan(&mut self) -> Plan {
        self.spare_plans.pop().unwrap_or_default()
    }

    pub(crate) fn spare_open(&mut self) -> Box<OpenJob> {
        self.spare_opens.pop().unwrap_or_default()
    }

    pub(crate) fn keep(&mut self, plan: Arc<Plan>, sealed: Vec<u8>) {
        let max = self.len_max();
        if self.spare_buffers.len() < max {
            self.spare_buffers.push(sealed);
        }
        // A worker that hangs may still look at it.
        if let Ok(mut plan) = Arc::try_unwrap(plan)
            && self.spare_plans.len() < max
        {
            plan.release();
            self.spare_plans.push(plan);
        }
    }

    pub(crate) fn keep_open(&mut self, mut open: Box<OpenJob>) {
        if self.spare_opens.len() < self.len_max() {
            open.clear();
            self.spare_opens.push(open);
        }
    }
}

impl Item {
    /// When something is to be done about it: when its worker is late, or if that is known, when it is given up.
    fn due_at(&self, workers: &[Worker]) -> Instant {
        let is_known = workers.get(self.worker).is_some_and(|worker| worker.is_late);
        let patience = if is_known && self.plan.is_none() { LOST_AFTER } else { LATE_AFTER };
        self.since + patience
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.since + LOST_AFTER <= now
    }
}
