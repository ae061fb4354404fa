//! The interface of a packet.

use units::Rng;

/// A packet on a link.
pub trait Packet {
    /// Returns the length in bytes, without
    /// [`LinkConfig::overhead_bytes`](crate::LinkConfig::overhead_bytes).
    fn len_bytes(&self) -> usize;

    /// Returns a copy of the packet.
    #[must_use]
    fn duplicate(&self) -> Self;

    /// Corrupts the packet, with randomness from `rng` only. Called only for packets of at least
    /// one byte.
    fn corrupt(&mut self, rng: &mut Rng);

    /// Sets the congestion mark (CE, RFC 3168, section 5) if the packet is ECN-capable, and returns
    /// whether it is. A marked packet stays marked and returns true. The default is not
    /// ECN-capable, so the packet is dropped instead.
    fn mark_ce(&mut self) -> bool {
        false
    }

    /// Returns whether its sender reacts to frequent marks (ECT(1), RFC 9331, section 4.1). False
    /// by default.
    fn is_scalable(&self) -> bool {
        false
    }
}

/// The bytes of a packet. Corruption flips one bit.
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

/// A packet without contents, for simulations of queues and congestion controllers, where the bytes
/// would only use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LengthOnly {
    /// Length in bytes.
    pub bytes: usize,
    /// Whether the packet was corrupted.
    pub corrupted: bool,
    /// The ECN state.
    pub ecn: Ecn,
}

/// The ECN field of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not ECN-capable (Not-ECT).
    Incapable,
    /// ECN-capable (ECT).
    Capable,
    /// Congestion experienced (CE).
    Marked,
}

impl LengthOnly {
    /// Creates an intact packet of `bytes` bytes that is not ECN-capable.
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, corrupted: false, ecn: Ecn::Incapable }
    }

    /// Creates an intact packet of `bytes` bytes that is ECN-capable.
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
    fn corruption_flips_exactly_one_bit_at_any_position() {
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
