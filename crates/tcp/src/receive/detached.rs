//! A detached receive half and its stand-in: their exchange.

use super::acks::{Announced, Received};
use super::assembler::Assembler;
use super::challenges::Challenges;
use super::{ReceiveHalf, ReceiveStats};
use crate::detached::ReceiveCommands;

impl ReceiveHalf {
    /// Returns a stand-in without data for this half in its connection.
    pub(crate) fn stand_in(&mut self) -> Self {
        let mut received = Received::new(self.received.segment, self.received.clock.clone());
        received.copy(&self.received);
        Self {
            space: self.space,
            terms: self.terms,
            policy: self.policy,
            window_growth: self.window_growth,
            announced_mss: self.announced_mss,
            received,
            announced: self.announced,
            growth: self.growth.take(),
            assembler: Assembler::new(0),
            fin: None,
            urgent_end: self.urgent_end,
            is_expired: self.is_expired,
            old_segments: self.old_segments,
            counters_due: self.counters_due,
            sent: self.sent,
            challenges: Challenges::default(),
            stats: self.stats,
        }
    }

    // ── The half, which has the data ─────────────────────────────────────────────────────────────

    /// Sets the state last announced to the peer.
    pub(crate) fn set_announced(&mut self, announced: Announced) {
        if announced.buffer != self.announced.buffer {
            self.assembler.set_limit(announced.buffer);
        }
        self.announced = announced;
        self.received.on_announced(&announced);
    }

    /// Copies the receive state into a report.
    pub(crate) fn copy_received(&self, into: &mut Option<Received>) {
        into.get_or_insert_with(|| Received::new(0, self.received.clock.clone())).copy(&self.received);
    }

    // ── The stand-in, which makes plans ──────────────────────────────────────────────────────────

    /// Returns the update for the half on what was sent and announced.
    pub(crate) const fn commands(&self, number: u64, sent_end: u64) -> ReceiveCommands {
        ReceiveCommands { number, announced: self.announced, sent_end }
    }

    /// Takes over the receive state of a report.
    pub(crate) fn refresh(&mut self, received: &Received, stats: ReceiveStats, old_segments: u8) {
        self.received.copy(received);
        (self.stats, self.old_segments) = (stats, old_segments);
    }

    /// Takes over the announcements of the stand-in when the half returns.
    pub(crate) fn take_announced(&mut self, stand_in: Self) {
        self.set_announced(stand_in.announced);
        (self.is_expired, self.growth) = (stand_in.is_expired, stand_in.growth);
        self.counters_due = stand_in.counters_due;
    }
}
