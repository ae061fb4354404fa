//! Effect of losses on the short-term bounds (section 5.5.10.3). Losses below the threshold without
//! a queue are treated as noise.

use units::{Duration, Rate};

use super::Bbr;
use super::bounds::{BETA_PERCENT, UNBOUNDED, is_loss_too_high, percent_of};
use super::state::BbrState;
use crate::delivery_rate::RateSample;

/// A round trip that is longer than the minimum by up to this fraction (1/8) shows no significant
/// queue.
const QUEUE_FREE_DIVISOR: u64 = 8;

impl Bbr {
    /// Lowers the short-term bounds, once per round, if the round had losses and the flow was not
    /// accelerating: `AdaptLowerBoundsFromCongestion` (section 5.5.10.3).
    ///
    /// The draft does so after any loss. With each loss the rate bound falls to the delivered rate,
    /// which is below the sent rate by the loss, and the sent rate is below the bound by the pacing
    /// margin. With one lost packet per round, and sixty rounds between probes, the rate halves
    /// although the path has not changed. Section 5.3.3.8.3 does not intend that. Here a round
    /// counts only if it shows congestion: a queue, losses above the threshold, or a mark.
    pub(super) fn adapt_shortterm_bounds(&mut self, sample: &RateSample) {
        if !self.latest.ended() {
            return;
        }
        if self.latest.lossy && !self.state.is_accelerating() && !self.is_noise(sample) {
            let (rate, inflight) = (self.bounds.rate_shortterm, self.bounds.inflight_shortterm);
            let rate = if rate == Rate::MAX { self.max_bandwidth.get() } else { rate };
            let inflight = if inflight == UNBOUNDED { self.window } else { inflight };
            // Down sends a tenth below the bound on purpose, so the lower delivery rate says
            // nothing about the path. Without this correction one loss in Down would keep the rate
            // a tenth lower until the next probe.
            let offered = if self.state == BbrState::Down { BbrState::Down.pacing_percent() } else { 100 };
            let delivered = self.latest.rate.mul_ratio(100, offered).min(rate);
            self.bounds.rate_shortterm = delivered.max(rate.mul_ratio(BETA_PERCENT, 100));
            self.bounds.inflight_shortterm = self.latest.delivered().max(percent_of(inflight, BETA_PERCENT));
        }
        self.latest.clear_losses();
    }

    fn is_noise(&self, sample: &RateSample) -> bool {
        let min_rtt = self.min_rtt.get().unwrap_or(Duration::ZERO);
        let queue_free = self.latest.shortest_rtt <= min_rtt + min_rtt / QUEUE_FREE_DIVISOR;
        queue_free && !self.latest.marked && !is_loss_too_high(sample.lost, sample.in_flight_when_sent)
    }
}
