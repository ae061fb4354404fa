//! The token bucket under the pacer and the allowances.
//!
//! Credit is kept in bytes and 8 * 10^9ths of a byte. That is the unit in which bits per second times nanoseconds is
//! whole, so nothing is ever rounded away, at any rate and however often the bucket is looked at.

use units::{Duration, Instant, Rate};

/// Parts of a byte: bits per second times nanoseconds makes 10^-9 bits.
pub(crate) const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// A token bucket. Its rate and capacity are the caller's.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Credit; negative after more left than was allowed.
    bytes: i64,
    /// The rest of the credit, in parts of a byte; less than a whole one.
    parts: u64,
    /// Up to when credit has been given.
    refilled_at: Instant,
}

impl Bucket {
    /// Full whatever the capacity: the first refill cuts it down.
    pub(crate) const FULL: Self = Self { bytes: i64::MAX, parts: 0, refilled_at: Instant::ZERO };

    pub(crate) fn refill(&mut self, now: Instant, rate: Rate, capacity: u64) {
        (self.bytes, self.parts) = self.credit_at(now, rate, capacity);
        // Time that seems to go backwards gives no credit twice.
        self.refilled_at = self.refilled_at.max(now);
    }

    /// The credit there is at `now`: whole bytes and parts.
    pub(crate) fn credit_at(&self, now: Instant, rate: Rate, capacity: u64) -> (i64, u64) {
        let elapsed = now.saturating_since(self.refilled_at).as_nanos();
        let (earned, parts) = match rate.as_bps().checked_mul(elapsed).and_then(|sum| sum.checked_add(self.parts)) {
            Some(sum) => (sum / PARTS_PER_BYTE, sum % PARTS_PER_BYTE),
            // Long rests at high rates: 18 seconds at 1 Gb/s.
            None => {
                let sum = u128::from(rate.as_bps()) * u128::from(elapsed) + u128::from(self.parts);
                let earned = u64::try_from(sum / u128::from(PARTS_PER_BYTE)).unwrap_or(u64::MAX);
                (earned, (sum % u128::from(PARTS_PER_BYTE)) as u64)
            }
        };
        let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
        let bytes = self.bytes.saturating_add_unsigned(earned);
        // A full bucket holds no parts either: they would be credit above the burst.
        if bytes >= capacity { (capacity, 0) } else { (bytes, parts) }
    }

    pub(crate) fn whole_bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub_unsigned(bytes);
    }

    /// When `bytes` may leave; if not now, then when `batch` may, or a full bucket if that is less.
    pub(crate) fn time_of(&self, now: Instant, rate: Rate, capacity: u64, bytes: u64, batch: u64) -> Instant {
        let (credit, parts) = self.credit_at(now, rate, capacity);
        let wanted = bytes.min(capacity);
        if u64::try_from(credit).is_ok_and(|credit| credit >= wanted) {
            return now;
        }
        if rate.is_zero() {
            return Instant::FAR_FUTURE;
        }
        let wanted = i128::from(wanted.max(batch.min(capacity)));
        // Positive: the credit is below what is wanted, and the parts are less than one byte.
        let missing = ((wanted - i128::from(credit)) * i128::from(PARTS_PER_BYTE) - i128::from(parts)).cast_unsigned();
        let wait = u64::try_from(missing.div_ceil(u128::from(rate.as_bps()))).unwrap_or(u64::MAX);
        now.max(self.refilled_at) + Duration::from_nanos(wait)
    }
}
