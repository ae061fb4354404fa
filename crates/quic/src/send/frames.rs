//! Frames that the send half originates, and its record of the frames it sent.

use std::ops::Range;

use bytes::Bytes;
use wire::quic::frame::Frame;
use wire::quic::{ConnectionId, Dir, PathId, StreamId};

/// A control frame that carries its own content and is retransmitted unchanged when lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    HandshakeDone,
    /// `path` is set if multipath was negotiated.
    NewConnectionId {
        path: Option<PathId>,
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
        reset_token: [u8; 16],
    },
    RetireConnectionId {
        path: Option<PathId>,
        sequence: u64,
    },
    PathAbandon {
        path: PathId,
        code: u64,
    },
    /// Retransmitted only while it is our latest status of the path (multipath draft-21, section
    /// 4.3).
    PathStatus {
        path: PathId,
        sequence: u64,
        available: bool,
    },
    MaxPathId(PathId),
    PathsBlocked(PathId),
    PathCidsBlocked {
        path: PathId,
        next_sequence: u64,
    },
    StopSending {
        id: StreamId,
        code: u64,
    },
    /// A token for a later connection. Only servers send it.
    NewToken(Bytes),
    Ping,
}

impl ControlFrame {
    pub(crate) fn wire(&self) -> Frame<'_> {
        match *self {
            Self::NewToken(ref token) => Frame::NewToken { token },
            Self::HandshakeDone => Frame::HandshakeDone,
            Self::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
                Frame::NewConnectionId { path, sequence, retire_prior_to, id, reset_token }
            }
            Self::RetireConnectionId { path, sequence } => Frame::RetireConnectionId { path, sequence },
            Self::PathAbandon { path, code } => Frame::PathAbandon { path, code },
            Self::PathStatus { path, sequence, available } => Frame::PathStatus { path, sequence, available },
            Self::MaxPathId(path) => Frame::MaxPathId(path),
            Self::PathsBlocked(path) => Frame::PathsBlocked(path),
            Self::PathCidsBlocked { path, next_sequence } => Frame::PathCidsBlocked { path, next_sequence },
            Self::StopSending { id, code } => Frame::StopSending { id, code },
            Self::Ping => Frame::Ping,
        }
    }

    /// Whether the frame is retransmitted when lost.
    pub(crate) fn repeats(&self) -> bool {
        *self != Self::Ping
    }
}

/// The content of a sent packet, as far as its loss or its acknowledgement matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// Elicits an acknowledgement and is never retransmitted.
    Ping,
    /// PATH_RESPONSE frames sent on this path. They are not retransmitted (RFC 9000, section 13.3),
    /// but the send half needs to know whether they arrived.
    Responses(PathId),
    Control(ControlFrame),
    Crypto(Range<u64>),
    Stream {
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    /// An acknowledgement of everything up to `largest`. Once this frame is acknowledged, the peer
    /// needs no older ranges.
    Ack {
        path: PathId,
        largest: u64,
    },
    /// Retransmitted with the value that is current then.
    MaxData,
    MaxStreamData(StreamId),
    MaxStreams(Dir),
    ResetStream(StreamId),
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked(Dir),
    /// Retransmitted with the current request, unless a later frame carries it.
    AckFrequency {
        sequence: u64,
    },
    /// Not retransmitted (RFC 9221, section 5.2), but counted.
    Datagram,
}
