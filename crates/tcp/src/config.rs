//! The configuration of a connection.

use std::sync::Arc;

use journal::JournalSource;
use recovery::Algorithm;
use units::Duration;

use crate::budget::BufferBudget;
use crate::md5::Md5Key;
use crate::plan::IP_PACKET_MAX;

/// Largest window shift (RFC 7323, section 2.3).
pub(crate) const SCALE_MAX: u8 = 14;

/// Largest differentiated services code point: six bits (RFC 2474, section 3).
pub const DSCP_MAX: u8 = 63;

/// Features and limits of a connection, and its timers.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// The congestion controller. Default: CUBIC. Without one, only the peer's window limits the
    /// bytes in flight, as in RFC 793: for closed networks and models.
    pub congestion: Option<Algorithm>,
    /// Largest IP packet that the device carries, in bytes. It determines the announced maximum
    /// segment size (RFC 9293, section 3.7.1). Values above 65,535 count as 65,535. Below 88, a
    /// Linux peer sends each segment in two fragments, which is slow: it has a minimum segment
    /// size. Default: 1500.
    pub mtu: usize,
    /// Largest size of the send buffer, in bytes: data not sent yet or not acknowledged. The buffer
    /// grows to twice the congestion window, and returns to its initial size when everything is
    /// acknowledged. Default: 4 MiB.
    pub send_buffer: usize,
    /// Largest size of the receive buffer, in bytes: data received but not read, and so the largest
    /// window announced. The buffer grows to between two and four times the bytes that the
    /// application reads in a round trip. Default: 4 MiB.
    pub receive_buffer: usize,
    /// Initial size of both buffers. Values of at least the larger buffer's size disable growth.
    /// Default: 64 KiB, which a window without scaling can announce.
    pub buffers_initial: usize,
    /// Limit on the total growth of the buffers of all connections that share it. Default: a budget
    /// of 512 MiB for this value and its clones.
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
    /// Whether accurate ECN is offered in addition (RFC 9768): the sender learns how many packets
    /// were marked. Prague needs it. A peer without it falls back to classic ECN, which remains the
    /// usual kind: some paths drop a SYN with the flag that requests accurate ECN. Default: false.
    pub accurate_ecn: bool,
    /// Whether segments shrink if large ones are not acknowledged, and probes find the largest size
    /// that the path carries (RFC 4821). Default: true.
    pub path_probing: bool,
    /// Rule by which small segments wait. Default: [`Nagle::Minshall`].
    pub nagle: Nagle,
    /// Policy for acknowledging received data.
    pub acks: AckPolicy,
    /// Condition for announcing a wider window. Default: [`WindowGrowth::Segment`].
    pub window_growth: WindowGrowth,
    /// Extent and time of retransmissions after a loss. Default: [`LossRecovery::Selective`].
    pub recovery: LossRecovery,
    /// Formula that derives the retransmission timeout from the round trip. Default:
    /// [`RtoFormula::Rfc6298`].
    pub rto_formula: RtoFormula,
    /// Shortest retransmission timeout. RFC 6298, section 2.4, says one second. Default: 200 ms, as
    /// in other systems: today's round trips are measured with each segment, and a second is a long
    /// silence.
    pub rto_min: Duration,
    /// Number of transmissions of a SYN before the connection is given up. Default: 8, a little
    /// more than the three minutes of RFC 9293, section 3.8.3; an application can give up sooner.
    pub syn_attempts_max: u32,
    /// Number of consecutive retransmission timeouts before the connection is given up (RFC 9293,
    /// section 3.8.3, R2). Default: 15, a quarter of an hour with the default limits.
    pub timeouts_max: u32,
    /// Time for which a connection that closed first keeps its ports: twice the maximum segment
    /// lifetime (RFC 9293, section 3.6.1). Default: 60 seconds.
    pub time_wait: Duration,
    /// Key of the digests that all segments carry in both directions (RFC 2385). Segments without a
    /// correct digest must be dropped before they reach the connection: [`Md5Key::verifies`].
    /// Default: none.
    pub md5: Option<Md5Key>,
    /// Keep-alive probes for silent peers (RFC 9293, section 3.8.4). Default: none.
    pub keep_alive: Option<KeepAlive>,
    /// Recorder of all inputs of a connection, for [`Replay`](crate::journal::Replay). It contains
    /// no data and no key, but addresses, ports, sequence numbers, sizes and times. Default: none.
    pub journal: Option<JournalSource>,
}

/// Policy for acknowledging data received in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// Amount of unacknowledged data that triggers an acknowledgement.
    pub threshold: AckThreshold,
    /// Longest delay of an acknowledgement (RFC 9293, section 3.8.6.3: at most half a second).
    pub delay_max: Duration,
    /// Start of that delay.
    pub timer: AckTimer,
}

/// Start of the delay of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckTimer {
    /// The first unacknowledged segment.
    FromSegment,
    /// A timer of the host that expires periodically, as in BSD (`tcp_fasttimo`): the delay is
    /// between zero and the period. Its phase is that of the clock.
    Periodic,
}

/// Rule by which segments that are not full wait while data are outstanding (RFC 9293, section
/// 3.7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nagle {
    /// No segment waits.
    Off,
    /// They wait while anything is outstanding: the original rule (RFC 896). The end of each long
    /// write waits for an acknowledgement, which the peer may delay.
    Rfc896,
    /// They wait while another segment that was not full is outstanding: Minshall's modification
    /// (RFC 9293, appendix A.3).
    Minshall,
}

/// Condition for announcing a wider window in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowGrowth {
    /// The window is wider by a full segment or half of the buffer (RFC 9293, section 3.8.6.2.2).
    Segment,
    /// Always, unless the free space is below a full segment and a quarter of the buffer, as in
    /// 4.4BSD.
    Any,
}

/// Extent and time of retransmissions after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossRecovery {
    /// Retransmits lost data: found by time and selective acknowledgements (RFC 8985), or by three
    /// duplicate acknowledgements (RFC 6582); or after a timeout (RFC 6298, RFC 3522).
    Selective,
    /// Retransmits everything unacknowledged, only after a timeout, as in RFC 793, section 3.7.
    GoBackN,
}

/// Formula that derives the retransmission timeout from the round trip. With either, retransmitted
/// data are not measured (Karn), and the timeout doubles: RFC 1122, section 4.2.3.1, requires both.
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

/// Amount of unacknowledged data that triggers an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckThreshold {
    /// Number of full segments. RFC 9293, section 3.8.6.3, says two.
    Segments(u32),
    /// Percentage of the receive buffer, as in the Parallel Protocol Engine: in a bulk transfer the
    /// timer never expires.
    BufferPercent(u32),
    /// No amount: an acknowledgement leaves once the application's reads widen the window by two
    /// full segments or half of the buffer, as in 4.4BSD.
    Read,
}

/// Schedule of keep-alive probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe. RFC 9293, section 3.8.4, says at least two hours by default.
    pub after: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
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
    /// Returns a configuration of TCP as around 1990, for models of that time: RFC 793 with Nagle's
    /// algorithm (RFC 896) and the timers of BSD, without options, congestion window or fast
    /// retransmission. On a network it is unfair to others.
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
            // Lower bound of the example in RFC 793, section 3.7.
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

    /// Returns the unscaled window of a SYN (RFC 7323, section 2.2).
    pub(crate) fn initial_window(&self) -> u16 {
        self.receive_buffer.min(self.buffers_initial).min(u16::MAX.into()) as u16
    }

    /// Returns the maximum segment size that this side announces (RFC 9293, section 3.7.1, and RFC
    /// 6691).
    pub(crate) fn announced_mss(&self, is_ipv6: bool) -> u16 {
        let ip_len = if is_ipv6 { 40 } else { 20 };
        self.mtu.min(IP_PACKET_MAX).saturating_sub(ip_len + 20) as u16
    }

    /// Returns the shift that lets the window cover the receive buffer.
    pub(crate) const fn window_shift(&self) -> u8 {
        let mut shift = 0;
        while shift < SCALE_MAX && self.receive_buffer >> shift > u16::MAX as usize {
            shift += 1;
        }
        shift
    }
}
