//! Drains the path to measure its minimum round trip (section 5.3.4), and handles the end of idle
//! periods (section 5.4).

use units::{Duration, Instant};

use super::cycle::AckPhase;
use super::state::BbrState;
use super::{Ack, Bbr};
use crate::delivery_rate::RateSample;

/// Shortest time for which the path stays half empty, so that flows with other round trips drain it
/// at the same time: `ProbeRTTDuration` (section 2.16.2).
const DURATION: Duration = Duration::from_millis(200);

/// The state of one round-trip probe.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeRtt {
    /// Earliest end of the probe; `None` until the inflight is low enough.
    done_at: Option<Instant>,
    round_done: bool,
    /// Range of delivered counts within which sent packets give application-limited samples: the
    /// probe lowered the rate.
    slow: Option<(u64, u64)>,
}

impl ProbeRtt {
    /// Implements `MarkConnectionAppLimited` (section 4.1.2.4), applied to samples here: marks
    /// packets sent from now until all data now in flight was delivered.
    fn mark_slow(&mut self, delivered_total: u64, in_flight: u64) {
        let from = self.slow.map_or(delivered_total, |(from, _)| from);
        self.slow = Some((from, delivered_total.saturating_add(in_flight)));
    }

    /// Returns the sample, marked as application-limited if this probe lowered its rate.
    pub(super) fn mark_app_limited(&mut self, sample: &RateSample) -> RateSample {
        let mut marked_sample = *sample;
        if let Some((from, until)) = self.slow {
            marked_sample.app_limited |= (from..=until).contains(&sample.prior_delivered);
            if sample.prior_delivered > until {
                self.slow = None;
            }
        }
        marked_sample
    }
}

impl Bbr {
    /// Implements `CheckProbeRTT` (section 5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, ack: &Ack) {
        if self.state != BbrState::ProbeRtt && self.min_rtt.is_probe_due() && !self.idle_restart {
            self.recovery.save_window(self.window, self.state);
            self.state = BbrState::ProbeRtt;
            self.probe_rtt.done_at = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.rounds.restart(self.delivered);
        }
        if self.state == BbrState::ProbeRtt {
            self.hold_probe_rtt(ack);
        }
        if ack.sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// Implements `HandleProbeRTT`.
    fn hold_probe_rtt(&mut self, ack: &Ack) {
        self.probe_rtt.mark_slow(self.delivered, ack.in_flight);
        if self.probe_rtt.done_at.is_none() {
            if ack.in_flight <= self.probe_rtt_window() {
                self.probe_rtt.done_at = Some(ack.now + DURATION);
                self.probe_rtt.round_done = false;
                self.rounds.restart(self.delivered);
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.started();
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(ack.now);
        }
    }

    /// Implements `CheckProbeRTTDone` and `ExitProbeRTT` (section 5.3.4.4).
    fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt.reschedule(now);
        self.window = self.recovery.restored(self.window);
        self.bounds.reset_shortterm();
        if self.full_pipe.was_reached() {
            // Down schedules the next probe; its goal, an empty queue, is already reached.
            self.start_down(now);
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// Implements `HandleRestartFromIdle` (section 5.4.1): the first packet after an idle period is
    /// sent.
    pub(super) fn on_restart(&mut self, now: Instant) {
        self.idle_restart = true;
        self.aggregation.on_restart(now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(100);
        } else if self.state == BbrState::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}
