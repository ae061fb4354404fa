//! Packets of a fixed size written one after the other to a TCP connection with small socket
//! buffers and a large MTU: the experiment of the Gigabit Kits report 2000, with a textbook TCP
//! (RFC 1122, section 4.2.3), without loss and without slow start.
//!
//! The sender delays a segment that is not full while data are unacknowledged (Nagle's algorithm),
//! unless it is at least half of the largest window seen. The receiver acknowledges every second
//! full segment, and otherwise when a timer expires. The application reads whole packets; the
//! receiver considers a window update only then, when two segments or half of its buffer are free
//! again.

use sim::Calendar;
use units::{Duration, Instant};

use crate::conserved::assert_conserved;

/// An IP packet of 9180 bytes (RFC 1626) without IP and TCP headers.
const SEGMENT_BYTES: u64 = 9140;

/// Processor time of the sender per byte and per segment, in nanoseconds. Calibrated so that
/// continuous full segments reach the report's maximum of 300 Mb/s; nothing else is fitted.
const BYTE_NS: u64 = 20;
const SEGMENT_NS: u64 = 60_000;

/// Picoseconds per byte on the link: 1.2 Gb/s, of which cells leave 48 of 53 bytes.
const LINK_BYTE_PS: u64 = 7361;

/// Latency from one host to the other including its interrupt, in nanoseconds.
const LATENCY_NS: u64 = 50_000;

/// Period of the timer for delayed acknowledgements.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(200);

/// Number of packets written, as in the report.
const PACKETS: u64 = 100;

/// One cell of the report's grid.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Setup {
    /// Size of both socket buffers.
    pub(in crate::claims) buffer_bytes: u64,
    /// Bytes per write.
    pub(in crate::claims) packet_bytes: u64,
    /// Nagle's algorithm: small segments wait for acknowledgements.
    pub(in crate::claims) nagle: bool,
    /// Delayed acknowledgements: they wait for a second segment or the timer.
    pub(in crate::claims) delayed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { bytes: u64 },
    Acknowledged { until: u64, edge: u64 },
    Timer,
}

/// Positions are bytes since the start of the transfer.
#[derive(Debug)]
struct Transfer {
    setup: Setup,
    calendar: Calendar<Event>,
    // Sender state.
    written: u64,
    sent: u64,
    acknowledged: u64,
    /// Right edge of the receive window.
    edge: u64,
    busy_until_ns: u64,
    // Receiver state.
    received: u64,
    reported: u64,
    reported_edge: u64,
}

impl Setup {
    /// Rate over all packets in Mb/s.
    pub(in crate::claims) fn rate_mbps(self) -> f64 {
        let total = PACKETS * self.packet_bytes;
        total as f64 * 8.0 * 1e3 / Transfer::new(self).run(total) as f64
    }
}

impl Transfer {
    const fn new(setup: Setup) -> Self {
        Self {
            setup,
            calendar: Calendar::new(),
            written: 0,
            sent: 0,
            acknowledged: 0,
            edge: setup.buffer_bytes,
            busy_until_ns: 0,
            received: 0,
            reported: 0,
            reported_edge: setup.buffer_bytes,
        }
    }

    /// Nanoseconds until all data have arrived.
    fn run(mut self, total: u64) -> u64 {
        let mut now = Instant::default();
        self.calendar.schedule(now + ACKNOWLEDGE_EVERY, Event::Timer);
        self.write(now, total);
        while self.received < total {
            let Some((at, event)) = self.calendar.pop_until(Instant::from_nanos(u64::MAX)) else { break };
            now = at;
            match event {
                Event::Arrives { bytes } => self.arrive(now, bytes),
                Event::Acknowledged { until, edge } => {
                    self.acknowledged = self.acknowledged.max(until);
                    self.edge = self.edge.max(edge);
                    self.write(now, total);
                }
                Event::Timer => {
                    self.calendar.schedule(now + ACKNOWLEDGE_EVERY, Event::Timer);
                    if self.received > self.reported {
                        self.acknowledge(now);
                    }
                }
            }
        }
        assert_conserved("bytes", total, &[("received", self.received)]);
        assert_conserved("bytes sent", self.sent, &[("received", self.received)]);
        now.as_nanos()
    }

    /// Fills the buffer, at most one packet at a time, and sends what may be sent.
    fn write(&mut self, now: Instant, total: u64) {
        loop {
            self.send(now);
            let space = self.setup.buffer_bytes - (self.written - self.acknowledged);
            let left_of_packet = self.setup.packet_bytes - self.written % self.setup.packet_bytes;
            let bytes = space.min(left_of_packet).min(total - self.written);
            if bytes == 0 {
                return;
            }
            self.written += bytes;
        }
    }

    fn send(&mut self, now: Instant) {
        loop {
            let waiting = self.written - self.sent;
            let bytes = waiting.min(self.edge.saturating_sub(self.sent)).min(SEGMENT_BYTES);
            // The window is at most the receiver's buffer, its initial size.
            let is_large = bytes == SEGMENT_BYTES || 2 * bytes >= self.setup.buffer_bytes;
            let is_last = bytes == waiting && (!self.setup.nagle || self.sent == self.acknowledged);
            if bytes == 0 || !(is_large || is_last) {
                return;
            }
            self.sent += bytes;
            self.busy_until_ns = self.busy_until_ns.max(now.as_nanos()) + SEGMENT_NS + BYTE_NS * bytes;
            let arrives_ns = self.busy_until_ns + bytes * LINK_BYTE_PS / 1000 + LATENCY_NS;
            self.calendar.schedule(Instant::from_nanos(arrives_ns), Event::Arrives { bytes });
        }
    }

    fn arrive(&mut self, now: Instant, bytes: u64) {
        self.received += bytes;
        let is_second = self.received - self.reported >= 2 * SEGMENT_BYTES;
        let is_packet = self.received.is_multiple_of(self.setup.packet_bytes);
        let freed = self.received + self.setup.buffer_bytes - self.reported_edge;
        let is_update = is_packet && (freed >= 2 * SEGMENT_BYTES || 2 * freed >= self.setup.buffer_bytes);
        if !self.setup.delayed || is_second || is_update {
            self.acknowledge(now);
        }
    }

    fn acknowledge(&mut self, now: Instant) {
        self.reported = self.received;
        self.reported_edge = self.received + self.setup.buffer_bytes;
        let event = Event::Acknowledged { until: self.reported, edge: self.reported_edge };
        self.calendar.schedule(now + Duration::from_nanos(LATENCY_NS), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup { buffer_bytes: 65_535, packet_bytes: 65_535, nagle: true, delayed: true };

    #[test]
    fn continuous_full_segments_are_limited_by_the_processor() {
        let limit = SEGMENT_BYTES as f64 * 8.0 * 1e3 / (SEGMENT_NS + BYTE_NS * SEGMENT_BYTES) as f64;
        let rate = Setup { delayed: false, ..SETUP }.rate_mbps();
        assert!(rate > 0.99 * limit && rate <= limit, "{rate} of {limit}");
    }

    #[test]
    fn a_partial_segment_waits_for_the_timer_only_with_both_rules() {
        let slow = Setup { buffer_bytes: 16_384, packet_bytes: 16_384, ..SETUP };
        // One segment is sent, the rest is not, and the buffer has no space for more.
        let ms_per_packet = 16_384.0 * 8.0 / 1e3 / slow.rate_mbps();
        assert!((190.0..210.0).contains(&ms_per_packet), "{ms_per_packet}");
        assert!(Setup { nagle: false, ..slow }.rate_mbps() > 50.0);
        assert!(Setup { delayed: false, ..slow }.rate_mbps() > 50.0);
    }
}
