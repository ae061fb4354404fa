//! Delivery rate of a path: one rate sample per acknowledgement (draft-ietf-ccwg-bbr-06, section
//! 4.1).
//!
//! The path delivers a number of bytes between the sending of a packet and its acknowledgement; the
//! quotient is a sample. Acknowledgements may arrive compressed, faster than the path delivers, so
//! a sample uses the longer of two intervals (section 4.1.1.2.4):
//!
//! ```text
//!   sent:          F ───── send interval ────► P
//!   acknowledged:       A ───── ack interval ─────► now
//!                       delivered(A)          delivered(now)
//!
//!   F: the last packet acknowledged before P was sent
//!   A: its acknowledgement, or the end of an idle period
//! ```
//!
//! A sender calls [`DeliveryRate::on_sent`] for each packet, or for each run of packets sent at
//! once, and stores the [`SendStamp`] with it. It calls [`DeliveryRate::on_acked`] and
//! [`DeliveryRate::on_lost`] when the packets are acknowledged or lost, and
//! [`DeliveryRate::take_sample`] at the end of an acknowledgement, after its losses.

use core::ops::Range;

use units::{Duration, Instant, Rate};

use crate::rtt::RttEstimator;

/// The state of the path when a packet was sent (section 4.1.2.1.2). A stamp taken for a run of
/// packets holds for each packet and each part of the run (section 4.1.3.1). The default is for
/// packets that do not count as in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendStamp {
    delivered: u64,
    lost: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Twice the bytes in flight, plus one if the sender was application-limited.
    in_flight_and_limited: u64,
}

// A log of sent packets keeps one stamp for each run of packets.
const _: () = assert!(size_of::<SendStamp>() <= 48);

impl SendStamp {
    const fn in_flight(&self) -> u64 {
        self.in_flight_and_limited >> 1
    }

    const fn app_limited(&self) -> bool {
        self.in_flight_and_limited & 1 == 1
    }
}

/// The rate information of one acknowledgement, for the newest packet it acknowledged (section
/// 4.1.2.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// The delivery rate; `None` if the interval was too short to be valid.
    pub rate: Option<Rate>,
    /// Bytes delivered since the packet was sent.
    pub delivered: u64,
    /// Total bytes delivered when the packet was sent.
    pub prior_delivered: u64,
    /// Total bytes delivered now.
    pub delivered_total: u64,
    /// Bytes in flight when the packet was sent, including it.
    pub in_flight_when_sent: u64,
    /// Bytes declared lost since the packet was sent.
    pub lost: u64,
    /// Whether the application limited sending in the interval, so that the path may be faster than
    /// `rate`.
    pub app_limited: bool,
    /// Time from sending to acknowledgement (section 4.2).
    pub rtt: Duration,
}

/// The rate information of one lost run of packets (section 5.5.10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossSample {
    /// Bytes in the run.
    pub bytes: u64,
    /// Bytes in flight when the run was sent, including it.
    pub in_flight_when_sent: u64,
    /// Bytes declared lost since the run was sent, including it.
    pub lost: u64,
    /// Total bytes delivered now.
    pub delivered_total: u64,
    /// Whether the application limited sending when the run was sent.
    pub app_limited: bool,
    /// Whether the run does not continue the run lost before it: a new gap in the packet numbers.
    pub new_gap: bool,
}

/// The newest packet acknowledged since the last sample.
#[derive(Debug, Clone, Copy)]
struct Newest {
    stamp: SendStamp,
    sent_at: Instant,
    number: u64,
}

/// The state of one path (section 4.1.2.1.1).
#[derive(Debug, Clone, Default)]
pub struct DeliveryRate {
    delivered: u64,
    delivered_at: Instant,
    lost: u64,
    /// Send time of the newest acknowledged packet, or of the first packet after an idle period.
    first_sent_at: Instant,
    /// Number of delivered bytes up to which sent packets are application-limited; zero if none
    /// are.
    app_limited_until: u64,
    newest: Option<Newest>,
    /// The packet number after the last lost packet.
    lost_end: Option<u64>,
}

impl DeliveryRate {
    /// Creates the state of a path on which nothing was sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `bytes` that count as in flight are sent at `now`; `in_flight` includes them
    /// (section 4.1.2.2).
    #[must_use]
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) -> SendStamp {
        if in_flight <= bytes {
            // Nothing else is in flight, so the time since the last delivery was idle.
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        SendStamp {
            delivered: self.delivered,
            lost: self.lost,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight_and_limited: (in_flight << 1) | u64::from(self.app_limited_until != 0),
        }
    }

    /// Records that sending stops because there is no data, although window and pacer permit more
    /// (section 4.1.2.4). `in_flight` is the number of bytes in flight. Samples are marked until
    /// all of these bytes were delivered.
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = self.delivered.saturating_add(in_flight).max(1);
    }

    /// Returns true while samples are marked as application-limited.
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }

    /// Records that packets of one run were acknowledged for the first time at `now` (section
    /// 4.1.2.3): `bytes` in total, with `last_number` as the highest packet number. Must not be
    /// called for packets that were declared lost.
    pub fn on_acked(&mut self, now: Instant, stamp: &SendStamp, sent_at: Instant, last_number: u64, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        let newer = |newest: &Newest| (sent_at, last_number) > (newest.sent_at, newest.number);
        if self.newest.as_ref().is_none_or(newer) {
            self.newest = Some(Newest { stamp: *stamp, sent_at, number: last_number });
            self.first_sent_at = sent_at;
        }
    }

    /// Records that the packets `numbers` of one run, `bytes` in total, were declared lost. Within
    /// one detection the calls must be in ascending order, so that adjacent runs count as one gap.
    pub fn on_lost(&mut self, stamp: &SendStamp, numbers: Range<u64>, bytes: u64) -> LossSample {
        self.lost = self.lost.saturating_add(bytes);
        let new_gap = self.lost_end != Some(numbers.start);
        self.lost_end = Some(numbers.end);
        LossSample {
            bytes,
            in_flight_when_sent: stamp.in_flight(),
            lost: self.lost.saturating_sub(stamp.lost),
            delivered_total: self.delivered,
            app_limited: stamp.app_limited(),
            new_gap,
        }
    }

    /// Returns the sample for the packets acknowledged since the last sample; `None` if there are
    /// none.
    pub fn take_sample(&mut self, rtt: &RttEstimator) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Newest { stamp, sent_at, .. } = self.newest.take()?;
        let send_span = sent_at.saturating_since(stamp.first_sent_at);
        let ack_span = self.delivered_at.saturating_since(stamp.delivered_at);
        let interval = send_span.max(ack_span);
        let delivered = self.delivered.saturating_sub(stamp.delivered);
        // Section 4.1.2.3: no data is delivered in less than a round trip; a shorter interval is a
        // measurement error.
        let trusted = !rtt.has_sample() || interval >= rtt.min();
        Some(RateSample {
            rate: if trusted { Rate::from_transfer(delivered, interval) } else { None },
            delivered,
            prior_delivered: stamp.delivered,
            delivered_total: self.delivered,
            in_flight_when_sent: stamp.in_flight(),
            lost: self.lost.saturating_sub(stamp.lost),
            app_limited: stamp.app_limited(),
            rtt: self.delivered_at.saturating_since(sent_at),
        })
    }
}

#[cfg(test)]
mod tests;
