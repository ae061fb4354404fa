//! [`Costs`]: the processor time of a host's work.

use units::Duration;

/// Processor time of a host's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Cost of an outgoing segment in its connection.
    pub sent: SegmentCost,
    /// Cost of an incoming segment in its connection.
    pub received: SegmentCost,
    /// Cost of an outgoing segment at the interface, after its connection has planned it.
    pub link_out: SegmentCost,
    /// Cost of an incoming segment at the interface, before its connection sees it.
    pub link_in: SegmentCost,
    /// Cost of connection-independent work on a segment, such as its digest, in both directions.
    pub stage: SegmentCost,
    /// Cost of sealing or opening a byte of the application in a record, in picoseconds.
    pub record_byte_ps: u64,
    /// Spread of the cost of connection-independent work, in percent: it is uniformly distributed
    /// around its value, because caches and memory vary.
    pub spread_percent: u8,
    /// Cost of an application call, including the switch to the application.
    pub call: Duration,
}

/// Processor time of a segment: a constant, and a share for each byte of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentCost {
    /// Cost of any segment.
    pub segment: Duration,
    /// Cost of each byte of data, in picoseconds.
    pub byte_ps: u64,
}

impl SegmentCost {
    /// Returns the cost of a segment with `data_len` bytes of data.
    pub fn of(&self, data_len: usize) -> Duration {
        self.segment + bytes(self.byte_ps, data_len)
    }

    /// Returns the cost of segments with these numbers of data bytes.
    pub(crate) fn of_all(&self, lens: impl Iterator<Item = usize>) -> Duration {
        lens.fold(Duration::ZERO, |sum, len| sum + self.of(len))
    }
}

/// Returns the cost of `len` bytes.
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
