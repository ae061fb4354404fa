//! A worker of the crypto pool, as its owner sees it, and the end at which a path worker helps.
//!
//! A worker that panics is gone, and gives back the jobs it has not begun. One that hangs keeps
//! what it has; its owner does without, and uses it again once it has given everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use rtrb::{Consumer, Producer, RingBuffer};
use units::Duration;

use super::job::PoolJob;
use super::order::Ticket;
use super::turn::CryptoWorkerLoop;
use crate::env::Clock;
use crate::protocol::Protocol;
use crate::worker::Progress;

/// Batches a worker has at a time, at most: one that it works on, and enough beside it to bridge
/// what its owner does meanwhile. A batch takes a worker some tens of microseconds, so no job waits
/// for as long as a millisecond.
pub(crate) const JOBS_MAX: usize = 4;

/// A path worker is given batches to seal for others only while it has less than so many of any
/// kind: enough to bridge what its owner does meanwhile, and no more, because its own paths come
/// first.
const HELP_BELOW: usize = 3;

const _: () = assert!(HELP_BELOW <= JOBS_MAX, "a ring has room for what may be in flight");

/// A job with its place in the order.
pub(super) struct QueuedJob<P: Protocol> {
    pub(super) ticket: Ticket,
    pub(super) job: PoolJob<P>,
}

/// What became of a job.
pub(super) enum JobOutcome<P: Protocol> {
    Done(PoolJob<P>),
    /// It was not begun: the worker is gone.
    NotBegun(PoolJob<P>),
    /// It was begun and not finished: the worker is gone.
    Broken,
}

/// A job that came back.
pub(super) struct ReturnedJob<P: Protocol> {
    pub(super) ticket: Ticket,
    pub(super) outcome: JobOutcome<P>,
}

/// What a worker has done, for statistics.
#[derive(Debug, Default)]
pub struct Tally {
    jobs: AtomicU64,
    busy_ns: AtomicU64,
}

impl Tally {
    pub(super) fn read(&self) -> (u64, Duration) {
        let busy = Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed));
        (self.jobs.load(Ordering::Relaxed), busy)
    }

    /// One writer: a load and a store do.
    pub(crate) fn add_some(&self, jobs: u64, spent: Duration) {
        self.jobs.store(self.jobs.load(Ordering::Relaxed) + jobs, Ordering::Relaxed);
        self.busy_ns.store(self.busy_ns.load(Ordering::Relaxed) + spent.as_nanos(), Ordering::Relaxed);
    }
}

/// The rings that lead to a worker.
struct WorkerRings<P: Protocol> {
    to_do: Consumer<QueuedJob<P>>,
    done: Producer<ReturnedJob<P>>,
}

/// A worker as its owner sees it. Dropping it ends the worker.
pub struct CryptoWorker<P: Protocol> {
    jobs: Producer<QueuedJob<P>>,
    returned: Consumer<ReturnedJob<P>>,
    /// Wakes the thread that does the jobs.
    worker: Waker,
    tally: Arc<Tally>,
    progress: Arc<Progress>,
    /// Batches it may have at a time, and how many other things it has to do.
    jobs_max: usize,
    pub(super) load: usize,
    /// Jobs it has, those included that came back and were not looked at.
    in_flight: usize,
    /// It takes too long over something: gets nothing more until it has given everything back.
    pub(super) is_late: bool,
    /// Its thread has ended.
    pub(super) is_gone: bool,
}

/// The end at which a path worker finds work of the driver's. If it dies, so does the job it has
/// begun; the owner does the rest.
pub struct PoolHelper<P: Protocol> {
    to_do: Consumer<QueuedJob<P>>,
    done: Producer<ReturnedJob<P>>,
}

impl<P: Protocol> PoolHelper<P> {
    pub(crate) fn has_work(&self) -> bool {
        !self.to_do.is_empty()
    }

    /// Does one job; false if there is none. The owner is to be woken.
    pub(crate) fn run_one(&mut self) -> bool {
        let Ok(QueuedJob { ticket, mut job }) = self.to_do.pop() else { return false };
        job.run();
        // Every job came by a ring of the same size. The owner may be gone.
        let _abandoned = self.done.push(ReturnedJob { ticket, outcome: JobOutcome::Done(job) });
        true
    }
}

impl<P: Protocol> CryptoWorker<P> {
    /// One with a thread of its own, and its turns. `owner` wakes the driver, `worker` the thread
    /// that does the turns.
    pub fn new<C: Clock>(clock: C, owner: Waker, worker: Waker) -> (Self, CryptoWorkerLoop<P, C>) {
        let (crypto_worker, WorkerRings { to_do, done }) = Self::with_rings(worker, JOBS_MAX);
        let (tally, progress) = (Arc::clone(&crypto_worker.tally), Arc::clone(&crypto_worker.progress));
        (crypto_worker, CryptoWorkerLoop::new(clock, owner, to_do, done, tally, progress))
    }

    /// One whose jobs a path worker does beside its own work: `worker` wakes that.
    pub fn helped_by(worker: Waker) -> (Self, PoolHelper<P>) {
        let (crypto_worker, WorkerRings { to_do, done }) = Self::with_rings(worker, HELP_BELOW);
        (crypto_worker, PoolHelper { to_do, done })
    }

    fn with_rings(worker: Waker, jobs_max: usize) -> (Self, WorkerRings<P>) {
        let (jobs, to_do) = RingBuffer::new(JOBS_MAX);
        let (done, returned) = RingBuffer::new(JOBS_MAX);
        let crypto_worker = Self {
            jobs,
            returned,
            worker,
            tally: Arc::default(),
            progress: Arc::default(),
            jobs_max,
            load: 0,
            in_flight: 0,
            is_late: false,
            is_gone: false,
        };
        (crypto_worker, WorkerRings { to_do, done })
    }

    /// What it did, counted.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Whether it takes another job.
    pub(super) fn has_room(&self) -> bool {
        !self.is_gone && !self.is_late && self.in_flight + self.load < self.jobs_max
    }

    /// Notices that it is gone, if it did not say so.
    pub(super) fn check_gone(&mut self) {
        self.is_gone |= self.returned.is_abandoned() && self.returned.is_empty();
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Gives it a job.
    ///
    /// # Panics
    /// If it has no room.
    pub(super) fn push_job(&mut self, ticket: Ticket, job: PoolJob<P>) {
        assert!(self.has_room(), "the caller has asked");
        self.in_flight += 1;
        // In flight are fewer than the ring holds.
        assert!(self.jobs.push(QueuedJob { ticket, job }).is_ok(), "a ring has room for what may be in flight");
        self.worker.wake_by_ref();
    }

    /// Whether something came back.
    pub(super) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The next job that came back.
    pub(super) fn take_back(&mut self) -> Option<ReturnedJob<P>> {
        let returned = self.returned.pop().ok()?;
        self.in_flight -= 1;
        self.is_gone |= !matches!(returned.outcome, JobOutcome::Done(_));
        self.is_late &= self.in_flight > 0;
        Some(returned)
    }
}

impl<P: Protocol> Drop for CryptoWorker<P> {
    fn drop(&mut self) {
        // The worker sees that its ring is abandoned.
        let (jobs, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.jobs, jobs));
        if self.is_late {
            self.progress.skip_join();
        }
        self.worker.wake_by_ref();
    }
}
