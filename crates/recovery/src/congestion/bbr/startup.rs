//! Startup and Drain: from nothing to a full path, and the queue away again (sections 5.3.1 and 5.3.2).

use super::Bbr;
use super::bounds::is_too_much_lost;
use super::state::State;
use crate::delivery_rate::RateSample;

/// Gaps that must be lost within one round to end Startup: `StartupFullLossCnt` (section 5.3.1.3). One burst is none.
const GAPS_MIN: u32 = 6;
/// Drain ends after more than so many rounds even with a queue left, which then is not ours (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;

/// What was lost in the present round of Startup.
#[derive(Debug, Clone, Default)]
pub(super) struct StartupLosses {
    pub(super) gaps: u32,
    /// The network marked packets: as good as all the gaps that it takes (section 3.7 wants marks taken for congestion).
    pub(super) marked: bool,
}

impl Bbr {
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.startup_losses = StartupLosses::default();
    }

    /// `CheckFullBWReached` (section 5.3.1.2).
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample) {
        if self.rounds.started() && !sample.app_limited {
            self.full_pipe.on_round(sample.rate.unwrap_or_default());
        }
    }

    /// `CheckStartupDone` (section 5.3.1.1): a plateau or losses end Startup.
    pub(super) fn check_startup_done(&mut self, sample: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        self.check_startup_losses(sample);
        if self.full_pipe.was_reached() {
            self.state = State::Drain;
            self.drain_from_round = self.rounds.count();
        }
    }

    /// `CheckStartupHighLoss` (section 5.3.1.3). A round of [`super::bounds::LatestRound`] begins with its first loss and
    /// ends when something sent after that loss is acknowledged, so when it ends the flow has been in recovery for one
    /// round trip, and the sample counts what was lost within it.
    fn check_startup_losses(&mut self, sample: &RateSample) {
        if !self.latest.ended() {
            return;
        }
        let losses = std::mem::take(&mut self.startup_losses);
        let too_many = losses.gaps >= GAPS_MIN && is_too_much_lost(sample.lost, sample.in_flight_when_sent);
        if self.full_pipe.was_reached() || !(too_many || losses.marked) {
            return;
        }
        self.recovery.note_left(State::Startup);
        self.full_pipe.set_reached(true);
        self.bounds.inflight_longterm = self.bdp(self.bandwidth).max(self.latest.delivered());
    }

    /// `CheckDrainDone` (section 5.3.2).
    pub(super) fn check_drain_done(&mut self, ack: &super::Ack) {
        if self.state == State::Drain
            && (ack.in_flight <= self.inflight(self.bandwidth)
                || self.rounds.count() > self.drain_from_round + DRAIN_ROUNDS)
        {
            self.start_down(ack.now);
        }
    }
}
