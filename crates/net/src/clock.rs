//! The clock of a run.

#![expect(
    clippy::disallowed_types,
    reason = "the only place that reads the clock; other code takes the time as an argument"
)]

use std::time;

use units::Instant;

/// A clock that counts nanoseconds since its start and never goes backwards. Copies show the same
/// time, so every thread can have one.
///
/// On Linux it stops while the machine is suspended (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: time::Instant,
}

impl MonotonicClock {
    /// Creates a clock at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "see above")]
    pub fn start() -> Self {
        Self { start: time::Instant::now() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + units::Duration::from(self.start.elapsed())
    }
}

/// Returns the time since the Unix epoch by the system's clock, which may be set at any time; zero
/// before the epoch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "see above")]
pub fn since_epoch() -> units::Duration {
    time::SystemTime::now().duration_since(time::UNIX_EPOCH).map_or(units::Duration::ZERO, units::Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_forward_and_copies_agree() {
        let clock = MonotonicClock::start();
        let copy = clock;
        let first = clock.now();
        // Bounded, so that a stopped clock fails the test instead of hanging it.
        let moved = (0..100_000_000).find(|_| copy.now() > first);
        assert!(moved.is_some());
        let between = copy.now();
        assert!(clock.now() >= between);
    }
}
