//! What each level takes of a message, solved from printed numbers.
//!
//! Three processors work for a message at either end: the host, the board that runs XTP and moves data to and from the network card, and
//! the ring between them. What is solved from which number:
//!
//! | cost | from |
//! |---|---|
//! | card, fixed | b of MAC, in equal halves |
//! | card, a byte | MAC's asymptote, taken for the throughput of the longest frame |
//! | XTP, a byte | a of transport |
//! | XTP, fixed: latency | b of transport, in equal halves |
//! | XTP, fixed: work | transport's asymptote, of the longest frame; the rest of the latency is waiting |
//! | host, a byte and fixed | a and b of user, in equal halves |
//! | group, waiting | b of multicast |
//!
//! The other numbers come out: a of MAC, the user's asymptote, a and the asymptote of multicast.

use sim::hardware::fddi::RingConfig;

use super::paper::Paper;

/// At either end. All times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Costs {
    pub(super) card_us: f64,
    pub(super) card_byte_us: f64,
    /// What XTP keeps the board busy for, a frame.
    pub(super) xtp_work_us: f64,
    pub(super) xtp_byte_us: f64,
    /// What a message waits at the board besides: interrupts, polling.
    pub(super) xtp_wait_us: f64,
    pub(super) host_us: f64,
    pub(super) host_byte_us: f64,
    /// What a message to a group waits besides, at its receiver.
    pub(super) group_wait_us: f64,
    /// What a message to a group keeps the sender's board busy for besides.
    pub(super) group_work_us: f64,
}

/// How the fixed costs are shared out where the paper does not say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Split {
    /// The longest message that is a frame, in bytes of user data.
    pub(super) frame_bytes: u64,
    /// The sender's share of what user level adds.
    pub(super) host_sender: f64,
    /// Of the ring.
    pub(super) ring_m: u64,
}

/// A ring of so many stations and metres.
pub(super) fn ring(stations: usize, metres: u64) -> RingConfig {
    RingConfig::even(stations, metres)
}

impl Costs {
    /// Each with its name.
    pub(super) const fn all(&self) -> [(&'static str, f64); 9] {
        [
            ("card_us", self.card_us),
            ("card_byte_us", self.card_byte_us),
            ("xtp_work_us", self.xtp_work_us),
            ("xtp_byte_us", self.xtp_byte_us),
            ("xtp_wait_us", self.xtp_wait_us),
            ("host_us", self.host_us),
            ("host_byte_us", self.host_byte_us),
            ("group_wait_us", self.group_wait_us),
            ("group_work_us", self.group_work_us),
        ]
    }

    /// The costs at the sender and at the receiver.
    pub(super) fn solve(paper: &Paper, split: &Split) -> [Self; 2] {
        let config = ring(2, split.ring_m);
        let longest = split.frame_bytes as f64;
        let micros = |span: units::Duration| span.as_nanos() as f64 / 1000.0;
        let ring_byte_us = (micros(config.frame_time(1_000_000)) - micros(config.frame_time(0))) / 1e6;
        let ring_us = micros(config.frame_time(0)) + micros(config.latency());
        let busy_us = |mbps: f64| longest * 8.0 / mbps;
        let card_us = (paper.mac.b_us - ring_us) / 2.0;
        let card_byte_us = (busy_us(paper.mac.asymptote_mbps) - card_us) / longest;
        let xtp_byte_us = (paper.transport.a_us_per_byte - 2.0 * card_byte_us - ring_byte_us) / 2.0;
        let xtp_us = (paper.transport.b_us - paper.mac.b_us) / 2.0;
        let frame_us = card_us + (card_byte_us + xtp_byte_us) * longest;
        let xtp_work_us = busy_us(paper.transport.asymptote_mbps) - frame_us;
        let host_us = paper.user.b_us - paper.transport.b_us;
        let host_byte_us = paper.user.a_us_per_byte - paper.transport.a_us_per_byte;
        let end = |share: f64| Self {
            card_us,
            card_byte_us,
            xtp_work_us,
            xtp_byte_us,
            xtp_wait_us: xtp_us - xtp_work_us,
            host_us: host_us * share,
            host_byte_us: host_byte_us * share,
            group_wait_us: paper.multicast.b_us - paper.user.b_us,
            group_work_us: 0.0,
        };
        [end(split.host_sender), end(1.0 - split.host_sender)]
    }
}

impl Split {
    /// Halves, the longest frame of the standard, and two chassis in one room.
    pub(super) const fn even(paper: &Paper) -> Self {
        Self { frame_bytes: paper.frame_bytes, host_sender: 0.5, ring_m: 100 }
    }
}
