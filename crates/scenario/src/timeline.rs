//! Bytes over time, in bins of equal length.

use units::{Duration, Instant};

/// The duration of an element of [`Timeline::cumulative_bytes`].
pub const BIN: Duration = Duration::from_millis(10);

/// Bytes counted since the beginning of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Total bytes.
    pub bytes: u64,
    /// Cumulative bytes at the end of each [`BIN`] since the beginning of the run.
    pub cumulative_bytes: Vec<u64>,
}

impl Timeline {
    /// Counts bytes. `now` must not go backwards.
    pub fn add(&mut self, now: Instant, bytes: u64) {
        let bin = bin_of(now);
        if self.cumulative_bytes.len() <= bin {
            self.cumulative_bytes.resize(bin + 1, self.bytes);
        }
        self.bytes += bytes;
        self.cumulative_bytes[bin] = self.bytes;
    }

    /// Takes the total of a counter that is read at intervals. Bytes since the previous reading are
    /// distributed evenly over the bins that have ended since.
    pub fn read(&mut self, now: Instant, total: u64) {
        let (begin, end) = (self.cumulative_bytes.len(), bin_of(now));
        let before = self.cumulative_bytes.last().copied().unwrap_or(0);
        let (gained, bins) = (u128::from(total.saturating_sub(before)), end.saturating_sub(begin) as u128);
        self.cumulative_bytes.extend((1..=bins).map(|bin| before + (gained * bin / bins) as u64));
        self.bytes = total;
    }

    /// Returns the number of bytes counted by `at`, interpolated linearly within a [`BIN`].
    pub fn bytes_by(&self, at: Instant) -> u64 {
        let bin = bin_of(at);
        let before = if bin == 0 { 0 } else { self.cumulative_bytes.get(bin - 1).copied().unwrap_or(self.bytes) };
        let after = self.cumulative_bytes.get(bin).copied().unwrap_or(self.bytes);
        let into = u128::from(at.as_nanos() % BIN.as_nanos());
        before + (u128::from(after - before) * into / u128::from(BIN.as_nanos())) as u64
    }
}

const fn bin_of(at: Instant) -> usize {
    (at.as_nanos() / BIN.as_nanos()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn bytes_are_counted_in_their_bin_and_interpolated() {
        let mut timeline = Timeline::default();
        for (at, bytes) in [(12, 60), (19, 40), (25, 200)] {
            timeline.add(ms(at), bytes);
        }
        assert_eq!((timeline.bytes, timeline.cumulative_bytes.as_slice()), (300, &[0, 100, 300][..]));
        for (at, expected) in [(0, 0), (10, 0), (15, 50), (20, 100), (25, 200), (30, 300), (99, 300)] {
            assert_eq!(timeline.bytes_by(ms(at)), expected, "{at} ms");
        }
    }

    #[test]
    fn a_counter_that_is_read_seldom_gains_evenly() {
        let mut timeline = Timeline::default();
        for (at, total) in [(1, 5), (40, 400), (43, 430), (61, 500)] {
            timeline.read(ms(at), total);
        }
        assert_eq!((timeline.bytes, timeline.cumulative_bytes.as_slice()), (500, &[100, 200, 300, 400, 450, 500][..]));
    }
}
