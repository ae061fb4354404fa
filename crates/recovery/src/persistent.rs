//! Persistent congestion: distinguishes an outage from a full queue (RFC 9002, section 7.6).

use units::{Duration, Instant};

use crate::rtt::RttEstimator;

/// Number of probe timeouts without an acknowledgement that establishes persistent congestion:
/// `kPersistentCongestionThreshold` (RFC 9002, section 7.6.1).
pub const PERSISTENT_CONGESTION_THRESHOLD: u64 = 3;

/// Searches the packets of one loss event for a period without any acknowledgement that lasted too
/// long.
///
/// Call [`Self::on_lost`] for the lost *ack-eliciting* packets in the order they were sent, and
/// [`Self::on_acked`] wherever a packet between two of them was acknowledged. A number that was
/// skipped, not ack-eliciting, or declared lost earlier does not interrupt a period (section 7.6.2
/// requires only that none in between was acknowledged).
#[derive(Debug, Clone)]
pub struct PersistentCongestion {
    /// Time of the first round-trip sample; packets sent before it do not count (section 7.6.2).
    first_sample_at: Option<Instant>,
    period_from: Option<Instant>,
    longest: Duration,
}

impl PersistentCongestion {
    /// Creates a search over one loss event. `first_sample_at` is the time of the path's first
    /// round-trip sample, `None` if there was none.
    pub const fn new(first_sample_at: Option<Instant>) -> Self {
        Self { first_sample_at, period_from: None, longest: Duration::ZERO }
    }

    /// Records the loss of an ack-eliciting packet sent at `sent_at`. For a run of packets the
    /// first and the last are sufficient.
    pub fn on_lost(&mut self, sent_at: Instant) {
        if self.first_sample_at.is_none_or(|first| sent_at <= first) {
            return;
        }
        let from = *self.period_from.get_or_insert(sent_at);
        self.longest = self.longest.max(sent_at.saturating_since(from));
    }

    /// Records that a packet between the previous and the next lost packet was acknowledged.
    pub fn on_acked(&mut self) {
        self.period_from = None;
    }

    /// Returns true if a period lasted longer than `(smoothed + max(4 * variance, granularity) +
    /// max_ack_delay) * 3` (section 7.6.1). `max_ack_delay` applies in every packet number space
    /// here.
    pub fn is_established(&self, rtt: &RttEstimator, max_ack_delay: Duration) -> bool {
        self.longest > (rtt.pto_base() + max_ack_delay) * PERSISTENT_CONGESTION_THRESHOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Loses packets sent at these milliseconds; a zero stands for an acknowledged packet in
    /// between.
    fn established(first_sample_at: Option<u64>, sent_ms: &[u64]) -> bool {
        let mut rtt = RttEstimator::default();
        rtt.update(Duration::from_millis(100), Duration::ZERO);
        let mut search = PersistentCongestion::new(first_sample_at.map(at_ms));
        for &sent in sent_ms {
            if sent == 0 { search.on_acked() } else { search.on_lost(at_ms(sent)) }
        }
        // (100 + 4 * 50 + 25) * 3 = 975 ms.
        search.is_established(&rtt, Duration::from_millis(25))
    }

    #[test]
    fn three_probe_timeouts_without_an_acknowledgement_are_an_outage() {
        assert!(established(Some(100), &[1000, 1500, 1976]));
        assert!(!established(Some(100), &[1000, 1500, 1975]), "the duration must be exceeded");
    }

    #[test]
    fn an_acknowledged_packet_in_between_ends_the_period() {
        assert!(!established(Some(100), &[1000, 1500, 0, 1501, 2400]));
        assert!(established(Some(100), &[1000, 0, 1500, 2000, 2476, 0, 2500]), "any period may be the longest");
    }

    #[test]
    fn packets_before_the_first_sample_do_not_count() {
        assert!(!established(None, &[1000, 5000]));
        assert!(!established(Some(1500), &[1000, 1600, 2500]));
        assert!(established(Some(1500), &[1000, 1600, 2600]));
        assert!(!established(Some(1500), &[1500, 2500]), "a packet sent at the time of the sample does not count");
    }

    #[test]
    fn a_single_lost_packet_is_not_an_outage() {
        assert!(!established(Some(100), &[9000]));
    }
}
