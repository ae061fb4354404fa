//! The costs of each level, solved from printed numbers.
//!
//! At each end a message is processed by the host, by the board that runs XTP and moves data to and
//! from the network card, and by the ring between them. Sources of the costs:
//!
//! | cost | source |
//! |---|---|
//! | card, fixed | b at MAC level, in equal halves |
//! | card, per byte | the asymptote at MAC level, taken as the throughput of the longest frame |
//! | XTP, per byte | a at transport level |
//! | XTP, fixed: latency | b at transport level, in equal halves |
//! | XTP, fixed: work | the asymptote at transport level, for the longest frame; the rest of the latency is waiting |
//! | host, per byte and fixed | a and b at user level, in equal halves |
//! | group, waiting | b of multicast |
//!
//! The other numbers are results: a at MAC level, the asymptote at user level, a and the asymptote
//! of multicast.

use sim::hardware::fddi::RingConfig;

use super::paper::Paper;

/// Costs at either end. All times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Costs {
    pub(super) card_us: f64,
    pub(super) card_byte_us: f64,
    /// Busy time of the board for XTP per frame.
    pub(super) xtp_work_us: f64,
    pub(super) xtp_byte_us: f64,
    /// Additional waiting time of a message at the board: interrupts, polling.
    pub(super) xtp_wait_us: f64,
    pub(super) host_us: f64,
    pub(super) host_byte_us: f64,
    /// Additional waiting time of a multicast message at its receiver.
    pub(super) group_wait_us: f64,
    /// Additional busy time of the sender's board for a multicast message.
    pub(super) group_work_us: f64,
}

/// Distribution of the fixed costs where the paper does not give it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Split {
    /// The longest message of one frame, in bytes of user data.
    pub(super) frame_bytes: u64,
    /// The sender's share of the cost that user level adds.
    pub(super) host_sender: f64,
    /// Circumference of the ring in metres.
    pub(super) ring_m: u64,
}

/// Returns a ring with this number of stations and metres.
pub(super) fn ring(stations: usize, metres: u64) -> RingConfig {
    RingConfig::even(stations, metres)
}

impl Costs {
    /// Returns all costs with their names.
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

    /// Returns the costs at the sender and at the receiver.
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
    /// Returns equal halves, the longest frame of the standard, and two adjacent chassis.
    pub(super) const fn even(paper: &Paper) -> Self {
        Self { frame_bytes: paper.frame_bytes, host_sender: 0.5, ring_m: 100 }
    }
}
