//! How fast a path delivers: one rate sample for each acknowledgement (draft-ietf-ccwg-bbr-06, section 4.1).
//!
//! Between the sending of a packet and its acknowledgement the path delivered some bytes in some time; their ratio is a
//! sample. Acknowledgements may arrive compressed, faster than the path delivers, so a sample takes the longer of two
//! spans (section 4.1.1.2.4):
//!
//! ```text
//!   sent:          F ───── send span ────► P                    F: the packet acknowledged last before P was sent
//!   acknowledged:       A ─────── acknowledgement span ───► now     A: its acknowledgement, or the end of a rest
//!                       delivered(A)                 delivered(now)
//! ```
//!
//! A sender calls [`DeliveryRate::on_sent`] for each packet, or row of packets planned at once, and keeps the
//! [`SendStamp`] beside it; [`DeliveryRate::on_acked`] and [`DeliveryRate::on_lost`] when it learns what became of it; and
//! [`DeliveryRate::take_sample`] at the end of an acknowledgement, after its losses.

use core::ops::Range;

use units::{Duration, Instant, Rate};

use crate::RttEstimator;

/// What was known when a packet was sent (section 4.1.2.1.2). Taken for a row of packets sent at once, it holds for each
/// of them and for each part of the row (section 4.1.3.1). The default belongs to packets that do not count as in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendStamp {
    delivered: u64,
    lost: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Twice the bytes in flight, plus one if the sender was limited by its application.
    in_flight_and_limited: u64,
}

// A sent log keeps one for each row of packets that it remembers.
const _: () = assert!(size_of::<SendStamp>() <= 48);

impl SendStamp {
    const fn in_flight(&self) -> u64 {
        self.in_flight_and_limited >> 1
    }

    const fn app_limited(&self) -> bool {
        self.in_flight_and_limited & 1 == 1
    }
}

/// What one acknowledgement says about the path, told by the newest packet it acknowledged (section 4.1.2.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// The delivery rate; `None` if the span was too short to trust.
    pub rate: Option<Rate>,
    /// Bytes delivered since the packet was sent.
    pub delivered: u64,
    /// Bytes that had been delivered in all when it was sent.
    pub prior_delivered: u64,
    /// Bytes delivered in all, up to now.
    pub delivered_total: u64,
    /// Bytes in flight once it was sent, itself included.
    pub in_flight_when_sent: u64,
    /// Bytes declared lost since it was sent.
    pub lost: u64,
    /// The application held sending back in the span, so that the path may well be faster than `rate`.
    pub app_limited: bool,
    /// From its sending to its acknowledgement (section 4.2).
    pub rtt: Duration,
}

/// What the loss of one row of packets says about the path (section 5.5.10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossSample {
    /// Bytes in the row.
    pub bytes: u64,
    /// Bytes in flight once the row was sent, itself included.
    pub in_flight_when_sent: u64,
    /// Bytes declared lost since it was sent, itself included.
    pub lost: u64,
    /// Bytes delivered in all, up to now.
    pub delivered_total: u64,
    /// The application held sending back when it was sent.
    pub app_limited: bool,
    /// The row does not continue the one lost just before: a new gap in the numbers.
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
    /// When the newest acknowledged packet was sent; the start of the flight after a rest.
    first_sent_at: Instant,
    /// Packets sent before this many bytes are delivered are limited by the application; zero if none are.
    app_limited_until: u64,
    newest: Option<Newest>,
    /// The number after the packet lost last.
    lost_end: Option<u64>,
}

impl DeliveryRate {
    /// A path on which nothing was sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// `bytes` that count as in flight leave at `now`; `in_flight` includes them (section 4.1.2.2).
    #[must_use]
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) -> SendStamp {
        if in_flight <= bytes {
            // Nothing else is under way, so the time since the last delivery was rest.
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

    /// Window and pacer would let data out and there is none (section 4.1.2.4): to be called when sending stops for that
    /// reason, with the bytes then in flight. Samples are marked until what is sent from now on shows the path again.
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = self.delivered.saturating_add(in_flight).max(1);
    }

    /// True while samples are marked as limited by the application.
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }

    /// Packets of one row, `bytes` in all and `last_number` the highest, were acknowledged for the first time at `now`
    /// (section 4.1.2.3). Not for packets that were declared lost before.
    pub fn on_acked(&mut self, now: Instant, stamp: &SendStamp, sent_at: Instant, last_number: u64, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        let newer = |newest: &Newest| (sent_at, last_number) > (newest.sent_at, newest.number);
        if self.newest.as_ref().is_none_or(newer) {
            self.newest = Some(Newest { stamp: *stamp, sent_at, number: last_number });
            self.first_sent_at = sent_at;
        }
    }

    /// The packets `numbers` of one row, `bytes` in all, were declared lost. In ascending order within one detection, so
    /// that neighbours are seen to be one gap.
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

    /// The sample of what was acknowledged since the last one; `None` if that was nothing.
    pub fn take_sample(&mut self, rtt: &RttEstimator) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Newest { stamp, sent_at, .. } = self.newest.take()?;
        let send_span = sent_at.saturating_since(stamp.first_sent_at);
        let ack_span = self.delivered_at.saturating_since(stamp.delivered_at);
        let interval = send_span.max(ack_span);
        let delivered = self.delivered.saturating_sub(stamp.delivered);
        // Section 4.1.2.3: nothing is delivered in less than a round trip; such a span is a mistake of measurement.
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
