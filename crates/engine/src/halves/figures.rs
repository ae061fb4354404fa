//! What a receiver did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use units::Duration;

/// Counters of one receiver: written by it and by its driver, read by anybody.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(super) departed: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) datagrams: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) passed_on: AtomicU64,
    pub(super) reports: AtomicU64,
    pub(super) busy_ns: AtomicU64,
}

/// What the receiver of the placement [`Split`](crate::Placement::Split) did.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitStats {
    /// Times a connection gave its receive half to the receiver.
    pub departed: u64,
    /// Times one came back.
    pub returned: u64,
    /// Receive halves that were lost: they broke, or the receiver died.
    pub lost: u64,
    /// Datagrams the receiver received.
    pub datagrams: u64,
    /// Batches the receiver absorbed.
    pub batches: u64,
    /// Batches it left to the driver: those of connections that were whole, and of nobody.
    pub passed_on: u64,
    /// Times it told the driver what it had found out.
    pub reports: u64,
    /// Time it was not asleep.
    pub busy: Duration,
}

pub(super) fn add(figure: &AtomicU64, more: u64) {
    figure.fetch_add(more, Ordering::Relaxed);
}

impl Figures {
    pub(crate) fn read(&self) -> SplitStats {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        SplitStats {
            departed: get(&self.departed),
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
