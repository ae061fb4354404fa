//! Frames: RFC 9000 §19, DATAGRAM (RFC 9221), multipath (draft-21 §4) and acknowledgement frequency
//! (draft-14 §4, §5).
//!
//! [`Frame::parse`] checks everything that depends on the bytes alone. Checks that need connection
//! state (limits, roles, negotiated extensions) are left to the connection. Frames with data can
//! also be written in two steps, header then data, with `emit_stream_header` and similar functions:
//! the connection plans the header and a worker copies the data.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the frames and the rules of RFC 9000 tables 1 and 3 |
//! | `ty.rs` | their type numbers |
//! | `parse.rs` | parsing |
//! | `emit.rs` | encoding |
//! | `ack.rs` | both, for the acknowledgement frames with their list of ranges |
//! | `error.rs` | the errors of parsing |

mod ack;
mod emit;
mod error;
mod parse;
#[cfg(test)]
mod tests;
mod ty;

pub use ack::{Ack, AckRanges, EcnCounts, ack_len, ack_len_max, ack_type, emit_ack};
pub use emit::{
    close_len_min, crypto_header_len, datagram_header_len, emit_close, emit_crypto_header, emit_datagram_header,
    emit_stream_header, stream_header_len,
};
pub use error::FrameError;

use super::id::{ConnectionId, Dir, PathId, StreamId};
use super::packet::PacketType;

/// A frame that borrows its data from the packet.
///
/// Comparison is by meaning: a frame read from an encoding longer than necessary equals the same
/// frame read from the shortest one.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub enum Frame<'a> {
    /// A run of consecutive PADDING frames.
    Padding {
        /// Bytes in the run, at least 1.
        len: usize,
    },
    /// PING.
    Ping,
    /// ACK or PATH_ACK.
    Ack(Ack<'a>),
    /// RESET_STREAM.
    ResetStream {
        /// The stream.
        id: StreamId,
        /// The application's error code.
        code: u64,
        /// Bytes sent on the stream.
        final_size: u64,
    },
    /// STOP_SENDING.
    StopSending {
        /// The stream.
        id: StreamId,
        /// The application's error code.
        code: u64,
    },
    /// CRYPTO.
    Crypto {
        /// The stream offset of `data`. `offset + data.len()` is at most 2^62-1.
        offset: u64,
        /// TLS handshake bytes.
        data: &'a [u8],
    },
    /// NEW_TOKEN.
    NewToken {
        /// The token for a later connection; not empty.
        token: &'a [u8],
    },
    /// STREAM.
    Stream(Stream<'a>),
    /// MAX_DATA: the limit of bytes sent on the connection.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData {
        /// The stream.
        id: StreamId,
        /// The limit of bytes sent on the stream.
        max: u64,
    },
    /// MAX_STREAMS.
    MaxStreams {
        /// The direction of the streams.
        dir: Dir,
        /// The limit of opened streams, at most 2^60.
        max: u64,
    },
    /// DATA_BLOCKED: the limit, in bytes, that blocks the sender.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked {
        /// The stream.
        id: StreamId,
        /// The limit, in bytes, that blocks the sender.
        limit: u64,
    },
    /// STREAMS_BLOCKED.
    StreamsBlocked {
        /// The direction of the streams.
        dir: Dir,
        /// The limit that blocks the sender, at most 2^60.
        limit: u64,
    },
    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID.
    NewConnectionId {
        /// The path whose packets may carry the ID (`Some` for PATH_NEW_CONNECTION_ID).
        path: Option<PathId>,
        /// Sequence number, counted separately for each path.
        sequence: u64,
        /// IDs of the path with lower sequence numbers must be retired. At most `sequence`.
        retire_prior_to: u64,
        /// The connection ID, 1 to 20 bytes.
        id: ConnectionId,
        /// Identifies a stateless reset of packets with this ID (RFC 9000 §10.3).
        reset_token: [u8; 16],
    },
    /// RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID.
    RetireConnectionId {
        /// The path of the ID (`Some` for PATH_RETIRE_CONNECTION_ID).
        path: Option<PathId>,
        /// Sequence number of the ID.
        sequence: u64,
    },
    /// PATH_CHALLENGE, with data to be echoed.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE, with the data of the challenge.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE.
    Close(Close<'a>),
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// DATAGRAM (RFC 9221 §4).
    Datagram {
        /// The application's data; may be empty.
        data: &'a [u8],
    },
    /// ACK_FREQUENCY (draft-14 §4): how often the receiver should acknowledge the sender's packets.
    AckFrequency {
        /// Increases with each ACK_FREQUENCY frame.
        sequence: u64,
        /// Ack-eliciting packets that may arrive without an acknowledgement being sent.
        ack_eliciting_threshold: u64,
        /// Microseconds, below 2^14 milliseconds.
        requested_max_ack_delay: u64,
        /// Reordering distance, in packets, that triggers an immediate acknowledgement; 0 disables
        /// the trigger.
        reordering_threshold: u64,
    },
    /// IMMEDIATE_ACK (draft-14 §5).
    ImmediateAck,
    /// PATH_ABANDON (multipath §4.2).
    PathAbandon {
        /// The path.
        path: PathId,
        /// An [`ErrorCode`](super::error::ErrorCode).
        code: u64,
    },
    /// PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP (multipath §4.3).
    PathStatus {
        /// The path.
        path: PathId,
        /// Sequence number, counted for each path over both frame types.
        sequence: u64,
        /// `true`: the peer may send on the path. `false`: the peer should send on other paths if
        /// it can.
        available: bool,
    },
    /// MAX_PATH_ID (multipath §4.6): the highest permitted path ID.
    MaxPathId(PathId),
    /// PATHS_BLOCKED (multipath §4.7): the highest permitted path ID, which blocks the sender.
    PathsBlocked(PathId),
    /// PATH_CIDS_BLOCKED (multipath §4.7).
    PathCidsBlocked {
        /// The path that lacks connection IDs.
        path: PathId,
        /// Sequence number of the connection ID expected next.
        next_sequence: u64,
    },
}

/// A STREAM frame (RFC 9000 §19.8).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Stream<'a> {
    /// The stream.
    pub id: StreamId,
    /// The stream offset of `data`. `offset + data.len()` is at most 2^62-1.
    pub offset: u64,
    /// Whether `data` is the last data of the stream.
    pub fin: bool,
    /// The application's data; may be empty.
    pub data: &'a [u8],
}

/// A CONNECTION_CLOSE frame (RFC 9000 §19.19).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Close<'a> {
    /// An [`ErrorCode`](super::error::ErrorCode) or the application's error code, depending on
    /// `origin`.
    pub code: u64,
    /// Whether the transport or the application closes the connection.
    pub origin: CloseOrigin,
    /// A human-readable message. It should be UTF-8, but the peer may send any bytes.
    pub reason: &'a [u8],
}

/// The layer that closes a connection.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub enum CloseOrigin {
    /// The transport (type 0x1c).
    Transport {
        /// Type of the frame that caused the error; 0 if unknown.
        frame_type: u64,
    },
    /// The application (type 0x1d).
    Application,
}

impl Frame<'_> {
    /// Returns the frame's type as written by [`Frame::emit`]. Where two types differ only in the
    /// length field, returns the type with the length field.
    pub const fn frame_type(&self) -> u64 {
        match self {
            Self::Padding { .. } => ty::PADDING,
            Self::Ping => ty::PING,
            Self::Ack(ack) => ack.frame_type(),
            Self::ResetStream { .. } => ty::RESET_STREAM,
            Self::StopSending { .. } => ty::STOP_SENDING,
            Self::Crypto { .. } => ty::CRYPTO,
            Self::NewToken { .. } => ty::NEW_TOKEN,
            Self::Stream(stream) => emit::stream_type(stream.offset, stream.fin, false) as u64,
            Self::MaxData(_) => ty::MAX_DATA,
            Self::MaxStreamData { .. } => ty::MAX_STREAM_DATA,
            Self::MaxStreams { dir: Dir::Bi, .. } => ty::MAX_STREAMS_BI,
            Self::MaxStreams { dir: Dir::Uni, .. } => ty::MAX_STREAMS_UNI,
            Self::DataBlocked(_) => ty::DATA_BLOCKED,
            Self::StreamDataBlocked { .. } => ty::STREAM_DATA_BLOCKED,
            Self::StreamsBlocked { dir: Dir::Bi, .. } => ty::STREAMS_BLOCKED_BI,
            Self::StreamsBlocked { dir: Dir::Uni, .. } => ty::STREAMS_BLOCKED_UNI,
            Self::NewConnectionId { path: None, .. } => ty::NEW_CONNECTION_ID,
            Self::NewConnectionId { path: Some(_), .. } => ty::PATH_NEW_CONNECTION_ID,
            Self::RetireConnectionId { path: None, .. } => ty::RETIRE_CONNECTION_ID,
            Self::RetireConnectionId { path: Some(_), .. } => ty::PATH_RETIRE_CONNECTION_ID,
            Self::PathChallenge(_) => ty::PATH_CHALLENGE,
            Self::PathResponse(_) => ty::PATH_RESPONSE,
            Self::Close(Close { origin: CloseOrigin::Transport { .. }, .. }) => ty::CONNECTION_CLOSE,
            Self::Close(Close { origin: CloseOrigin::Application, .. }) => ty::CONNECTION_CLOSE_APP,
            Self::HandshakeDone => ty::HANDSHAKE_DONE,
            Self::Datagram { .. } => ty::DATAGRAM_LEN,
            Self::AckFrequency { .. } => ty::ACK_FREQUENCY,
            Self::ImmediateAck => ty::IMMEDIATE_ACK,
            Self::PathAbandon { .. } => ty::PATH_ABANDON,
            Self::PathStatus { available: true, .. } => ty::PATH_STATUS_AVAILABLE,
            Self::PathStatus { available: false, .. } => ty::PATH_STATUS_BACKUP,
            Self::MaxPathId(_) => ty::MAX_PATH_ID,
            Self::PathsBlocked(_) => ty::PATHS_BLOCKED,
            Self::PathCidsBlocked { .. } => ty::PATH_CIDS_BLOCKED,
        }
    }

    /// Returns whether a packet with this frame must be acknowledged. This is true for all frames
    /// except ACK, PADDING and CONNECTION_CLOSE (RFC 9002 §2).
    #[inline]
    pub const fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Padding { .. } | Self::Ack(_) | Self::Close(_))
    }

    /// Returns whether the frame is permitted in a packet of that type (RFC 9000 §12.4 table 3, and
    /// §12.5 for frames that no client can send in 0-RTT; RFC 9221 §4; multipath §4;
    /// acknowledgement frequency §3). If not, the connection is closed with PROTOCOL_VIOLATION.
    pub const fn permitted_in(&self, packet: PacketType) -> bool {
        match packet {
            PacketType::OneRtt => true,
            PacketType::Initial | PacketType::Handshake => matches!(
                self,
                Self::Padding { .. }
                    | Self::Ping
                    | Self::Ack(Ack { path: None, .. })
                    | Self::Crypto { .. }
                    | Self::Close(Close { origin: CloseOrigin::Transport { .. }, .. })
            ),
            PacketType::ZeroRtt => !matches!(
                self,
                Self::Ack(_)
                    | Self::Crypto { .. }
                    | Self::NewToken { .. }
                    | Self::PathResponse(_)
                    | Self::HandshakeDone
                    | Self::NewConnectionId { path: Some(_), .. }
                    | Self::RetireConnectionId { .. }
                    | Self::AckFrequency { .. }
                    | Self::ImmediateAck
                    | Self::PathAbandon { .. }
                    | Self::PathStatus { .. }
                    | Self::MaxPathId(_)
                    | Self::PathsBlocked(_)
                    | Self::PathCidsBlocked { .. }
            ),
        }
    }
}
