//! Bytes received over time.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The width of a bin, nanoseconds.
pub const BIN_NS: u64 = 10_000_000;

/// Bytes in successive bins of [`BIN_NS`]. Times are those of [`monotonic_ns`], which all processes
/// of a machine share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bins {
    /// When the first bin begins: a multiple of [`BIN_NS`].
    pub first_ns: u64,
    pub bytes: Vec<u64>,
}

impl Bins {
    pub const fn new() -> Self {
        Self { first_ns: 0, bytes: Vec::new() }
    }

    /// Counts `bytes` received at `now_ns`, which must not go backwards.
    pub fn add(&mut self, now_ns: u64, bytes: usize) {
        if self.bytes.is_empty() {
            self.first_ns = now_ns / BIN_NS * BIN_NS;
        }
        let index = ((now_ns - self.first_ns) / BIN_NS) as usize;
        if index >= self.bytes.len() {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes as u64;
    }

    /// When the bin at `index` begins.
    pub const fn start_ns(&self, index: usize) -> u64 {
        self.first_ns + index as u64 * BIN_NS
    }

    /// The complete bins: neither the first nor the last.
    pub fn whole(&self) -> impl Iterator<Item = (usize, u64)> {
        let last = self.bytes.len().saturating_sub(1);
        self.bytes.iter().copied().enumerate().filter(move |(index, _)| *index > 0 && *index < last)
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fall_into_the_bin_of_their_time_and_silence_leaves_empty_bins() {
        let mut bins = Bins::new();
        for (ms, bytes) in [(1_007, 1), (1_009, 2), (1_010, 4), (1_045, 8)] {
            bins.add(ms * 1_000_000, bytes);
        }
        assert_eq!(bins.first_ns, 1_000_000_000);
        assert_eq!(bins.bytes, [3, 4, 0, 0, 8]);
        assert_eq!(bins.start_ns(4), 1_040_000_000);
        assert_eq!(bins.whole().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [4, 0, 0]);
    }
}
