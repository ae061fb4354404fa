//! NewReno as defined in RFC 9002 (section 7.3 and appendix B): the simplest safe controller, and
//! the baseline for the others.

use units::Instant;

use super::algorithm::Algorithm;
use super::controller::{CongestionController, CongestionSnapshot};
use super::event::{AckEvent, LossEvent};
use super::window::Window;
use crate::rtt::RttEstimator;

/// NewReno: adds one segment per round trip and halves the window at each congestion event.
#[derive(Debug, Clone)]
pub struct NewReno {
    window: Window,
    /// Bytes acknowledged towards the next segment of growth; less than a window.
    acked_bytes: u64,
}

impl NewReno {
    /// Creates a controller with the initial window for packets of at most `segment_size` bytes.
    pub fn new(segment_size: u64) -> Self {
        Self { window: Window::new(segment_size), acked_bytes: 0 }
    }
}

impl CongestionController for NewReno {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, event: &AckEvent, _rtt: &RttEstimator) {
        let bytes = self.window.creditable(event);
        if bytes == 0 {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(bytes);
            return;
        }
        // RFC 9002, section 7.3.3: at most one segment per acknowledged window. `bytes` is at most
        // one window, so this loop runs at most twice.
        self.acked_bytes += bytes;
        while self.acked_bytes >= self.window.bytes() {
            self.acked_bytes -= self.window.bytes();
            self.window.grow_by(self.window.segment());
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        let reduction = self.window.on_loss(event);
        if reduction.multiply {
            self.acked_bytes = 0;
            // RFC 9002, appendix B.1: kLossReductionFactor is one half.
            let half = self.window.bytes() / 2;
            self.window.set_threshold(Some(half));
            self.window.set(half);
        }
        if reduction.collapse {
            // RFC 9002, section 7.6.2: down to the minimum.
            self.acked_bytes = 0;
            self.window.set(0);
        }
    }

    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    fn set_segment_size(&mut self, bytes: u64) {
        self.window.set_segment(bytes);
    }

    fn snapshot(&self) -> CongestionSnapshot {
        CongestionSnapshot {
            window: self.window.bytes(),
            slow_start_threshold: self.window.threshold(),
            phase: self.window.phase(),
            name: Algorithm::NewReno.name(),
        }
    }

    fn fresh(&self) -> Box<dyn CongestionController> {
        Box::new(Self::new(self.window.segment()))
    }
}
