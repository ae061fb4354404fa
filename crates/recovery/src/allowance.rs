//! How much of a class of traffic may leave now, and when may more: a rate and a burst that are kept to the byte.
//!
//! Over *any* interval of length T, at most `rate * T + burst` bytes are allowed. Unlike the [pacer](crate::pacer), which
//! deals in packets, an allowance deals in bytes of an application, which can be cut anywhere.

use units::{Instant, Rate};

use crate::bucket::Bucket;
use crate::pacer::{Pacer, RateCap};

/// A rate and a burst, and what of them is used.
#[derive(Debug, Clone)]
pub struct Allowance {
    limit: RateCap,
    bucket: Bucket,
    /// The slower of the old and the new rate, from a change until the bucket is next looked at: when within that span
    /// the change happened is not known, and the promise must hold either way.
    rate_until_refill: Rate,
}

impl Allowance {
    /// An allowance with a full burst.
    pub const fn new(limit: RateCap) -> Self {
        Self { limit, bucket: Bucket::FULL, rate_until_refill: limit.rate }
    }

    /// Another rate and burst from now on; what was used stays used. Over an interval with a change inside, the larger of both
    /// promises holds.
    pub fn set_limit(&mut self, limit: RateCap) {
        self.rate_until_refill = self.rate_until_refill.min(limit.rate);
        self.limit = limit;
    }

    /// Rate and burst.
    pub const fn limit(&self) -> RateCap {
        self.limit
    }

    /// Bytes that may leave now. Using less, or nothing, is fine.
    #[must_use]
    pub fn budget(&mut self, now: Instant) -> u64 {
        self.bucket.refill(now, self.rate_until_refill, self.limit.burst);
        self.rate_until_refill = self.limit.rate;
        self.bucket.whole_bytes()
    }

    /// `bytes` of the last [`budget`](Self::budget) are used.
    pub fn take(&mut self, bytes: u64) {
        self.bucket.take(bytes);
    }

    /// When `bytes` may leave, at most a burst: `now` if they may already, otherwise when about a millisecond's worth may (half a
    /// burst if that is less), so that whoever waits for this moment again and again wakes up about once in a millisecond.
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
    fn a_burst_may_leave_at_once_and_then_the_rate() {
        let mut allowance = Allowance::new(limit(8, 5_000));
        assert_eq!(allowance.budget(at_us(7)), 5_000);
        allowance.take(5_000);
        assert_eq!(allowance.budget(at_us(7)), 0);
        assert_eq!(allowance.budget(at_us(107)), 100, "8 Mb/s are a byte in a microsecond");
        assert_eq!(allowance.next_release(at_us(107), 300), at_us(1007), "when a millisecond's worth may");
        assert_eq!(allowance.next_release(at_us(107), 3_000), at_us(3007));
        assert_eq!(allowance.next_release(at_us(107), 9_000), at_us(5007), "no more than a burst is waited for");
    }

    #[test]
    fn a_change_gives_no_second_burst() {
        let mut allowance = Allowance::new(limit(8, 5_000));
        assert_eq!(allowance.budget(at_us(0)), 5_000);
        allowance.take(4_000);
        allowance.set_limit(limit(80, 20_000));
        assert_eq!(allowance.budget(at_us(100)), 1_100, "the slower rate until the change was noticed");
        assert_eq!(allowance.budget(at_us(200)), 2_100);
        allowance.set_limit(limit(8, 1_500));
        assert_eq!(allowance.budget(at_us(200)), 1_500, "a smaller burst holds at once");
    }

    proptest! {
        #[test]
        fn no_interval_sees_more_than_its_rate_and_a_burst(
            bps in 1_000_u64..50_000_000_000,
            burst in 1_u64..2_000_000,
            steps in proptest::collection::vec((0_u64..5_000_000, 0_u64..3_000_000), 1..60),
        ) {
            let cap = RateCap { rate: Rate::from_bps(bps), burst };
            let mut allowance = Allowance::new(cap);
            let mut now = Instant::ZERO;
            let mut used: Vec<(Instant, u64)> = Vec::new();
            for (wait, wanted) in steps {
                now += Duration::from_nanos(wait);
                let bytes = wanted.min(allowance.budget(now));
                allowance.take(bytes);
                used.push((now, bytes));
            }
            for from in 0..used.len() {
                let mut sum = 0;
                for (at, bytes) in &used[from..] {
                    sum += bytes;
                    let earned = cap.rate.bytes_in(*at - used[from].0);
                    prop_assert!(sum <= earned + 1 + burst, "{sum} bytes, {earned} earned, a burst of {burst}");
                }
            }
        }
    }
}
