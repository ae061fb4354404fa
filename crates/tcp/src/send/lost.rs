//! [`Lost`]: losses that were found together.

use recovery::{DeliveryRate, LossSample};
use units::Instant;

use super::log::Run;

/// Runs that were declared lost together.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) bytes: u64,
    pub(super) newest_sent_at: Option<Instant>,
    pub(super) samples: Vec<LossSample>,
    /// Whether a probe for a larger size was among them; it does not count.
    pub(super) has_probe: bool,
}

impl Lost {
    pub(super) fn add(&mut self, run: &Run, delivery: &mut DeliveryRate) {
        self.bytes += run.len();
        self.newest_sent_at = Some(self.newest_sent_at.map_or(run.sent_at, |at| at.max(run.sent_at)));
        self.samples.push(delivery.on_lost(&run.stamp, run.transmission..run.transmission + 1, run.len()));
    }
}
