//! Sequence numbers that wrap around.

/// A 32-bit sequence number modulo 2^32, as in TCP (RFC 9293, section 3.4). Numbers are compared by
/// signed distance, so the order is correct while two numbers are less than 2^31 apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seq32(u32);

impl Seq32 {
    /// Creates the sequence number `value`.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Returns the number as sent on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the signed distance from `other` to `self`.
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Returns true if `self` comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Returns true if `self` comes after `other`.
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

impl core::ops::Add<u32> for Seq32 {
    type Output = Self;
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl core::ops::Sub<u32> for Seq32 {
    type Output = Self;
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_preserved_across_the_wrap(start: u32, step in 1u32..0x8000_0000) {
            let (first, second) = (Seq32::new(start), Seq32::new(start) + step);
            if step < 0x8000_0000 {
                prop_assert!(first.is_before(second));
                prop_assert!(second.is_after(first));
                prop_assert!(!second.is_before(first));
                prop_assert_eq!(second - step, first);
            }
        }
    }

    #[test]
    fn a_number_is_neither_before_nor_after_itself() {
        let seq = Seq32::new(u32::MAX);
        assert!(!seq.is_before(seq) && !seq.is_after(seq));
        assert_eq!((seq + 1).get(), 0);
    }
}
