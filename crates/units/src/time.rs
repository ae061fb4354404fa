//! Time in nanoseconds since the start of the run.
//!
//! Nanoseconds, because a full packet takes 120 ns at 100 Gb/s. A `u64` holds 584 years.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A point in time, in nanoseconds since the start of the run. The driver chooses the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A length of time in nanoseconds. Never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than any time a run can reach. It stands for "never" where an `Option` would cost a
    /// branch.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the start of the run.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since the start of the run.
    pub const fn since_start(self) -> Duration {
        Duration(self.0)
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later than `self`.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time from `earlier` to `self`, or `None` if `earlier` is later than `self`.
    pub const fn checked_since(self, earlier: Self) -> Option<Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(nanos) => Some(Duration(nanos)),
            None => None,
        }
    }

    /// Returns `self - span`, but not before the start of the run.
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Duration {
    /// Zero nanoseconds.
    pub const ZERO: Self = Self(0);
    /// The longest duration.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a duration of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a duration of `micros` microseconds; saturates after 584 years.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a duration of `millis` milliseconds; saturates after 584 years.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a duration of `secs` seconds; saturates after 584 years.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the seconds as a float, for display and plots only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns true for zero nanoseconds.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns `self - other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `self * factor`; saturates.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// Returns `self * numerator / denominator`, computed in 128 bits; saturates.
    ///
    /// # Panics
    /// If `denominator` is zero.
    pub const fn mul_ratio(self, numerator: u64, denominator: u64) -> Self {
        let product = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if product > u64::MAX as u128 { u64::MAX } else { product as u64 })
    }

    /// Returns the absolute difference of two durations.
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

// Additions saturate: a deadline beyond the last representable time means "never".
impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

/// Time from `rhs` to `self`. Panics in debug builds if `rhs` is later: use
/// [`Instant::saturating_since`] where the order is not known.
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        debug_assert!(self >= rhs, "time went backwards: {self:?} - {rhs:?}");
        self.saturating_since(rhs)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        debug_assert!(self.0 >= rhs.0, "negative duration: {self:?} - {rhs:?}");
        self.saturating_sub(rhs)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, rhs: Self) {
        *self = *self - rhs;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        self.saturating_mul(factor)
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl From<core::time::Duration> for Duration {
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", nanos / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", nanos / 1e6),
            _ => write!(f, "{:.2} s", nanos / 1e9),
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{}ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_saturate_at_the_far_future() {
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::MAX.mul_ratio(9, 8), Duration::MAX);
    }

    #[test]
    fn durations_never_become_negative() {
        let (early, late) = (Instant::from_nanos(10), Instant::from_nanos(25));
        assert_eq!(late - early, Duration::from_nanos(15));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(early.checked_since(late), None);
        assert_eq!(early.saturating_sub(Duration::from_secs(1)), Instant::ZERO);
    }

    #[test]
    fn durations_display_in_a_readable_unit() {
        let shown = [12, 1_500, 30_000_000, 2_500_000_000].map(|nanos| Duration::from_nanos(nanos).to_string());
        assert_eq!(shown, ["12 ns", "1.5 us", "30.0 ms", "2.50 s"]);
    }
}
