//! The values a connection's three owners exchange. Nothing else is shared between them.
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
//! On one processor an exchange is a call: the connection empties these queues after every input. On two processors the
//! values travel in [`Findings`](crate::part::Findings) and [`Orders`](crate::part::Orders). Beside them there is one value
//! that must always be fresh, the receive half's [`Snapshot`](crate::receive::Snapshot) of what to acknowledge.

use std::collections::VecDeque;

use bytes::Bytes;
use units::{Duration, Instant};
use wire::quic::{ConnectionId, Dir, PathId, Space, StreamId, TransportParameters};

use crate::error::TransportError;
use crate::send::frames::ControlFrame;
use crate::send::path::Addresses;
use crate::session::DirectionKeys;
use crate::stats::PathState;

/// For the send half.
pub(crate) enum ToSend {
    // From the receive half.
    /// An ACK frame about `path` that came on path `via`: ranges ascending, in [`Exchange::ranges`].
    Acknowledged {
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
    /// Packets of a path come from other addresses, so many bytes so far.
    Moved {
        path: PathId,
        addresses: Addresses,
        bytes: u64,
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
    /// Something authentic arrived: the peer lives.
    Heard,
    /// A datagram of this size came from the path's address.
    Received {
        path: PathId,
        bytes: u64,
    },

    /// A challenge that came on `path`.
    Challenge {
        path: PathId,
        data: [u8; 8],
    },
    /// An answer to a challenge.
    Response([u8; 8]),

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
    /// A key update: the packet key of what is sent from now on, and the number of the phase, whose lowest bit is sent.
    UpdateKeys {
        packet: std::sync::Arc<dyn crate::session::PacketKey>,
        phase: u64,
    },
    DiscardSpace(Space),
    PeerParameters(Box<TransportParameters>),
    RemoteId {
        path: PathId,
        id: ConnectionId,
    },
    /// The first path's address is the peer's.
    Validated,
    /// Both sides speak multipath.
    Multipath,
    OpenPath {
        path: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
        /// What we want it used for, and what the peer wants.
        is_backup: bool,
        is_peers_backup: bool,
    },
    /// What the peer wants a path used for.
    PeersStatus {
        path: PathId,
        available: bool,
    },
    /// Nothing more may be sent on the path.
    AbandonPath(PathId),
    ForgetPath(PathId),
    /// Our side of the handshake is complete: streams may be sent.
    HandshakeComplete,
    /// Both sides know the handshake is complete (RFC 9001, section 4.1.2).
    HandshakeConfirmed,
}

/// For the receive half.
#[derive(Debug, Clone)]
pub(crate) enum ToReceive {
    /// We opened a bidirectional stream: the peer may answer on it.
    LocalOpened(StreamId),
    /// Our sending side of this stream is done for good.
    SendSideDone(StreamId),
    /// An acknowledgement left when so many ack-eliciting packets had arrived.
    AckSent {
        space: Space,
        path: PathId,
        eliciting: u64,
    },
    /// The peer has our acknowledgement: numbers up to `largest` need none any more.
    AckFloor {
        space: Space,
        path: PathId,
        largest: u64,
    },
    DiscardSpace(Space),
    ForgetPath(PathId),
    PeerParameters(Box<TransportParameters>),
    /// The send half measured the path: window tuning needs it.
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
    /// A frame of the multipath extension (draft-21, section 4) that is not about acknowledgements or connection IDs.
    Multipath(MultipathFrame),
    HandshakeDone,
    /// A token for a later connection: we keep none, but only servers may send it.
    NewToken,
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
    /// What has become of a path.
    PathState {
        path: PathId,
        state: PathState,
    },
    /// The first ack-eliciting packet since something was received (RFC 9000, section 10.1).
    ElicitingSent {
        at: Instant,
    },
    /// The first packet of this space went out.
    FirstSent(Space),
    /// A packet of this send phase was acknowledged (RFC 9001, section 6.5). It may come late: an update that the peer
    /// asked for in the same packet is handled first.
    PhaseAcknowledged(u64),
    /// As many packets were sealed as a key is asked for.
    KeyWornOut,
    /// One more batch would take the key beyond the AEAD's confidentiality limit.
    KeyExhausted,
}

/// What the peer says about paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultipathFrame {
    Abandon { path: PathId, code: u64 },
    Status { path: PathId, sequence: u64, available: bool },
    MaxPathId(PathId),
    PathsBlocked(PathId),
    PathCidsBlocked { path: PathId, next_sequence: u64 },
}

/// Everything on its way between the owners.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) to_send: VecDeque<ToSend>,
    pub(crate) to_receive: VecDeque<ToReceive>,
    pub(crate) to_control: VecDeque<ToControl>,
    /// Where acknowledged ranges lie, so that an ACK frame needs no allocation of its own.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Exchange {
    /// All that is to be told is that a 1-RTT packet was authentic.
    pub(crate) fn tells_of_data_alone(&self) -> bool {
        self.to_control.len() == 1
            && self.to_send.is_empty()
            && self.to_receive.is_empty()
            && matches!(self.to_control.front(), Some(ToControl::PacketAccepted { space: Space::Data }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.to_send.is_empty() && self.to_receive.is_empty() && self.to_control.is_empty()
    }
}
