//! Waking the processor that runs the driver.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use crate::asleep::Asleep;

/// Ends the driver's sleep. While the driver is awake, waking it costs one atomic operation and no system call.
///
/// Whoever has work for the driver publishes the work first and wakes second; the driver announces its sleep first and
/// looks for work second: see [`Asleep`].
#[derive(Debug)]
pub(crate) struct EngineWaker {
    waker: mio::Waker,
    asleep: Asleep,
}

impl EngineWaker {
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Self { waker, asleep: Asleep::default() }
    }

    /// Work was published.
    pub(crate) fn wake(&self) {
        if self.asleep.take()
            && let Err(error) = self.waker.wake()
        {
            // An eventfd refuses only what cannot happen here; the driver would still wake for its next timer.
            tracing::error!(%error, "cannot wake the engine");
        }
    }

    /// The driver is about to sleep and will look for work once more.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.announce();
    }

    pub(crate) fn announce_awake(&self) {
        self.asleep.withdraw();
    }
}

/// Wakes the driver for a socket that has no descriptor, and remembers that something arrived there.
#[derive(Debug)]
pub(crate) struct ArrivalWaker {
    engine: Arc<EngineWaker>,
    arrived: AtomicBool,
}

impl ArrivalWaker {
    pub(crate) fn new(engine: Arc<EngineWaker>) -> Self {
        Self { engine, arrived: AtomicBool::new(false) }
    }

    /// Whether something arrived that [`take`](Self::take) has not told of.
    pub(crate) fn has_some(&self) -> bool {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Whether something arrived since the last call.
    pub(crate) fn take(&self) -> bool {
        // The plain load keeps the line shared while nothing arrives.
        self.arrived.load(Ordering::SeqCst) && self.arrived.swap(false, Ordering::SeqCst)
    }
}

impl Wake for ArrivalWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.arrived.store(true, Ordering::SeqCst);
        self.engine.wake();
    }
}

/// The pair of a poll and the waker registered with it.
pub(crate) fn poll_and_waker(token: mio::Token) -> io::Result<(mio::Poll, EngineWaker)> {
    let poll = mio::Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), token)?;
    Ok((poll, EngineWaker::new(waker)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_wake_up_is_lost_between_looking_and_sleeping() {
        const ROUNDS: u64 = 20_000;
        let (mut poll, waker) = poll_and_waker(mio::Token(0)).unwrap();
        let (published, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    published.store(round, Ordering::SeqCst);
                    waker.wake();
                    // Sometimes in step with the sleeper, sometimes far ahead.
                    while round % 3 == 0 && seen.load(Ordering::SeqCst) < round {
                        std::hint::spin_loop();
                    }
                }
            });
            let mut events = mio::Events::with_capacity(4);
            while seen.load(Ordering::SeqCst) < ROUNDS {
                waker.announce_sleep();
                let now = published.load(Ordering::SeqCst);
                if now == seen.swap(now, Ordering::SeqCst) && now < ROUNDS {
                    poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
                    assert!(!events.is_empty(), "slept through round {} of {now}", now + 1);
                }
                waker.announce_awake();
            }
        });
    }
}
