//! [`Costs`]: the processor time that a host spends.

use units::Duration;

/// The processor time of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Of a segment that leaves.
    pub sent: SegmentCost,
    /// Of a segment that arrives.
    pub received: SegmentCost,
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
        self.segment + Duration::from_nanos(self.byte_ps.saturating_mul(data_len as u64) / 1000)
    }
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
