//! The turn of a crypto worker: it takes jobs from one ring, runs them, and puts them into another.

use std::sync::Arc;
use std::task::Waker;

use rtrb::{Consumer, Producer};
use units::Instant;

use super::worker::{JobOutcome, QueuedJob, ReturnedJob, Tally};
use crate::env::Clock;
use crate::protocol::Protocol;
use crate::worker::{Progress, WorkerLoop};

/// The worker's side.
pub struct CryptoWorkerLoop<P: Protocol, C> {
    clock: C,
    owner: Waker,
    to_do: Consumer<QueuedJob<P>>,
    done: Producer<ReturnedJob<P>>,
    tally: Arc<Tally>,
    progress: Arc<Progress>,
    /// The current job and the time at which it began. It is stored here so that it is known after
    /// a panic.
    running: Option<(QueuedJob<P>, Instant)>,
}

impl<P: Protocol, C: Clock> CryptoWorkerLoop<P, C> {
    pub(super) fn new(
        clock: C,
        owner: Waker,
        to_do: Consumer<QueuedJob<P>>,
        done: Producer<ReturnedJob<P>>,
        tally: Arc<Tally>,
        progress: Arc<Progress>,
    ) -> Self {
        Self { clock, owner, to_do, done, tally, progress, running: None }
    }

    /// Takes the current job and records it in the tally.
    fn end_job(&mut self) -> Option<QueuedJob<P>> {
        let (queued, begun) = self.running.take()?;
        self.tally.add_some(1, self.clock.now().saturating_since(begun));
        Some(queued)
    }

    fn return_job(&mut self, returned: ReturnedJob<P>) {
        // There is space, because each job came through a ring of the same size. The owner may have
        // ended.
        let _abandoned = self.done.push(returned);
        self.owner.wake_by_ref();
    }
}

impl<P: Protocol, C: Clock> WorkerLoop for CryptoWorkerLoop<P, C> {
    fn turn(&mut self) {
        while let Ok(queued) = self.to_do.pop() {
            let (queued, _) = self.running.insert((queued, self.clock.now()));
            queued.job.run();
            if let Some(QueuedJob { ticket, job }) = self.end_job() {
                self.return_job(ReturnedJob { ticket, outcome: JobOutcome::Done(job) });
            }
        }
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        (!self.to_do.is_empty()).then_some(now)
    }

    fn is_abandoned(&self) -> bool {
        self.to_do.is_abandoned()
    }

    fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns all jobs and ends. Other workers take over its work.
    fn recover(&mut self) -> bool {
        if let Some(QueuedJob { ticket, job }) = self.end_job() {
            self.return_job(ReturnedJob { ticket, outcome: JobOutcome::Broken });
            drop(job);
        }
        while let Ok(QueuedJob { ticket, job }) = self.to_do.pop() {
            self.return_job(ReturnedJob { ticket, outcome: JobOutcome::NotBegun(job) });
        }
        false
    }
}
