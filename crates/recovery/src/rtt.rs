//! Round-trip estimation: smoothed value, variation and minimum (RFC 9002, section 5).

use units::Duration;

/// Round-trip time assumed before the first sample: `kInitialRtt` (RFC 9002, section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Finest timer resolution assumed for a general-purpose host: `kGranularity` (RFC 9002, section
/// 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// A round-trip estimator for one path.
#[derive(Debug, Clone)]
pub struct RttEstimator {
    latest: Duration,
    smoothed: Duration,
    variance: Duration,
    /// Minimum over the lifetime of the path, or since [`Self::forget_min`].
    min: Duration,
    granularity: Duration,
    has_sample: bool,
    min_is_stale: bool,
    mean_is_stale: bool,
}

impl RttEstimator {
    /// Creates an estimator that assumes `initial` until it has a sample. Use [`INITIAL_RTT`],
    /// unless a value from an earlier connection to the same peer is known (RFC 9002, section
    /// 6.2.2).
    pub const fn new(initial: Duration) -> Self {
        Self::with_granularity(initial, GRANULARITY)
    }

    /// Creates an estimator like [`Self::new`], with a timer granularity other than
    /// [`GRANULARITY`]. In a data centre a round trip may take 50 us; a granularity of 1 ms would
    /// delay every loss detection by twenty of them. RFC 9002, section 6.1.2, recommends 1 ms.
    /// Smaller values need a driver with timers of that precision; otherwise late packets are
    /// declared lost.
    pub const fn with_granularity(initial: Duration, granularity: Duration) -> Self {
        Self {
            latest: initial,
            smoothed: initial,
            // RFC 9002, section 5.3: rttvar starts at half the initial value.
            variance: Duration::from_nanos(initial.as_nanos() / 2),
            min: initial,
            granularity,
            has_sample: false,
            min_is_stale: false,
            mean_is_stale: false,
        }
    }

    /// Processes one sample: the time from sending the largest newly acknowledged packet, which
    /// must be ack-eliciting (RFC 9002, section 5.1), to the arrival of its acknowledgement.
    /// `ack_delay` is the delay reported by the peer, already limited to its `max_ack_delay` once
    /// the handshake is confirmed (section 5.3); zero if the transport has no such report.
    pub fn update(&mut self, sample: Duration, ack_delay: Duration) {
        self.latest = sample;
        if !self.has_sample {
            // Sections 5.2 and 5.3: the first sample replaces the initial value and ignores the
            // peer's delay.
            self.has_sample = true;
            (self.min_is_stale, self.mean_is_stale) = (false, false);
            self.min = sample;
            self.smoothed = sample;
            self.variance = sample / 2;
            return;
        }
        // Section 5.2: min_rtt uses local observations only, so that a misbehaving peer cannot
        // lower it.
        if self.min_is_stale || sample < self.min {
            self.min = sample;
            self.min_is_stale = false;
        }
        // Section 5.3: the reported delay is subtracted only if the result is not below the
        // minimum.
        let adjusted = if sample >= self.min + ack_delay { sample - ack_delay } else { sample };
        if self.mean_is_stale {
            (self.mean_is_stale, self.smoothed, self.variance) = (false, adjusted, adjusted / 2);
            return;
        }
        let deviation = self.smoothed.abs_diff(adjusted);
        // Weights 1/4 and 1/8, the variation first, because it refers to the old mean. The form `x
        // - x/4 + s/4` cannot overflow.
        self.variance = self.variance - self.variance / 4 + deviation / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + adjusted / 8;
    }

    /// Makes the next sample replace the minimum. Call when persistent congestion is established
    /// (RFC 9002, section 5.2): the route may have become longer.
    pub fn forget_min(&mut self) {
        self.min_is_stale = true;
    }

    /// Makes the next sample replace the smoothed value and the variation, as the first one does
    /// (RFC 9002, section 5.3). Call before the first sample after a pause: the old values describe
    /// a route or a queue that may be gone.
    pub fn forget_mean(&mut self) {
        self.mean_is_stale = true;
    }

    /// Returns the latest sample, or the initial value.
    pub const fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the smoothed round-trip time, or the initial value.
    pub const fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Returns the mean deviation, RFC 9002's `rttvar`.
    pub const fn variance(&self) -> Duration {
        self.variance
    }

    /// Returns the smallest sample, or the initial value.
    pub const fn min(&self) -> Duration {
        self.min
    }

    /// Returns true once a sample was taken.
    pub const fn has_sample(&self) -> bool {
        self.has_sample
    }

    /// Returns the timer granularity with which this estimator was built.
    pub const fn granularity(&self) -> Duration {
        self.granularity
    }

    /// Returns `smoothed + max(4 * variance, granularity)`: the probe timeout without the peer's
    /// `max_ack_delay` and without backoff (RFC 9002, section 6.2.1).
    pub fn pto_base(&self) -> Duration {
        self.smoothed + (self.variance * 4).max(self.granularity)
    }

    /// Returns the time after sending at which a packet is declared lost once a later one was
    /// acknowledged: 9/8 of the larger of the smoothed and the latest round trip, at least the
    /// granularity (RFC 9002, section 6.1.2, `kTimeThreshold`).
    pub fn loss_delay(&self) -> Duration {
        let round_trip = self.smoothed.max(self.latest);
        (round_trip + round_trip / 8).max(self.granularity)
    }
}

impl Default for RttEstimator {
    /// Uses [`INITIAL_RTT`] and [`GRANULARITY`].
    fn default() -> Self {
        Self::new(INITIAL_RTT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn before_a_sample_the_probe_timeout_is_just_under_a_second() {
        let rtt = RttEstimator::default();
        assert!(!rtt.has_sample());
        // RFC 9002, section 6.2.2: "this results in handshakes starting with a PTO of 1 second".
        assert_eq!(rtt.pto_base(), ms(999));
    }

    #[test]
    fn the_first_sample_replaces_the_initial_value_and_ignores_the_delay() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(40), ms(25));
        assert_eq!((rtt.latest(), rtt.smoothed(), rtt.variance(), rtt.min()), (ms(40), ms(40), ms(20), ms(40)));
    }

    #[test]
    fn later_samples_weigh_one_eighth_and_one_quarter() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(80), ms(0));
        rtt.update(ms(120), ms(0));
        assert_eq!(rtt.smoothed(), ms(85));
        assert_eq!(rtt.variance(), ms(40) - ms(10) + ms(10));
        assert_eq!(rtt.min(), ms(80));
    }

    #[test]
    fn a_reported_delay_is_subtracted_only_down_to_the_minimum() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(80), ms(0));
        rtt.update(ms(120), ms(40));
        assert_eq!(rtt.smoothed(), ms(80), "120 - 40 equals the smoothed value");
        rtt.update(ms(88), ms(9));
        assert_eq!(rtt.smoothed(), ms(81), "88 - 9 is below the minimum of 80, so the delay is ignored");
    }

    #[test]
    fn the_minimum_is_replaced_after_persistent_congestion() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(20), ms(0));
        rtt.forget_min();
        rtt.update(ms(200), ms(0));
        assert_eq!(rtt.min(), ms(200));
        rtt.update(ms(210), ms(0));
        assert_eq!(rtt.min(), ms(200));
    }

    #[test]
    fn the_mean_is_replaced_after_a_pause_and_the_minimum_is_kept() {
        let mut rtt = RttEstimator::default();
        rtt.forget_mean();
        rtt.update(ms(400), ms(0));
        rtt.update(ms(440), ms(0));
        assert_eq!((rtt.smoothed(), rtt.min()), (ms(405), ms(400)), "the first sample is never a mean to forget");
        rtt.forget_mean();
        rtt.update(ms(20), ms(5));
        assert_eq!((rtt.smoothed(), rtt.variance(), rtt.min()), (ms(20), ms(10), ms(20)));
        rtt.forget_mean();
        rtt.update(ms(30), ms(4));
        assert_eq!((rtt.smoothed(), rtt.variance(), rtt.min()), (ms(26), ms(13), ms(20)));
        rtt.update(ms(34), ms(0));
        assert_eq!(rtt.smoothed(), ms(27));
    }

    #[test]
    fn the_loss_delay_follows_the_larger_of_mean_and_latest_and_the_granularity() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(80), ms(0));
        assert_eq!(rtt.loss_delay(), ms(90));
        rtt.update(ms(160), ms(0));
        assert_eq!(rtt.loss_delay(), ms(180));

        let (mut coarse, mut fine) =
            (RttEstimator::default(), RttEstimator::with_granularity(INITIAL_RTT, Duration::from_micros(20)));
        for rtt in [&mut coarse, &mut fine] {
            rtt.update(Duration::from_micros(80), Duration::ZERO);
        }
        assert_eq!((coarse.loss_delay(), fine.loss_delay()), (ms(1), Duration::from_micros(90)));
    }

    proptest! {
        #[test]
        fn the_mean_stays_between_the_extremes(samples in prop::collection::vec((any::<u64>(), any::<u64>()), 1..40)) {
            let mut rtt = RttEstimator::default();
            let (mut low, mut high) = (u64::MAX, 0);
            for (sample, delay) in samples {
                rtt.update(Duration::from_nanos(sample), Duration::from_nanos(delay));
                (low, high) = (low.min(sample), high.max(sample));
                prop_assert_eq!(rtt.min().as_nanos(), low);
                // Integer division loses less than one nanosecond in each of two terms of a sum
                // that decays by 7/8.
                prop_assert!(rtt.smoothed().as_nanos() >= low.saturating_sub(16));
                prop_assert!(rtt.smoothed().as_nanos() <= high.saturating_add(16));
                prop_assert!(rtt.loss_delay() >= GRANULARITY && rtt.pto_base() >= GRANULARITY);
            }
        }
    }
}
