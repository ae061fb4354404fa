//! Loss detection: which outstanding packets are lost once a later packet was acknowledged (RFC
//! 9002, section 6.1).

use units::{Duration, Instant};

use crate::rtt::RttEstimator;

/// Distance in packet numbers at which a packet is lost once a later packet was acknowledged:
/// `kPacketThreshold` (RFC 9002, section 6.1.1, which forbids less than 3).
pub const PACKET_THRESHOLD: u64 = 3;

/// Result for a packet sent before the largest acknowledged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is lost now.
    Lost,
    /// The packet may still be in transit. It is lost at this time unless it is acknowledged
    /// before. The earliest of these times is the loss timer.
    LostAt(Instant),
}

/// The loss thresholds at one time for one packet number space. Cheap to build: make one for each
/// acknowledgement and each expiry of the loss timer, then query it for the outstanding packets.
#[derive(Debug, Clone, Copy)]
pub struct LossDetector {
    largest_acked: u64,
    now: Instant,
    delay: Duration,
    packets: u64,
}

impl LossDetector {
    /// Creates the thresholds at `now`, when `largest_acked` is the largest acknowledged number so
    /// far.
    pub fn new(largest_acked: u64, now: Instant, rtt: &RttEstimator) -> Self {
        Self { largest_acked, now, delay: rtt.loss_delay(), packets: PACKET_THRESHOLD }
    }

    /// Returns the detector with higher thresholds, for a path with observed reordering: packets
    /// are lost only `packets` numbers before the largest acknowledged one, and `delay` after they
    /// were sent. Thresholds are never lowered.
    #[must_use]
    pub fn tolerating(self, packets: u64, delay: Duration) -> Self {
        Self { packets: self.packets.max(packets), delay: self.delay.max(delay), ..self }
    }

    /// Checks the outstanding packet `number`, sent at `sent_at`. A packet sent after the largest
    /// acknowledged one is never lost by these rules (RFC 9002, section 6.1): the result is
    /// [`Instant::FAR_FUTURE`].
    pub fn verdict(&self, number: u64, sent_at: Instant) -> Verdict {
        if number >= self.largest_acked {
            return Verdict::LostAt(Instant::FAR_FUTURE);
        }
        let lost_at = sent_at + self.delay;
        if self.largest_acked - number >= self.packets || lost_at <= self.now {
            return Verdict::Lost;
        }
        Verdict::LostAt(lost_at)
    }

    /// Returns the packet number up to and including which outstanding packets are lost regardless
    /// of their send time; `None` if there is no such number. A log that keeps runs of packets can
    /// use it to split them without a query per packet.
    pub const fn lost_through(&self) -> Option<u64> {
        self.largest_acked.checked_sub(self.packets)
    }

    /// Returns the send time up to and including which packets below the largest acknowledged
    /// number are lost; `None` if that time is before the start of the run.
    pub fn lost_if_sent_by(&self) -> Option<Instant> {
        self.now.as_nanos().checked_sub(self.delay.as_nanos()).map(Instant::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn rtt_of(millis: u64) -> RttEstimator {
        let mut rtt = RttEstimator::default();
        rtt.update(Duration::from_millis(millis), Duration::ZERO);
        rtt
    }

    #[test]
    fn a_packet_is_lost_three_numbers_below_the_largest_acknowledged() {
        let detector = LossDetector::new(10, at_ms(1000), &rtt_of(80));
        assert_eq!(detector.verdict(7, at_ms(999)), Verdict::Lost);
        assert_eq!(detector.verdict(8, at_ms(999)), Verdict::LostAt(at_ms(1089)));
        assert_eq!(detector.lost_through(), Some(7));
    }

    #[test]
    fn a_packet_is_lost_after_nine_eighths_of_a_round_trip() {
        let detector = LossDetector::new(10, at_ms(1000), &rtt_of(80));
        assert_eq!(detector.verdict(9, at_ms(910)), Verdict::Lost);
        assert_eq!(detector.verdict(9, at_ms(911)), Verdict::LostAt(at_ms(1001)));
        assert_eq!(detector.lost_if_sent_by(), Some(at_ms(910)));
    }

    #[test]
    fn tolerating_never_lowers_a_threshold() {
        let detector = LossDetector::new(20, at_ms(1000), &rtt_of(80)).tolerating(9, Duration::from_millis(200));
        assert_eq!(detector.verdict(11, at_ms(999)), Verdict::Lost);
        assert_eq!(detector.verdict(12, at_ms(999)), Verdict::LostAt(at_ms(1199)));
        assert_eq!(detector.verdict(19, at_ms(800)), Verdict::Lost);
        let as_before = LossDetector::new(20, at_ms(1000), &rtt_of(80)).tolerating(1, Duration::ZERO);
        assert_eq!((as_before.lost_through(), as_before.lost_if_sent_by()), (Some(17), Some(at_ms(910))));
    }

    #[test]
    fn a_packet_after_the_largest_acknowledged_is_never_lost() {
        let detector = LossDetector::new(10, at_ms(100_000), &rtt_of(80));
        assert_eq!(detector.verdict(10, at_ms(0)), Verdict::LostAt(Instant::FAR_FUTURE));
        assert_eq!(detector.verdict(u64::MAX, at_ms(0)), Verdict::LostAt(Instant::FAR_FUTURE));
    }

    #[test]
    fn the_first_packets_have_no_lost_through_number() {
        let detector = LossDetector::new(2, at_ms(1), &rtt_of(80));
        assert_eq!((detector.lost_through(), detector.lost_if_sent_by()), (None, None));
        assert_eq!(detector.verdict(0, at_ms(0)), Verdict::LostAt(at_ms(90)));
    }

    proptest! {
        #[test]
        fn the_thresholds_for_runs_agree_with_the_verdicts(
            largest in 0u64..20, number in 0u64..20, now in 0u64..400, sent in 0u64..400, round_trip in 1u64..200,
        ) {
            let detector = LossDetector::new(largest, at_ms(now), &rtt_of(round_trip));
            let by_number = detector.lost_through().is_some_and(|last| number <= last);
            let by_time = number < largest && detector.lost_if_sent_by().is_some_and(|last| at_ms(sent) <= last);
            prop_assert_eq!(detector.verdict(number, at_ms(sent)) == Verdict::Lost, by_number || by_time);
        }

        #[test]
        fn a_packet_is_lost_exactly_at_its_announced_time(largest in 1u64..20, back in 1u64..3, now in 0u64..400, age in 0u64..400) {
            let (rtt, number) = (rtt_of(80), largest.saturating_sub(back));
            let sent_at = at_ms(now.saturating_sub(age));
            if let Verdict::LostAt(time) = LossDetector::new(largest, at_ms(now), &rtt).verdict(number, sent_at) {
                prop_assert!(time > at_ms(now));
                if time != Instant::FAR_FUTURE {
                    prop_assert_eq!(LossDetector::new(largest, time, &rtt).verdict(number, sent_at), Verdict::Lost);
                }
            }
        }
    }
}
