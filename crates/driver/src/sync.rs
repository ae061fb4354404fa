//! Locks that ignore poisoning, and sets of wakers that are woken after the lock is released.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Locks `mutex`, even if another thread panicked while it held the lock. Each change under the
/// locks of a driver is complete or absent, and a driver that ends notifies all handles.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakers of tasks and threads that wait for the same event. The set is bounded by their number,
/// because a waker that is added again replaces itself.
#[derive(Debug, Default)]
pub struct WakerSet(Vec<Waker>);

impl WakerSet {
    /// Adds a waker, unless the set contains it.
    pub fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Moves all wakers out, to be woken after the lock is released.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// Wakes all in the order in which they were added, so that the longest waiter comes first.
    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Stores `waker`, unless `slot` contains an equal one.
pub fn set_waker(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Recorder(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Recorder {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0);
        }
    }

    #[test]
    fn the_one_that_waited_longest_is_woken_first() {
        let order = Arc::default();
        let mut set = WakerSet::default();
        for number in 0..3 {
            set.add(&Waker::from(Arc::new(Recorder(number, Arc::clone(&order)))));
        }
        set.take().wake();
        assert_eq!(*lock(&order), [0, 1, 2]);
    }
}
