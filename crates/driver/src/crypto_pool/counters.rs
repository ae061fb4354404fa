//! Counters of a crypto pool and of path workers.

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
    /// Creates the counters of a pool whose workers have these tallies.
    pub fn new(workers: Vec<Arc<Tally>>) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Returns the current values.
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

/// Statistics of the workers of a crypto pool, or of path workers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WorkerPoolStats {
    /// One entry for each worker.
    pub workers: Vec<WorkerStats>,
    /// Batches that the driver processed itself while others of their flow were in flight. Batches
    /// that did not have to wait are not counted.
    pub batches_by_driver: u64,
    /// Number of times that the driver accepted no further work because too many batches were in
    /// flight.
    pub waits_full: u64,
    /// Batches that the driver processed because their worker was late or had failed.
    pub batches_redone: u64,
    /// Received batches that were lost with a failed worker. The peer retransmits their content.
    pub batches_lost: u64,
    /// Number of times that a worker was late.
    pub workers_late: u64,
    /// The number of workers that have panicked.
    pub workers_gone: u64,
}

/// Statistics of one worker.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Number of batches that it sealed and opened. For a path worker: the batches that it
    /// received, sent, and sealed for the driver.
    pub batches: u64,
    /// Time spent on them. For a path worker: the time in which it did not wait.
    pub busy: Duration,
}
