//! Locks and parked threads.

use std::cell::OnceCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::clock::Clock;
use units::Instant;

/// Locks, also after a panic elsewhere: every change under our locks is complete or absent, and the engine tells all who
/// wait when it dies.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread waits on: a token that any waker of it leaves. A token left before the wait ends the wait at once, so no
/// wake-up is lost between looking and waiting.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Mutex<ParkState>,
    signal: Condvar,
}

#[derive(Debug, Default)]
struct ParkState {
    token: bool,
    /// The thread sleeps. Signalling costs a system call, and a thread that runs the driver itself is often woken awake.
    parked: bool,
}

thread_local! {
    static PARKER: OnceCell<Arc<Parker>> = const { OnceCell::new() };
}

impl Parker {
    /// The calling thread's own.
    pub(crate) fn current() -> Arc<Self> {
        PARKER.with(|cell| Arc::clone(cell.get_or_init(Arc::default)))
    }

    /// Waits for a token and takes it. False if `deadline` came first.
    pub(crate) fn park(&self, clock: &Clock, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        state.parked = true;
        while !state.token {
            let Some(deadline) = deadline else {
                state = self.signal.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_since(clock.now());
            if left.is_zero() {
                break;
            }
            state = self.signal.wait_timeout(state, left.into()).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.parked = false;
        std::mem::take(&mut state.token)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_parked = {
            let mut state = lock(&self.state);
            state.token = true;
            state.parked
        };
        // With the lock released: a thread that is woken on the processor of its waker runs at once, and would find it taken, sleep
        // again and be woken a second time. A thread parks on its own parker alone, so nobody else can take the signal.
        if is_parked {
            self.signal.notify_one();
        }
    }
}

/// Those who wait for the same thing. Bounded by the threads and tasks that wait; one that waits again replaces itself.
#[derive(Debug, Default)]
pub(crate) struct WakerSet(Vec<Waker>);

impl WakerSet {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Hands them over, to be woken once the lock is released.
    #[must_use]
    pub(crate) fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// Wakes them all, who came first first: several that wait for one thing have it in turn.
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Replaces the one who waits, if it is another one than before.
pub(crate) fn set_waker(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use units::Duration;

    use super::*;

    #[test]
    fn no_wake_up_is_lost_between_looking_and_parking() {
        const ROUNDS: u64 = 20_000;
        let (clock, parker) = (Clock::start(), Arc::new(Parker::default()));
        let (published, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waker = Waker::from(Arc::clone(&parker));
                for round in 1..=ROUNDS {
                    published.store(round, Ordering::SeqCst);
                    waker.wake_by_ref();
                    // Sometimes in step with the sleeper, sometimes far ahead.
                    while round % 3 == 0 && seen.load(Ordering::SeqCst) < round {
                        std::thread::yield_now();
                    }
                }
            });
            while seen.load(Ordering::SeqCst) < ROUNDS {
                let now = published.load(Ordering::SeqCst);
                if now == seen.swap(now, Ordering::SeqCst) && now < ROUNDS {
                    let deadline = clock.now() + Duration::from_secs(20);
                    assert!(parker.park(&clock, Some(deadline)), "slept through round {} of {ROUNDS}", now + 1);
                }
            }
        });
    }

    struct Turn(u32, Arc<std::sync::Mutex<Vec<u32>>>);

    impl Wake for Turn {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0);
        }
    }

    #[test]
    fn who_waits_longest_is_woken_first() {
        let order = Arc::default();
        let mut set = WakerSet::default();
        for number in 0..3 {
            set.add(&Waker::from(Arc::new(Turn(number, Arc::clone(&order)))));
        }
        set.take().wake();
        assert_eq!(*lock(&order), [0, 1, 2]);
    }
}
