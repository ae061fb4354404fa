//! No congestion control.

use units::{Instant, Rate};

use super::controller::{CongestionController, CongestionSnapshot};
use super::event::{AckEvent, LossEvent};
use super::window::WINDOW_MAX;
use crate::rtt::RttEstimator;

/// A controller that permits everything at any time: only the receiver's window limits the data in
/// flight, as in RFC 793. No [`Algorithm`](super::Algorithm) selects it: it is for models and
/// closed networks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl CongestionController for Unlimited {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, _event: &AckEvent, _rtt: &RttEstimator) {}

    fn on_loss(&mut self, _event: &LossEvent) {}

    fn window(&self) -> u64 {
        WINDOW_MAX
    }

    fn in_slow_start(&self) -> bool {
        false
    }

    fn pacing_rate(&self, _rtt: &RttEstimator) -> Rate {
        Rate::MAX
    }

    fn set_segment_size(&mut self, _bytes: u64) {}

    fn snapshot(&self) -> CongestionSnapshot {
        CongestionSnapshot { window: WINDOW_MAX, slow_start_threshold: None, phase: "unlimited", name: "unlimited" }
    }

    fn fresh(&self) -> Box<dyn CongestionController> {
        Box::new(*self)
    }
}
