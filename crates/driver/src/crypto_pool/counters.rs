//! What a crypto pool did, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::Duration;

use super::worker::Tally;

/// Counters of one pool: written by its driver and its workers, read by any thread.
#[derive(Debug, Default)]
pub struct PoolCounters {
    workers: Vec<Arc<Tally>>,
    pub(super) by_driver: AtomicU64,
    pub(super) full: AtomicU64,
    pub(super) redone: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) gone: AtomicU64,
}

impl PoolCounters {
    /// Counters of a pool of workers with these tallies.
    pub fn new(workers: Vec<Arc<Tally>>) -> Self {
        Self { workers, ..Self::default() }
    }

    /// What was counted so far.
    pub fn read(&self) -> WorkerPoolStats {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let worker = |tally: &Arc<Tally>| {
            let (batches, busy) = tally.read();
            WorkerStats { batches, busy }
        };
        WorkerPoolStats {
            workers: self.workers.iter().map(worker).collect(),
            batches_by_driver: get(&self.by_driver),
            waits_full: get(&self.full),
            batches_redone: get(&self.redone),
            batches_lost: get(&self.lost),
            workers_late: get(&self.late),
            workers_gone: get(&self.gone),
        }
    }
}

/// What the workers of a crypto pool did, or path workers.
#[derive(Debug, Clone, Default)]
pub struct WorkerPoolStats {
    /// One entry for each worker.
    pub workers: Vec<WorkerStats>,
    /// Batches that the driver did itself while others of their path were under way; those that did
    /// not have to wait are not counted.
    pub batches_by_driver: u64,
    /// Times the driver took in no more because too many batches were under way.
    pub waits_full: u64,
    /// Batches done by the driver because their worker was late or gone.
    pub batches_redone: u64,
    /// Received batches that were lost with a worker. The peer sends their contents again.
    pub batches_lost: u64,
    /// Times a worker was late.
    pub workers_late: u64,
    /// Workers that have panicked.
    pub workers_gone: u64,
}

/// What one worker did.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerStats {
    /// Batches sealed and opened; of a path worker, those it received, sent, and sealed for the
    /// driver.
    pub batches: u64,
    /// Time spent on them; of a path worker, all that it does not spend waiting.
    pub busy: Duration,
}
