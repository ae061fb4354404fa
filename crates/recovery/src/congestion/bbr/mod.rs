//! BBR, version 3: a controller that models the path instead of filling its queue until packets are
//! lost. Sections cited in this folder are those of draft-ietf-ccwg-bbr-06.
//!
//! The model is the highest delivery rate and the shortest round trip of the path. Their product is
//! the amount of data that fits into the path. The flow sends at that rate with at most about twice
//! that amount in flight. From time to time it probes whether the path has become faster (by
//! sending faster) or shorter (by sending less).
//!
//! ```text
//!   Startup ─► Drain ─► Down ─► Cruise ─► Refill ─► Up
//!                        ▲                           │
//!                        └───────────────────────────┘
//!
//!   from any state, every 5 s: ─► ProbeRtt, and back to Cruise, or to Startup
//!   if the path was never full
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `state` | rate and window gains of each state |
//! | `startup` | Startup, Drain |
//! | `probe_bw`, `cycle` | the probing cycle and the long-term bound; the state of the cycle |
//! | `probe_rtt` | draining the path; restart after an idle period |
//! | `rounds`, `bandwidth`, `min_rtt`, `aggregation`, `full_pipe` | the model, one estimator per file |
//! | `bounds`, `short_term` | the bounds and the loss threshold; the effect of losses on the short-term bounds |
//! | `recovery` | saved state, to restore after losses |
//! | `control` | pacing rate and window, computed from the model |
//!
//! BBR needs [`AckEvent::rate`] and [`CongestionController::on_run_lost`]. Without samples the
//! window stays at its initial value.
//!
//! Deviations from the draft, and decisions that it leaves open:
//!
//! - Losses below the threshold on a path without a queue do not count as congestion, and the lower
//!   rate of Down is not taken for a slower path: see `short_term`.
//! - ECN marks (section 3.7) count like losses above the threshold: they end Startup and a probe,
//!   and make a round lossy.
//! - After an outage the window grows by the acknowledged bytes and is not restored: see
//!   `recovery`.
//! - The window saved on entering `ProbeRtt` is the one directly before; the draft's order of steps
//!   would keep an older one.
//! - The end of an idle period begins an aggregation interval with no bytes, so that the bytes of
//!   bursts do not add up: see `aggregation`.
//! - A probing cycle without a usable sample does not expire the known maximum, as section 5.5.4
//!   intends.

mod aggregation;
mod bandwidth;
mod bounds;
mod control;
mod cycle;
mod full_pipe;
mod min_rtt;
mod probe_bw;
mod probe_rtt;
mod recovery;
mod rounds;
mod short_term;
mod startup;
mod state;

use units::{Instant, Rate, Rng};

use self::aggregation::Aggregation;
use self::bandwidth::MaxBandwidth;
use self::bounds::{Bounds, LatestRound, StartupLosses};
use self::cycle::Cycle;
use self::full_pipe::FullPipe;
use self::min_rtt::MinRtt;
use self::probe_rtt::ProbeRtt;
use self::recovery::Recovery;
use self::rounds::{Rounds, WindowUsage};
use self::state::BbrState;
use super::algorithm::Algorithm;
use super::controller::{CongestionController, CongestionSnapshot};
use super::event::{AckEvent, LossEvent, SpuriousLossEvent};
use super::window::{clamp_segment, initial_window};
use crate::delivery_rate::{LossSample, RateSample};
use crate::rtt::RttEstimator;

/// One acknowledgement, as passed to the parts of the model.
#[derive(Debug, Clone, Copy)]
struct Ack {
    now: Instant,
    /// Bytes newly acknowledged.
    bytes: u64,
    /// Bytes in flight after it.
    in_flight: u64,
    sample: RateSample,
}

/// BBR.
#[derive(Debug, Clone)]
pub struct Bbr {
    state: BbrState,
    segment: u64,
    initial_window: u64,
    window: u64,
    /// The pacing rate; `None` before the first sample of the round trip.
    pacing: Option<Rate>,
    /// The maximum delivery rate, limited by the short-term bound: `BBR.bw`.
    bandwidth: Rate,
    /// Total bytes delivered.
    delivered: u64,
    rounds: Rounds,
    max_bandwidth: MaxBandwidth,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    full_pipe: FullPipe,
    latest: LatestRound,
    bounds: Bounds,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    recovery: Recovery,
    usage: WindowUsage,
    startup_losses: StartupLosses,
    drain_from_round: u64,
    /// Whether everything was acknowledged and the application had no more data: the next packet
    /// ends an idle period.
    idle: bool,
    /// Whether no packet was acknowledged since the end of an idle period.
    idle_restart: bool,
    /// Whether a packet was sent, so that the time of the start is known.
    started: bool,
    /// Whether no packet was acknowledged or lost yet, so that a new segment size changes the
    /// initial window.
    pristine: bool,
    rng: Rng,
}

impl Bbr {
    /// Creates a controller with the initial window for packets of at most `segment_size` bytes.
    /// `rng` randomizes the times of its probes, so that flows with different generators do not
    /// probe at the same time.
    pub fn new(segment_size: u64, rng: Rng) -> Self {
        let window = initial_window(segment_size);
        Self {
            state: BbrState::Startup,
            segment: clamp_segment(segment_size),
            initial_window: window,
            window,
            pacing: None,
            bandwidth: Rate::ZERO,
            delivered: 0,
            rounds: Rounds::default(),
            max_bandwidth: MaxBandwidth::default(),
            min_rtt: MinRtt::new(Instant::ZERO),
            aggregation: Aggregation::new(Instant::ZERO),
            full_pipe: FullPipe::default(),
            latest: LatestRound::new(),
            bounds: Bounds::NONE,
            cycle: Cycle::new(Instant::ZERO),
            probe_rtt: ProbeRtt::default(),
            recovery: Recovery::default(),
            usage: WindowUsage::default(),
            startup_losses: StartupLosses::default(),
            drain_from_round: 0,
            idle: false,
            idle_restart: false,
            started: false,
            pristine: true,
            rng,
        }
    }

    /// Implements the part of `OnInit` (section 5.2.1) that depends on the time.
    fn start(&mut self, now: Instant) {
        if !self.started {
            self.started = true;
            self.min_rtt = MinRtt::new(now);
            self.aggregation = Aggregation::new(now);
            self.cycle = Cycle::new(now);
        }
    }

    /// Implements `UpdateModelAndState` (section 5.2.3).
    fn update_model(&mut self, ack: &Ack) {
        self.latest.update(&ack.sample);
        if self.rounds.update(&ack.sample) {
            self.cycle.on_round();
            self.usage.on_round();
        }
        self.max_bandwidth.update(ack.sample.rate, ack.sample.app_limited);
        self.adapt_shortterm_bounds(&ack.sample);
        let (round, full) = (self.rounds.count(), self.full_pipe.was_reached());
        self.aggregation.on_ack(ack.now, ack.bytes, self.bandwidth, self.window, round, full);
        self.check_full_pipe(&ack.sample);
        self.check_startup_done(&ack.sample);
        self.check_drain_done(ack);
        self.update_cycle(ack);
        self.min_rtt.update(ack.now, ack.sample.rtt);
        self.check_probe_rtt(ack);
        self.latest.advance(&ack.sample);
        self.bound_bandwidth();
    }

    /// Handles marks by the network: congestion, regardless of losses (section 3.7).
    fn on_mark(&mut self, event: &LossEvent) {
        self.latest.note_mark(self.delivered);
        self.startup_losses.marked = true;
        if self.cycle.is_probe_sample {
            self.on_inflight_too_high(event.now, event.in_flight, false);
        }
    }
}

impl CongestionController for Bbr {
    fn is_model_based(&self) -> bool {
        true
    }

    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.start(now);
        if std::mem::take(&mut self.idle) && in_flight <= bytes {
            self.on_restart(now);
        }
        if in_flight.saturating_add(self.segment) > self.window {
            self.usage.on_limited();
        }
    }

    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator) {
        self.pristine = false;
        self.start(event.now);
        if self.recovery.on_ack(event.newest_sent_at) {
            self.set_window(self.recovery.restored(self.window));
        }
        self.idle = event.in_flight == 0 && event.app_limited;
        let Some(sample) = &event.rate else { return };
        self.delivered = sample.delivered_total;
        let sample = self.probe_rtt.mark_app_limited(sample);
        let ack = Ack { now: event.now, bytes: event.bytes, in_flight: event.in_flight, sample };
        self.update_model(&ack);
        if self.pacing.is_none() && rtt.has_sample() {
            self.pacing = Some(self.initial_pacing_rate(rtt));
        }
        self.set_pacing_rate(self.state.pacing_percent());
        self.update_window(&ack);
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.pristine = false;
        self.idle = false;
        self.note_episode(event);
        if event.ecn {
            self.on_mark(event);
        }
        if event.persistent {
            self.on_persistent(event.in_flight);
        }
    }

    /// Implements `HandleLostPacket` (section 5.5.10.2).
    fn on_run_lost(&mut self, now: Instant, loss: &LossSample) {
        self.delivered = loss.delivered_total;
        self.latest.note_loss(loss.delivered_total);
        self.startup_losses.gaps = self.startup_losses.gaps.saturating_add(u32::from(loss.new_gap));
        if self.cycle.is_probe_sample && bounds::is_loss_too_high(loss.lost, loss.in_flight_when_sent) {
            self.on_inflight_too_high(now, bounds::in_flight_at_loss(loss), loss.app_limited);
        }
    }

    fn on_spurious_loss(&mut self, event: &SpuriousLossEvent) {
        self.undo_losses(event);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn in_slow_start(&self) -> bool {
        self.state == BbrState::Startup
    }

    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        self.pacing.unwrap_or_else(|| self.initial_pacing_rate(rtt))
    }

    fn bandwidth(&self) -> Option<Rate> {
        Some(self.max_bandwidth.get()).filter(|rate| self.full_pipe.was_reached() && !rate.is_zero())
    }

    fn set_segment_size(&mut self, bytes: u64) {
        self.segment = clamp_segment(bytes);
        self.initial_window = initial_window(bytes);
        self.set_window(if self.pristine { self.initial_window } else { self.window });
    }

    fn snapshot(&self) -> CongestionSnapshot {
        CongestionSnapshot {
            window: self.window,
            slow_start_threshold: None,
            phase: self.state.name(),
            name: Algorithm::Bbr.name(),
        }
    }

    fn fresh(&self) -> Box<dyn CongestionController> {
        // Split from the current generator state, so that the new controller probes at different
        // times.
        Box::new(Self::new(self.segment, self.rng.split("fresh")))
    }
}

#[cfg(test)]
mod tests;
