//! What happened on a link, counted.

/// Counters of one link since it was made. Bytes are packet lengths, without the line's overhead.
///
/// At every moment `offered + duplicated = delivered + lost + overflowed + held`, where `held` is
/// [`Link::held`](crate::Link::held).
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
    /// Packets that vanished on the way, by [`LinkConfig::loss`](crate::LinkConfig::loss).
    pub lost: u64,
    /// Packets that found the queue, or the whole link, full.
    pub overflowed: u64,
    /// Packets that arrive later than their turn.
    pub reordered: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with a fault in them.
    pub corrupted: u64,
    /// The longest queue so far, in bytes with overhead, without the packet on the line.
    pub queue_bytes_max: u64,
}
