//! Proportional rate reduction (RFC 9937): sending while the window shrinks.
//!
//! A congestion controller reduces its window at once. A sender that followed at once would be
//! silent until part of the flight is acknowledged, and then send the rest in a burst. Instead, new
//! data leave in proportion to delivered data, so that the flight ends with the size of the new
//! window.

/// One reduction of the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prr {
    /// End of the reduction: the acknowledgement of this position, everything that was in flight
    /// when it began.
    until: u64,
    /// Size of the flight at the end (section 6, ssthresh).
    target: u64,
    /// Size at the beginning (section 6, RecoverFS).
    flight: u64,
    /// Bytes delivered since (section 6, prr_delivered).
    delivered: u64,
    /// Bytes sent since (section 6, prr_out).
    out: u64,
    /// Bytes that may leave now (section 6, SndCnt).
    allowance: u64,
    /// Whether the acknowledgement that caused it is not counted yet.
    is_new: bool,
}

impl Prr {
    /// Creates a reduction from a flight of `flight` bytes to `target`, until `until` is
    /// acknowledged.
    pub(super) const fn new(flight: u64, target: u64, until: u64) -> Self {
        Self { until, target, flight, delivered: 0, out: 0, allowance: 0, is_new: true }
    }

    pub(super) const fn until(&self) -> u64 {
        self.until
    }

    pub(super) const fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Records a change of `in_flight` by an acknowledgement, or by an acknowledgement that failed
    /// to arrive in time. `bytes` were delivered. `is_safe`: the first hole was filled at least in
    /// part, and no further loss was found (section 6, SafeACK).
    pub(super) fn on_delivered(&mut self, bytes: u64, in_flight: u64, is_safe: bool, segment: u64) {
        if std::mem::take(&mut self.is_new) {
            // The bytes it delivers were in flight until now.
            self.flight += bytes;
        } else if bytes == 0 {
            return;
        }
        self.delivered += bytes;
        self.allowance = if in_flight > self.target {
            let share = u128::from(self.delivered) * u128::from(self.target);
            let due = share.div_ceil(u128::from(self.flight.max(1)));
            u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out).max(bytes);
            let grown = if is_safe { conserved + segment } else { conserved };
            grown.min(self.target - in_flight)
        };
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
        self.allowance = self.allowance.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;

    #[test]
    fn the_flight_shrinks_in_proportion_to_what_is_delivered() {
        // Twenty segments, the first of them lost, shall become ten.
        let (mut prr, mut in_flight, mut sent) = (Prr::new(19 * SEGMENT, 10 * SEGMENT, 20 * SEGMENT), 19 * SEGMENT, 0);
        for ack in 1..=16 {
            in_flight -= SEGMENT;
            prr.on_delivered(SEGMENT, in_flight, false, SEGMENT);
            let now = prr.allowance() / SEGMENT * SEGMENT;
            assert!(now <= SEGMENT, "{ack}: no burst");
            prr.on_sent(now);
            (sent, in_flight) = (sent + now, in_flight + now);
        }
        assert_eq!((sent, in_flight), (7 * SEGMENT, 10 * SEGMENT));
    }

    #[test]
    fn a_flight_below_the_target_grows_only_by_what_is_delivered_unless_that_is_safe() {
        // Fifteen of twenty segments were lost at once.
        let mut prr = Prr::new(20 * SEGMENT, 10 * SEGMENT, 20 * SEGMENT);
        prr.on_delivered(SEGMENT, 4 * SEGMENT, false, SEGMENT);
        assert_eq!(prr.allowance(), SEGMENT, "the conservative bound");
        prr.on_sent(SEGMENT);
        prr.on_delivered(SEGMENT, 4 * SEGMENT, true, SEGMENT);
        assert_eq!(prr.allowance(), 2 * SEGMENT, "the slow-start bound");
        prr.on_delivered(9 * SEGMENT, 4 * SEGMENT, true, SEGMENT);
        assert_eq!(prr.allowance(), 6 * SEGMENT, "up to the target");
    }

    #[test]
    fn a_report_of_nothing_permits_nothing() {
        let mut prr = Prr::new(20 * SEGMENT, 10 * SEGMENT, 20 * SEGMENT);
        prr.on_delivered(2 * SEGMENT, 17 * SEGMENT, false, SEGMENT);
        let before = prr.allowance();
        (0..100).for_each(|_| prr.on_delivered(0, 5 * SEGMENT, true, SEGMENT));
        assert_eq!(prr.allowance(), before);
        // Impossible sizes permit nothing either.
        let mut prr = Prr::new(0, 10, 20);
        prr.on_delivered(u64::MAX / 2, 11, true, SEGMENT);
        prr.on_sent(u64::MAX / 4);
    }
}
