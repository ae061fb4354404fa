//! Round trips counted in packets: a round ends when a packet sent after its beginning is
//! acknowledged (section 5.5.1). The module also records whether the window was fully used in the
//! last rounds.

use crate::delivery_rate::RateSample;

/// The current round.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    /// Delivered bytes that end the round: it ends with the acknowledgement of a packet that was
    /// sent when at least this many bytes were delivered.
    end_delivered: u64,
    count: u64,
    started: bool,
}

impl Rounds {
    /// Processes one acknowledgement. Returns true if it begins a round.
    pub(super) fn update(&mut self, sample: &RateSample) -> bool {
        self.started = sample.prior_delivered >= self.end_delivered;
        if self.started {
            self.restart(sample.delivered_total);
            self.count += 1;
        }
        self.started
    }

    /// Restarts the round with the next packet sent: `StartRound`.
    pub(super) fn restart(&mut self, delivered_total: u64) {
        self.end_delivered = delivered_total;
    }

    /// Returns whether the last acknowledgement began a round.
    pub(super) const fn started(&self) -> bool {
        self.started
    }

    /// Returns the number of rounds so far.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

/// Whether the window was fully used in this or the last round: `is_cwnd_limited` (section 2.2).
#[derive(Debug, Clone, Default)]
pub(super) struct WindowUsage {
    this_round: bool,
    last_round: bool,
}

impl WindowUsage {
    pub(super) fn on_limited(&mut self) {
        self.this_round = true;
    }

    pub(super) fn on_round(&mut self) {
        self.last_round = std::mem::take(&mut self.this_round);
    }

    pub(super) const fn is_limited(&self) -> bool {
        self.this_round || self.last_round
    }
}
