//! Wakers of threads that sleep in a poll, and of sockets without a descriptor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use crate::sleep_flag::SleepFlag;

/// Ends the sleep of the thread that waits in a [`Sleeper`](crate::sleep::Sleeper). While that
/// thread is awake, waking it costs one atomic operation and no system call.
///
/// The waker publishes its work first and wakes second. The thread announces its sleep first and
/// checks for work second. See [`SleepFlag`]. Only the sleeper holds this type; others hold a
/// [`Waker`] made from it.
#[derive(Debug)]
pub(crate) struct EngineWaker {
    waker: mio::Waker,
    flag: SleepFlag,
}

impl EngineWaker {
    /// Announces that the thread is about to sleep and will check for work once more.
    pub(crate) fn announce_sleep(&self) {
        self.flag.announce();
    }

    /// Announces that the thread is awake.
    pub(crate) fn announce_awake(&self) {
        self.flag.withdraw();
    }
}

impl Wake for EngineWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.flag.take()
            && let Err(error) = self.waker.wake()
        {
            // Writing to an eventfd does not fail here. If it did, the thread would still wake for
            // its next deadline.
            tracing::error!(%error, "cannot wake an engine thread");
        }
    }
}

/// Wakes a thread for a socket that has no descriptor, and remembers that a datagram arrived there.
#[derive(Debug)]
pub(crate) struct ArrivalWaker {
    thread: Waker,
    arrived: AtomicBool,
}

impl ArrivalWaker {
    pub(crate) fn new(thread: Waker) -> Self {
        Self { thread, arrived: AtomicBool::new(false) }
    }

    /// Returns whether a datagram arrived since the last [`take`](Self::take).
    pub(crate) fn has_some(&self) -> bool {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Queries like [`has_some`](Self::has_some), and resets the arrival.
    pub(crate) fn take(&self) -> bool {
        // The plain load keeps the cache line shared while nothing arrives.
        self.arrived.load(Ordering::SeqCst) && self.arrived.swap(false, Ordering::SeqCst)
    }
}

impl Wake for ArrivalWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.arrived.store(true, Ordering::SeqCst);
        self.thread.wake_by_ref();
    }
}

/// Returns a poll and the waker registered with it.
pub(crate) fn poll_and_waker(token: mio::Token) -> io::Result<(mio::Poll, Arc<EngineWaker>)> {
    let poll = mio::Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), token)?;
    Ok((poll, Arc::new(EngineWaker { waker, flag: SleepFlag::default() })))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_wake_up_is_lost_between_looking_and_sleeping() {
        const ROUNDS: u64 = 20_000;
        let (mut poll, sleeping) = poll_and_waker(mio::Token(0)).unwrap();
        let waker = Waker::from(Arc::clone(&sleeping));
        let (published, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    published.store(round, Ordering::SeqCst);
                    waker.wake_by_ref();
                    // Some rounds are in step with the sleeper, others far ahead.
                    while round % 3 == 0 && seen.load(Ordering::SeqCst) < round {
                        std::hint::spin_loop();
                    }
                }
            });
            let mut events = mio::Events::with_capacity(4);
            while seen.load(Ordering::SeqCst) < ROUNDS {
                sleeping.announce_sleep();
                let now = published.load(Ordering::SeqCst);
                if now == seen.swap(now, Ordering::SeqCst) && now < ROUNDS {
                    poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
                    assert!(!events.is_empty(), "slept through round {} of {now}", now + 1);
                }
                sleeping.announce_awake();
            }
        });
    }
}
