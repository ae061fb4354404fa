//! Limiter for a class of traffic: it determines how many bytes may be sent now, and when more may
//! be sent.
//!
//! Over *any* interval of length T, at most `rate * T + burst` bytes are permitted. The
//! [pacer](crate::pacer) works on packets; this limiter works on application bytes, which can be
//! split at any byte.

use units::{Instant, Rate};

use crate::bucket::Bucket;
use crate::pacer::{Pacer, RateCap};

/// A token bucket with a rate and a burst.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    limit: RateCap,
    bucket: Bucket,
    /// The lower of the old and the new rate, from a change until the next refill. The time of the
    /// change within that interval is unknown, and the limit must hold for any.
    rate_until_refill: Rate,
}

impl RateLimiter {
    /// Creates a limiter with a full burst.
    pub const fn new(limit: RateCap) -> Self {
        Self { limit, bucket: Bucket::FULL, rate_until_refill: limit.rate }
    }

    /// Changes rate and burst; consumed tokens stay consumed. Over an interval that contains a
    /// change, the larger of both limits applies.
    pub fn set_limit(&mut self, limit: RateCap) {
        self.rate_until_refill = self.rate_until_refill.min(limit.rate);
        self.limit = limit;
    }

    /// Returns rate and burst.
    pub const fn limit(&self) -> RateCap {
        self.limit
    }

    /// Returns the bytes that may be sent now. The caller may send less.
    #[must_use]
    pub fn budget(&mut self, now: Instant) -> u64 {
        self.bucket.refill(now, self.rate_until_refill, self.limit.burst);
        self.rate_until_refill = self.limit.rate;
        self.bucket.whole_bytes()
    }

    /// Consumes `bytes` of the last [`budget`](Self::budget).
    pub fn take(&mut self, bytes: u64) {
        self.bucket.take(bytes);
    }

    /// Returns the time at which `bytes` (at most a burst) may be sent: `now` if they already may,
    /// otherwise the time at which about a millisecond's worth may (half a burst if that is less).
    /// A caller that waits for this time repeatedly wakes up about once per millisecond.
    #[must_use]
    pub fn next_release(&self, now: Instant, bytes: u64) -> Instant {
        let RateCap { rate, burst } = self.limit;
        let batch = Pacer::batch_bytes(rate).min(burst / 2);
        self.bucket.time_of(now, rate, burst, bytes, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Duration;

    fn limit(mbps: u64, burst: u64) -> RateCap {
        RateCap { rate: Rate::from_mbps(mbps), burst }
    }

    fn at_us(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn a_burst_may_be_sent_at_once_and_then_the_rate_applies() {
        let mut limiter = RateLimiter::new(limit(8, 5_000));
        assert_eq!(limiter.budget(at_us(7)), 5_000);
        limiter.take(5_000);
        assert_eq!(limiter.budget(at_us(7)), 0);
        assert_eq!(limiter.budget(at_us(107)), 100, "8 Mb/s is one byte per microsecond");
        assert_eq!(limiter.next_release(at_us(107), 300), at_us(1007), "when a millisecond's worth may be sent");
        assert_eq!(limiter.next_release(at_us(107), 3_000), at_us(3007));
        assert_eq!(limiter.next_release(at_us(107), 9_000), at_us(5007), "waits for at most a burst");
    }

    #[test]
    fn changing_the_limit_gives_no_second_burst() {
        let mut limiter = RateLimiter::new(limit(8, 5_000));
        assert_eq!(limiter.budget(at_us(0)), 5_000);
        limiter.take(4_000);
        limiter.set_limit(limit(80, 20_000));
        assert_eq!(limiter.budget(at_us(100)), 1_100, "the lower rate until the first refill after the change");
        assert_eq!(limiter.budget(at_us(200)), 2_100);
        limiter.set_limit(limit(8, 1_500));
        assert_eq!(limiter.budget(at_us(200)), 1_500, "a smaller burst applies at once");
    }

    proptest! {
        #[test]
        fn no_interval_exceeds_the_rate_and_a_burst(
            bps in 1_000_u64..50_000_000_000,
            burst in 1_u64..2_000_000,
            steps in proptest::collection::vec((0_u64..5_000_000, 0_u64..3_000_000), 1..60),
        ) {
            let cap = RateCap { rate: Rate::from_bps(bps), burst };
            let mut limiter = RateLimiter::new(cap);
            let mut now = Instant::ZERO;
            let mut used: Vec<(Instant, u64)> = Vec::new();
            for (wait, wanted) in steps {
                now += Duration::from_nanos(wait);
                let bytes = wanted.min(limiter.budget(now));
                limiter.take(bytes);
                used.push((now, bytes));
            }
            for from in 0..used.len() {
                let mut sum = 0;
                for (at, bytes) in &used[from..] {
                    sum += bytes;
                    let allowed = cap.rate.bytes_in(*at - used[from].0);
                    prop_assert!(sum <= allowed + 1 + burst, "{sum} bytes, {allowed} allowed, a burst of {burst}");
                }
            }
        }
    }
}
