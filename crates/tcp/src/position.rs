//! Positions in a byte stream: sequence numbers that do not wrap.
//!
//! Position zero is the SYN, the data begin at one, and the FIN takes one position after the last
//! byte (RFC 9293, section 3.4). On the wire a position is the initial sequence number plus its lowest
//! 32 bits.

use units::Seq32;

/// Position of the first byte of data.
pub(crate) const FIRST_BYTE: u64 = 1;

/// Sequence numbers of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceSpace {
    initial: Seq32,
}

impl SequenceSpace {
    pub(crate) const fn new(initial: Seq32) -> Self {
        Self { initial }
    }

    /// Returns the sequence number of a position.
    pub(crate) fn wire(self, position: u64) -> Seq32 {
        self.initial + position as u32
    }

    /// Returns the position of a sequence number that is within 2^31 of `near`; `None` if it lies
    /// before the SYN.
    pub(crate) fn position(self, number: Seq32, near: u64) -> Option<u64> {
        near.checked_add_signed(i64::from(number.distance_from(self.wire(near))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_found_again_near_another_one(initial: u32, at in 0..1u64 << 40, step in -(1i64 << 30)..1i64 << 30) {
            let space = SequenceSpace::new(Seq32::new(initial));
            if let Some(near) = at.checked_add_signed(step) {
                prop_assert_eq!(space.position(space.wire(at), near), Some(at));
            }
        }
    }

    #[test]
    fn nothing_lies_before_the_syn() {
        let space = SequenceSpace::new(Seq32::new(7));
        assert_eq!(space.position(Seq32::new(6), 1), None);
        assert_eq!(space.position(Seq32::new(7), 1), Some(0));
    }
}
