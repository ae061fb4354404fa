//! Rates and sizes. A rate times a duration is a size; a size divided by a rate is a duration.

use core::fmt;

use crate::Duration;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Bits per second. 1 Mb/s is 10^6 bit/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

impl Rate {
    /// Zero bits per second.
    pub const ZERO: Self = Self(0);
    /// The largest rate. It stands for "unlimited".
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a rate of `bits` bits per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates a rate of `megabits` times 10^6 bits per second; saturates.
    pub const fn from_mbps(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Returns the bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the megabits per second as a float, for display and plots only.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns true for zero bits per second.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the rate that transfers `bytes` in `span`, rounded down, saturating. `None` if
    /// `span` is zero.
    pub const fn from_transfer(bytes: u64, span: Duration) -> Option<Self> {
        if span.is_zero() {
            return None;
        }
        let bps = bytes as u128 * 8 * NANOS_PER_SEC / span.as_nanos() as u128;
        Some(Self(if bps > u64::MAX as u128 { u64::MAX } else { bps as u64 }))
    }

    /// Returns the whole bytes transferred in `span`, rounded down; saturates.
    pub const fn bytes_in(self, span: Duration) -> u64 {
        let bytes = self.0 as u128 * span.as_nanos() as u128 / (8 * NANOS_PER_SEC);
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }

    /// Returns the time that `bytes` take, rounded up to the nanosecond; [`Duration::MAX`] at rate
    /// zero.
    pub const fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (bytes as u128 * 8 * NANOS_PER_SEC).div_ceil(self.0 as u128);
        Duration::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    /// Returns `self * numerator / denominator`, computed in 128 bits; saturates.
    ///
    /// # Panics
    /// If `denominator` is zero.
    pub const fn mul_ratio(self, numerator: u64, denominator: u64) -> Self {
        let product = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if product > u64::MAX as u128 { u64::MAX } else { product as u64 })
    }
}

impl ByteSize {
    /// Creates a size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} b/s", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kb/s", bits / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} Mb/s", bits / 1e6),
            _ => write!(f, "{:.2} Gb/s", bits / 1e9),
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bps", self.0)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_at_100_gigabits_lasts_120_nanoseconds() {
        assert_eq!(Rate::from_mbps(100_000).time_for(1500), Duration::from_nanos(120));
    }

    #[test]
    fn rate_duration_and_size_conversions_agree() {
        let rate = Rate::from_mbps(400);
        assert_eq!(rate.bytes_in(Duration::from_secs(1)), 50_000_000);
        assert_eq!(rate.time_for(50_000_000), Duration::from_secs(1));
        assert_eq!(Rate::from_transfer(50_000_000, Duration::from_secs(1)), Some(rate));
    }

    #[test]
    fn extreme_values_saturate() {
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(Rate::from_transfer(1, Duration::ZERO), None);
        assert_eq!(Rate::from_mbps(u64::MAX), Rate::MAX);
    }
}
