//! A line with a rate.
//!
//! A packet of 1500 bytes takes 120 ns at 100 Gb/s, and one of 1499 takes 119.92 ns. Rounding each
//! to a nanosecond would change the rate by up to one percent. So the end of each packet is kept as
//! whole nanoseconds and an exact fraction. Only the reported time is rounded, and rounded up,
//! because a packet has not departed before its last bit.

use units::{Duration, Instant, Rate};

const BIT_NANOS_PER_BYTE: u128 = 8 * 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct ByRate {
    /// The rate; with `None`, transmission takes no time.
    rate: Option<Rate>,
    /// Time at which the line becomes, or became, idle: whole nanoseconds.
    whole: Instant,
    /// Fraction of the next nanosecond, in units of 1 ns / rate. `0 <= fraction < rate`.
    fraction: u64,
}

impl ByRate {
    pub(super) const fn new(rate: Option<Rate>, free_at: Instant) -> Self {
        Self { rate, whole: free_at, fraction: 0 }
    }

    pub(super) fn free_at(&self) -> Instant {
        self.whole + Duration::from_nanos(u64::from(self.fraction > 0))
    }

    pub(super) fn ready_at(&self, since: Instant) -> Instant {
        since.max(self.free_at())
    }

    /// Starts a packet when both are ready: the packet at `since`, the line after the previous
    /// packet.
    pub(super) fn start(&mut self, since: Instant, line_bytes: u64) {
        self.wait_until(since);
        let Some(rate) = self.rate else { return };
        // The sum is at most 2^64 * 2^33 + 2^64, so there is no overflow.
        let bit_nanos = u128::from(line_bytes) * BIT_NANOS_PER_BYTE + u128::from(self.fraction);
        let rate_bps = rate.as_bps();
        // 64 bits cover all packets below a gigabyte, and 64-bit division is several times faster.
        let (nanos, fraction) = match u64::try_from(bit_nanos) {
            Ok(bit_nanos) => (bit_nanos / rate_bps, bit_nanos % rate_bps),
            Err(_) => {
                let (nanos, fraction) = (bit_nanos / u128::from(rate_bps), bit_nanos % u128::from(rate_bps));
                (u64::try_from(nanos).unwrap_or(u64::MAX), fraction as u64)
            }
        };
        self.whole += Duration::from_nanos(nanos);
        self.fraction = fraction;
    }

    /// Delays the departure of the packet in transmission.
    pub(super) fn shift(&mut self, by: Duration) {
        self.whole += by;
    }

    /// Makes the idle line unavailable before `at`.
    pub(super) fn wait_until(&mut self, at: Instant) {
        if at > self.whole {
            (self.whole, self.fraction) = (at, 0);
        }
    }
}
