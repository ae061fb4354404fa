//! Packets of a fixed size written one after the other to a TCP connection with small socket buffers and a large MTU: document 001's
//! experiment, after the textbook (RFC 1122, section 4.2.3), without loss and without slow start.
//!
//! The sender holds back a segment that is not full while something is unacknowledged (Nagle), unless it is half of the largest window
//! it has seen. The receiver acknowledges every second full segment, or what a timer finds. It reads whole packets, and looks
//! whether its window deserves an update only then: when two segments or half of its buffer are free again.

use sim::Calendar;
use units::{Duration, Instant};

use crate::conserved::assert_conserved;

/// An IP packet of 9180 bytes (RFC 1626) without the headers of IP and TCP.
const SEGMENT_BYTES: u64 = 9140;

/// Nanoseconds of the sender's processor for each byte and for each segment. Chosen so that full segments without a pause make
/// the 300 Mb/s that the document takes for the most; nothing else is fitted.
const BYTE_NS: u64 = 20;
const SEGMENT_NS: u64 = 60_000;

/// Picoseconds on the link for each byte: 1.2 Gb/s, of which cells leave 48 of 53 bytes.
const LINK_BYTE_PS: u64 = 7361;

/// From one host to the other and through its interrupt, in nanoseconds.
const LATENCY_NS: u64 = 50_000;

/// The timer that acknowledges what nothing else did.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(200);

/// Packets that are written: as many as in the document.
const PACKETS: u64 = 100;

/// One cell of the document's grid.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Setup {
    /// Of both sockets.
    pub(in crate::claims) buffer_bytes: u64,
    /// Written at a time.
    pub(in crate::claims) packet_bytes: u64,
    /// Small segments wait for acknowledgements.
    pub(in crate::claims) nagle: bool,
    /// Acknowledgements wait for a second segment or the timer.
    pub(in crate::claims) delayed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { bytes: u64 },
    Acknowledged { until: u64, edge: u64 },
    Timer,
}

/// Positions are bytes since the beginning.
#[derive(Debug)]
struct Transfer {
    setup: Setup,
    calendar: Calendar<Event>,
    // The sender's.
    written: u64,
    sent: u64,
    acknowledged: u64,
    /// Up to where the receiver has room.
    edge: u64,
    busy_until_ns: u64,
    // The receiver's.
    received: u64,
    told: u64,
    told_edge: u64,
}

impl Setup {
    /// Megabits a second over all packets.
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
            told: 0,
            told_edge: setup.buffer_bytes,
        }
    }

    /// Nanoseconds until all has arrived.
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
                    if self.received > self.told {
                        self.acknowledge(now);
                    }
                }
            }
        }
        assert_conserved("bytes", total, &[("received", self.received)]);
        assert_conserved("bytes sent", self.sent, &[("received", self.received)]);
        now.as_nanos()
    }

    /// Fills the buffer, a packet or what there is room for at a time, and sends what may go.
    fn write(&mut self, now: Instant, total: u64) {
        loop {
            self.send(now);
            let room = self.setup.buffer_bytes - (self.written - self.acknowledged);
            let left_of_packet = self.setup.packet_bytes - self.written % self.setup.packet_bytes;
            let bytes = room.min(left_of_packet).min(total - self.written);
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
            // The window is never larger than the receiver's buffer, and is that large at the beginning.
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
        let is_second = self.received - self.told >= 2 * SEGMENT_BYTES;
        let is_packet = self.received.is_multiple_of(self.setup.packet_bytes);
        let freed = self.received + self.setup.buffer_bytes - self.told_edge;
        let is_update = is_packet && (freed >= 2 * SEGMENT_BYTES || 2 * freed >= self.setup.buffer_bytes);
        if !self.setup.delayed || is_second || is_update {
            self.acknowledge(now);
        }
    }

    fn acknowledge(&mut self, now: Instant) {
        self.told = self.received;
        self.told_edge = self.received + self.setup.buffer_bytes;
        let event = Event::Acknowledged { until: self.told, edge: self.told_edge };
        self.calendar.schedule(now + Duration::from_nanos(LATENCY_NS), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup { buffer_bytes: 65_535, packet_bytes: 65_535, nagle: true, delayed: true };

    #[test]
    fn full_segments_without_a_pause_make_what_the_processor_allows() {
        let limit = SEGMENT_BYTES as f64 * 8.0 * 1e3 / (SEGMENT_NS + BYTE_NS * SEGMENT_BYTES) as f64;
        let rate = Setup { delayed: false, ..SETUP }.rate_mbps();
        assert!(rate > 0.99 * limit && rate <= limit, "{rate} of {limit}");
    }

    #[test]
    fn a_tail_that_fills_no_segment_waits_for_the_timer_and_either_rule_alone_does_no_harm() {
        let slow = Setup { buffer_bytes: 16_384, packet_bytes: 16_384, ..SETUP };
        // One segment goes, the tail does not, and the buffer has no room for more.
        let ms_per_packet = 16_384.0 * 8.0 / 1e3 / slow.rate_mbps();
        assert!((190.0..210.0).contains(&ms_per_packet), "{ms_per_packet}");
        assert!(Setup { nagle: false, ..slow }.rate_mbps() > 50.0);
        assert!(Setup { delayed: false, ..slow }.rate_mbps() > 50.0);
    }
}
