//! Counters of a link.

use units::Duration;

/// Counters of one link since its creation. Bytes are packet lengths, without the line's overhead.
///
/// At any time `offered + duplicated = delivered + undelivered() + held`, where `held` is
/// [`Link::held`](crate::Link::held): each packet that will not arrive is counted by exactly one of
/// the counters in [`undelivered`](Self::undelivered).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets sent into the link.
    pub offered: u64,
    /// Bytes in these packets.
    pub offered_bytes: u64,
    /// Packets that have arrived, including copies.
    pub delivered: u64,
    /// Bytes in these packets.
    pub delivered_bytes: u64,
    /// Packets lost by [`LinkConfig::loss`](crate::LinkConfig::loss) alone.
    pub lost: u64,
    /// Packets lost by [`LinkConfig::burst_loss`](crate::LinkConfig::burst_loss).
    pub lost_in_bursts: u64,
    /// Packets dropped during a [silent outage](crate::LineState::Silent).
    pub vanished: u64,
    /// Packets dropped because the queue, or the whole link, was full.
    pub overflowed: u64,
    /// Packets dropped by [CoDel](crate::CoDel).
    pub dropped_by_codel: u64,
    /// Packets marked by CoDel instead, or by a [step](crate::Discipline::Step).
    pub marked: u64,
    /// Packets delayed by [`LinkConfig::reorder`](crate::LinkConfig::reorder).
    pub reordered: u64,
    /// Number of copies made.
    pub duplicated: u64,
    /// Corrupted packets.
    pub corrupted: u64,
    /// The longest queue so far, in bytes including overhead, without the packet in transmission.
    pub queue_bytes_max: u64,
    /// Packets whose transmission has begun.
    pub carried: u64,
    /// Bytes in these packets, including overhead.
    pub carried_bytes: u64,
    /// Total transmission time of departed packets, including time for which the line was held.
    /// Zero if the line has no rate. For a trace it covers only packets that need several
    /// opportunities. Saturates.
    pub on_line: Duration,
    /// Total queueing delay of these packets. Saturates.
    pub queue_delay_sum: Duration,
    /// Longest queueing delay of one packet.
    pub queue_delay_max: Duration,
}

impl LinkStats {
    /// Returns the number of packets that will not arrive: lost, lost in bursts, vanished,
    /// overflowed and dropped by CoDel.
    pub const fn undelivered(&self) -> u64 {
        self.lost + self.lost_in_bursts + self.vanished + self.overflowed + self.dropped_by_codel
    }

    /// Returns the mean queueing delay of the carried packets, rounded down; zero if there were
    /// none.
    pub fn queue_delay_mean(&self) -> Duration {
        self.queue_delay_sum / self.carried.max(1)
    }
}
