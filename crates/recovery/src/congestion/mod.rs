//! Congestion control: how much data may be in flight (RFC 9002, section 7).
//!
//! A controller is notified of sent, acknowledged and lost bytes, and returns a window in bytes. It
//! knows neither packets nor connections. `window` holds what loss-based controllers share.
//! [`new_reno`] is the controller of RFC 9002 and serves as the baseline. [`cubic`] with
//! [`hystart`] is the default. [`bbr`] models the path and does not treat every loss as congestion.

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

/// The packets newly acknowledged by one acknowledgement.
#[derive(Debug, Clone, Copy)]
pub struct AckEvent {
    /// Arrival time of the acknowledgement.
    pub now: Instant,
    /// Newly acknowledged bytes that counted as in flight.
    pub bytes: u64,
    /// Send time of the newest of the newly acknowledged packets.
    pub newest_sent_at: Instant,
    /// Bytes in flight after this acknowledgement.
    pub in_flight: u64,
    /// The window was not fully used when these packets were sent: the application, the peer's flow
    /// control or the anti-amplification limit limited sending. Waiting for the pacer does not
    /// count (RFC 9002, section 7.8).
    pub app_limited: bool,
    /// This is the first acknowledgement of a packet sent after the end of the last round was
    /// acknowledged, so it begins a new round. A round is one window's worth of packets (RFC 9406,
    /// section 4.2, `windowEnd`).
    pub round_ended: bool,
    /// The round-trip sample of this acknowledgement, or the previous sample if it gave none.
    pub latest_rtt: Duration,
    /// The delivery-rate sample from [`crate::DeliveryRate::take_sample`], taken after the losses
    /// of this acknowledgement. Loss-based controllers ignore it; BBR requires it.
    pub rate: Option<RateSample>,
}

/// Packets found lost by one acknowledgement or by the loss timer, or marked by the network.
#[derive(Debug, Clone, Copy)]
pub struct LossEvent {
    /// Time of the detection.
    pub now: Instant,
    /// Send time of the newest lost packet; for a mark, of the newest acknowledged packet (RFC
    /// 9002, section 7.1 and appendix B.7).
    pub newest_lost_sent_at: Instant,
    /// Bytes lost. Zero for a mark.
    pub bytes: u64,
    /// Bytes in flight after the lost bytes were removed.
    pub in_flight: u64,
    /// Persistent congestion was established: see [`crate::PersistentCongestion`].
    pub persistent: bool,
    /// The network marked packets (ECN-CE) instead of dropping them.
    pub ecn: bool,
}

/// Packets declared lost that were acknowledged later.
#[derive(Debug, Clone, Copy)]
pub struct SpuriousLossEvent {
    /// Arrival time of the acknowledgement.
    pub now: Instant,
    /// Send time of the newest of these packets.
    pub newest_sent_at: Instant,
    /// Their bytes, as counted in [`LossEvent::bytes`].
    pub bytes: u64,
}

/// The state of a controller, for logs and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionSnapshot {
    /// The congestion window in bytes.
    pub window: u64,
    /// The slow-start threshold in bytes. `None` until the first congestion event or until
    /// HyStart++ found it, and for BBR.
    pub slow_start_threshold: Option<u64>,
    /// `slow_start`, `conservative_slow_start`, `recovery` or `congestion_avoidance`; for BBR
    /// `startup`, `drain`, `probe_bw_down`, `probe_bw_cruise`, `probe_bw_refill`, `probe_bw_up` or
    /// `probe_rtt`.
    pub phase: &'static str,
    /// The algorithm's name, as [`Algorithm`] displays it.
    pub name: &'static str,
}

/// A congestion controller for one path.
///
/// The times passed to it must never go backwards. Every call performs a small, bounded number of
/// integer operations and allocates nothing.
pub trait CongestionController: Send + fmt::Debug {
    /// `bytes` were sent; `in_flight` includes them.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);

    /// Packets were acknowledged. If the same acknowledgement also revealed losses, the losses must
    /// be reported first.
    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator);

    /// Packets were lost or marked. Reduces the window at most once per round trip: packets sent
    /// before the last reduction carry no new information (RFC 9002, section 7.3.2). Persistent
    /// congestion always takes effect.
    fn on_loss(&mut self, event: &LossEvent);

    /// Reports each run of lost packets, oldest first, after the [`Self::on_loss`] that counts them
    /// all. Does nothing by default: loss-based controllers need only the sum.
    fn on_run_lost(&mut self, _now: Instant, _loss: &LossSample) {}

    /// Packets declared lost were acknowledged after all. A controller may undo a reduction if all
    /// its losses were spurious. Does nothing by default.
    fn on_spurious_loss(&mut self, _event: &SpuriousLossEvent) {}

    /// Bytes that may be in flight. At least two segments, at most [`WINDOW_MAX`].
    fn window(&self) -> u64;

    /// True while the window grows by the acknowledged bytes; for BBR in Startup.
    fn in_slow_start(&self) -> bool;

    /// The pacing rate: `N * window / smoothed` (RFC 9002, section 7.7). N is 2 in slow start,
    /// because the window may double within the paced round trip, and 5/4 afterwards, so that
    /// round-trip variation does not leave the window unused.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let window = self.window();
        let paced = if self.in_slow_start() { window.saturating_mul(2) } else { window.saturating_add(window / 4) };
        Rate::from_transfer(paced, rtt.smoothed()).unwrap_or(Rate::MAX)
    }

    /// The measured bandwidth of the path, for controllers that measure it; `None` while the
    /// controller has not found the limit.
    fn bandwidth(&self) -> Option<Rate> {
        None
    }

    /// Sets the size of the largest packet to `bytes`. Before the first acknowledgement or loss
    /// this sets the initial window (RFC 9002, section 7.2); later it changes only the minimum and
    /// the growth.
    fn set_segment_size(&mut self, bytes: u64);

    /// The state for logs and statistics.
    fn snapshot(&self) -> CongestionSnapshot;

    /// A new controller of the same algorithm and segment size in its initial state, for a path
    /// that moved to a new address (RFC 9000, section 9.4).
    fn fresh(&self) -> Box<dyn CongestionController>;
}

/// The available algorithms. Parsed and displayed as `newreno`, `cubic` and `bbr`.
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

    /// [`Self::build_seeded`] with a fixed seed, for a single flow or an algorithm without
    /// randomness. Flows that share a path should use different seeds.
    pub fn build(self, segment_size: u64) -> Box<dyn CongestionController> {
        self.build_seeded(segment_size, &Rng::from_seed(0))
    }

    /// A controller with the initial window for packets of at most `segment_size` bytes. Only BBR
    /// uses randomness: a generator split from `rng`, for the times of its probes.
    pub fn build_seeded(self, segment_size: u64, rng: &Rng) -> Box<dyn CongestionController> {
        match self {
            Self::NewReno => Box::new(NewReno::new(segment_size)),
            Self::Cubic => Box::new(Cubic::new(segment_size)),
            Self::Bbr => Box::new(Bbr::new(segment_size, rng.split("bbr"))),
        }
    }

    /// The name, as displayed and parsed.
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

/// The name is not a known algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseAlgorithmError {
    input: String,
}

impl fmt::Display for ParseAlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control algorithm {:?}: expected newreno, cubic or bbr", self.input)
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
