//! The probing cycle of a long-running flow (section 5.3.3).
//!
//! ```text
//!      ┌───────── no excess loss after a precautionary probe ────┐
//!      │                                                         ▼
//! ┌─► Down ── drained to headroom ──► Cruise ── time to probe ─► Refill ── one round ─► Up ─┐
//! │    └──────────────────── time to probe ────────────────────►──┘                         │
//! └─────────── path full, too many losses, or the last probe's limit was reached ◄──────────┘
//! ```

use units::Instant;

use super::bounds::{BETA_PERCENT, UNBOUNDED, is_loss_too_high, percent_of};
use super::cycle::AckPhase;
use super::state::BbrState;
use super::{Ack, Bbr};
use crate::delivery_rate::RateSample;

/// Maximum number of rounds after which a probe is due on short paths, where it is due after as
/// many rounds as the path holds segments. A Reno flow would lose its next packet at about that
/// time (section 5.3.3.8.2).
const RENO_ROUNDS_MAX: u64 = 63;
impl Bbr {
    /// Enters Down; also `EnterProbeBW`.
    pub(super) fn start_down(&mut self, now: Instant) {
        self.latest.reset();
        self.cycle.acked_per_segment = UNBOUNDED;
        self.cycle.pick_wait(&mut self.rng);
        self.cycle.started_at = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.rounds.restart(self.delivered);
        self.state = BbrState::Down;
    }

    pub(super) fn start_cruise(&mut self) {
        self.state = BbrState::Cruise;
    }

    pub(super) fn start_refill(&mut self) {
        self.bounds.reset_shortterm();
        self.cycle.growing_rounds = 0;
        self.cycle.acked = 0;
        self.cycle.prev_probe_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.restart(self.delivered);
        self.state = BbrState::Refill;
    }

    fn start_up(&mut self, sample: &RateSample) {
        self.cycle.is_probe_sample = true;
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.rounds.restart(self.delivered);
        self.full_pipe.reset(sample.rate.unwrap_or_default());
        self.state = BbrState::Up;
        self.cycle.raise_slope(self.window, self.segment);
    }

    /// Implements `UpdateProbeBWCyclePhase` (section 5.3.3.9).
    pub(super) fn update_cycle(&mut self, ack: &Ack) {
        if !self.full_pipe.was_reached() || self.adapt_longterm_bound(ack) {
            return;
        }
        let state = self.state;
        match state {
            BbrState::Down | BbrState::Cruise if self.is_time_to_probe(ack.now) => self.start_refill(),
            BbrState::Down if self.is_time_to_cruise(ack.in_flight) => self.start_cruise(),
            BbrState::Refill if self.rounds.started() => self.start_up(&ack.sample),
            BbrState::Up if self.is_time_to_go_down(ack) => {
                self.cycle.prev_probe_too_high = false;
                self.start_down(ack.now);
            }
            _ => {}
        }
    }

    /// Implements `AdaptLongTermModel`. Returns true if it has entered the next state.
    fn adapt_longterm_bound(&mut self, ack: &Ack) -> bool {
        let (round_started, in_cycle) = (self.rounds.started(), self.state.is_probe_bw());
        if self.cycle.ack_phase == AckPhase::ProbeStarting && round_started {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && round_started {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Idle;
            if in_cycle && !ack.sample.app_limited {
                self.max_bandwidth.advance();
            }
            // Section 5.3.3.6: the precautionary probe up to the old limit had no excess loss, so a
            // full probe follows at once.
            if in_cycle && self.cycle.prev_probe_precautionary && !self.cycle.prev_probe_too_high {
                self.start_refill();
                return true;
            }
        }
        let bound = self.bounds.inflight_longterm;
        if bound != UNBOUNDED && !is_loss_too_high(ack.sample.lost, ack.sample.in_flight_when_sent) {
            self.bounds.inflight_longterm = bound.max(ack.sample.in_flight_when_sent);
            if self.state == BbrState::Up {
                self.raise_longterm_bound(ack.bytes);
            }
        }
        false
    }

    /// Implements `ProbeInflightLongtermUpward`: only while the bound limits the flow.
    fn raise_longterm_bound(&mut self, acked: u64) {
        if !self.usage.is_limited() || self.window < self.bounds.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.acked = cycle.acked.saturating_add(acked);
        let segments = cycle.acked / cycle.acked_per_segment;
        cycle.acked %= cycle.acked_per_segment;
        let grown = self.bounds.inflight_longterm.saturating_add(segments.saturating_mul(self.segment));
        // The result is at most one below `UNBOUNDED`, so that a bound remains a bound.
        self.bounds.inflight_longterm = grown.min(UNBOUNDED - 1);
        if self.rounds.started() {
            self.cycle.raise_slope(self.window, self.segment);
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = (self.target_inflight() / self.segment).min(RENO_ROUNDS_MAX);
        now > self.cycle.started_at + self.cycle.wait || self.cycle.rounds_since_probe >= reno_rounds
    }

    fn is_time_to_cruise(&self, in_flight: u64) -> bool {
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight(self.max_bandwidth.get())
    }

    fn is_time_to_go_down(&mut self, ack: &Ack) -> bool {
        // Section 5.3.3.6: this amount was too high in the last probe.
        if self.cycle.prev_probe_too_high && ack.in_flight >= self.bounds.inflight_longterm {
            self.cycle.prev_probe_precautionary = true;
            return true;
        }
        if self.usage.is_limited() && self.window >= self.bounds.inflight_longterm {
            // The bound limits the rate, not the path: a lack of growth says nothing about the
            // path.
            self.full_pipe.reset(ack.sample.rate.unwrap_or_default());
            return false;
        }
        self.full_pipe.is_now()
    }

    /// Implements `HandleInflightTooHigh` (section 5.5.10.2): `in_flight` was too high. Takes
    /// effect at most once per probe.
    pub(super) fn on_inflight_too_high(&mut self, now: Instant, in_flight: u64, app_limited: bool) {
        self.cycle.prev_probe_too_high = true;
        self.cycle.is_probe_sample = false;
        if !app_limited {
            let least = percent_of(self.target_inflight(), BETA_PERCENT);
            self.bounds.inflight_longterm = in_flight.max(least).min(UNBOUNDED - 1);
        }
        if self.state == BbrState::Up {
            self.recovery.note_exited(BbrState::Up);
            self.start_down(now);
        }
    }

    /// Returns `TargetInflight` (section 5.3.3.8.3).
    fn target_inflight(&self) -> u64 {
        self.bdp(self.bandwidth).min(self.window)
    }
}
