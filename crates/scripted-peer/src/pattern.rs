//! The pattern sent when every byte is compared.

use bytes::Bytes;
use units::Rng;

/// Length of the pattern, a prime: no batch size, packet size or power of two is a multiple of it,
/// so a misplaced byte differs.
pub const PATTERN_LEN: usize = 65_521;

/// Endlessly repeated bytes.
#[derive(Clone)]
pub struct Pattern(Bytes);

impl Default for Pattern {
    fn default() -> Self {
        let mut rng = Rng::from_seed(2);
        Self((0..PATTERN_LEN).map(|_| rng.next_u64() as u8).collect::<Vec<_>>().into())
    }
}

impl Pattern {
    /// Creates the pattern, with the same bytes each time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns one period.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the `len` bytes that belong at `offset`, in pieces.
    pub fn at(&self, offset: u64, mut len: usize) -> Vec<&[u8]> {
        let (mut at, mut pieces) = ((offset % PATTERN_LEN as u64) as usize, Vec::new());
        while len > 0 {
            let piece = &self.0[at..PATTERN_LEN.min(at + len)];
            pieces.push(piece);
            (at, len) = (0, len - piece.len());
        }
        pieces
    }

    /// Returns whether these bytes belong at `offset`.
    pub fn matches(&self, offset: u64, mut bytes: &[u8]) -> bool {
        let mut at = (offset % PATTERN_LEN as u64) as usize;
        while !bytes.is_empty() {
            let (here, rest) = bytes.split_at(bytes.len().min(PATTERN_LEN - at));
            if here != &self.0[at..at + here.len()] {
                return false;
            }
            (bytes, at) = (rest, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_match_only_at_their_offset() {
        let pattern = Pattern::new();
        let twice = [&pattern.bytes()[..], &pattern.bytes()[..]].concat();
        assert!(pattern.matches(0, &twice) && pattern.matches(PATTERN_LEN as u64 * 9 + 5, &twice[5..]));
        assert!(pattern.matches(7, &[]));
        for wrong in [1, 1 << 16, PATTERN_LEN as u64 - 1] {
            assert!(!pattern.matches(wrong, &twice[..1400]), "{wrong}");
        }
        let mut changed = twice;
        changed[PATTERN_LEN + 1] ^= 1;
        assert!(!pattern.matches(0, &changed));
    }
}
