//! [`Costs`]: the processor time that a host spends.

use units::Duration;

/// The processor time of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Of a segment that leaves, in its connection.
    pub sent: SegmentCost,
    /// Of a segment that arrives, in its connection.
    pub received: SegmentCost,
    /// Of a segment that leaves, at the interface: after its connection has planned it.
    pub link_out: SegmentCost,
    /// Of a segment that arrives, at the interface: before its connection sees it.
    pub link_in: SegmentCost,
    /// Of the work on a segment that needs no connection, in both directions, such as its digest.
    pub stage: SegmentCost,
    /// Of sealing or opening a byte of the application in a record, in picoseconds.
    pub record_byte_ps: u64,
    /// Work that needs no connection takes its cost plus or minus at most this much, uniformly
    /// distributed: caches and memory vary.
    pub spread_percent: u8,
    /// Of a call of the application, including the switch to it.
    pub call: Duration,
}

/// The processor time of a segment: a constant, and so much for each byte of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentCost {
    /// Of any segment.
    pub segment: Duration,
    /// Of each byte of data, in picoseconds.
    pub byte_ps: u64,
}

impl SegmentCost {
    /// Of a segment with so many bytes of data.
    pub fn of(&self, data_len: usize) -> Duration {
        self.segment + bytes(self.byte_ps, data_len)
    }

    /// Of segments with so many bytes of data each.
    pub(crate) fn of_all(&self, lens: impl Iterator<Item = usize>) -> Duration {
        lens.fold(Duration::ZERO, |sum, len| sum + self.of(len))
    }
}

/// Returns the time of so many bytes.
pub(crate) fn bytes(byte_ps: u64, len: usize) -> Duration {
    Duration::from_nanos(byte_ps.saturating_mul(len as u64) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_costs_a_constant_and_each_of_its_bytes() {
        let cost = SegmentCost { segment: Duration::from_micros(30), byte_ps: 12_500 };
        assert_eq!(cost.of(0), Duration::from_micros(30));
        assert_eq!(cost.of(8000), Duration::from_micros(130));
    }
}
