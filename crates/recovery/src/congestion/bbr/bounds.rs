//! What losses say about the path: bounds on rate and volume, for the short and for the long term (section 5.5.10).
//!
//! A loss while the flow accelerates says how much fits into the path, which is worth remembering: the long-term bound. A
//! loss at other times says that something else came along; the flow follows what the path delivers, by the short-term
//! bounds, until it fills the path again for the next probe.
//!
//! One kind of loss is taken for what it most likely is, noise: see [`Bbr::adapt_shortterm_bounds`].

use units::{Duration, Rate};

use super::Bbr;
use super::state::State;
use crate::delivery_rate::{LossSample, RateSample};

/// Losses beyond this part of what was in flight, in percent, are too many: `LossThresh` (section 2.8).
pub(super) const LOSS_PERCENT: u64 = 2;
/// No reduction leaves less than this, in percent: `Beta` (section 2.8). It is CUBIC's factor.
pub(super) const BETA_PERCENT: u64 = 70;
/// This part of the long-term bound is left to others while cruising, in percent: `Headroom` (section 2.8).
const HEADROOM_PERCENT: u64 = 15;

/// A round trip up to this part longer than the bare one shows no queue worth the name.
const QUEUE_FREE_DIVISOR: u64 = 8;

/// Stands for "no bound" in a number of bytes.
pub(super) const UNBOUNDED: u64 = u64::MAX;

/// The bounds. [`UNBOUNDED`] and [`Rate::MAX`] stand for none.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) inflight_longterm: u64,
    pub(super) inflight_shortterm: u64,
    pub(super) rate_shortterm: Rate,
}

impl Bounds {
    pub(super) const NONE: Self =
        Self { inflight_longterm: UNBOUNDED, inflight_shortterm: UNBOUNDED, rate_shortterm: Rate::MAX };

    /// Forgets what other flows did to us: `ResetShortTermModel`.
    pub(super) fn reset_shortterm(&mut self) {
        (self.inflight_shortterm, self.rate_shortterm) = (UNBOUNDED, Rate::MAX);
    }

    /// The long-term bound less what is left to others: `InflightWithHeadroom` (section 5.3.3.9).
    pub(super) fn with_headroom(&self, segment: u64, least: u64) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = percent_of(self.inflight_longterm, HEADROOM_PERCENT).max(segment);
        self.inflight_longterm.saturating_sub(headroom).max(least)
    }
}

/// What the path delivered within the last round, and whether it lost something (section 2.10).
#[derive(Debug, Clone)]
pub(super) struct LatestRound {
    rate: Rate,
    delivered: u64,
    shortest_rtt: Duration,
    /// A packet sent when at least so much was delivered ends the round.
    end_delivered: u64,
    /// The round ended with the last acknowledgement: `loss_round_start`.
    ended: bool,
    /// Something was lost, or marked, in it.
    lossy: bool,
    marked: bool,
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

    /// `UpdateLatestDeliverySignals` (section 5.5.10.3).
    pub(super) fn update(&mut self, sample: &RateSample) {
        self.rate = self.rate.max(sample.rate.unwrap_or(Rate::ZERO));
        self.delivered = self.delivered.max(sample.delivered);
        self.shortest_rtt = self.shortest_rtt.min(sample.rtt);
        self.ended = sample.prior_delivered >= self.end_delivered;
        if self.ended {
            self.end_delivered = sample.delivered_total;
        }
    }

    /// `AdvanceLatestDeliverySignals`: the next round begins with this sample.
    pub(super) fn advance(&mut self, sample: &RateSample) {
        if self.ended {
            (self.rate, self.delivered) = (sample.rate.unwrap_or(Rate::ZERO), sample.delivered);
            self.shortest_rtt = Duration::MAX;
        }
    }

    /// `NoteLoss` (section 5.5.10.2): the round now lasts until something sent after this loss is acknowledged.
    pub(super) fn note_loss(&mut self, delivered_total: u64) {
        if !self.lossy {
            self.end_delivered = delivered_total;
        }
        self.lossy = true;
    }

    /// The network marked packets: a loss that is never noise.
    pub(super) fn note_mark(&mut self, delivered_total: u64) {
        self.note_loss(delivered_total);
        self.marked = true;
    }

    /// `ResetCongestionSignals`.
    pub(super) fn reset(&mut self) {
        (self.rate, self.delivered, self.shortest_rtt) = (Rate::ZERO, 0, Duration::MAX);
        self.forgive();
    }

    /// No loss counts that was seen so far.
    pub(super) fn forgive(&mut self) {
        (self.lossy, self.marked) = (false, false);
    }

    /// True on the acknowledgement with which a round ended.
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// The most that was delivered between the sending and the acknowledgement of one packet, bytes.
    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }
}

/// `IsInflightTooHigh` (section 5.5.10.2).
pub(super) fn is_too_much_lost(lost: u64, in_flight_when_sent: u64) -> bool {
    lost > percent_of(in_flight_when_sent, LOSS_PERCENT)
}

/// How much was in flight when the losses among it crossed the threshold, somewhere within the lost row:
/// `InflightAtLoss` (section 5.5.10.2).
pub(super) fn in_flight_at_loss(loss: &LossSample) -> u64 {
    let in_flight_before = loss.in_flight_when_sent.saturating_sub(loss.bytes);
    let lost_before = loss.lost.saturating_sub(loss.bytes);
    let tolerated = percent_of(in_flight_before, LOSS_PERCENT).saturating_sub(lost_before);
    // The threshold was crossed inside the row, so no more of it than there is was tolerated.
    let prefix = (u128::from(tolerated) * 100 / u128::from(100 - LOSS_PERCENT)) as u64;
    in_flight_before + prefix.min(loss.bytes)
}

/// `bytes * percent / 100`, rounded down. The percentage is at most 100, so the quotient fits.
pub(super) const fn percent_of(bytes: u64, percent: u64) -> u64 {
    (bytes as u128 * percent as u128 / 100) as u64
}

impl Bbr {
    /// Follows the path down, once a round, if something was lost in the round and the flow was not accelerating:
    /// `AdaptLowerBoundsFromCongestion` (section 5.5.10.3).
    ///
    /// The draft does so after any loss. Each time the bound on the rate falls to what was delivered, which is less than
    /// what was sent by the loss, and that less than the bound by the pacing margin: with one packet lost a round, and sixty
    /// rounds from probe to probe, the rate halves although the path has not changed. That is not what section 5.3.3.8.3
    /// means to bear. So a round counts only if it shows congestion: a queue, or losses beyond the threshold, or a mark.
    pub(super) fn adapt_shortterm_bounds(&mut self, sample: &RateSample) {
        if !self.latest.ended {
            return;
        }
        if self.latest.lossy && !self.state.is_accelerating() && !self.is_noise(sample) {
            let (rate, volume) = (self.bounds.rate_shortterm, self.bounds.inflight_shortterm);
            let rate = if rate == Rate::MAX { self.max_bandwidth.get() } else { rate };
            let volume = if volume == UNBOUNDED { self.window } else { volume };
            // Down sends a tenth below the bound on purpose, so that the path delivers less says nothing of the path. Without
            // this, one loss in Down would hold that tenth back until the next probe.
            let offered = if self.state == State::Down { State::Down.pacing_percent() } else { 100 };
            let delivered = self.latest.rate.mul_ratio(100, offered).min(rate);
            self.bounds.rate_shortterm = delivered.max(rate.mul_ratio(BETA_PERCENT, 100));
            self.bounds.inflight_shortterm = self.latest.delivered.max(percent_of(volume, BETA_PERCENT));
        }
        self.latest.forgive();
    }

    fn is_noise(&self, sample: &RateSample) -> bool {
        let bare = self.min_rtt.get().unwrap_or(Duration::ZERO);
        let queue_free = self.latest.shortest_rtt <= bare + bare / QUEUE_FREE_DIVISOR;
        queue_free && !self.latest.marked && !is_too_much_lost(sample.lost, sample.in_flight_when_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(in_flight_when_sent: u64, lost: u64, bytes: u64) -> LossSample {
        LossSample { bytes, in_flight_when_sent, lost, delivered_total: 0, app_limited: false, new_gap: true }
    }

    #[test]
    fn two_percent_are_borne_and_more_are_too_much() {
        assert!(!is_too_much_lost(2000, 100_000));
        assert!(is_too_much_lost(2001, 100_000));
    }

    #[test]
    fn the_volume_at_which_losses_crossed_the_threshold_lies_within_the_lost_row() {
        // 100 000 before a row of 50 000: 2000 of them may be lost. With x of the row lost as well,
        // x = 2 % of (100 000 + x) makes 2040.
        assert_eq!(in_flight_at_loss(&loss(150_000, 50_000, 50_000)), 102_040);
        // 1000 were lost before the row; 1020 more make 2 % of 101 020.
        assert_eq!(in_flight_at_loss(&loss(150_000, 51_000, 50_000)), 101_020);
        assert_eq!(in_flight_at_loss(&loss(150_000, 60_000, 50_000)), 100_000, "crossed before the row");
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
