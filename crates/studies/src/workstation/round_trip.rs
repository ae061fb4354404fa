//! The estimate of a connection's round trip, and the timeout that follows from it (RFC 793).

use std::cell::Cell;

use units::Duration;

use super::config::Timer;

/// The timeout of a connection without measurements. Longer than any round trip here.
pub(super) const FIRST_TIMEOUT: Duration = Duration::from_millis(100);

/// The round-trip estimate of a connection.
#[derive(Default)]
pub(super) struct RoundTrip {
    smoothed_us: Cell<Option<f64>>,
}

impl RoundTrip {
    /// Adds a round trip, measured from the first transmission of a packet: the RFC does not
    /// distinguish which transmission was acknowledged.
    pub(super) fn measure(&self, round_trip_us: f64, alpha: f64) {
        let smoothed = |old: f64| (1.0 - alpha) * round_trip_us + alpha * old;
        self.smoothed_us.set(Some(self.smoothed_us.get().map_or(round_trip_us, smoothed)));
    }

    /// Returns the timeout of a packet sent now, in microseconds. `None` without a measurement.
    pub(super) fn timeout_us(&self, beta: f64) -> Option<f64> {
        self.smoothed_us.get().map(|smoothed| beta * smoothed)
    }

    /// Returns the timeout of a packet sent now.
    pub(super) fn timeout(&self, timer: Timer) -> Duration {
        let of_us = |timeout_us: f64| Duration::from_nanos((timeout_us * 1e3).round() as u64);
        self.timeout_us(timer.beta).map_or(FIRST_TIMEOUT, of_us).max(timer.minimum)
    }
}
