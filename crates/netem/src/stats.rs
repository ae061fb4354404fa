//! What happened on a link, counted.

use units::Duration;

/// Counters of one link since it was made. Bytes are packet lengths, without the line's overhead.
///
/// At every moment `offered + duplicated = delivered + gone() + held`, where `held` is
/// [`Link::held`](crate::Link::held): each packet that is gone is counted by exactly one of the counters in
/// [`gone`](Self::gone).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub offered: u64,
    /// Bytes in them.
    pub offered_bytes: u64,
    /// Packets that have arrived, copies included.
    pub delivered: u64,
    /// Bytes in them.
    pub delivered_bytes: u64,
    /// Packets that vanished on the way, by [`LinkConfig::loss`](crate::LinkConfig::loss) alone.
    pub lost: u64,
    /// Packets that vanished on the way, by [`LinkConfig::burst_loss`](crate::LinkConfig::burst_loss).
    pub lost_in_bursts: u64,
    /// Packets that vanished because the link was [cut silently](crate::LineState::Silent).
    pub vanished: u64,
    /// Packets that found the queue, or the whole link, full.
    pub overflowed: u64,
    /// Packets that [CoDel](crate::CoDel) dropped because they, and those before them, had waited too long.
    pub dropped_by_codel: u64,
    /// Packets that CoDel marked instead.
    pub marked: u64,
    /// Packets that arrive later than their turn, by [`LinkConfig::reorder`](crate::LinkConfig::reorder).
    pub reordered: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with a fault in them.
    pub corrupted: u64,
    /// The longest queue so far, in bytes with overhead, without the packet on the line.
    pub queue_bytes_max: u64,
    /// Packets that the line has begun to carry.
    pub carried: u64,
    /// Bytes in them, with the line's overhead.
    pub carried_bytes: u64,
    /// For how long packets were on the line, all together: those that have left it, the time included for which it was held. Zero if
    /// the line has no rate, and of a trace the waiting of what needs several opportunities alone. Saturates.
    pub on_line: Duration,
    /// For how long they had waited before, all together. Saturates.
    pub queue_delay_sum: Duration,
    /// For how long one of them had waited at most.
    pub queue_delay_max: Duration,
}

impl LinkStats {
    /// Packets that will not arrive: lost, lost in bursts, vanished, overflowed and dropped by CoDel.
    pub const fn gone(&self) -> u64 {
        self.lost + self.lost_in_bursts + self.vanished + self.overflowed + self.dropped_by_codel
    }

    /// For how long a packet that the line carried had waited on average, rounded down; zero if there was none.
    pub fn queue_delay_mean(&self) -> Duration {
        self.queue_delay_sum / self.carried.max(1)
    }
}
