//! State of the probing cycle: when the next probe is due, and how fast its bound rises (section
//! 5.3.3). `probe_bw` moves through the cycle.

use units::{Duration, Instant, Rng};

use super::bounds::UNBOUNDED;

/// The shortest time between probes (section 5.3.3.8.3): long enough for a Reno flow with a 30 ms
/// round trip to regain 25 Mb/s.
const WAIT_MIN: Duration = Duration::from_secs(2);
/// Upper bound of the random addition, so that flows do not probe together.
const WAIT_SPREAD: Duration = Duration::from_secs(1);
/// Largest number of times that one probe doubles the slope of the long-term bound (section
/// 5.3.3.9).
const SLOPE_DOUBLINGS_MAX: u32 = 30;

/// The relation of arriving acknowledgements to the last probe (section 2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Not related to a probe.
    Idle,
    /// The path is being refilled.
    Refilling,
    /// The probe was sent, and none of it is acknowledged yet.
    ProbeStarting,
    /// Packets sent in the probe are being acknowledged.
    ProbeFeedback,
    /// The probe has ended; its last packets are still being acknowledged.
    ProbeStopping,
}

/// The state of the probing cycle.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    /// Whether losses now concern packets of a probe: `is_bw_probe_sample`.
    pub(super) is_probe_sample: bool,
    pub(super) started_at: Instant,
    pub(super) wait: Duration,
    pub(super) rounds_since_probe: u64,
    /// Number of rounds over which the long-term bound has grown in this probe.
    pub(super) growing_rounds: u32,
    pub(super) acked: u64,
    /// Number of bytes that must be acknowledged for the bound to grow by one segment.
    pub(super) acked_per_segment: u64,
    pub(super) prev_probe_too_high: bool,
    pub(super) prev_probe_precautionary: bool,
}

impl Cycle {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            ack_phase: AckPhase::Idle,
            is_probe_sample: false,
            started_at: now,
            wait: Duration::ZERO,
            rounds_since_probe: 0,
            growing_rounds: 0,
            acked: 0,
            acked_per_segment: UNBOUNDED,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
        }
    }

    pub(super) fn on_round(&mut self) {
        self.rounds_since_probe += 1;
    }

    /// Implements `PickProbeWait` (section 5.3.3.8.3).
    pub(super) fn pick_wait(&mut self, rng: &mut Rng) {
        self.rounds_since_probe = rng.below(2);
        self.wait = WAIT_MIN + Duration::from_nanos(rng.below(WAIT_SPREAD.as_nanos()));
    }

    /// Implements `RaiseInflightLongtermSlope`: 1, 2, 4, ... segments per round.
    pub(super) fn raise_slope(&mut self, window: u64, segment: u64) {
        self.acked_per_segment = (window >> self.growing_rounds).max(segment);
        self.growing_rounds = (self.growing_rounds + 1).min(SLOPE_DOUBLINGS_MAX);
    }
}
