//! A bounded queue between the threads of a transfer that can be closed from either end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A FIFO queue with a fixed capacity. Closing wakes all waiting threads.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// An item was added, or the queue was closed.
    added: Condvar,
    /// An item was taken, or the queue was closed.
    taken: Condvar,
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
            added: Condvar::new(),
            taken: Condvar::new(),
            capacity,
        }
    }

    /// Appends `item`, waiting while the queue is full. Returns false and drops the item if the
    /// queue is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let Some(mut state) = self.wait_for_space() else { return false };
        state.items.push_back(item);
        drop(state);
        self.added.notify_one();
        true
    }

    /// Appends all of `items` once there is space for one: a wakeup for each would cost more than the
    /// items. Returns false and drops them if the queue is closed.
    pub(crate) fn push_all(&self, items: Vec<T>) -> bool {
        let Some(mut state) = self.wait_for_space() else { return false };
        state.items.extend(items);
        drop(state);
        self.added.notify_all();
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
        self.added.notify_one();
        Ok(())
    }

    /// Returns the first item, waiting for one. `None` once the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let empty = |state: &mut QueueState<T>| !state.closed && state.items.is_empty();
        let mut state = self.added.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        self.take_first(&mut state)
    }

    /// Returns the first item, waiting at most `timeout` for one.
    pub(crate) fn pop_timeout(&self, timeout: Duration) -> Popped<T> {
        let empty = |state: &mut QueueState<T>| !state.closed && state.items.is_empty();
        let (mut state, _) =
            self.added.wait_timeout_while(self.lock(), timeout, empty).unwrap_or_else(PoisonError::into_inner);
        match self.take_first(&mut state) {
            Some(item) => Popped::Item(item),
            None if state.closed => Popped::Closed,
            None => Popped::Timeout,
        }
    }

    /// Returns whether the queue is empty at the moment.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    fn take_first(&self, state: &mut QueueState<T>) -> Option<T> {
        let item = state.items.pop_front()?;
        // More than one may fit after `push_all`, so a waiting writer is woken at each step below the
        // capacity.
        if state.items.len() < self.capacity {
            self.taken.notify_one();
        }
        Some(item)
    }

    /// Waits while the queue is full. Returns `None` if it is closed.
    fn wait_for_space(&self) -> Option<MutexGuard<'_, QueueState<T>>> {
        let full = |state: &mut QueueState<T>| !state.closed && state.items.len() >= self.capacity;
        let state = self.taken.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        (!state.closed).then_some(state)
    }

    /// Closes the queue: it accepts no more items. Queued items can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.added.notify_all();
        self.taken.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // A panic elsewhere ends the transfer; the queue's own state is consistent after every
        // statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
