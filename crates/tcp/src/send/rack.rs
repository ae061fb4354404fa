//! RACK: loss detection by time (RFC 8985).
//!
//! Of two segments, the one sent later should arrive later. If it has arrived and the other has not
//! within a reordering window, the other is lost. Plans leave in order, so their numbers show which
//! was sent later, even for plans that another processor is still sealing.

use units::{Duration, Instant};

use super::log::Run;

/// Number of sacked segments that end the wait for reordered ones, if no reordering was seen (RFC
/// 8985, section 6.2, step 4).
const DUPLICATES_MAX: u64 = 3;

/// Number of recoveries without a duplicate report after which the reordering window is small again
/// (RFC 8985, section 6.2, step 4).
const PERSIST_RECOVERIES: u32 = 16;

/// RACK state: the newest delivered segment and the reordering window.
#[derive(Debug)]
pub(super) struct Rack {
    /// Plan number and end of the most recently sent run that was delivered.
    newest: Option<(u64, u64)>,
    /// Its round trip.
    rtt: Duration,
    /// Highest delivered position.
    highest: u64,
    has_seen_reordering: bool,
    /// Reordering window in quarters of the smallest round trip.
    quarters: u32,
    recoveries_left: u32,
    /// Position that must be acknowledged before a further duplicate report counts.
    next_report: u64,
}

impl Rack {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            highest: 0,
            has_seen_reordering: false,
            quarters: 1,
            recoveries_left: 0,
            next_report: 0,
        }
    }

    pub(super) const fn has_seen_reordering(&self) -> bool {
        self.has_seen_reordering
    }

    /// Records the delivery of `run` to the peer. `is_ambiguous`: it was sent more than once, and
    /// the acknowledgement may be for an earlier transmission (RFC 8985, section 6.2, steps 2 and
    /// 3).
    pub(super) fn on_delivered(&mut self, now: Instant, run: &Run, min_rtt: Duration, is_ambiguous: bool) {
        if run.end > self.highest {
            self.highest = run.end;
        } else if !run.is_retransmitted {
            self.has_seen_reordering = true;
        }
        let rtt = now.saturating_since(run.sent_at);
        if run.is_retransmitted && (is_ambiguous || rtt < min_rtt) {
            return;
        }
        if self.newest.is_none_or(|newest| (run.transmission, run.end) >= newest) {
            (self.newest, self.rtt) = (Some((run.transmission, run.end)), rtt);
        }
    }

    /// Records the peer's report of a duplicate (RFC 2883): a loss was spurious. `una` and `nxt`
    /// limit the reports to one a round trip.
    pub(super) fn on_duplicate_report(&mut self, una: u64, nxt: u64) {
        if una >= self.next_report {
            (self.next_report, self.recoveries_left) = (nxt, PERSIST_RECOVERIES);
            self.quarters = self.quarters.saturating_add(1);
        }
    }

    /// Records the end of a recovery.
    pub(super) fn on_recovered(&mut self) {
        self.recoveries_left = self.recoveries_left.saturating_sub(1);
        if self.recoveries_left == 0 {
            self.quarters = 1;
        }
    }

    /// Returns the reordering window (RFC 8985, section 6.2, step 4).
    pub(super) fn window(
        &self,
        min_rtt: Duration,
        smoothed: Duration,
        is_recovering: bool,
        sacked_segments: u64,
    ) -> Duration {
        if !self.has_seen_reordering && (is_recovering || sacked_segments >= DUPLICATES_MAX) {
            return Duration::ZERO;
        }
        min_rtt.saturating_mul(u64::from(self.quarters)).mul_ratio(1, 4).min(smoothed)
    }

    /// Returns the time at which `run` is lost if it is not delivered; `None` if nothing sent later
    /// was delivered (RFC 8985, section 6.2, step 5).
    pub(super) fn lost_at(&self, run: &Run, window: Duration) -> Option<Instant> {
        let is_overtaken = self.newest.is_some_and(|newest| (run.transmission, run.end) < newest);
        is_overtaken.then(|| run.sent_at + self.rtt + window)
    }
}

#[cfg(test)]
mod tests {
    use recovery::SendStamp;

    use super::super::log::RunState;
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Returns a run whose plan number is the millisecond of its creation.
    fn run(start: u64, planned_at: Instant, is_retransmitted: bool) -> Run {
        let sent_at = planned_at;
        Run {
            start,
            end: start + 1000,
            state: RunState::Outstanding,
            sent_at,
            transmission: planned_at.saturating_since(Instant::ZERO).as_millis(),
            is_retransmitted,
            is_limited: false,
            stamp: SendStamp::default(),
        }
    }

    #[test]
    fn an_earlier_segment_is_lost_a_window_after_a_later_one_has_arrived() {
        let mut rack = Rack::new();
        let (first, second) = (run(0, at(0), false), run(1000, at(5), false));
        assert_eq!(rack.lost_at(&first, Duration::ZERO), None);
        rack.on_delivered(at(45), &second, RTT, false);
        let window = rack.window(RTT, RTT, false, 1);
        assert_eq!(window, Duration::from_millis(10));
        assert_eq!(rack.lost_at(&first, window), Some(at(50)));
        assert_eq!(rack.lost_at(&second, window), None);
        // Three later segments suffice, and so does a recovery, until reordering is seen.
        assert_eq!(rack.window(RTT, RTT, false, 3), Duration::ZERO);
        assert_eq!(rack.window(RTT, RTT, true, 0), Duration::ZERO);
        rack.on_delivered(at(46), &first, RTT, false);
        assert_eq!(rack.window(RTT, RTT, true, 3), Duration::from_millis(10));
    }

    #[test]
    fn a_segment_that_waits_for_its_cipher_is_not_lost_when_an_earlier_one_has_arrived() {
        let mut rack = Rack::new();
        // Both were planned before the first one left.
        let first = Run { sent_at: at(10), ..run(0, at(0), false) };
        let second = run(1000, at(1), false);
        rack.on_delivered(at(50), &first, RTT, false);
        assert_eq!(rack.lost_at(&second, Duration::ZERO), None, "it has not left");
    }

    #[test]
    fn an_acknowledgement_that_may_be_for_the_first_transmission_says_nothing() {
        let mut rack = Rack::new();
        rack.on_delivered(at(105), &run(1000, at(100), true), RTT, false);
        assert_eq!(rack.lost_at(&run(0, at(0), false), Duration::ZERO), None, "faster than the smallest round trip");
        rack.on_delivered(at(145), &run(1000, at(100), true), RTT, true);
        assert_eq!(rack.lost_at(&run(0, at(0), false), Duration::ZERO), None, "an earlier timestamp");
        rack.on_delivered(at(145), &run(1000, at(100), true), RTT, false);
        assert_eq!(rack.lost_at(&run(0, at(0), false), Duration::ZERO), Some(at(45)));
    }

    #[test]
    fn duplicate_reports_widen_the_window_once_a_round_trip_and_recoveries_narrow_it() {
        let mut rack = Rack::new();
        rack.has_seen_reordering = true;
        for _ in 0..5 {
            rack.on_duplicate_report(10, 20);
        }
        assert_eq!(rack.window(RTT, RTT, true, 0), Duration::from_millis(20));
        rack.on_duplicate_report(20, 30);
        assert_eq!(rack.window(RTT, RTT, true, 0), Duration::from_millis(30));
        (0..PERSIST_RECOVERIES).for_each(|_| rack.on_recovered());
        assert_eq!(rack.window(RTT, RTT, true, 0), Duration::from_millis(10));
        (0..20).for_each(|round| rack.on_duplicate_report(round * 100, round * 100 + 50));
        assert_eq!(rack.window(RTT, RTT, true, 0), RTT, "at most the smoothed round trip");
    }
}
