//! The sizes of buffers, which grow with use, and the budget that limits all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes by which the buffers of all connections together may exceed their initial sizes. Connections
/// share it through their configuration. Without budget left, a buffer keeps its size, so a connection
/// becomes no faster, and works.
#[derive(Debug)]
pub struct BufferBudget {
    limit: u64,
    taken: AtomicU64,
}

impl BufferBudget {
    /// A budget of `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self { limit, taken: AtomicU64::new(0) }
    }

    /// Bytes that buffers have taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes `wanted` bytes, or what is left.
    fn take(&self, wanted: u64) -> u64 {
        let granted = |taken: u64| wanted.min(self.limit.saturating_sub(taken));
        let add = |taken: u64| Some(taken + granted(taken));
        // It counts and orders nothing else.
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) | Err(before) => granted(before),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The size of one buffer: between its initial and its largest size, and within the budget.
#[derive(Debug)]
pub(crate) struct BufferSize {
    bytes: u64,
    initial: u64,
    max: u64,
    budget: Arc<BufferBudget>,
}

impl BufferSize {
    pub(crate) fn new(initial: usize, max: usize, budget: &Arc<BufferBudget>) -> Self {
        let initial = initial.min(max) as u64;
        Self { bytes: initial, initial, max: max as u64, budget: Arc::clone(budget) }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows to `wanted` bytes, as far as it may. True if it has grown.
    pub(crate) fn grow_to(&mut self, wanted: u64) -> bool {
        let more = wanted.min(self.max).saturating_sub(self.bytes);
        let granted = if more > 0 { self.budget.take(more) } else { 0 };
        self.bytes += granted;
        granted > 0
    }

    /// Has its initial size again.
    pub(crate) fn shrink(&mut self) {
        let grown = self.bytes - self.initial;
        if grown > 0 {
            self.bytes = self.initial;
            self.budget.give_back(grown);
        }
    }
}

impl Drop for BufferSize {
    fn drop(&mut self) {
        self.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_within_their_limits_and_the_budget_and_give_it_back() {
        let budget = Arc::new(BufferBudget::new(1000));
        let mut one = BufferSize::new(100, 800, &budget);
        let mut other = BufferSize::new(5000, 600, &budget);
        assert_eq!((one.bytes(), other.bytes()), (100, 600));
        assert!(one.grow_to(5000) && !one.grow_to(5000) && !one.grow_to(3));
        assert_eq!((one.bytes(), budget.taken()), (800, 700));
        assert!(!other.grow_to(700));
        let mut third = BufferSize::new(100, 5000, &budget);
        assert!(third.grow_to(5000), "what is left");
        assert_eq!((third.bytes(), budget.taken()), (400, 1000));
        assert!(!third.grow_to(5000));
        one.shrink();
        assert_eq!((one.bytes(), budget.taken()), (100, 300));
        drop(third);
        assert_eq!(budget.taken(), 0);
    }
}
