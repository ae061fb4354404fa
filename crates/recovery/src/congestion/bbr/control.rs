//! Pacing rate and window, computed from the model (section 5.6).

use units::{Duration, Rate};

use super::bounds::UNBOUNDED;
use super::state::BbrState;
use super::{Ack, Bbr};
use crate::congestion::window::{WINDOW_MAX, minimum_window};
use crate::rtt::RttEstimator;

/// The pacing rate stays this percentage below the bandwidth, so that queues drain:
/// `PacingMarginPercent` (section 2.5).
const MARGIN_PERCENT: u64 = 1;
/// Smallest window in segments, except after an outage: `MinPipeCwnd` (section 2.8). Two for a
/// receiver that acknowledges every other packet, and two for the return path.
const PIPE_SEGMENTS_MIN: u64 = 4;
/// The round-trip time assumed for the pacing rate before the first sample (section 5.6.2).
const UNKNOWN_RTT: Duration = Duration::from_millis(1);
/// Bounds of the send quantum, in time at the pacing rate, bytes and segments (section 5.6.3).
const QUANTUM_TIME: Duration = Duration::from_millis(1);
const QUANTUM_BYTES_MAX: u64 = 64 << 10;
const QUANTUM_SEGMENTS_MIN: u64 = 2;
/// Segments added to the window in Up (section 5.6.4.2).
const UP_SEGMENTS: u64 = 2;

impl Bbr {
    /// Returns the bandwidth-delay product: bandwidth times minimum round trip (section 5.6.4.2).
    /// The initial window before the first sample.
    pub(super) fn bdp(&self, bandwidth: Rate) -> u64 {
        self.bdp_percent(bandwidth, 100)
    }

    /// Implements `BDPMultiple`.
    fn bdp_percent(&self, bandwidth: Rate, percent: u64) -> u64 {
        match self.min_rtt.get() {
            Some(rtt) => bandwidth.bytes_in(rtt).min(WINDOW_MAX) * percent / 100,
            None => self.initial_window,
        }
    }

    /// Returns `Inflight(1.0)`: the inflight that keeps the path busy without a queue, including
    /// packets held inside the hosts.
    pub(super) fn inflight(&self, bandwidth: Rate) -> u64 {
        self.with_quantum(self.bdp(bandwidth))
    }

    /// Implements `InflightWithHeadroom`.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        self.bounds.with_headroom(self.segment, self.pipe_min())
    }

    /// Returns `ProbeRTTCwnd` (section 5.6.4.5).
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp_percent(self.bandwidth, BbrState::ProbeRtt.window_percent()).max(self.pipe_min())
    }

    fn pipe_min(&self) -> u64 {
        PIPE_SEGMENTS_MIN * self.segment
    }

    /// Implements `QuantizationBudget`. For QUIC the offload budget is one quantum (section
    /// 5.5.8.2).
    fn with_quantum(&self, bytes: u64) -> u64 {
        let paced = self.pacing.map_or(0, |rate| rate.bytes_in(QUANTUM_TIME));
        let quantum = paced.min(QUANTUM_BYTES_MAX).max(QUANTUM_SEGMENTS_MIN * self.segment);
        let up = if self.state == BbrState::Up { UP_SEGMENTS * self.segment } else { 0 };
        bytes.max(quantum).max(self.pipe_min()) + up
    }

    /// Implements `BoundBWForModel` (section 5.5.10.3).
    pub(super) fn bound_bandwidth(&mut self) {
        self.bandwidth = self.max_bandwidth.get().min(self.bounds.rate_shortterm);
    }

    /// Implements `InitPacingRate` (section 5.6.2), with the current round-trip estimate.
    pub(super) fn initial_pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let span = if rtt.has_sample() { rtt.smoothed() } else { UNKNOWN_RTT };
        let nominal = Rate::from_transfer(self.initial_window, span).unwrap_or(Rate::MAX);
        nominal.mul_ratio(BbrState::Startup.pacing_percent(), 100).max(self.slowest())
    }

    /// Implements `SetPacingRateWithGain` (section 5.6.2). Until the path was full, the rate only
    /// increases.
    pub(super) fn set_pacing_rate(&mut self, percent: u64) {
        if self.bandwidth.is_zero() {
            return;
        }
        let rate = self.bandwidth.mul_ratio(percent * (100 - MARGIN_PERCENT), 100 * 100);
        if self.full_pipe.was_reached() || self.pacing.is_none_or(|pacing| rate > pacing) {
            self.pacing = Some(rate.max(self.slowest()));
        }
    }

    /// Returns one segment per second: the lowest rate, so that the pacer always wakes up again.
    const fn slowest(&self) -> Rate {
        Rate::from_bps(self.segment * 8)
    }

    /// Implements `SetCwnd` (section 5.6.4.6).
    pub(super) fn update_window(&mut self, ack: &Ack) {
        let aggregated = self.bdp_percent(self.bandwidth, self.state.window_percent()) + self.aggregation.extra();
        let max_inflight = self.with_quantum(aggregated);
        let grown = self.window.saturating_add(ack.bytes);
        let window = if self.full_pipe.was_reached() {
            grown.min(max_inflight)
        } else if self.window < max_inflight || self.delivered < self.initial_window {
            grown
        } else {
            self.window
        };
        let probe = if self.state == BbrState::ProbeRtt { self.probe_rtt_window() } else { UNBOUNDED };
        self.set_window(window.max(self.pipe_min()).min(probe).min(self.inflight_cap()));
    }

    /// Implements `BoundCwndForModel` (section 5.6.4.7).
    fn inflight_cap(&self) -> u64 {
        let longterm = match self.state {
            BbrState::Down | BbrState::Refill | BbrState::Up => self.bounds.inflight_longterm,
            BbrState::Cruise | BbrState::ProbeRtt => self.inflight_with_headroom(),
            BbrState::Startup | BbrState::Drain => UNBOUNDED,
        };
        longterm.min(self.bounds.inflight_shortterm).max(self.pipe_min())
    }

    /// Sets the window, within the bounds common to all controllers.
    pub(super) fn set_window(&mut self, bytes: u64) {
        self.window = bytes.clamp(minimum_window(self.segment), WINDOW_MAX);
    }
}
