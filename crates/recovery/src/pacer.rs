//! The pacer determines how many bytes may be sent now, and when more may be sent (RFC 9002,
//! section 7.7).
//!
//! Both of two token buckets must permit a packet. The first follows the congestion controller. It
//! spreads a window over a round trip, in batches of about [`BATCH_TIME`], because a wake-up and a
//! system call per packet would cost more than the packet. The second enforces the user's
//! [`RateCap`]: over *any* interval of length T, at most `rate * T + burst` bytes are released.

use units::{Duration, Instant, Rate};

use crate::bucket::{Bucket, PARTS_PER_BYTE};

/// The time at the pacing rate that one batch of packets covers. A longer time adds queueing at the
/// bottleneck (at most this time); a shorter time adds wake-ups. Timers of a general-purpose host
/// are not more precise anyway.
pub const BATCH_TIME: Duration = Duration::from_millis(1);

/// Segments that may be sent at once after an idle period, even on a slow path: the initial window
/// (RFC 9002, section 7.7, says that bursts SHOULD be limited to it). On fast paths two batches
/// exceed this number and apply instead. They occupy a queue for at most 2 ms, while ten packets
/// per wake-up at 10 Gb/s would mean 80,000 wake-ups per second.
pub const BURST_SEGMENTS_MIN: u64 = 10;

/// Segments that a finely paced path may send at once after a delayed wake-up.
pub const FINE_BURST_SEGMENTS_MIN: u64 = 2;

/// Divisor, as a shift, of [`BATCH_TIME`] for a batch under fine pacing: 250 us. L4S queues, whose
/// threshold is as long as [`BATCH_TIME`], would mark bursts of a whole one.
const FINE_SHIFT: u32 = 2;

/// Number of batches in the congestion bucket: one to release and one in reserve, so that a timer
/// that fires up to [`BATCH_TIME`] late costs no throughput.
const BATCHES_HELD: u64 = 2;

/// Segment size before [`Pacer::set_segment_size`]: the payload of an Ethernet frame.
const SEGMENT_DEFAULT: u64 = 1500;

/// A user's limit on the sending rate: rate and burst as in XTP's rate control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateCap {
    /// The long-term limit. At [`Rate::ZERO`] one burst is sent, then nothing.
    pub rate: Rate,
    /// Bytes that may be sent at once. A packet cannot be split, so a burst below one segment
    /// counts as one segment. Below two batches' worth (2 ms at `rate`) the limit costs throughput
    /// if timers are late.
    pub burst: u64,
}

/// The pacer of one path.
#[derive(Debug, Clone)]
pub struct Pacer {
    congestion: Bucket,
    /// The rate of the last call, for [`Self::on_sent`], which takes none.
    rate: Rate,
    segment: u64,
    is_fine: bool,
    cap: Option<Cap>,
}

#[derive(Debug, Clone)]
struct Cap {
    limit: RateCap,
    bucket: Bucket,
    /// The lower of the old and the new rate, from a change until the next refill. The time of the
    /// change within that interval is unknown, and the limit must hold for any.
    rate_until_refill: Rate,
}

impl Pacer {
    /// Creates a pacer with full buckets.
    pub const fn new(cap: Option<RateCap>) -> Self {
        let cap = match cap {
            Some(limit) => Some(Cap::new(limit)),
            None => None,
        };
        Self { congestion: Bucket::FULL, rate: Rate::ZERO, segment: SEGMENT_DEFAULT, is_fine: false, cap }
    }

    /// Sets or removes the user's limit. Over an interval that contains a change, the larger of
    /// both limits applies. A newly added limit starts with a full burst.
    pub fn set_cap(&mut self, cap: Option<RateCap>) {
        self.cap = match (self.cap.take(), cap) {
            (Some(old), Some(limit)) => {
                Some(Cap { limit, bucket: old.bucket, rate_until_refill: old.rate_until_refill.min(limit.rate) })
            }
            (_, limit) => limit.map(Cap::new),
        };
    }

    /// Returns the user's limit.
    pub fn cap(&self) -> Option<RateCap> {
        self.cap.as_ref().map(|cap| cap.limit)
    }

    /// Sets pacing in short batches, at the cost of more wake-ups: for networks that mark bursts.
    pub fn set_fine(&mut self, is_fine: bool) {
        self.is_fine = is_fine;
    }

    /// Sets the size of the largest packet to `bytes`, which is also the smallest useful burst.
    pub fn set_segment_size(&mut self, bytes: u64) {
        self.segment = bytes.max(1);
    }

    /// Returns the bytes that may be sent now if the congestion controller paces at `rate`. The
    /// caller may send less.
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

    /// Records that `bytes` were sent. Bytes beyond the budget (a probe, a bare acknowledgement)
    /// are a debt that later packets repay.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        // Refill first: credit above the bucket's capacity must be discarded before this packet is
        // subtracted.
        self.refill(now);
        self.congestion.take(bytes);
        if let Some(cap) = &mut self.cap {
            cap.bucket.take(bytes);
        }
    }

    /// Returns the smallest batch worth a wake-up at `rate`: [`BATCH_TIME`] of it, in bytes.
    #[must_use]
    pub fn batch_bytes(rate: Rate) -> u64 {
        batch_bytes(rate)
    }

    /// Returns the smallest batch worth a wake-up at `rate`, like
    /// [`batch_bytes`](Self::batch_bytes), under the pacing of this pacer.
    #[must_use]
    pub fn batch(&self, rate: Rate) -> u64 {
        batch_bytes(rate) >> if self.is_fine { FINE_SHIFT } else { 0 }
    }

    /// Returns the time at which a packet of `bytes` may be sent: `now` if it already may,
    /// otherwise the time at which about a batch may. A caller that waits for this time repeatedly
    /// wakes up about once per [`BATCH_TIME`], or once per packet if packets take longer. Under a
    /// cap with a small burst, batches are half a burst. [`Instant::FAR_FUTURE`] at rate zero. A
    /// request larger than a full bucket gets the time at which the bucket is full.
    #[must_use]
    pub fn next_release(&self, now: Instant, rate: Rate, bytes: u64) -> Instant {
        let capacity = self.congestion_capacity(rate);
        let at = self.congestion.time_of(now, rate, capacity, bytes, self.batch(rate));
        let Some(cap) = &self.cap else { return at };
        let capacity = cap.capacity(self.segment);
        let batch = batch_bytes(cap.limit.rate).min(capacity / 2);
        // Between a change and the next refill this uses the new rate for time already past. The
        // result may then be slightly early, and the caller queries again.
        at.max(cap.bucket.time_of(now, cap.limit.rate, capacity, bytes, batch))
    }

    fn congestion_capacity(&self, rate: Rate) -> u64 {
        let segments = if self.is_fine { FINE_BURST_SEGMENTS_MIN } else { BURST_SEGMENTS_MIN };
        self.segment.saturating_mul(segments).max(self.batch(rate).saturating_mul(BATCHES_HELD))
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

/// Returns the bytes that `rate` transfers in [`BATCH_TIME`].
const fn batch_bytes(rate: Rate) -> u64 {
    rate.as_bps() / (PARTS_PER_BYTE / BATCH_TIME.as_nanos())
}

#[cfg(test)]
mod tests;
