//! The configuration of a connection.

use std::sync::Arc;

use journal::JournalSource;
use recovery::Algorithm;
use units::Duration;

use crate::budget::BufferBudget;
use crate::md5::Md5Key;
use crate::plan::IP_PACKET_MAX;

/// The largest shift of the window (RFC 7323, section 2.3).
pub(crate) const SCALE_MAX: u8 = 14;

/// The largest code point of differentiated services: six bits (RFC 2474, section 3).
pub const DSCP_MAX: u8 = 63;

/// What a connection may use, and its timers.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// The congestion controller. Default: CUBIC. Without one only the peer's window limits what is in
    /// flight, as in RFC 793: for closed networks and models.
    pub congestion: Option<Algorithm>,
    /// The largest IP packet that the device carries, bytes. It gives the maximum segment size that is
    /// announced (RFC 9293, section 3.7.1). More than 65,535 counts as that. Below 88, Linux as the peer
    /// sends each segment in two fragments, which is slow: it has a least segment size. Default: 1500.
    pub mtu: usize,
    /// Bytes that wait for acknowledgement or for the first transmission, at most. The buffer grows to
    /// twice the congestion window, and has its initial size again when everything is acknowledged.
    /// Default: 4 MiB.
    pub send_buffer: usize,
    /// Bytes that were received and not read, at most: the largest window that is announced. The buffer
    /// grows with what the application reads in a round trip, to between two and four times that.
    /// Default: 4 MiB.
    pub receive_buffer: usize,
    /// The size of both buffers at the beginning. With the size of the larger one or more, none ever
    /// changes. Default: 64 KiB, which a window without scaling can announce.
    pub buffers_initial: usize,
    /// Limits the growth of all buffers of all connections that share it. Default: one of 512 MiB for
    /// this value and its clones.
    pub budget: Arc<BufferBudget>,
    /// Whether timestamps are offered (RFC 7323, section 3). Default: true.
    pub timestamps: bool,
    /// Whether selective acknowledgements are offered (RFC 2018). Default: true.
    pub sack: bool,
    /// Whether window scaling is offered (RFC 7323, section 2). Default: true. Without it the window is
    /// at most 65,535 bytes.
    pub window_scaling: bool,
    /// Whether explicit congestion notification is offered (RFC 3168, section 6.1). Default: true.
    pub ecn: bool,
    /// Whether accurate ECN is offered, too (RFC 9768): the sender learns how many packets were marked.
    /// Prague needs it. A peer without it is answered with the other one, which stays usual: some paths
    /// drop a SYN with the flag that asks. Default: false.
    pub accurate_ecn: bool,
    /// Whether segments become smaller if large ones are not acknowledged, and probes find the largest that
    /// the path carries (RFC 4821). Default: true.
    pub path_probing: bool,
    /// Which small segments wait. Default: [`Nagle::Minshall`].
    pub nagle: Nagle,
    /// When received data are acknowledged.
    pub acks: AckPolicy,
    /// When a wider window is announced. Default: [`WindowGrowth::Segment`].
    pub window_growth: WindowGrowth,
    /// What is sent again after a loss, and when. Default: [`LossRecovery::Selective`].
    pub recovery: LossRecovery,
    /// How the retransmission timeout follows the round trip. Default: [`RtoFormula::Rfc6298`].
    pub rto_formula: RtoFormula,
    /// The shortest retransmission timeout. RFC 6298, section 2.4, says one second. Default: 200 ms, as
    /// in other systems: today's round trips are measured with each segment, and a second is a long
    /// silence.
    pub rto_min: Duration,
    /// Transmissions of a SYN before the connection is given up. Default: 8, a little more than the three
    /// minutes of RFC 9293, section 3.8.3; an application can give up sooner.
    pub syn_attempts_max: u32,
    /// Retransmission timeouts in a row before the connection is given up (RFC 9293, section 3.8.3, R2).
    /// Default: 15, a quarter of an hour with the default limits.
    pub timeouts_max: u32,
    /// How long a connection that closed first keeps its ports: twice the maximum segment lifetime (RFC
    /// 9293, section 3.6.1). Default: 60 seconds.
    pub time_wait: Duration,
    /// The key of digests that each segment carries, in both directions (RFC 2385). Segments without a right
    /// one must be dropped before they reach the connection: [`Md5Key::verifies`]. Default: none.
    pub md5: Option<Md5Key>,
    /// Silence after which probes ask whether the peer is there (RFC 9293, section 3.8.4). Default: none.
    pub keep_alive: Option<KeepAlive>,
    /// Records all inputs of a connection, for [`Replay`](crate::journal::Replay). It contains no data and
    /// no key, but addresses, ports, sequence numbers, sizes and times. Default: none.
    pub journal: Option<JournalSource>,
}

/// When received data are acknowledged, if they are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// As soon as so much is not acknowledged.
    pub threshold: AckThreshold,
    /// At the latest after this time (RFC 9293, section 3.8.6.3: at most half a second).
    pub delay_max: Duration,
    /// From when that time counts.
    pub timer: AckTimer,
}

/// From when the delay of an acknowledgement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckTimer {
    /// From the first segment that is not acknowledged.
    FromSegment,
    /// The host has one timer that expires periodically, as in BSD (`tcp_fasttimo`): the delay is between
    /// nothing and the period. Its phase is that of the clock.
    Periodic,
}

/// Which segments wait that are not full, while something is outstanding (RFC 9293, section 3.7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nagle {
    /// None does.
    Off,
    /// The original rule: while anything is outstanding (RFC 896). The end of each long write waits for an
    /// acknowledgement, which the peer may delay.
    Rfc896,
    /// While another segment is outstanding that was not full either: Minshall's modification (RFC 9293,
    /// appendix A.3).
    Minshall,
}

/// When a segment that leaves announces a wider window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowGrowth {
    /// If it is wider by a full segment or half of the buffer (RFC 9293, section 3.8.6.2.2).
    Segment,
    /// Always, unless less than a full segment and a quarter of the buffer are free, as in 4.4BSD.
    Any,
}

/// What is sent again after a loss, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossRecovery {
    /// What is lost: by time and selective acknowledgements (RFC 8985), or after three duplicate
    /// acknowledgements (RFC 6582); after a timeout (RFC 6298, RFC 3522).
    Selective,
    /// Everything that is not acknowledged, and only after a timeout, as in RFC 793, section 3.7.
    GoBackN,
}

/// How the retransmission timeout follows the round trip. In either case what was sent twice is not
/// measured (Karn), and the timeout doubles: RFC 1122, section 4.2.3.1, asks for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RtoFormula {
    /// The smoothed round trip and four times its mean deviation (RFC 6298, section 2).
    Rfc6298,
    /// `beta` times the smoothed round trip, of which each measurement keeps the share `alpha` (RFC 793,
    /// section 3.7). In percent.
    Rfc793 {
        /// Between 80 and 90 in the RFC's example.
        alpha_percent: u32,
        /// Between 130 and 200 in the RFC's example.
        beta_percent: u32,
    },
}

/// How much is not acknowledged when an acknowledgement is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckThreshold {
    /// So many full segments. RFC 9293, section 3.8.6.3, says two.
    Segments(u32),
    /// This share of the receive buffer in percent, as the Parallel Protocol Engine does: in a bulk
    /// transfer the timer never expires.
    BufferPercent(u32),
    /// No number of bytes: an acknowledgement leaves when the application has read so much that the window
    /// grows by two full segments or half of the buffer, as in 4.4BSD.
    Read,
}

/// When a silent peer is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe. RFC 9293, section 3.8.4, says at least two hours by default.
    pub after: Duration,
    /// The time between probes.
    pub interval: Duration,
    /// Probes without an answer before the connection is given up.
    pub probes_max: u32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: Some(Algorithm::default()),
            mtu: 1500,
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            buffers_initial: 64 << 10,
            budget: Arc::new(BufferBudget::new(512 << 20)),
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: true,
            path_probing: true,
            accurate_ecn: false,
            nagle: Nagle::Minshall,
            acks: AckPolicy {
                threshold: AckThreshold::Segments(2),
                delay_max: Duration::from_millis(40),
                timer: AckTimer::FromSegment,
            },
            window_growth: WindowGrowth::Segment,
            recovery: LossRecovery::Selective,
            rto_formula: RtoFormula::Rfc6298,
            rto_min: Duration::from_millis(200),
            syn_attempts_max: 8,
            timeouts_max: 15,
            time_wait: Duration::from_secs(60),
            md5: None,
            keep_alive: None,
            journal: None,
        }
    }
}

impl TcpConfig {
    /// TCP as around 1990, for models of that time: RFC 793 with Nagle's algorithm (RFC 896), without
    /// options, congestion window and fast retransmission, and the timers of BSD. On a network it is
    /// unfair to others.
    pub fn classic() -> Self {
        Self {
            congestion: None,
            mtu: 1500,
            send_buffer: u16::MAX as usize,
            receive_buffer: u16::MAX as usize,
            buffers_initial: usize::MAX,
            budget: Arc::new(BufferBudget::new(0)),
            timestamps: false,
            sack: false,
            window_scaling: false,
            ecn: false,
            path_probing: false,
            accurate_ecn: false,
            nagle: Nagle::Rfc896,
            acks: AckPolicy {
                threshold: AckThreshold::Segments(2),
                delay_max: Duration::from_millis(200),
                timer: AckTimer::Periodic,
            },
            window_growth: WindowGrowth::Any,
            recovery: LossRecovery::GoBackN,
            rto_formula: RtoFormula::Rfc793 { alpha_percent: 90, beta_percent: 200 },
            // The lower bound of the example in RFC 793, section 3.7.
            rto_min: Duration::from_secs(1),
            syn_attempts_max: 8,
            timeouts_max: 15,
            // Twice the two minutes of RFC 793, section 3.3.
            time_wait: Duration::from_secs(240),
            md5: None,
            keep_alive: None,
            journal: None,
        }
    }

    /// The window of a SYN, which is not scaled (RFC 7323, section 2.2).
    pub(crate) fn initial_window(&self) -> u16 {
        self.receive_buffer.min(self.buffers_initial).min(u16::MAX.into()) as u16
    }

    /// The maximum segment size that this side announces (RFC 9293, section 3.7.1, and RFC 6691).
    pub(crate) fn announced_mss(&self, is_ipv6: bool) -> u16 {
        let ip_len = if is_ipv6 { 40 } else { 20 };
        self.mtu.min(IP_PACKET_MAX).saturating_sub(ip_len + 20) as u16
    }

    /// The shift that lets the window cover the receive buffer.
    pub(crate) const fn window_shift(&self) -> u8 {
        let mut shift = 0;
        while shift < SCALE_MAX && self.receive_buffer >> shift > u16::MAX as usize {
            shift += 1;
        }
        shift
    }
}
