//! Round trips counted by packets: one ends when something is acknowledged that was sent after it began (section 5.5.1).

use crate::delivery_rate::RateSample;

/// The present round.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    /// A packet sent when at least so much was delivered ends the round.
    end_delivered: u64,
    count: u64,
    started: bool,
}

impl Rounds {
    /// Takes one acknowledgement; true if a round began with it.
    pub(super) fn update(&mut self, sample: &RateSample) -> bool {
        self.started = sample.prior_delivered >= self.end_delivered;
        if self.started {
            self.restart(sample.delivered_total);
            self.count += 1;
        }
        self.started
    }

    /// Lets the round begin anew with the next packet sent: `StartRound`.
    pub(super) fn restart(&mut self, delivered_total: u64) {
        self.end_delivered = delivered_total;
    }

    /// The last acknowledgement began a round.
    pub(super) const fn started(&self) -> bool {
        self.started
    }

    /// Rounds so far.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}
