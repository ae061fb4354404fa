//! A digest that is cheap enough for every plan and the same on every machine.
//!
//! It detects accidents: a different header, a missing packet, a damaged file. It does not protect
//! against an attacker.

/// Returns the check of a block, seeded with the check of the previous block: it detects changed,
/// missing and moved blocks.
pub fn check_of(chain: u64, block: &[u8]) -> u64 {
    let mut digest = Digest::new(chain);
    digest.bytes(block);
    digest.finish()
}

/// Odd constants of the mixing steps: digits of the golden ratio and of the square root of two.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const SEED: u64 = 0x6a09_e667_f3bc_c909;

/// A running digest of 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

impl Digest {
    /// Creates a digest that begins with `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(SEED ^ seed)
    }

    /// Adds a number.
    #[inline]
    pub fn word(&mut self, word: u64) {
        // Each step maps the state one to one for a given word, so no difference is ever lost; the
        // rotation moves high bits to low ones.
        self.0 = (self.0 ^ word).wrapping_mul(FOLD).rotate_left(29) ^ (word >> 32);
    }

    /// Adds the number of bytes and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    /// Returns the result.
    pub const fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(FOLD);
        mixed ^ (mixed >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the digest as described in `docs/spec/replay.md`.
    #[test]
    fn the_check_of_a_block_is_that_of_the_specification() {
        let block: Vec<u8> = (0..21).collect();
        let mut state = 0x6a09_e667_f3bc_c909_u64 ^ 5;
        for word in [21, 0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x14_1312_1110] {
            state = ((state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29) ^ (word >> 32);
        }
        let m = (state ^ (state >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert_eq!(check_of(5, &block), m ^ (m >> 29));
    }

    #[test]
    fn every_changed_bit_and_every_moved_byte_changes_the_digest() {
        let digest = |bytes: &[u8]| {
            let mut digest = Digest::new(1);
            digest.bytes(bytes);
            digest.finish()
        };
        let bytes: Vec<u8> = (0..37).collect();
        let whole = digest(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&changed), whole, "bit {bit}");
        }
        for at in 1..bytes.len() {
            let mut swapped = bytes.clone();
            swapped.swap(at - 1, at);
            assert_ne!((digest(&swapped), digest(&bytes[..at])), (whole, whole), "byte {at}");
        }
    }
}
