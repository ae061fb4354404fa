//! The clock of an engine: the system's, or a [`ManualClock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::MonotonicClock;
use units::{Duration, Instant};

/// The clock of an engine. Clones show the same time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The system's monotonic clock.
    System(MonotonicClock),
    /// A clock set by the owner of the engine.
    Manual(ManualClock),
}

impl Clock {
    /// Starts the system's clock at zero.
    pub(crate) fn start() -> Self {
        Self::System(MonotonicClock::start())
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

impl driver::Clock for Clock {
    fn now(&self) -> Instant {
        Self::now(self)
    }
}

/// A clock that is set by its owner, initially to zero. Clones refer to the same clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time that was set last.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time.
    ///
    /// # Panics
    /// If `now` is before the current time: the protocol requires that time does not go backwards.
    pub fn set(&self, now: Instant) {
        let before = self.0.fetch_max(now.as_nanos(), Ordering::Relaxed);
        assert!(before <= now.as_nanos(), "the clock was at {before} ns and is set to {now:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clones_of_a_manual_clock_show_the_time_that_was_set() {
        let clock = ManualClock::new();
        let engine = Clock::Manual(clock.clone());
        assert_eq!((clock.now(), engine.now()), (Instant::ZERO, Instant::ZERO));
        let later = Instant::ZERO + Duration::from_micros(7);
        clock.set(later);
        clock.set(later);
        assert_eq!((clock.now(), engine.clone().now()), (later, later));
    }

    #[test]
    #[should_panic(expected = "the clock was at 2000 ns")]
    fn a_manual_clock_does_not_go_backwards() {
        let clock = ManualClock::new();
        clock.set(Instant::ZERO + Duration::from_micros(2));
        clock.set(Instant::ZERO + Duration::from_micros(1));
    }
}
