//! ACK aggregation: the excess of acknowledged data over the expected amount. Radio links and
//! receivers hold back packets and acknowledgements; the window must cover the time in between
//! (section 5.5.9).

use units::{Instant, Rate};

/// Rounds over which the maximum is kept once the path was full: `ExtraAckedFilterLen` (section
/// 2.12).
const FILTER_ROUNDS: u64 = 10;
/// The same during Startup, where older values describe a slower flow.
const STARTUP_ROUNDS: u64 = 1;

/// The estimator of `extra_acked`.
#[derive(Debug, Clone)]
pub(super) struct Aggregation {
    since: Instant,
    acked: u64,
    max: WindowedMax,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, acked: 0, max: WindowedMax::default() }
    }

    /// Begins an interval when sending resumes after an idle period, in which no data could be
    /// acknowledged (section 5.4.1). The draft keeps the bytes of the previous interval. In a
    /// bursty flow, with an idle period before each burst, these bytes would add up, and the window
    /// with them.
    pub(super) fn on_restart(&mut self, now: Instant) {
        (self.acked, self.since) = (0, now);
    }

    /// Processes one acknowledgement of `acked` bytes: `UpdateACKAggregation`.
    pub(super) fn on_ack(&mut self, now: Instant, acked: u64, bandwidth: Rate, window: u64, round: u64, full: bool) {
        let mut expected = bandwidth.bytes_in(now.saturating_since(self.since));
        if self.acked <= expected {
            // Acknowledgements are not ahead of the bandwidth: the aggregation interval has ended.
            (self.acked, self.since, expected) = (0, now, 0);
        }
        self.acked = self.acked.saturating_add(acked);
        let extra = self.acked.saturating_sub(expected).min(window);
        self.max.update(round, extra, if full { FILTER_ROUNDS } else { STARTUP_ROUNDS });
    }

    /// Returns the bytes to add to the window.
    pub(super) const fn extra(&self) -> u64 {
        self.max.get()
    }
}

/// The maximum over a sliding window of rounds, by Nichols' filter. It keeps the three best values
/// in sequence, each newer than the one before, so that a recent value remains when the best
/// expires.
#[derive(Debug, Clone, Default)]
struct WindowedMax {
    /// Rounds ascending, values descending; equal rounds and values are possible.
    best: [(u64, u64); 3],
}

impl WindowedMax {
    fn update(&mut self, round: u64, value: u64, window: u64) {
        let new = (round, value);
        let aged = |entry: (u64, u64)| round.saturating_sub(entry.0);
        if value >= self.best[0].1 || aged(self.best[2]) > window {
            self.best = [new; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best = [self.best[0], new, new];
        } else if value >= self.best[2].1 {
            self.best[2] = new;
        }
        while aged(self.best[0]) > window {
            self.best = [self.best[1], self.best[2], new];
        }
        // If one value stays the best for a long time, take the others from later parts of the
        // window, so that they are recent when it expires.
        let spread = aged(self.best[0]);
        if self.best[1].0 == self.best[0].0 && spread * 4 > window {
            self.best = [self.best[0], new, new];
        } else if self.best[2].0 == self.best[1].0 && spread * 2 > window {
            self.best[2] = new;
        }
    }

    const fn get(&self) -> u64 {
        self.best[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Duration;

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn bytes_acknowledged_beyond_the_rate_are_extra() {
        // 8 Mb/s is 1000 bytes per millisecond.
        let mut aggregation = Aggregation::new(at_ms(0));
        let mut ack = |at, acked, round| {
            aggregation.on_ack(at_ms(at), acked, Rate::from_mbps(8), 100_000, round, true);
            aggregation.extra()
        };
        assert_eq!(ack(10, 10_000, 1), 10_000, "the first acknowledgement of an interval is all extra");
        assert_eq!(ack(10, 6000, 1), 16_000);
        assert_eq!(ack(20, 10_000, 2), 16_000, "26 000 arrived in 10 ms instead of 10 000: the same extra");
        assert_eq!(ack(40, 1000, 2), 16_000, "a new interval");
        assert_eq!(ack(40, 500, 12), 16_000, "ten rounds later it still counts");
        assert_eq!(ack(40, 500, 13), 2000, "and then expires");
    }

    #[test]
    fn bursts_between_idle_periods_do_not_add_up() {
        let mut aggregation = Aggregation::new(at_ms(0));
        for burst in 0..100 {
            aggregation.on_restart(at_ms(10 * burst));
            aggregation.on_ack(at_ms(10 * burst + 1), 3000, Rate::from_mbps(8), 1_000_000, burst, false);
            assert_eq!(aggregation.extra(), 3000, "burst {burst}");
        }
    }

    #[test]
    fn extra_acked_is_at_most_a_window() {
        let mut aggregation = Aggregation::new(at_ms(0));
        aggregation.on_ack(at_ms(1), 50_000, Rate::from_mbps(8), 12_000, 1, false);
        assert_eq!(aggregation.extra(), 12_000);
    }

    proptest! {
        /// Compared with a filter that keeps every value: never above the true maximum of the
        /// window, never below the newest value.
        #[test]
        fn the_filter_stays_between_the_newest_and_the_true_maximum(
            steps in prop::collection::vec((0u64..4, 0u64..1000), 1..200), window in 1u64..12,
        ) {
            let (mut filter, mut seen, mut round) = (WindowedMax::default(), Vec::new(), 0);
            for (wait, value) in steps {
                round += wait;
                filter.update(round, value, window);
                seen.push((round, value));
                let truth = seen.iter().filter(|entry| entry.0 + window >= round).map(|entry| entry.1).max();
                prop_assert!(filter.get() >= value && Some(filter.get()) <= truth, "{filter:?} of {seen:?}");
            }
        }
    }
}
