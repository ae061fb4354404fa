//! Frames the send half originates, and what it remembers of those it sent.

use std::ops::Range;

use wire::quic::frame::Frame;
use wire::quic::{ConnectionId, Dir, PathId, StreamId};

/// A frame that must arrive once and carries its own content: repeated as it is when lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    HandshakeDone,
    /// With a path if multipath was negotiated.
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
    /// Repeated only while it is our last word about the path (multipath draft-21, section 4.3).
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
    Ping,
}

impl ControlFrame {
    pub(crate) fn wire(&self) -> Frame<'static> {
        match *self {
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

    /// Whether loss makes it necessary again.
    pub(crate) fn repeats(&self) -> bool {
        *self != Self::Ping
    }
}

/// What a sent packet carried, as far as its loss or its acknowledgement matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// Makes the peer answer and needs no repetition.
    Ping,
    /// Answers to challenges, on this path. Not repeated (RFC 9000, section 13.3), but it matters that they arrive.
    Answers(PathId),
    Control(ControlFrame),
    Crypto(Range<u64>),
    Stream {
        id: StreamId,
        range: Range<u64>,
        fin: bool,
    },
    /// An acknowledgement of everything up to `largest`; once it is acknowledged, the peer needs no older ones.
    Ack {
        path: PathId,
        largest: u64,
    },
    /// Repeated, when lost, with the value that is due then.
    MaxData,
    MaxStreamData(StreamId),
    MaxStreams(Dir),
    ResetStream(StreamId),
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked(Dir),
    /// Repeated with the present wish, if none was said since.
    AckFrequency {
        sequence: u64,
    },
    /// Not repeated (RFC 9221, section 5.2), but counted.
    Datagram,
}
