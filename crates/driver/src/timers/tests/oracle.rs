//! The slow, obvious way: a sorted set.

use std::collections::BTreeSet;

use units::Instant;

/// Deadlines in order, equal ones in the order of `K`; every operation costs the logarithm of their
/// number.
#[derive(Debug)]
pub(crate) struct Sorted<K> {
    order: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Copy> Sorted<K> {
    pub(crate) fn new() -> Self {
        Self { order: BTreeSet::new() }
    }

    /// Replaces the deadline `old` of `key`, which the caller remembers, by `new`.
    pub(crate) fn replace(&mut self, key: K, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.order.remove(&(at, key));
        }
        if let Some(at) = new {
            self.order.insert((at, key));
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes the first key whose deadline has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.order.pop_first().map(|(_, key)| key)
    }
}
