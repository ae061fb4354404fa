//! How much may leave now, and when may more (RFC 9002, section 7.7).
//!
//! Two token buckets, and both must agree. One follows the congestion controller: it spreads a window over a round trip,
//! in batches of about [`BATCH_TIME`], because a wake-up and a system call for each packet would cost more than the
//! packet. The other is the user's [`RateCap`], which is a promise: over *any* interval of length T, at most
//! `rate * T + burst` bytes are released.

use units::{Duration, Instant, Rate};

use crate::bucket::{Bucket, PARTS_PER_BYTE};

/// Packets are released in batches worth this much time at the pacing rate. Longer costs queueing at the bottleneck (at
/// most as long as this), shorter costs wake-ups; timers of a general-purpose host are not finer anyway.
pub const BATCH_TIME: Duration = Duration::from_millis(1);

/// However slow the path, this many segments may leave at once after a rest: the initial window (RFC 9002, section 7.7,
/// says bursts SHOULD be limited to that). On fast paths two batches are more than that, and are used instead: what
/// takes the path 2 ms to pass cannot hold a queue for longer, while ten packets a wake-up at 10 Gb/s would mean 80,000
/// wake-ups a second.
pub const BURST_SEGMENTS_MIN: u64 = 10;

/// The congestion bucket holds this many batches: one to release, and one in reserve, so that a timer which fires up to
/// [`BATCH_TIME`] late costs no throughput.
const BATCHES_HELD: u64 = 2;

/// The segment size before [`Pacer::set_segment_size`]: an Ethernet frame's payload.
const SEGMENT_DEFAULT: u64 = 1500;

/// A user's limit: the pair of rate and burst of XTP's rate control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateCap {
    /// The rate that is never exceeded in the long run. At [`Rate::ZERO`] one burst leaves, then nothing.
    pub rate: Rate,
    /// Bytes that may leave at once. A packet cannot be cut, so a burst below one segment counts as one segment. Below
    /// two batches' worth (2 ms at `rate`) the limit costs throughput when timers are late.
    pub burst: u64,
}

/// The pacer of one path.
#[derive(Debug, Clone)]
pub struct Pacer {
    congestion: Bucket,
    /// The rate given last, for [`Self::on_sent`], which has none.
    rate: Rate,
    segment: u64,
    cap: Option<Cap>,
}

#[derive(Debug, Clone)]
struct Cap {
    limit: RateCap,
    bucket: Bucket,
    /// The slower of the old and the new rate, from a change until the bucket is next looked at: when within that span
    /// the change happened is not known, and the promise must hold either way.
    rate_until_refill: Rate,
}

impl Pacer {
    /// A pacer with full buckets.
    pub const fn new(cap: Option<RateCap>) -> Self {
        let cap = match cap {
            Some(limit) => Some(Cap::new(limit)),
            None => None,
        };
        Self { congestion: Bucket::FULL, rate: Rate::ZERO, segment: SEGMENT_DEFAULT, cap }
    }

    /// Sets or lifts the user's limit. Over an interval with a change inside, the larger of both promises holds. A limit
    /// where there was none starts with a full burst.
    pub fn set_cap(&mut self, cap: Option<RateCap>) {
        self.cap = match (self.cap.take(), cap) {
            (Some(old), Some(limit)) => {
                Some(Cap { limit, bucket: old.bucket, rate_until_refill: old.rate_until_refill.min(limit.rate) })
            }
            (_, limit) => limit.map(Cap::new),
        };
    }

    /// The user's limit.
    pub fn cap(&self) -> Option<RateCap> {
        self.cap.as_ref().map(|cap| cap.limit)
    }

    /// The largest packet is now `bytes` long: sets the smallest useful burst.
    pub fn set_segment_size(&mut self, bytes: u64) {
        self.segment = bytes.max(1);
    }

    /// How many bytes may leave now if the congestion controller paces at `rate`. Sending less, or nothing, is fine.
    #[must_use]
    pub fn budget(&mut self, now: Instant, rate: Rate) -> u64 {
        self.rate = rate;
        self.refill(now);
        let by_congestion = self.congestion.whole_bytes();
        match &self.cap {
            Some(cap) => by_congestion.min(cap.bucket.whole_bytes()),
            None => by_congestion,
        }
    }

    /// `bytes` left. What leaves beyond the budget (a probe, a bare acknowledgement) is a debt that later packets pay.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        // Refill first: credit that does not fit the bucket now must not come back as room made by this packet.
        self.refill(now);
        self.congestion.take(bytes);
        if let Some(cap) = &mut self.cap {
            cap.bucket.take(bytes);
        }
    }

    /// What is worth a wake-up at `rate`: [`BATCH_TIME`] of it, in bytes.
    #[must_use]
    pub fn batch_bytes(rate: Rate) -> u64 {
        batch_bytes(rate)
    }

    /// When a packet of `bytes` may leave: `now` if it may already, otherwise when about a batch may, so that waiting for
    /// this moment again and again wakes up about once per [`BATCH_TIME`], or per packet if those take longer. Under a
    /// cap with a small burst the batches are half a burst. [`Instant::FAR_FUTURE`] at rate zero. A request larger than
    /// a full bucket gets the moment when that is full.
    #[must_use]
    pub fn next_release(&self, now: Instant, rate: Rate, bytes: u64) -> Instant {
        let capacity = self.congestion_capacity(rate);
        let at = self.congestion.time_of(now, rate, capacity, bytes, batch_bytes(rate));
        let Some(cap) = &self.cap else { return at };
        let capacity = cap.capacity(self.segment);
        let batch = batch_bytes(cap.limit.rate).min(capacity / 2);
        // Between a change and the next refill this uses the new rate for time already past; the moment may then be a
        // little early, which only means asking again.
        at.max(cap.bucket.time_of(now, cap.limit.rate, capacity, bytes, batch))
    }

    fn congestion_capacity(&self, rate: Rate) -> u64 {
        (self.segment.saturating_mul(BURST_SEGMENTS_MIN)).max(batch_bytes(rate).saturating_mul(BATCHES_HELD))
    }

    fn refill(&mut self, now: Instant) {
        let capacity = self.congestion_capacity(self.rate);
        self.congestion.refill(now, self.rate, capacity);
        if let Some(cap) = &mut self.cap {
            cap.bucket.refill(now, cap.rate_until_refill, cap.capacity(self.segment));
            cap.rate_until_refill = cap.limit.rate;
        }
    }
}

impl Cap {
    const fn new(limit: RateCap) -> Self {
        Self { limit, bucket: Bucket::FULL, rate_until_refill: limit.rate }
    }

    fn capacity(&self, segment: u64) -> u64 {
        self.limit.burst.max(segment)
    }
}

/// What `rate` moves in [`BATCH_TIME`].
const fn batch_bytes(rate: Rate) -> u64 {
    rate.as_bps() / (PARTS_PER_BYTE / BATCH_TIME.as_nanos())
}

#[cfg(test)]
mod tests;
