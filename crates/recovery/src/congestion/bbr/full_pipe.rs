//! Detects a full path: three rounds of faster sending that hardly increase the delivery rate
//! (section 5.3.1.2).

use units::Rate;

/// Growth of the rate, in percent, which shows that the path is not full.
const GROWTH_PERCENT: u64 = 125;
/// Number of rounds without that growth. A receiver needs several rounds to open its window.
const ROUNDS: u32 = 3;

/// The detector.
#[derive(Debug, Clone, Default)]
pub(super) struct FullPipe {
    baseline: Rate,
    rounds: u32,
    now: bool,
    reached: bool,
}

impl FullPipe {
    /// Restarts the detection with `baseline` as the rate to grow from: `ResetFullBW`.
    pub(super) fn reset(&mut self, baseline: Rate) {
        (self.baseline, self.rounds, self.now) = (baseline, 0, false);
    }

    /// Processes the sample of an acknowledgement that began a round, unless it is
    /// application-limited.
    pub(super) fn on_round(&mut self, rate: Rate) {
        if self.now {
            return;
        }
        if rate >= self.baseline.mul_ratio(GROWTH_PERCENT, 100) {
            self.reset(rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= ROUNDS;
        self.reached |= self.now;
    }

    /// Returns whether the path is full since the last reset: `full_bw_now`.
    pub(super) const fn is_now(&self) -> bool {
        self.now
    }

    /// Returns whether the path was full at some time: `full_bw_reached`.
    pub(super) const fn was_reached(&self) -> bool {
        self.reached
    }

    /// Sets `full_bw_reached` from losses: they showed a full path, or turned out to be spurious.
    pub(super) fn set_reached(&mut self, reached: bool) {
        self.reached = reached;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_25_percent_growth_mean_a_full_pipe() {
        let mut pipe = FullPipe::default();
        // 12 is a quarter more than 9 and less than a quarter more than 10.
        for megabits in [4, 5, 6, 7, 9, 12] {
            pipe.on_round(Rate::from_mbps(megabits));
            assert!(!pipe.is_now(), "{megabits} Mb/s");
        }
        for _ in 0..2 {
            pipe.on_round(Rate::from_mbps(14));
            assert!(!pipe.is_now());
        }
        pipe.on_round(Rate::from_mbps(14));
        assert!(pipe.is_now() && pipe.was_reached());
        pipe.reset(Rate::from_mbps(14));
        assert!(!pipe.is_now() && pipe.was_reached());
    }
}
