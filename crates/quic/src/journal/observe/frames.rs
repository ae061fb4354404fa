//! The frames of a packet, as far as a log shows them: without payload, tokens and secrets.

use wire::quic::frame::{Close, CloseOrigin, EcnCounts, Frame, Stream, ack_type};
use wire::quic::{ConnectionId, Dir, PathId, StreamId};

use crate::exchange::MultipathFrame;
use crate::journal::records::ReadRecords;
use crate::open::opened::Record;

/// One frame, without payload, tokens and secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are those of the frames of RFC 9000, section 19, and of the drafts")]
pub enum FrameSummary {
    Padding {
        len_bytes: u64,
    },
    Ping,
    /// ACK or PATH_ACK. `delay` is in the unit of the sender's `ack_delay_exponent`. The ranges are
    /// ascending, both ends included.
    Ack {
        path: PathId,
        delay: u64,
        ranges: Vec<(u64, u64)>,
        ecn: Option<EcnCounts>,
    },
    ResetStream {
        id: StreamId,
        code: u64,
        final_size: u64,
    },
    StopSending {
        id: StreamId,
        code: u64,
    },
    Crypto {
        offset: u64,
        len_bytes: u64,
    },
    /// The length of a received token is not recorded.
    NewToken {
        len_bytes: Option<u64>,
    },
    Stream {
        id: StreamId,
        offset: u64,
        len_bytes: u64,
        fin: bool,
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
    DataBlocked(u64),
    StreamDataBlocked {
        id: StreamId,
        limit: u64,
    },
    StreamsBlocked {
        dir: Dir,
        limit: u64,
    },
    NewConnectionId {
        path: PathId,
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
    },
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    /// `frame_type` is none for a close of the application.
    Close {
        code: u64,
        frame_type: Option<u64>,
        reason: String,
    },
    HandshakeDone,
    Datagram {
        len_bytes: u64,
    },
    AckFrequency {
        sequence: u64,
        threshold: u64,
        max_delay_us: u64,
        reordering: u64,
    },
    ImmediateAck,
    PathAbandon {
        path: PathId,
        code: u64,
    },
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
}

impl FrameSummary {
    /// Of a frame that is sent.
    pub(super) fn of_frame(frame: &Frame<'_>) -> Self {
        match *frame {
            Frame::Padding { len } => Self::Padding { len_bytes: len as u64 },
            Frame::Ping => Self::Ping,
            Frame::Ack(ack) => {
                let mut ranges: Vec<_> = ack.ranges().map(|range| (*range.start(), *range.end())).collect();
                ranges.reverse();
                Self::Ack { path: ack.path.unwrap_or_default(), delay: ack.delay, ranges, ecn: ack.ecn }
            }
            Frame::ResetStream { id, code, final_size } => Self::ResetStream { id, code, final_size },
            Frame::StopSending { id, code } => Self::StopSending { id, code },
            Frame::Crypto { offset, data } => Self::Crypto { offset, len_bytes: data.len() as u64 },
            Frame::NewToken { token } => Self::NewToken { len_bytes: Some(token.len() as u64) },
            Frame::Stream(Stream { id, offset, fin, data }) => {
                Self::Stream { id, offset, len_bytes: data.len() as u64, fin }
            }
            Frame::MaxData(max) => Self::MaxData(max),
            Frame::MaxStreamData { id, max } => Self::MaxStreamData { id, max },
            Frame::MaxStreams { dir, max } => Self::MaxStreams { dir, max },
            Frame::DataBlocked(limit) => Self::DataBlocked(limit),
            Frame::StreamDataBlocked { id, limit } => Self::StreamDataBlocked { id, limit },
            Frame::StreamsBlocked { dir, limit } => Self::StreamsBlocked { dir, limit },
            Frame::NewConnectionId { path, sequence, retire_prior_to, id, .. } => {
                Self::NewConnectionId { path: path.unwrap_or_default(), sequence, retire_prior_to, id }
            }
            Frame::RetireConnectionId { path, sequence } => {
                Self::RetireConnectionId { path: path.unwrap_or_default(), sequence }
            }
            Frame::PathChallenge(data) => Self::PathChallenge(data),
            Frame::PathResponse(data) => Self::PathResponse(data),
            Frame::Close(Close { code, origin, reason }) => Self::Close {
                code,
                frame_type: match origin {
                    CloseOrigin::Transport { frame_type } => Some(frame_type),
                    CloseOrigin::Application => None,
                },
                reason: String::from_utf8_lossy(reason).into_owned(),
            },
            Frame::HandshakeDone => Self::HandshakeDone,
            Frame::Datagram { data } => Self::Datagram { len_bytes: data.len() as u64 },
            Frame::AckFrequency {
                sequence,
                ack_eliciting_threshold,
                requested_max_ack_delay,
                reordering_threshold,
            } => Self::AckFrequency {
                sequence,
                threshold: ack_eliciting_threshold,
                max_delay_us: requested_max_ack_delay,
                reordering: reordering_threshold,
            },
            Frame::ImmediateAck => Self::ImmediateAck,
            Frame::PathAbandon { path, code } => Self::PathAbandon { path, code },
            Frame::PathStatus { path, sequence, available } => Self::PathStatus { path, sequence, available },
            Frame::MaxPathId(path) => Self::MaxPathId(path),
            Frame::PathsBlocked(path) => Self::PathsBlocked(path),
            Frame::PathCidsBlocked { path, next_sequence } => Self::PathCidsBlocked { path, next_sequence },
        }
    }

    /// Of a recorded frame that arrived, in the packet `index` of its run.
    pub(super) fn of_record(record: &Record, index: usize, records: &ReadRecords) -> Self {
        match *record {
            Record::Stream { id, offset, fin, ref data } => {
                Self::Stream { id, offset: offset + (index * data.len) as u64, len_bytes: data.len as u64, fin }
            }
            Record::Ack { path, delay, ref ranges, ecn } => {
                Self::Ack { path, delay, ranges: records.opened.ack_ranges[ranges.clone()].to_vec(), ecn }
            }
            Record::Crypto { offset, ref data } => Self::Crypto { offset, len_bytes: data.len() as u64 },
            Record::Datagram { ref data } => Self::Datagram { len_bytes: data.len() as u64 },
            Record::ResetStream { id, code, final_size } => Self::ResetStream { id, code, final_size },
            Record::StopSending { id, code } => Self::StopSending { id, code },
            Record::MaxData(max) => Self::MaxData(max),
            Record::MaxStreamData { id, max } => Self::MaxStreamData { id, max },
            Record::MaxStreams { dir, max } => Self::MaxStreams { dir, max },
            Record::DataBlocked(limit) => Self::DataBlocked(limit),
            Record::StreamDataBlocked { id, limit } => Self::StreamDataBlocked { id, limit },
            Record::NewToken { .. } => Self::NewToken { len_bytes: None },
            Record::PathChallenge(data) => Self::PathChallenge(data),
            Record::PathResponse(data) => Self::PathResponse(data),
            Record::NewConnectionId { path, sequence, retire_prior_to, id, .. } => {
                Self::NewConnectionId { path, sequence, retire_prior_to, id }
            }
            Record::RetireConnectionId { path, sequence } => Self::RetireConnectionId { path, sequence },
            Record::Multipath(frame) => Self::of_multipath(frame),
            Record::HandshakeDone => Self::HandshakeDone,
            Record::AckFrequency { sequence, threshold, max_delay, reordering } => {
                Self::AckFrequency { sequence, threshold, max_delay_us: max_delay.as_micros(), reordering }
            }
            Record::ImmediateAck => Self::ImmediateAck,
            Record::Close { code, frame_type, ref reason } => Self::Close {
                code: code.0,
                frame_type,
                reason: String::from_utf8_lossy(records.bytes_at(reason.clone())).into_owned(),
            },
        }
    }

    /// The name and the type of a frame that RFC 9000 and RFC 9221 do not have: of the multipath
    /// draft, or about the frequency of acknowledgements. `of` is the path of the packet with the
    /// frame: an acknowledgement of another path is a PATH_ACK.
    pub fn extension(&self, of: PathId) -> Option<(&'static str, u64)> {
        let path_frame = |name, frame: Frame<'_>| Some((name, frame.frame_type()));
        match *self {
            Self::Ack { path, ecn, .. } if path != of => Some(("path_ack", ack_type(Some(path), ecn))),
            Self::AckFrequency { sequence, threshold, max_delay_us, reordering } => path_frame(
                "ack_frequency",
                Frame::AckFrequency {
                    sequence,
                    ack_eliciting_threshold: threshold,
                    requested_max_ack_delay: max_delay_us,
                    reordering_threshold: reordering,
                },
            ),
            Self::ImmediateAck => path_frame("immediate_ack", Frame::ImmediateAck),
            Self::PathAbandon { path, code } => path_frame("path_abandon", Frame::PathAbandon { path, code }),
            Self::PathStatus { path, sequence, available } => {
                let name = if available { "path_status_available" } else { "path_status_backup" };
                path_frame(name, Frame::PathStatus { path, sequence, available })
            }
            Self::MaxPathId(path) => path_frame("max_path_id", Frame::MaxPathId(path)),
            Self::PathsBlocked(path) => path_frame("paths_blocked", Frame::PathsBlocked(path)),
            Self::PathCidsBlocked { path, next_sequence } => {
                path_frame("path_cids_blocked", Frame::PathCidsBlocked { path, next_sequence })
            }
            _ => None,
        }
    }

    fn of_multipath(frame: MultipathFrame) -> Self {
        match frame {
            MultipathFrame::Abandon { path, code } => Self::PathAbandon { path, code },
            MultipathFrame::Status { path, sequence, available } => Self::PathStatus { path, sequence, available },
            MultipathFrame::MaxPathId(path) => Self::MaxPathId(path),
            MultipathFrame::PathsBlocked(path) => Self::PathsBlocked(path),
            MultipathFrame::PathCidsBlocked { path, next_sequence } => Self::PathCidsBlocked { path, next_sequence },
        }
    }
}
