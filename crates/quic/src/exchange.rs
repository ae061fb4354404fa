//! The values that the three owners of a connection's state exchange. They share nothing else.
//!
//! ```text
//!            ToSend                    ToControl
//!   receive ────────▶ send    receive ──────────▶ control
//!   control ────────▶                  send ────▶
//!
//!            ToReceive
//!   send, control ────────▶ receive
//! ```
//!
//! On one processor the connection empties these queues after every input. On two processors the
//! values travel in [`ReceiveReport`](crate::detached::ReceiveReport) and
//! [`ReceiveCommands`](crate::detached::ReceiveCommands). One value must always be fresh: the
//! receive half's [`Snapshot`](crate::receive::Snapshot) of what is to be acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;
use units::{Duration, Instant};
use wire::quic::frame::EcnCounts;
use wire::quic::{ConnectionId, Dir, PathId, Space, StreamId, TransportParameters, Version};

use crate::addresses::Addresses;
use crate::config::PreferredAddresses;
use crate::control::ids::ResetToken;
use crate::error::TransportError;
use crate::send::frames::ControlFrame;
use crate::session::DirectionKeys;
use crate::stats::PathState;

/// For the send half.
pub(crate) enum ToSend {
    // From the receive half.
    /// An ACK frame for `path` that arrived on path `via`: ranges ascending, in
    /// [`Exchange::ranges`].
    Acknowledged {
        /// The peer's ECN counts, if the frame has them.
        ecn: Option<EcnCounts>,
        space: Space,
        path: PathId,
        via: PathId,
        delay: Duration,
        ranges: std::ops::Range<usize>,
    },
    MaxData(u64),
    MaxStreamData {
        id: StreamId,
        max: u64,
    },
    MaxStreams {
        dir: Dir,
        max: u64,
    },
    StopSending {
        id: StreamId,
        code: u64,
    },
    /// The peer opened a bidirectional stream.
    PeerOpened(StreamId),
    GrantData(u64),
    GrantStreamData {
        id: StreamId,
        max: u64,
    },
    GrantStreams {
        dir: Dir,
        max: u64,
    },
    /// No more credit is needed for this stream.
    ForgetGrant(StreamId),
    /// An authentic packet arrived: the peer is alive.
    AuthenticReceived,
    /// `bytes` arrived from the path's address.
    Received {
        path: PathId,
        bytes: u64,
    },

    // From control.
    Control(ControlFrame),
    Crypto {
        space: Space,
        bytes: Bytes,
    },
    InstallKeys {
        space: Space,
        keys: DirectionKeys,
    },
    /// A key update: the packet key of what is sent from now on, and the number of the phase, whose
    /// lowest bit is sent.
    UpdateKeys {
        packet: std::sync::Arc<dyn crate::session::PacketKey>,
        phase: u64,
    },
    DiscardSpace(Space),
    PeerParameters(Box<TransportParameters>),
    /// The first path's address is the peer's.
    Validated,
    /// Multipath was negotiated.
    Multipath,
    Path(ToPath),
    Handshake(HandshakeStep),
}

/// For the send half: a change of a path or of its addresses.
pub(crate) enum ToPath {
    /// Packets of a path come from another address: `bytes` so far.
    Moved {
        path: PathId,
        addresses: Addresses,
        bytes: u64,
    },
    /// A challenge that came on `path`, or to a connection ID of `path` from another address.
    Challenge {
        path: PathId,
        data: [u8; 8],
        from: Option<Box<Elsewhere>>,
    },
    /// A PATH_RESPONSE.
    Response([u8; 8]),
    /// A new connection ID to send to.
    RemoteId {
        path: PathId,
        id: ConnectionId,
    },
    /// The only path is to move to these addresses once they respond.
    Migrate {
        addresses: Addresses,
        remote_id: ConnectionId,
    },
    /// The server wants the only path at one of these addresses.
    MoveToPreferred {
        addresses: PreferredAddresses,
        remote_id: ConnectionId,
    },
    Open {
        path: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
        /// Whether we, and whether the peer, want it for backup only.
        is_backup: bool,
        is_peers_backup: bool,
    },
    /// The peer's PATH_STATUS of a path.
    PeersStatus {
        path: PathId,
        available: bool,
    },
    /// Nothing more may be sent on the path.
    Abandon(PathId),
    Forget(PathId),
}

/// For the send half: a step of the handshake, at most once in a connection.
pub(crate) enum HandshakeStep {
    /// A Retry packet of the server.
    Retry(Box<Retry>),
    /// The version changes during the handshake.
    Version(Box<NegotiatedVersion>),
    /// The client may send 0-RTT.
    Early(Box<Early>),
    /// The client sends no more 0-RTT: a server that asks for another first message takes none.
    EarlyOver,
    /// The server has taken no 0-RTT.
    EarlyRejected,
    /// The server has taken 0-RTT. These are its parameters of today.
    EarlyAccepted(Box<TransportParameters>),
    /// Our side of the handshake is complete, or we have taken 0-RTT from the client: streams may be
    /// sent in 1-RTT packets.
    Complete,
    /// Both sides know that the handshake is complete (RFC 9001, section 4.1.2).
    Confirmed,
}

/// An arrival from an address that is not the one of its path.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    pub(crate) addresses: Addresses,
    /// Bytes that arrived from there and are not credited yet.
    pub(crate) bytes: u64,
    /// A connection ID of the peer for the path that the path itself does not use.
    pub(crate) spare_id: Option<ConnectionId>,
}

/// What a Retry packet changes (RFC 9000, section 17.2.5.2).
pub(crate) struct Retry {
    pub(crate) remote_id: ConnectionId,
    /// Repeated in every Initial packet.
    pub(crate) token: Vec<u8>,
    /// Of Initial packets from now on.
    pub(crate) keys: DirectionKeys,
}

/// The version of long headers from now on (RFC 9368, section 2.3).
pub(crate) struct NegotiatedVersion {
    pub(crate) version: Version,
    /// Of Initial packets.
    pub(crate) keys: DirectionKeys,
}

/// What a client needs to send 0-RTT.
pub(crate) struct Early {
    pub(crate) keys: DirectionKeys,
    /// The limits, with those of the server's parameters alone that are remembered (RFC 9000,
    /// section 7.4.1).
    pub(crate) limits: TransportParameters,
}

/// For the receive half.
#[derive(Debug, Clone)]
pub(crate) enum ToReceive {
    /// We opened a bidirectional stream: the peer may answer on it.
    LocalOpened(StreamId),
    /// Our sending side of this stream is over.
    SendSideDone(StreamId),
    /// An acknowledgement left when `eliciting` ack-eliciting packets had arrived.
    AckSent {
        space: Space,
        path: PathId,
        eliciting: u64,
    },
    /// The peer has received our acknowledgement: numbers up to `largest` need none any more.
    AckFloor {
        space: Space,
        path: PathId,
        largest: u64,
    },
    DiscardSpace(Space),
    ForgetPath(PathId),
    PeerParameters(Box<TransportParameters>),
    /// The streams of 0-RTT are gone.
    EarlyRejected,
    /// The measured round trip, for the flow-control windows.
    RoundTrip(Duration),
}

/// For control.
#[derive(Debug)]
pub(crate) enum ToControl {
    // From the receive half.
    Crypto {
        space: Space,
        offset: u64,
        bytes: Bytes,
    },
    NewConnectionId {
        path: PathId,
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
        reset_token: [u8; 16],
    },
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    /// A frame of the multipath extension (draft-21, section 4) that is not about acknowledgements
    /// or connection IDs.
    Multipath(MultipathFrame),
    HandshakeDone,
    /// A token for a later connection.
    NewToken(Bytes),
    Closed {
        error: TransportError,
        application: bool,
        reason: Bytes,
    },
    /// A packet was authentic: the idle timer starts anew.
    PacketAccepted {
        space: Space,
    },
    /// A packet of this key phase, which is the next one, was authentic.
    PhaseAdvanced(u64),

    // From the send half.
    /// The peer receives at this address: the handshake is confirmed, or a path responded.
    AddressValidated(std::net::IpAddr),
    /// The state of a path has changed.
    PathState {
        path: PathId,
        state: PathState,
    },
    /// A path has moved to the addresses that this side asked for.
    Migrated {
        path: PathId,
    },
    /// The last bytes of a datagram that could not be attributed or opened: maybe a stateless reset
    /// (RFC 9000, section 10.3.1).
    Trailer(ResetToken),
    /// The connection IDs of the peer to which the send half sends may have changed.
    RemoteIdsChanged,
    /// This connection ID of the peer is not used any more.
    RetireRemoteId {
        path: PathId,
        id: ConnectionId,
    },
    /// The first ack-eliciting packet since something was received (RFC 9000, section 10.1).
    ElicitingSent {
        at: Instant,
    },
    /// The first packet of this space went out.
    FirstSent(Space),
    /// A packet of this send phase was acknowledged (RFC 9001, section 6.5). It may come late: a
    /// key update of the peer in the same packet is handled first.
    PhaseAcknowledged(u64),
    /// As many packets were sealed with the key as the configuration allows.
    KeyWornOut,
    /// One more batch would exceed the AEAD's confidentiality limit.
    KeyExhausted,
}

/// A frame of the peer about paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultipathFrame {
    Abandon { path: PathId, code: u64 },
    Status { path: PathId, sequence: u64, available: bool },
    MaxPathId(PathId),
    PathsBlocked(PathId),
    PathCidsBlocked { path: PathId, next_sequence: u64 },
}

/// All values in transit between the owners.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) to_send: VecDeque<ToSend>,
    pub(crate) to_receive: VecDeque<ToReceive>,
    pub(crate) to_control: VecDeque<ToControl>,
    /// Acknowledged ranges of all ACK frames, so that a frame needs no allocation of its own.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Exchange {
    /// True if the only value is that a 1-RTT packet was accepted.
    pub(crate) fn is_one_accepted_packet(&self) -> bool {
        self.to_control.len() == 1
            && self.to_send.is_empty()
            && self.to_receive.is_empty()
            && matches!(self.to_control.front(), Some(ToControl::PacketAccepted { space: Space::Data }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.to_send.is_empty() && self.to_receive.is_empty() && self.to_control.is_empty()
    }
}
