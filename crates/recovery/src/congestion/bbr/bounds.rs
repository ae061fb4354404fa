//! Bounds on rate and inflight that follow from losses, for the short and the long term (section
//! 5.5.10).
//!
//! A loss while the flow accelerates shows how much fits into the path: it sets the long-term
//! bound. A loss at other times shows competing traffic: the flow then follows the delivery rate
//! with the short-term bounds, until it fills the path again for the next probe.
//!
//! `short_term` lowers the short-term bounds, `probe_bw` the long-term one.

use units::{Duration, Rate};

use crate::delivery_rate::{LossSample, RateSample};

/// Loss threshold, in percent of the inflight data: `LossThresh` (section 2.8).
pub(super) const LOSS_PERCENT: u64 = 2;
/// No reduction goes below this percentage: `Beta` (section 2.8), the same factor as CUBIC's.
pub(super) const BETA_PERCENT: u64 = 70;
/// The percentage of the long-term bound left to other flows in Cruise: `Headroom` (section 2.8).
const HEADROOM_PERCENT: u64 = 15;

/// Value of a number of bytes that means no bound.
pub(super) const UNBOUNDED: u64 = u64::MAX;

/// The bounds. [`UNBOUNDED`] and [`Rate::MAX`] mean no bound.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) inflight_longterm: u64,
    pub(super) inflight_shortterm: u64,
    pub(super) rate_shortterm: Rate,
}

impl Bounds {
    pub(super) const NONE: Self =
        Self { inflight_longterm: UNBOUNDED, inflight_shortterm: UNBOUNDED, rate_shortterm: Rate::MAX };

    /// Drops the short-term bounds: `ResetShortTermModel`.
    pub(super) fn reset_shortterm(&mut self) {
        (self.inflight_shortterm, self.rate_shortterm) = (UNBOUNDED, Rate::MAX);
    }

    /// Returns the long-term bound minus the headroom left to other flows: `InflightWithHeadroom`
    /// (section 5.3.3.9).
    pub(super) fn with_headroom(&self, segment: u64, least: u64) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = percent_of(self.inflight_longterm, HEADROOM_PERCENT).max(segment);
        self.inflight_longterm.saturating_sub(headroom).max(least)
    }
}

/// Delivery within the latest round, and whether there were losses (section 2.10).
#[derive(Debug, Clone)]
pub(super) struct LatestRound {
    pub(super) rate: Rate,
    delivered: u64,
    pub(super) shortest_rtt: Duration,
    /// Delivered bytes that end the round: it ends with the acknowledgement of a packet that was
    /// sent when at least this many bytes were delivered.
    end_delivered: u64,
    /// Whether the last acknowledgement ended the round: `loss_round_start`.
    ended: bool,
    /// Whether a packet was lost or marked in the round.
    pub(super) lossy: bool,
    pub(super) marked: bool,
}

impl LatestRound {
    pub(super) const fn new() -> Self {
        Self {
            rate: Rate::ZERO,
            delivered: 0,
            shortest_rtt: Duration::MAX,
            end_delivered: 0,
            ended: false,
            lossy: false,
            marked: false,
        }
    }

    /// Implements `UpdateLatestDeliverySignals` (section 5.5.10.3).
    pub(super) fn update(&mut self, sample: &RateSample) {
        self.rate = self.rate.max(sample.rate.unwrap_or(Rate::ZERO));
        self.delivered = self.delivered.max(sample.delivered);
        self.shortest_rtt = self.shortest_rtt.min(sample.rtt);
        self.ended = sample.prior_delivered >= self.end_delivered;
        if self.ended {
            self.end_delivered = sample.delivered_total;
        }
    }

    /// Implements `AdvanceLatestDeliverySignals`: the next round begins with this sample.
    pub(super) fn advance(&mut self, sample: &RateSample) {
        if self.ended {
            (self.rate, self.delivered) = (sample.rate.unwrap_or(Rate::ZERO), sample.delivered);
            self.shortest_rtt = Duration::MAX;
        }
    }

    /// Implements `NoteLoss` (section 5.5.10.2): the round now lasts until a packet sent after this
    /// loss is acknowledged.
    pub(super) fn note_loss(&mut self, delivered_total: u64) {
        if !self.lossy {
            self.end_delivered = delivered_total;
        }
        self.lossy = true;
    }

    /// Records that the network marked packets. A mark counts as a loss and never as noise.
    pub(super) fn note_mark(&mut self, delivered_total: u64) {
        self.note_loss(delivered_total);
        self.marked = true;
    }

    /// Implements `ResetCongestionSignals`.
    pub(super) fn reset(&mut self) {
        (self.rate, self.delivered, self.shortest_rtt) = (Rate::ZERO, 0, Duration::MAX);
        self.clear_losses();
    }

    /// Clears the losses and marks of the round.
    pub(super) fn clear_losses(&mut self) {
        (self.lossy, self.marked) = (false, false);
    }

    /// Returns true if the last acknowledgement ended a round.
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the maximum number of bytes delivered between the sending and the acknowledgement of
    /// one packet.
    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }
}

/// Losses in the current round of Startup.
#[derive(Debug, Clone, Default)]
pub(super) struct StartupLosses {
    pub(super) gaps: u32,
    /// Whether the network marked packets. A mark ends Startup without any gap (section 3.7: marks
    /// are congestion).
    pub(super) marked: bool,
}

/// Implements `IsInflightTooHigh` (section 5.5.10.2).
pub(super) fn is_loss_too_high(lost: u64, in_flight_when_sent: u64) -> bool {
    lost > percent_of(in_flight_when_sent, LOSS_PERCENT)
}

/// Returns the inflight at which losses crossed the threshold, within the lost run of packets:
/// `InflightAtLoss` (section 5.5.10.2).
pub(super) fn in_flight_at_loss(loss: &LossSample) -> u64 {
    let in_flight_before = loss.in_flight_when_sent.saturating_sub(loss.bytes);
    let lost_before = loss.lost.saturating_sub(loss.bytes);
    let tolerated = percent_of(in_flight_before, LOSS_PERCENT).saturating_sub(lost_before);
    // The threshold was crossed within this run, so at most the whole run is tolerated.
    let prefix = (u128::from(tolerated) * 100 / u128::from(100 - LOSS_PERCENT)) as u64;
    in_flight_before + prefix.min(loss.bytes)
}

/// Returns `bytes * percent / 100`, rounded down. The percentage is at most 100, so the quotient
/// fits.
pub(super) const fn percent_of(bytes: u64, percent: u64) -> u64 {
    (bytes as u128 * percent as u128 / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(in_flight_when_sent: u64, lost: u64, bytes: u64) -> LossSample {
        LossSample { bytes, in_flight_when_sent, lost, delivered_total: 0, app_limited: false, new_gap: true }
    }

    #[test]
    fn losses_up_to_two_percent_are_tolerated() {
        assert!(!is_loss_too_high(2000, 100_000));
        assert!(is_loss_too_high(2001, 100_000));
    }

    #[test]
    fn the_inflight_at_loss_lies_within_the_lost_run() {
        // 100 000 bytes before a run of 50 000: 2000 of them may be lost. With x lost bytes of the
        // run, x = 2 % of (100 000 + x) gives 2040.
        assert_eq!(in_flight_at_loss(&loss(150_000, 50_000, 50_000)), 102_040);
        // 1000 were lost before the run; 1020 more make 2 % of 101 020.
        assert_eq!(in_flight_at_loss(&loss(150_000, 51_000, 50_000)), 101_020);
        assert_eq!(in_flight_at_loss(&loss(150_000, 60_000, 50_000)), 100_000, "crossed before the run");
        assert_eq!(in_flight_at_loss(&loss(1200, 1200, 1200)), 0, "one packet alone");
    }

    #[test]
    fn headroom_is_fifteen_percent_and_at_least_a_segment() {
        let bounds = |inflight_longterm| Bounds { inflight_longterm, ..Bounds::NONE };
        assert_eq!(bounds(100_000).with_headroom(1200, 4800), 85_000);
        assert_eq!(bounds(7000).with_headroom(1200, 4800), 5800);
        assert_eq!(bounds(5000).with_headroom(1200, 4800), 4800);
        assert_eq!(Bounds::NONE.with_headroom(1200, 4800), UNBOUNDED);
    }
}
