//! The probe timeout (RFC 9002, section 6.2).

use units::Duration;

use crate::rtt::RttEstimator;

/// Longest probe timeout that backoff produces. RFC 9002 sets no limit; one minute is the smallest
/// limit that RFC 6298, section 2.5, permits. Without a limit, a path that was dead for ten minutes
/// would not be probed for the next ten.
pub const PTO_MAX: Duration = Duration::from_secs(60);

/// Number of doublings after which the timeout of every path with a round trip above a nanosecond
/// has reached [`PTO_MAX`].
const BACKOFF_COUNT_MAX: u32 = 36;

/// Number of consecutive probe timeouts, and the resulting interval.
#[derive(Debug, Clone, Default)]
pub struct PtoBackoff {
    count: u32,
}

impl PtoBackoff {
    /// Creates the state without timeouts.
    pub const fn new() -> Self {
        Self { count: 0 }
    }

    /// Returns the time from the last ack-eliciting packet to the probe: `(smoothed + max(4 *
    /// variance, granularity) + max_ack_delay) * 2^count` (RFC 9002, section 6.2.1).
    /// `max_ack_delay` is the peer's, zero in the Initial and Handshake spaces. Backoff ends at
    /// [`PTO_MAX`], or at the plain interval if that alone is longer.
    pub fn interval(&self, rtt: &RttEstimator, max_ack_delay: Duration) -> Duration {
        let base = rtt.pto_base() + max_ack_delay;
        (base * (1 << self.count.min(BACKOFF_COUNT_MAX))).min(PTO_MAX.max(base))
    }

    /// Handles the expiry of the timer: the next interval is twice as long.
    pub fn on_expired(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Resets the backoff after an acknowledgement. The caller must not call this where RFC 9002,
    /// section 6.2.1, excludes it: on a client that does not know yet whether the server has
    /// validated its address.
    pub fn reset(&mut self) {
        self.count = 0;
    }

    /// Returns the number of timeouts since the last reset.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt_of(millis: u64) -> RttEstimator {
        let mut rtt = RttEstimator::default();
        rtt.update(Duration::from_millis(millis), Duration::ZERO);
        rtt
    }

    #[test]
    fn each_timeout_doubles_the_interval_until_a_minute() {
        let (rtt, delay) = (rtt_of(100), Duration::from_millis(25));
        let mut backoff = PtoBackoff::new();
        // 100 + 4 * 50 + 25.
        let mut expected = Duration::from_millis(325);
        for _ in 0..7 {
            assert_eq!(backoff.interval(&rtt, delay), expected);
            backoff.on_expired();
            expected = expected * 2;
        }
        for _ in 0..1000 {
            backoff.on_expired();
        }
        assert_eq!((backoff.count(), backoff.interval(&rtt, delay)), (1007, PTO_MAX));
        backoff.reset();
        assert_eq!((backoff.count(), backoff.interval(&rtt, delay)), (0, Duration::from_millis(325)));
    }

    #[test]
    fn the_limit_never_shortens_the_plain_interval() {
        let mut backoff = PtoBackoff::new();
        backoff.on_expired();
        assert_eq!(backoff.interval(&rtt_of(40_000), Duration::ZERO), Duration::from_secs(120));
        assert_eq!(backoff.interval(&RttEstimator::new(Duration::MAX), Duration::MAX), Duration::MAX);
    }

    #[test]
    fn the_last_doubling_reaches_the_limit_even_at_one_nanosecond() {
        assert!(Duration::from_nanos(1) * (1 << BACKOFF_COUNT_MAX) >= PTO_MAX);
    }
}
