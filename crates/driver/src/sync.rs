//! Locks, and sets of wakers that are woken once no lock is held.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Locks, also after a panic elsewhere: every change under a driver's locks is complete or absent,
/// and a driver that dies tells all who wait.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those who wait for the same thing. Bounded by the threads and tasks that wait; one that waits
/// again replaces itself.
#[derive(Debug, Default)]
pub struct WakerSet(Vec<Waker>);

impl WakerSet {
    /// Adds one, unless it is in the set already.
    pub fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Moves all of them out, to be woken once the lock is released.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// Wakes them all in the order in which they came: several that wait for one thing get it in
    /// turn.
    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Replaces the waker, if it is another one than before.
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

    struct Note(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0);
        }
    }

    #[test]
    fn the_one_that_waited_longest_is_woken_first() {
        let order = Arc::default();
        let mut set = WakerSet::default();
        for number in 0..3 {
            set.add(&Waker::from(Arc::new(Note(number, Arc::clone(&order)))));
        }
        set.take().wake();
        assert_eq!(*lock(&order), [0, 1, 2]);
    }
}
