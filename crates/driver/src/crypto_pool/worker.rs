//! The owner's side of a crypto worker, and [`PoolHelper`], through which a path worker helps.
//!
//! A worker that panics ends, and returns the jobs that it has not begun. A worker that hangs keeps
//! its jobs. The owner continues without it, and uses it again after it has returned all of its
//! jobs.

use std::collections::VecDeque;
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

/// Maximum number of jobs of a worker: one that it runs, and enough others for the time until the
/// owner queues more. One receive call takes as long as several jobs: with four the worker was idle
/// a third of the time. A job takes some tens of microseconds, so none waits as long as a
/// millisecond.
pub(crate) const JOBS_MAX: usize = 8;

/// A job with at least this work, in bytes that a fast cipher decrypts in the same time, is long: it
/// takes about 60 µs, ten times as long as it takes to wake a thread.
pub(super) const LONG_JOB_BYTES_MIN: usize = 256 << 10;

/// Maximum number of long jobs ahead of new work in a worker. The driver runs a long job and seals
/// some batches before it offers more: with a maximum of one, workers were idle a quarter of the
/// time, and with zero for batches the driver sealed nearly all of them.
pub(super) const LONG_JOBS_AHEAD_MAX: usize = 2;

/// Amount of work up to which a busy worker gets the next job even if others have none, in bytes
/// that a fast cipher decrypts in the same time. The other workers sleep, and waking one takes the
/// driver as long as planning a batch. This much work takes about 45 µs.
const AWAKE_WORK_MAX: usize = 192 << 10;

/// Number of jobs of any kind below which a path worker gets plans to seal for the driver: enough
/// for the time until the owner queues more. Its own paths have priority.
const HELP_BELOW: usize = 3;

const _: () = assert!(HELP_BELOW <= JOBS_MAX, "a ring has space for what may be in flight");

/// A job and its ticket.
pub(super) struct QueuedJob<P: Protocol> {
    pub(super) ticket: Ticket,
    pub(super) job: PoolJob<P>,
}

/// Outcome of a job.
pub(super) enum JobOutcome<P: Protocol> {
    Done(PoolJob<P>),
    /// The worker ended before it began the job.
    NotBegun(PoolJob<P>),
    /// The worker panicked during the job.
    Broken,
}

/// A job that a worker has returned.
pub(super) struct ReturnedJob<P: Protocol> {
    pub(super) ticket: Ticket,
    pub(super) outcome: JobOutcome<P>,
}

/// Tally of the work of a worker, for statistics.
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

    /// Adds to the tally. There is one writer, so a load and a store suffice.
    pub(crate) fn add_some(&self, jobs: u64, spent: Duration) {
        self.jobs.store(self.jobs.load(Ordering::Relaxed) + jobs, Ordering::Relaxed);
        self.busy_ns.store(self.busy_ns.load(Ordering::Relaxed) + spent.as_nanos(), Ordering::Relaxed);
    }
}

/// The worker's ends of its rings.
struct WorkerRings<P: Protocol> {
    to_do: Consumer<QueuedJob<P>>,
    done: Producer<ReturnedJob<P>>,
}

/// The owner's side of a worker. Dropping it ends the worker.
pub struct CryptoWorker<P: Protocol> {
    jobs: Producer<QueuedJob<P>>,
    returned: Consumer<ReturnedJob<P>>,
    /// Wakes the thread that runs the jobs.
    worker: Waker,
    tally: Arc<Tally>,
    progress: Arc<Progress>,
    /// Maximum number of its jobs and amount of its other work.
    jobs_max: usize,
    /// The amount of its other work.
    pub(super) load: usize,
    /// Work of each of its jobs in order, including jobs whose results were not taken yet.
    in_flight: VecDeque<usize>,
    /// Sum of `in_flight`.
    work_in_flight: usize,
    /// Whether it takes too long for a job; it then gets no others until it has returned all.
    pub(super) is_late: bool,
    /// Whether its thread has ended.
    pub(super) is_gone: bool,
}

/// The path worker's side of the crypto pool. If the worker fails, the job that it has begun is
/// lost with it. The owner takes over the others.
pub struct PoolHelper<P: Protocol> {
    to_do: Consumer<QueuedJob<P>>,
    done: Producer<ReturnedJob<P>>,
}

impl<P: Protocol> PoolHelper<P> {
    pub(crate) fn has_work(&self) -> bool {
        !self.to_do.is_empty()
    }

    /// Runs one job. Returns false if there is none. The caller wakes the owner.
    pub(crate) fn run_one(&mut self) -> bool {
        let Ok(QueuedJob { ticket, mut job }) = self.to_do.pop() else { return false };
        job.run();
        // There is space, because each job came through a ring of the same size. The owner may have
        // ended.
        let _abandoned = self.done.push(ReturnedJob { ticket, outcome: JobOutcome::Done(job) });
        true
    }
}

impl<P: Protocol> CryptoWorker<P> {
    /// Creates a worker with its own thread, and its loop. `owner` wakes the driver, `worker` the
    /// thread that runs the loop.
    pub fn new<C: Clock>(clock: C, owner: Waker, worker: Waker) -> (Self, CryptoWorkerLoop<P, C>) {
        let (crypto_worker, WorkerRings { to_do, done }) = Self::with_rings(worker, JOBS_MAX);
        let (tally, progress) = (Arc::clone(&crypto_worker.tally), Arc::clone(&crypto_worker.progress));
        (crypto_worker, CryptoWorkerLoop::new(clock, owner, to_do, done, tally, progress))
    }

    /// Creates a worker whose jobs a path worker runs in addition to its own work. `worker` wakes
    /// the path worker.
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
            in_flight: VecDeque::with_capacity(jobs_max),
            work_in_flight: 0,
            is_late: false,
            is_gone: false,
        };
        (crypto_worker, WorkerRings { to_do, done })
    }

    /// Returns its counters.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Returns whether it accepts another job.
    pub(super) fn has_space(&self) -> bool {
        !self.is_gone && !self.is_late && self.in_flight.len() + self.load < self.jobs_max
    }

    /// Checks whether its thread has ended without returning its jobs.
    pub(super) fn check_gone(&mut self) {
        self.is_gone |= self.returned.is_abandoned() && self.returned.is_empty();
    }

    /// Returns the work of its jobs, in bytes that a fast cipher decrypts in the same time.
    pub(super) fn work_in_flight(&self) -> usize {
        self.work_in_flight
    }

    /// Returns the number of its long jobs.
    pub(super) fn long_jobs(&self) -> usize {
        self.in_flight.iter().filter(|work| **work >= LONG_JOB_BYTES_MIN).count()
    }

    /// Returns its rank for the next job; the lowest rank gets it. A worker that is awake and has
    /// little work is preferred, then one without work, then the one with the least, and finally
    /// one that has too many long jobs. A worker that has stopped with little work gets more until
    /// it is late.
    pub(super) fn rank(&self) -> (u8, usize) {
        let class = match self.work_in_flight {
            0 => 1,
            1..=AWAKE_WORK_MAX => 0,
            _ if self.long_jobs() > LONG_JOBS_AHEAD_MAX => 3,
            _ => 2,
        };
        (class, self.work_in_flight)
    }

    /// Queues a job.
    ///
    /// # Panics
    /// If it has no space.
    pub(super) fn push_job(&mut self, ticket: Ticket, job: PoolJob<P>) {
        assert!(self.has_space(), "the caller has checked for space");
        let work = job.work_bytes();
        self.in_flight.push_back(work);
        self.work_in_flight += work;
        // Fewer jobs are in flight than the ring holds.
        assert!(self.jobs.push(QueuedJob { ticket, job }).is_ok(), "a ring has space for what may be in flight");
        self.worker.wake_by_ref();
    }

    /// Returns whether it has returned a job.
    pub(super) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Returns the next returned job.
    pub(super) fn take_back(&mut self) -> Option<ReturnedJob<P>> {
        let returned = self.returned.pop().ok()?;
        // Jobs return in order.
        self.work_in_flight -= self.in_flight.pop_front().expect("only what is in flight returns");
        self.is_gone |= !matches!(returned.outcome, JobOutcome::Done(_));
        self.is_late &= !self.in_flight.is_empty();
        Some(returned)
    }
}

impl<P: Protocol> Drop for CryptoWorker<P> {
    fn drop(&mut self) {
        // The worker ends when it finds its ring abandoned.
        let (jobs, _) = RingBuffer::new(1);
        drop(std::mem::replace(&mut self.jobs, jobs));
        if self.is_late {
            self.progress.skip_join();
        }
        self.worker.wake_by_ref();
    }
}
