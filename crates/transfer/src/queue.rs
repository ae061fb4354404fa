//! A bounded queue between the threads of a transfer that can be closed from either end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A FIFO queue with a fixed capacity. Closing wakes all waiting threads.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
    capacity: usize,
}

struct QueueState<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// The result of waiting for an item.
pub(crate) enum Popped<T> {
    Item(T),
    /// No item arrived in time.
    Timeout,
    /// The queue is closed and empty.
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "the capacity must be positive");
        Self {
            state: Mutex::new(QueueState { items: VecDeque::new(), closed: false }),
            changed: Condvar::new(),
            capacity,
        }
    }

    /// Appends `item`, waiting while the queue is full. Returns false and drops the item if the
    /// queue is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let full = |state: &mut QueueState<T>| !state.closed && state.items.len() >= self.capacity;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        self.changed.notify_all();
        true
    }

    /// Appends `item`, or returns it if the queue is full.
    #[cfg(test)]
    pub(crate) fn try_push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed || state.items.len() >= self.capacity {
            return Err(item);
        }
        state.items.push_back(item);
        self.changed.notify_all();
        Ok(())
    }

    /// The first item, waiting for one. `None` once the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let empty = |state: &mut QueueState<T>| !state.closed && state.items.is_empty();
        let mut state = self.changed.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
        state.items.pop_front()
    }

    /// The first item, waiting at most `timeout` for one.
    pub(crate) fn pop_timeout(&self, timeout: Duration) -> Popped<T> {
        let empty = |state: &mut QueueState<T>| !state.closed && state.items.is_empty();
        let (mut state, _) =
            self.changed.wait_timeout_while(self.lock(), timeout, empty).unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
        match state.items.pop_front() {
            Some(item) => Popped::Item(item),
            None if state.closed => Popped::Closed,
            None => Popped::Timeout,
        }
    }

    /// Closes the queue: it accepts no more items. Queued items can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // A panic elsewhere ends the transfer; the queue's own state is consistent after every
        // statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
