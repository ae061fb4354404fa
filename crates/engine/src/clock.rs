//! Where an engine's time comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::MonotonicClock;
use units::{Duration, Instant};

/// The clock of an engine. Clones agree with each other.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The system's.
    System(MonotonicClock),
    /// Somebody else's.
    Manual(ManualClock),
}

impl Clock {
    /// The system's, at zero.
    pub(crate) fn start() -> Self {
        Self::System(MonotonicClock::start())
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// A clock that stands still until it is set, at zero to begin with. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// At zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time that it was set to last.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// It is `now` from now on.
    ///
    /// # Panics
    /// If that is in its past: the protocol is promised that time does not go backwards.
    pub fn set(&self, now: Instant) {
        let before = self.0.fetch_max(now.as_nanos(), Ordering::Relaxed);
        assert!(before <= now.as_nanos(), "the clock was at {before} ns and is set to {now:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_set_and_all_its_clones_with_it() {
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
