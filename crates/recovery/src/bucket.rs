//! The token bucket used by the pacer and the rate limiter.
//!
//! Credit is kept in bytes and in parts of 1/(8 * 10^9) byte. In that unit bits per second times
//! nanoseconds is an integer, so no credit is ever rounded away, at any rate and with any number of
//! refills.

use units::{Duration, Instant, Rate};

/// Parts per byte: bits per second times nanoseconds has the unit 10^-9 bits.
pub(crate) const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// A token bucket. The caller passes rate and capacity with each call.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Credit; negative if more was sent than permitted.
    bytes: i64,
    /// Fractional credit, in parts of a byte; less than one byte.
    parts: u64,
    /// Time of the last refill.
    refilled_at: Instant,
}

impl Bucket {
    /// A full bucket of any capacity: the first refill reduces it to the capacity.
    pub(crate) const FULL: Self = Self { bytes: i64::MAX, parts: 0, refilled_at: Instant::ZERO };

    pub(crate) fn refill(&mut self, now: Instant, rate: Rate, capacity: u64) {
        (self.bytes, self.parts) = self.credit_at(now, rate, capacity);
        // If time appears to go backwards, no credit is given twice.
        self.refilled_at = self.refilled_at.max(now);
    }

    /// Returns the credit at `now`: whole bytes and parts.
    pub(crate) fn credit_at(&self, now: Instant, rate: Rate, capacity: u64) -> (i64, u64) {
        let elapsed = now.saturating_since(self.refilled_at).as_nanos();
        let (refill, parts) = match rate.as_bps().checked_mul(elapsed).and_then(|sum| sum.checked_add(self.parts)) {
            Some(sum) => (sum / PARTS_PER_BYTE, sum % PARTS_PER_BYTE),
            // Long idle times at high rates: more than 18 seconds at 1 Gb/s.
            None => {
                let sum = u128::from(rate.as_bps()) * u128::from(elapsed) + u128::from(self.parts);
                let refill = u64::try_from(sum / u128::from(PARTS_PER_BYTE)).unwrap_or(u64::MAX);
                (refill, (sum % u128::from(PARTS_PER_BYTE)) as u64)
            }
        };
        let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
        let bytes = self.bytes.saturating_add_unsigned(refill);
        // A full bucket holds no parts: they would exceed the burst.
        if bytes >= capacity { (capacity, 0) } else { (bytes, parts) }
    }

    pub(crate) fn whole_bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub_unsigned(bytes);
    }

    /// Returns the time at which `bytes` may be sent: `now` if they already may, otherwise the time
    /// at which `batch` may, or a full bucket if that is less.
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
        // Positive: the credit is below the wanted bytes, and the parts are less than one byte.
        let missing = ((wanted - i128::from(credit)) * i128::from(PARTS_PER_BYTE) - i128::from(parts)).cast_unsigned();
        let wait = u64::try_from(missing.div_ceil(u128::from(rate.as_bps()))).unwrap_or(u64::MAX);
        now.max(self.refilled_at) + Duration::from_nanos(wait)
    }
}
