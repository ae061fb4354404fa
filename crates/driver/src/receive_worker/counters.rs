//! Counters of a receive worker.

use std::sync::atomic::{AtomicU64, Ordering};

use units::Duration;

/// Counters of one receive worker. The worker and its driver write them; any thread may read them.
#[derive(Debug, Default)]
pub struct ReceiveWorkerCounters {
    pub(super) detached: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) datagrams: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) passed_on: AtomicU64,
    pub(super) reports: AtomicU64,
    pub(super) busy_ns: AtomicU64,
}

/// Statistics of the receive worker of the placement `split`.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ReceiveWorkerStats {
    /// Number of times that the receive half of a connection was detached and passed to the worker.
    pub detached: u64,
    /// Number of times that a receive half was returned and attached again.
    pub returned: u64,
    /// Receive halves that were lost, because they panicked or the worker failed.
    pub lost: u64,
    /// Datagrams that the worker received.
    pub datagrams: u64,
    /// Batches that the worker absorbed.
    pub batches: u64,
    /// Batches that it passed to the driver: batches of connections whose receive half was
    /// attached, and of no connection.
    pub passed_on: u64,
    /// Reports that it sent to the driver.
    pub reports: u64,
    /// Time during which it was awake.
    pub busy: Duration,
}

pub(super) fn add(figure: &AtomicU64, more: u64) {
    figure.fetch_add(more, Ordering::Relaxed);
}

impl ReceiveWorkerCounters {
    /// Returns the current values.
    pub fn read(&self) -> ReceiveWorkerStats {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        ReceiveWorkerStats {
            detached: get(&self.detached),
            returned: get(&self.returned),
            lost: get(&self.lost),
            datagrams: get(&self.datagrams),
            batches: get(&self.batches),
            passed_on: get(&self.passed_on),
            reports: get(&self.reports),
            busy: Duration::from_nanos(get(&self.busy_ns)),
        }
    }
}
