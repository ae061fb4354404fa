//! The configuration of a connection.

use recovery::Algorithm;
use units::Duration;

/// What a connection may use, and its timers.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// The congestion controller. Default: CUBIC.
    pub congestion: Algorithm,
    /// The largest IP packet that the device carries, bytes. It gives the maximum segment size that is
    /// announced (RFC 9293, section 3.7.1). Default: 1500.
    pub mtu: usize,
    /// Bytes that wait for acknowledgement or for the first transmission, at most. Default: 4 MiB.
    pub send_buffer: usize,
    /// Bytes that were received and not read, at most: the largest window that is announced. Default:
    /// 4 MiB.
    pub receive_buffer: usize,
    /// Whether timestamps are offered (RFC 7323, section 3). Default: true.
    pub timestamps: bool,
    /// Whether selective acknowledgements are offered (RFC 2018). Default: true.
    pub sack: bool,
    /// Whether window scaling is offered (RFC 7323, section 2). Default: true. Without it the window is
    /// at most 65,535 bytes.
    pub window_scaling: bool,
    /// Whether explicit congestion notification is offered (RFC 3168, section 6.1). Default: true.
    pub ecn: bool,
    /// Whether a small segment waits while another small one is outstanding (Nagle's algorithm with
    /// Minshall's modification; RFC 9293, section 3.7.4 and appendix A.3). Default: true.
    pub nagle: bool,
    /// When received data are acknowledged.
    pub acks: AckPolicy,
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
    /// Silence after which probes ask whether the peer is there (RFC 9293, section 3.8.4). Default: none.
    pub keep_alive: Option<KeepAlive>,
}

/// When received data are acknowledged, if they are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// As soon as so much is not acknowledged.
    pub threshold: AckThreshold,
    /// At the latest after this time (RFC 9293, section 3.8.6.3: at most half a second).
    pub delay_max: Duration,
}

/// How much is not acknowledged when an acknowledgement is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckThreshold {
    /// So many full segments. RFC 9293, section 3.8.6.3, says two.
    Segments(u32),
    /// This share of the receive buffer in percent, as the Parallel Protocol Engine does: in a bulk
    /// transfer the timer never expires.
    BufferPercent(u32),
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
            congestion: Algorithm::default(),
            mtu: 1500,
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: true,
            nagle: true,
            acks: AckPolicy { threshold: AckThreshold::Segments(2), delay_max: Duration::from_millis(40) },
            rto_min: Duration::from_millis(200),
            syn_attempts_max: 8,
            timeouts_max: 15,
            time_wait: Duration::from_secs(60),
            keep_alive: None,
        }
    }
}
