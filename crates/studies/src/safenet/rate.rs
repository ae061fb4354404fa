//! The user's limit, as XTP has it: so many bytes at once; what is used up comes back when the refresh timer runs out.

use sim::Sim;
use units::{Duration, Instant};

/// What the user sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RateLimit {
    /// Bytes that may leave at once.
    pub(super) burst_bytes: u64,
    /// Bytes a second on average.
    pub(super) rate_bytes_per_second: u64,
    /// Whether a frame is cut where the burst ends; otherwise it waits until it fits whole.
    pub(super) cuts_frames: bool,
}

/// The limit at work.
pub(super) struct Limiter {
    sim: Sim,
    limit: Option<RateLimit>,
    credit_bytes: u64,
    refresh_at: Instant,
}

impl RateLimit {
    /// Between two refreshes.
    fn period(&self) -> Duration {
        Duration::from_secs(1).mul_ratio(self.burst_bytes, self.rate_bytes_per_second)
    }
}

impl Limiter {
    /// With a full burst to begin with. Without a limit it never waits.
    pub(super) fn new(sim: &Sim, limit: Option<RateLimit>) -> Self {
        let credit_bytes = limit.map_or(u64::MAX, |limit| limit.burst_bytes);
        Self { sim: sim.clone(), limit, credit_bytes, refresh_at: Instant::ZERO }
    }

    /// Waits until some of `wanted` bytes may leave, and says how many: all, or what the burst has left where frames are cut.
    pub(super) async fn take(&mut self, wanted: u64) -> u64 {
        let Some(limit) = self.limit else { return wanted };
        // A frame longer than a burst leaves alone.
        let needed = if limit.cuts_frames { 1 } else { wanted.min(limit.burst_bytes) };
        loop {
            let now = self.sim.now();
            // The timer begins with the first byte of a burst, so that idle time is not saved up.
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

    /// When each of `sizes` bytes left, in milliseconds, and how many of them.
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
    fn a_burst_leaves_at_once_and_the_next_one_waits_for_the_timer() {
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
