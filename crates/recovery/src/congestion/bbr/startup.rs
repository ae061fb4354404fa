//! Startup and Drain: filling the path, then draining the queue (sections 5.3.1 and 5.3.2).

use super::Bbr;
use super::bounds::{StartupLosses, is_loss_too_high};
use super::state::BbrState;
use crate::delivery_rate::RateSample;

/// Number of gaps lost within one round that ends Startup: `StartupFullLossCnt` (section 5.3.1.3).
/// A single burst of losses does not end Startup.
const GAPS_MIN: u32 = 6;
/// Number of rounds after which Drain ends even if a queue remains, because other flows then cause
/// it (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;

impl Bbr {
    pub(super) fn enter_startup(&mut self) {
        self.state = BbrState::Startup;
        self.startup_losses = StartupLosses::default();
    }

    /// Implements `CheckFullBWReached` (section 5.3.1.2).
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample) {
        if self.rounds.started() && !sample.app_limited {
            self.full_pipe.on_round(sample.rate.unwrap_or_default());
        }
    }

    /// Implements `CheckStartupDone` (section 5.3.1.1): a plateau or losses end Startup.
    pub(super) fn check_startup_done(&mut self, sample: &RateSample) {
        if self.state != BbrState::Startup {
            return;
        }
        self.check_startup_losses(sample);
        if self.full_pipe.was_reached() {
            self.state = BbrState::Drain;
            self.drain_from_round = self.rounds.count();
        }
    }

    /// Implements `CheckStartupHighLoss` (section 5.3.1.3). A round of
    /// [`super::bounds::LatestRound`] begins with its first loss and ends when a packet sent after
    /// that loss is acknowledged. At its end the flow has been in recovery for one round trip, and
    /// the sample counts the losses within it.
    fn check_startup_losses(&mut self, sample: &RateSample) {
        if !self.latest.ended() {
            return;
        }
        let losses = std::mem::take(&mut self.startup_losses);
        let too_many = losses.gaps >= GAPS_MIN && is_loss_too_high(sample.lost, sample.in_flight_when_sent);
        if self.full_pipe.was_reached() || !(too_many || losses.marked) {
            return;
        }
        self.recovery.note_exited(BbrState::Startup);
        self.full_pipe.set_reached(true);
        self.bounds.inflight_longterm = self.bdp(self.bandwidth).max(self.latest.delivered());
    }

    /// Implements `CheckDrainDone` (section 5.3.2).
    pub(super) fn check_drain_done(&mut self, ack: &super::Ack) {
        if self.state == BbrState::Drain
            && (ack.in_flight <= self.inflight(self.bandwidth)
                || self.rounds.count() > self.drain_from_round + DRAIN_ROUNDS)
        {
            self.start_down(ack.now);
        }
    }
}
