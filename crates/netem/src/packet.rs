//! What a link needs to know about a packet.

use units::Rng;

/// Something that travels over a link.
pub trait Packet {
    /// Its length in bytes, without what [`LinkConfig::overhead_bytes`](crate::LinkConfig::overhead_bytes) adds.
    fn len_bytes(&self) -> usize;

    /// A copy that arrives beside it.
    #[must_use]
    fn duplicate(&self) -> Self;

    /// Changes it, as a fault on the way would. Draws from `rng` only. Called for packets of at least one byte.
    fn corrupt(&mut self, rng: &mut Rng);

    /// Marks that it met congestion (CE, RFC 3168, section 5), if it says that both ends understand the mark; whether it
    /// does. A packet that is marked already stays so and returns true. By default it does not, and is dropped instead.
    fn mark_ce(&mut self) -> bool {
        false
    }
}

/// The bytes of a packet. Corruption turns one bit around.
impl Packet for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        if self.is_empty() {
            return;
        }
        let bit = rng.below(self.len() as u64 * 8);
        self[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// A packet of which only the length, and what happened to it, matters: for simulations of queues and controllers, where
/// bytes would cost memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LengthOnly {
    /// Length in bytes.
    pub bytes: usize,
    /// True once a fault has hit it.
    pub corrupted: bool,
    /// Whether and how it takes part in congestion notification.
    pub ecn: Ecn,
}

/// The ECN field of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Its ends do not understand marks: Not-ECT.
    Incapable,
    /// It may be marked: ECT.
    Capable,
    /// It met congestion: CE.
    Marked,
}

impl LengthOnly {
    /// An intact packet of `bytes` bytes that cannot be marked.
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, corrupted: false, ecn: Ecn::Incapable }
    }

    /// An intact packet of `bytes` bytes that may be marked.
    pub const fn ecn_capable(bytes: usize) -> Self {
        Self { bytes, corrupted: false, ecn: Ecn::Capable }
    }
}

impl Packet for LengthOnly {
    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn duplicate(&self) -> Self {
        *self
    }

    fn corrupt(&mut self, _rng: &mut Rng) {
        self.corrupted = true;
    }

    fn mark_ce(&mut self) -> bool {
        if self.ecn == Ecn::Incapable {
            return false;
        }
        self.ecn = Ecn::Marked;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_turns_exactly_one_bit_around_and_reaches_them_all() {
        let mut rng = Rng::from_seed(4);
        let mut seen = [false; 24];
        for _ in 0..1000 {
            let mut packet = vec![0_u8; 3];
            packet.corrupt(&mut rng);
            assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            let index = packet.iter().position(|&byte| byte != 0).unwrap();
            seen[index * 8 + packet[index].trailing_zeros() as usize] = true;
        }
        assert_eq!(seen, [true; 24]);
        let mut nothing = Vec::new();
        nothing.corrupt(&mut rng);
        assert!(nothing.is_empty());
    }
}
