//! Interface of every controller, and the state it reports.

use core::fmt;

use units::{Instant, Rate};

use super::event::{AckEvent, LossEvent, SpuriousLossEvent};
use crate::delivery_rate::LossSample;
use crate::rtt::RttEstimator;

/// The state of a controller, for logs and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The algorithm's name in the form displayed by [`super::Algorithm`].
    pub name: &'static str,
}

/// A congestion controller for one path.
///
/// The times passed to it must never go backwards. Every call performs a small, bounded number of
/// integer operations and allocates nothing.
pub trait CongestionController: Send + fmt::Debug {
    /// Handles the sending of `bytes`; `in_flight` includes them.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);

    /// Handles the acknowledgement of packets. If the same acknowledgement also revealed losses,
    /// they must be reported first.
    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator);

    /// Handles lost or marked packets. Reduces the window at most once per round trip: packets sent
    /// before the last reduction carry no new information (RFC 9002, section 7.3.2). Persistent
    /// congestion always takes effect.
    fn on_loss(&mut self, event: &LossEvent);

    /// Handles each run of lost packets, oldest first, after the [`Self::on_loss`] that counts them
    /// all. Does nothing by default: loss-based controllers need only the sum.
    fn on_run_lost(&mut self, _now: Instant, _loss: &LossSample) {}

    /// Handles the peer's report that the network marked `marked` of `packets` newly acknowledged
    /// packets. It precedes the [`Self::on_loss`] and the [`Self::on_ack`] of the same
    /// acknowledgement. Does nothing by default.
    fn on_ecn_report(&mut self, _packets: u64, _marked: u64) {}

    /// Handles the acknowledgement of packets that were declared lost. A controller may undo a
    /// reduction if all its losses were spurious. Does nothing by default.
    fn on_spurious_loss(&mut self, _event: &SpuriousLossEvent) {}

    /// Returns the number of bytes that may be in flight. It is at least two segments and at most
    /// [`super::WINDOW_MAX`].
    fn window(&self) -> u64;

    /// Returns true while the window grows by the acknowledged bytes; for BBR in Startup.
    fn in_slow_start(&self) -> bool;

    /// Returns the pacing rate: `N * window / smoothed` (RFC 9002, section 7.7). N is 2 in slow
    /// start, because the window may double within the paced round trip, and 5/4 afterwards, so
    /// that round-trip variation does not leave the window unused.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let window = self.window();
        let paced = if self.in_slow_start() { window.saturating_mul(2) } else { window.saturating_add(window / 4) };
        Rate::from_transfer(paced, rtt.smoothed()).unwrap_or(Rate::MAX)
    }

    /// Returns the measured bandwidth of the path, for controllers that measure it; `None` while
    /// the controller has not found the limit.
    fn bandwidth(&self) -> Option<Rate> {
        None
    }

    /// Returns whether the window and the pace follow a model of the path. Such a controller
    /// spreads its reductions itself; the reductions of other controllers are spread by
    /// proportional rate reduction (RFC 9937) in transports that support it. False by default.
    fn is_model_based(&self) -> bool {
        false
    }

    /// Returns whether the reduction is in proportion to the share of marks, so that packets carry
    /// ECT(1) (RFC 9331, section 4.1). False by default: packets then carry ECT(0).
    fn is_scalable(&self) -> bool {
        false
    }

    /// Sets the size of the largest packet to `bytes`. Before the first acknowledgement or loss
    /// this sets the initial window (RFC 9002, section 7.2); later it changes only the minimum and
    /// the growth.
    fn set_segment_size(&mut self, bytes: u64);

    /// Returns the state for logs and statistics.
    fn snapshot(&self) -> CongestionSnapshot;

    /// Returns a new controller of the same algorithm and segment size in its initial state, for a
    /// path that moved to a new address (RFC 9000, section 9.4).
    fn fresh(&self) -> Box<dyn CongestionController>;
}
