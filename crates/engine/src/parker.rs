//! [`Parker`]: blocks a thread of the application until its waker is called.

use std::cell::OnceCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Wake;

use driver::sync::lock;

use crate::clock::Clock;
use units::Instant;

/// A token that wakers set and the thread waits for. A token set before the wait ends the wait at
/// once, so no wake-up is lost between checking and waiting.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    state: Mutex<ParkState>,
    signal: Condvar,
}

#[derive(Debug, Default)]
struct ParkState {
    token: bool,
    /// Whether the thread sleeps. Signaling costs a system call, and a thread that runs the driver
    /// is often woken while it is awake.
    parked: bool,
}

thread_local! {
    static PARKER: OnceCell<Arc<Parker>> = const { OnceCell::new() };
}

impl Parker {
    /// Returns the parker of the calling thread.
    pub(crate) fn current() -> Arc<Self> {
        PARKER.with(|cell| Arc::clone(cell.get_or_init(Arc::default)))
    }

    /// Waits for a token and takes it. Returns false if `deadline` came first.
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
        // The lock is not held: a thread that is woken on the same processor runs at once. It would
        // find the lock taken, sleep again and be woken a second time. Each thread parks only on
        // its own parker, so no other thread can take the signal.
        if is_parked {
            self.signal.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Waker;

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
                    // Some rounds are in step with the sleeper, others far ahead.
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
}
