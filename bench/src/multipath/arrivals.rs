//! Arrivals over time at the receiver, and whether the data are those that were sent.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::meter::{Bins, monotonic_ns};

/// Bytes after which the content of a stream repeats: a prime, so that missing or duplicated data
/// are detected unless their length is a multiple of it.
const PERIOD: usize = 65_521;
/// Shorter silences are not recorded.
const GAP_NS_MIN: u64 = 2_000_000;
/// At most this many are recorded: with gaps of at least two milliseconds, they cover more than
/// eight seconds.
const GAPS_MAX: usize = 4096;

/// A silence at the receiving application.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    pub from_ns: u64,
    pub ns: u64,
}

/// Bytes by the time at which the application received them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrivals {
    pub bytes: u64,
    pub last_ns: u64,
    pub bins: Bins,
    pub gaps: Vec<Gap>,
}

impl Arrivals {
    pub const fn new() -> Self {
        Self { bytes: 0, last_ns: 0, bins: Bins::new(), gaps: Vec::new() }
    }

    /// Counts `bytes` that the application has just received.
    pub fn note(&mut self, bytes: usize) {
        self.note_at(monotonic_ns(), bytes);
    }

    fn note_at(&mut self, now_ns: u64, bytes: usize) {
        let ns = now_ns.saturating_sub(self.last_ns);
        if self.last_ns > 0 && ns >= GAP_NS_MIN && self.gaps.len() < GAPS_MAX {
            self.gaps.push(Gap { from_ns: self.last_ns, ns });
        }
        self.last_ns = self.last_ns.max(now_ns);
        self.bytes += bytes as u64;
        self.bins.add(self.last_ns, bytes);
    }

    /// Bytes that arrived from `from_ns` to `until_ns`; bins at the edges count by their share.
    pub fn bytes_between(&self, from_ns: u64, until_ns: u64) -> f64 {
        let share = |(index, &bytes): (usize, &u64)| {
            let (start, end) = (self.bins.start_ns(index), self.bins.start_ns(index + 1));
            let inside = end.min(until_ns).saturating_sub(start.max(from_ns));
            bytes as f64 * inside as f64 / (end - start) as f64
        };
        self.bins.bytes.iter().enumerate().map(share).sum()
    }

    /// The longest silence that began or ended within the time.
    pub fn longest_gap_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let touches = |gap: &&Gap| gap.from_ns + gap.ns > from_ns && gap.from_ns < until_ns;
        self.gaps.iter().filter(touches).map(|gap| gap.ns).max().unwrap_or(0)
    }
}

/// The content of every stream: bytes that follow from their offset.
pub struct Content {
    /// Two periods, so that any range of up to a period is contiguous in it.
    twice: Bytes,
}

impl Content {
    pub fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let period: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(PERIOD)
        .collect();
        Self { twice: [&period[..], &period[..]].concat().into() }
    }

    /// A whole number of periods from any multiple of the period on: the chunk to write repeatedly.
    pub fn chunk(&self) -> Bytes {
        self.twice.slice(..PERIOD)
    }

    /// Whether `data` is the content at `offset`.
    pub fn is_right(&self, mut offset: u64, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            let start = (offset % PERIOD as u64) as usize;
            let (part, rest) = data.split_at(data.len().min(PERIOD));
            if self.twice[start..start + part.len()] != *part {
                return false;
            }
            offset += part.len() as u64;
            data = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_matches_only_at_its_own_offset() {
        let content = Content::new();
        let long = [&content.chunk()[..], &content.chunk()[..], &content.chunk()[..]].concat();
        assert!(content.is_right(0, &long));
        assert!(content.is_right(1448, &long[1448..150_000]));
        assert!(!content.is_right(1448, &long[2896..150_000]));
        let mut turned = long.clone();
        turned[100_000] ^= 1;
        assert!(!content.is_right(0, &turned));
    }

    #[test]
    fn silences_and_shares_of_bins_are_counted() {
        let mut arrivals = Arrivals::new();
        for (ms, bytes) in [(1000, 10), (1001, 10), (1051, 20), (1052, 40)] {
            arrivals.note_at(ms * 1_000_000, bytes);
        }
        assert_eq!(arrivals.gaps, [Gap { from_ns: 1_001_000_000, ns: 50_000_000 }]);
        assert_eq!(arrivals.longest_gap_ns(1_040_000_000, 1_060_000_000), 50_000_000);
        assert_eq!(arrivals.longest_gap_ns(0, 1_001_000_000), 0);
        assert_eq!((arrivals.bytes, arrivals.last_ns), (80, 1_052_000_000));
        // The last bin, from 1050 to 1060 ms, holds 60.
        assert!((arrivals.bytes_between(1_055_000_000, 1_060_000_000) - 30.0).abs() < 1e-9);
        assert!((arrivals.bytes_between(0, u64::MAX / 2) - 80.0).abs() < 1e-9);
    }
}
