//! How much may be in flight (RFC 9002, section 7).
//!
//! A controller is told what was sent, acknowledged and lost, and answers with a window in bytes. It sees no packets and
//! no connection. `window` holds what every loss-based controller has in common; [`new_reno`] is RFC 9002's own
//! controller, the yardstick; [`cubic`] with [`hystart`] is the default; [`bbr`] models the path and does not take every loss
//! for congestion.

pub mod bbr;
pub mod cubic;
pub mod hystart;
pub mod new_reno;
mod window;

use core::fmt;
use core::str::FromStr;

use units::{Duration, Instant, Rate, Rng};

use crate::RttEstimator;
use crate::delivery_rate::{LossSample, RateSample};
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use new_reno::NewReno;
pub use window::{WINDOW_MAX, initial_window, minimum_window};

/// What one acknowledgement acknowledged for the first time.
#[derive(Debug, Clone, Copy)]
pub struct AckEvent {
    /// When it arrived.
    pub now: Instant,
    /// Bytes newly acknowledged that counted as in flight.
    pub bytes: u64,
    /// When the newest of the newly acknowledged packets was sent.
    pub newest_sent_at: Instant,
    /// Bytes in flight after this acknowledgement.
    pub in_flight: u64,
    /// The window was not in use when these packets were sent: the application, the peer's flow control or the
    /// anti-amplification limit held sending back. Waiting for the pacer does not count (RFC 9002, section 7.8).
    pub app_limited: bool,
    /// This is the first acknowledgement of a packet sent after the end of the last round was acknowledged, so a new
    /// round begins with it. A round is one window's worth of packets (RFC 9406, section 4.2, `windowEnd`).
    pub round_ended: bool,
    /// The round-trip sample of this acknowledgement; the last one taken if it gave none.
    pub latest_rtt: Duration,
    /// What it says about the path's rate, by [`crate::DeliveryRate::take_sample`] after the losses of this
    /// acknowledgement. Controllers that go by losses ignore it, and BBR does nothing without.
    pub rate: Option<RateSample>,
}

/// What one acknowledgement or one firing of the loss timer showed to be lost, or that the network marked packets.
#[derive(Debug, Clone, Copy)]
pub struct LossEvent {
    /// When it was noticed.
    pub now: Instant,
    /// When the newest lost packet was sent; for a mark, the newest acknowledged packet (RFC 9002, section 7.1 and
    /// appendix B.7).
    pub newest_lost_sent_at: Instant,
    /// Bytes lost. Zero for a mark.
    pub bytes: u64,
    /// Bytes in flight after the lost ones were taken out.
    pub in_flight: u64,
    /// Persistent congestion was established: see [`crate::PersistentCongestion`].
    pub persistent: bool,
    /// The network marked packets (ECN-CE) instead of dropping them.
    pub ecn: bool,
}

/// Packets that were declared lost and acknowledged after all.
#[derive(Debug, Clone, Copy)]
pub struct SpuriousLossEvent {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// When the newest of these packets was sent.
    pub newest_sent_at: Instant,
    /// Their bytes, as they were counted in [`LossEvent::bytes`].
    pub bytes: u64,
}

/// What a controller looks like from outside, for logs and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionSnapshot {
    /// The congestion window, bytes.
    pub window: u64,
    /// Where slow start ends, bytes; `None` until the first congestion event or until HyStart++ found it, and for BBR.
    pub slow_start_threshold: Option<u64>,
    /// `slow_start`, `conservative_slow_start`, `recovery` or `congestion_avoidance`; for BBR `startup`, `drain`,
    /// `probe_bw_down`, `probe_bw_cruise`, `probe_bw_refill`, `probe_bw_up` or `probe_rtt`.
    pub phase: &'static str,
    /// The algorithm, as [`Algorithm`] prints it.
    pub name: &'static str,
}

/// A congestion controller for one path.
///
/// Times given to it never go backwards. Every call costs a bounded handful of integer operations and allocates nothing.
pub trait CongestionController: Send + fmt::Debug {
    /// `bytes` were sent; `in_flight` includes them.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);

    /// Packets were acknowledged. If the same acknowledgement also revealed losses, tell of those first.
    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator);

    /// Packets were lost or marked. Reduces the window at most once a round trip: packets sent before the last
    /// reduction tell nothing new (RFC 9002, section 7.3.2). Persistent congestion always takes effect.
    fn on_loss(&mut self, event: &LossEvent);

    /// Tells of each row of packets lost, after the [`Self::on_loss`] that counts them all, oldest first. Does nothing by
    /// default: controllers that go by losses need no more than the sum.
    fn on_row_lost(&mut self, _now: Instant, _loss: &LossSample) {}

    /// Packets declared lost were acknowledged after all. A controller may undo a reduction that has lost all its
    /// reasons. Does nothing by default.
    fn on_spurious_loss(&mut self, _event: &SpuriousLossEvent) {}

    /// Bytes that may be in flight. At least two segments, at most [`WINDOW_MAX`].
    fn window(&self) -> u64;

    /// True while the window grows by what is acknowledged; for BBR in Startup.
    fn in_slow_start(&self) -> bool;

    /// The rate at which to release packets: `N * window / smoothed` (RFC 9002, section 7.7). N is 2 in slow start,
    /// since the window may double within the round trip that is being paced, and 5/4 afterwards, so that variation of
    /// the round trip does not leave the window unused.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let window = self.window();
        let paced = if self.in_slow_start() { window.saturating_mul(2) } else { window.saturating_add(window / 4) };
        Rate::from_transfer(paced, rtt.smoothed()).unwrap_or(Rate::MAX)
    }

    /// What the path was measured to deliver, by controllers that measure it; none while they have not found its limit.
    fn bandwidth(&self) -> Option<Rate> {
        None
    }

    /// The largest packet is now `bytes` long. Before the first acknowledgement or loss this sets the initial window
    /// anew (RFC 9002, section 7.2); later it only moves the minimum and the speed of growth.
    fn set_segment_size(&mut self, bytes: u64);

    /// The state for logs and statistics.
    fn snapshot(&self) -> CongestionSnapshot;

    /// A new controller of the same algorithm and segment size that has seen nothing: for a path that was moved to a new
    /// address (RFC 9000, section 9.4).
    fn fresh(&self) -> Box<dyn CongestionController>;
}

/// The algorithms to choose from. Read and printed as `newreno`, `cubic` and `bbr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// RFC 9002, section 7.3 and appendix B, with standard slow start.
    NewReno,
    /// RFC 9438, with HyStart++ (RFC 9406) in the first slow start.
    #[default]
    Cubic,
    /// BBRv3 (draft-ietf-ccwg-bbr-06). Needs delivery-rate samples: see [`AckEvent::rate`].
    Bbr,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::NewReno, Self::Cubic, Self::Bbr];

    /// [`Self::build_seeded`] with one fixed seed: for one flow alone, or an algorithm that draws nothing. Flows that share
    /// a path should differ.
    pub fn build(self, segment_size: u64) -> Box<dyn CongestionController> {
        self.build_seeded(segment_size, &Rng::from_seed(0))
    }

    /// A controller with the initial window for packets of at most `segment_size` bytes. Only BBR draws from a generator of
    /// its own, split from `rng`, for the times of its probes.
    pub fn build_seeded(self, segment_size: u64, rng: &Rng) -> Box<dyn CongestionController> {
        match self {
            Self::NewReno => Box::new(NewReno::new(segment_size)),
            Self::Cubic => Box::new(Cubic::new(segment_size)),
            Self::Bbr => Box::new(Bbr::new(segment_size, rng.split("bbr"))),
        }
    }

    /// The name, as printed and parsed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is of no algorithm known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseAlgorithmError {
    input: String,
}

impl fmt::Display for ParseAlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no congestion control is called {:?}: expected newreno, cubic or bbr", self.input)
    }
}

impl std::error::Error for ParseAlgorithmError {}

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(input.trim()));
        found.ok_or_else(|| ParseAlgorithmError { input: input.to_owned() })
    }
}

#[cfg(test)]
mod tests;
