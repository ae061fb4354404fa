//! Minimum round trip over ten seconds, measured anew every five (section 5.3.4.3).

use units::{Duration, Instant};

/// Time after which a minimum expires: `MinRTTFilterLen` (section 2.16.1). Twice the probing
/// interval, so that the result of the last probe is still known during the next.
const FILTER_SPAN: Duration = Duration::from_secs(10);
/// Time without a shorter round trip after which the path must be drained for a measurement:
/// `ProbeRTTInterval` (section 2.16.2). All flows use the same interval, so that flows that share a
/// queue drain it together.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The filter and the schedule of probes.
#[derive(Debug, Clone)]
pub(super) struct MinRtt {
    min: Duration,
    min_at: Instant,
    /// The minimum since the last probe or update.
    recent: Duration,
    recent_at: Instant,
    probe_due: bool,
}

impl MinRtt {
    /// Creates a filter without samples at `now`.
    pub(super) const fn new(now: Instant) -> Self {
        Self { min: Duration::MAX, min_at: now, recent: Duration::MAX, recent_at: now, probe_due: false }
    }

    /// Processes one sample: `UpdateMinRTT`.
    pub(super) fn update(&mut self, now: Instant, rtt: Duration) {
        self.probe_due = now > self.recent_at + PROBE_INTERVAL;
        if rtt < self.recent || self.probe_due {
            (self.recent, self.recent_at) = (rtt, now);
        }
        if self.recent < self.min || now > self.min_at + FILTER_SPAN {
            (self.min, self.min_at) = (self.recent, self.recent_at);
        }
    }

    /// Ends a probe: the next is due one interval later.
    pub(super) fn reschedule(&mut self, now: Instant) {
        self.recent_at = now;
    }

    /// Returns whether the last sample showed that a probe is due.
    pub(super) const fn is_probe_due(&self) -> bool {
        self.probe_due
    }

    /// Returns the minimum round trip; `None` before the first sample.
    pub(super) fn get(&self) -> Option<Duration> {
        (self.min != Duration::MAX).then_some(self.min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_minimum_lasts_ten_seconds_and_a_probe_is_due_after_five() {
        let mut filter = MinRtt::new(at_ms(0));
        assert_eq!(filter.get(), None);
        filter.update(at_ms(100), ms(40));
        filter.update(at_ms(5100), ms(70));
        assert!(!filter.is_probe_due());
        filter.update(at_ms(5101), ms(60));
        assert!(filter.is_probe_due());
        // The probe measured 55 ms; the old minimum is kept until its ten seconds have passed.
        filter.update(at_ms(5200), ms(55));
        assert!(!filter.is_probe_due());
        assert_eq!(filter.get(), Some(ms(40)));
        filter.update(at_ms(10_100), ms(70));
        assert_eq!(filter.get(), Some(ms(40)));
        filter.update(at_ms(10_101), ms(70));
        assert_eq!(filter.get(), Some(ms(55)));
    }

    #[test]
    fn a_shorter_round_trip_counts_at_once_and_postpones_the_probe() {
        let mut filter = MinRtt::new(at_ms(0));
        filter.update(at_ms(100), ms(40));
        filter.update(at_ms(5000), ms(30));
        assert_eq!(filter.get(), Some(ms(30)));
        filter.update(at_ms(10_000), ms(40));
        assert!(!filter.is_probe_due());
        filter.reschedule(at_ms(10_000));
        filter.update(at_ms(15_000), ms(40));
        assert!(!filter.is_probe_due());
        filter.update(at_ms(15_001), ms(40));
        assert!(filter.is_probe_due());
    }
}
