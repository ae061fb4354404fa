//! The user's rate limit as in XTP: a burst of bytes whose credit is restored when the refresh
//! timer expires.

use sim::Sim;
use units::{Duration, Instant};

/// The parameters that the user sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RateLimit {
    /// Bytes that may be sent at once.
    pub(super) burst_bytes: u64,
    /// Mean rate in bytes per second.
    pub(super) rate_bytes_per_second: u64,
    /// Whether a frame is cut at the end of the burst; otherwise it waits until all of it fits.
    pub(super) cuts_frames: bool,
}

/// The state of a limit.
pub(super) struct Limiter {
    sim: Sim,
    limit: Option<RateLimit>,
    credit_bytes: u64,
    refresh_at: Instant,
}

impl RateLimit {
    /// Returns the time between two refreshes.
    fn period(&self) -> Duration {
        Duration::from_secs(1).mul_ratio(self.burst_bytes, self.rate_bytes_per_second)
    }
}

impl Limiter {
    /// Creates a limiter with a full burst. Without a limit it never waits.
    pub(super) fn new(sim: &Sim, limit: Option<RateLimit>) -> Self {
        let credit_bytes = limit.map_or(u64::MAX, |limit| limit.burst_bytes);
        Self { sim: sim.clone(), limit, credit_bytes, refresh_at: Instant::ZERO }
    }

    /// Waits until some of `wanted` bytes may be sent and returns their number: all, or the rest of
    /// the burst if frames are cut.
    pub(super) async fn take(&mut self, wanted: u64) -> u64 {
        let Some(limit) = self.limit else { return wanted };
        // A frame longer than a burst is sent alone.
        let needed = if limit.cuts_frames { 1 } else { wanted.min(limit.burst_bytes) };
        loop {
            let now = self.sim.now();
            // The timer starts with the first byte of a burst, so idle time is not accumulated.
            if now >= self.refresh_at && self.credit_bytes < limit.burst_bytes {
                self.credit_bytes = limit.burst_bytes;
            }
            if self.credit_bytes >= needed {
                if self.credit_bytes == limit.burst_bytes {
                    self.refresh_at = now.max(self.refresh_at) + limit.period();
                }
                let granted = if limit.cuts_frames { wanted.min(self.credit_bytes) } else { wanted };
                self.credit_bytes = self.credit_bytes.saturating_sub(granted);
                return granted;
            }
            self.sim.sleep_until(self.refresh_at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use sim::Simulation;

    use super::*;

    /// Returns the departure times in milliseconds and the sizes of messages of `sizes` bytes.
    fn departures(limit: RateLimit, sizes: &'static [u64]) -> Vec<(u64, u64)> {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let log = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&log);
        simulation.spawn(async move {
            let mut limiter = Limiter::new(&sim, Some(limit));
            for &size in sizes {
                let granted = limiter.take(size).await;
                seen.borrow_mut().push((sim.now().as_nanos() / 1_000_000, granted));
            }
        });
        simulation.run();
        log.take()
    }

    #[test]
    fn a_burst_is_sent_at_once_and_the_next_one_waits_for_the_timer() {
        let limit = RateLimit { burst_bytes: 1000, rate_bytes_per_second: 100_000, cuts_frames: true };
        let sent = departures(limit, &[600, 600, 600, 600]);
        assert_eq!(sent, [(0, 600), (0, 400), (10, 600), (10, 400)]);
    }

    #[test]
    fn a_whole_frame_waits_until_it_fits() {
        let limit = RateLimit { burst_bytes: 1000, rate_bytes_per_second: 100_000, cuts_frames: false };
        assert_eq!(departures(limit, &[600, 600, 400, 400]), [(0, 600), (10, 600), (10, 400), (20, 400)]);
        assert_eq!(departures(limit, &[3000, 1]), [(0, 3000), (10, 1)]);
    }
}
