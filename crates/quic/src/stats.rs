//! Counters, for people, tests and benchmarks.

use std::sync::Arc;

use recovery::CongestionSnapshot;
use units::{Duration, Instant, Rate};
use wire::quic::PathId;

use crate::addresses::Addresses;
use crate::session::SessionSummary;

/// Counters of the send half.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SendStats {
    /// Plans made: batches for the seal stage.
    pub plans: u64,
    /// Datagrams planned.
    pub datagrams_sent: u64,
    /// Packets planned.
    pub packets_sent: u64,
    /// Bytes planned, as UDP payload.
    pub bytes_sent: u64,
    /// Plans reported as not emitted.
    pub plans_not_sent: u64,
    /// Packets acknowledged.
    pub packets_acked: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Of these, packets that were acknowledged after all: they were only late.
    pub packets_late: u64,
    /// Bytes of the packets declared lost.
    pub bytes_lost: u64,
    /// Times the probe timer fired.
    pub probe_timeouts: u64,
    /// Key updates of what we send.
    pub key_updates: u64,
    /// DATAGRAM frames lost or dropped before they were sent.
    pub datagrams_lost: u64,
    /// Bytes of DATAGRAM frames that wait for a path, or in front of the connection for those.
    pub datagram_bytes_waiting: u64,
    /// Stream bytes written and not acknowledged.
    pub held_bytes: u64,
    /// Sending sides of streams that exist.
    pub streams_open: usize,
    /// Paths opened so far beside the first one, those included that are gone.
    pub paths_opened: u64,
}

/// Counters of the receive half.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReceiveStats {
    /// Datagrams that arrived.
    pub datagrams_received: u64,
    /// Bytes that arrived, as UDP payload.
    pub bytes_received: u64,
    /// Datagrams dropped because they came from another address than the path's.
    pub datagrams_stray: u64,
    /// Packets that were authentic and new.
    pub packets_received: u64,
    /// Packets that were authentic duplicates.
    pub packets_duplicate: u64,
    /// Packets that did not open.
    pub packets_unauthentic: u64,
    /// Packets that were dropped before an attempt to open them.
    pub packets_dropped: u64,
    /// DATAGRAM frames dropped because the application did not take them.
    pub datagrams_dropped: u64,
    /// Receiving sides of streams that exist.
    pub streams_open: usize,
}

/// A connection's state at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// Sending.
    pub send: SendStats,
    /// Receiving.
    pub receive: ReceiveStats,
    /// Smoothed round-trip time of the path with the shortest one. The next fields are of this
    /// path, too.
    pub round_trip: Duration,
    /// The smallest round-trip time seen.
    pub round_trip_min: Duration,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// The congestion controller.
    pub congestion: CongestionSnapshot,
    /// Size of the datagrams sent, bytes.
    pub datagram_size: usize,
    /// From the first packet until our side of the handshake was complete.
    pub handshake_time: Option<Duration>,
    /// When the connection was made.
    pub started_at: Instant,
    /// The result of the handshake.
    pub session: Arc<SessionSummary>,
    /// Multipath was negotiated.
    pub is_multipath: bool,
    /// Every path, in the order in which they were opened.
    pub paths: Vec<PathStats>,
}

/// The state of a path, as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PathState {
    /// It is probed and has not answered yet.
    Validating,
    /// It carries data.
    #[default]
    Active,
    /// While another path works, its acknowledgements were overdue by a probe timeout, the system
    /// refused to send on it, or the worker that serves its socket did not answer. It is challenged,
    /// and carries data only if no other path is usable.
    Silent,
    /// Abandoned by one side or both (multipath draft-21, section 3.4): nothing is sent on it any
    /// more.
    Abandoned,
}

impl PathState {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Validating, Self::Active, Self::Silent, Self::Abandoned];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Active => "active",
            Self::Silent => "silent",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Whether a path carries ECN codepoints (RFC 9000, section 13.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EcnState {
    /// ECN is not used ([`TransportConfig::ecn`](crate::TransportConfig)).
    #[default]
    Off,
    /// Packets are marked ECT(0), and no acknowledgement has shown yet whether that works.
    Testing,
    /// Packets are marked, and the peer reports the codepoints.
    Capable,
    /// The network or the peer does not handle the codepoints: packets are not marked any more.
    Failed,
}

impl EcnState {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Testing => "testing",
            Self::Capable => "capable",
            Self::Failed => "failed",
        }
    }
}

/// One path at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PathStats {
    /// Its identifier.
    pub id: PathId,
    /// Its addresses.
    pub addresses: Addresses,
    /// Its state.
    pub state: PathState,
    /// One of the sides wants it used only if no other path works.
    pub is_backup: bool,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// The smallest round-trip time seen.
    pub round_trip_min: Duration,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// The capacity as far as it is known: the controller's estimate, or a window per round trip.
    pub capacity: Rate,
    /// The congestion controller.
    pub congestion: CongestionSnapshot,
    /// Size of the datagrams sent, bytes.
    pub datagram_size: usize,
    /// Packets planned.
    pub packets_sent: u64,
    /// Packets acknowledged.
    pub packets_acked: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Whether it carries ECN codepoints.
    pub ecn: EcnState,
    /// Packets that the network marked as having met congestion (ECN-CE), as the peer reports.
    pub packets_marked: u64,
    /// Stream bytes lost on this path and sent on it again because of the policy
    /// ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
    pub bytes_resent: u64,
    /// Bytes planned, as UDP payload.
    pub bytes_sent: u64,
    /// Bytes of packets acknowledged.
    pub bytes_acked: u64,
    /// Bytes that arrived from the peer's address, as UDP payload.
    pub bytes_received: u64,
    /// How often it has become silent.
    pub silences: u32,
    /// How often it has become suspect: its acknowledgements were overdue while other paths received
    /// some.
    pub suspicions: u32,
    /// How often it responded while it was suspect, before it became silent.
    pub false_suspicions: u32,
}
