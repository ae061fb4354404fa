//! Parsing the frames of opened packets into records.

use units::Duration;
use wire::quic::frame::{CloseOrigin, Frame, FrameError};
use wire::quic::{ErrorCode, PacketType, PathId, Reader};

use super::opened::{Opened, Record};
use crate::error::TransportError;
use crate::exchange::MultipathFrame;
use crate::strided_bytes::Layout;

/// Parses the frames of one packet into records. Returns whether the packet is ack-eliciting.
pub(super) fn parse_frames(
    payload: &[u8],
    ty: PacketType,
    base: usize,
    max_path: Option<PathId>,
    opened: &mut Opened,
) -> Result<bool, TransportError> {
    if payload.is_empty() {
        return Err(TransportError::violation("a packet without frames"));
    }
    let mut reader = Reader::new(payload);
    let mut eliciting = false;
    while !reader.is_empty() {
        let frame = Frame::parse(&mut reader)?;
        if !frame.permitted_in(ty) {
            return Err(FrameError {
                frame_type: frame.frame_type(),
                reason: "a frame that this kind of packet must not hold",
                code: ErrorCode::PROTOCOL_VIOLATION,
            }
            .into());
        }
        eliciting |= frame.is_ack_eliciting();
        // Frames with data have it at their end, so it ends at the position of the reader.
        let end = base + reader.position();
        let record = match frame {
            Frame::Stream(stream) => Record::Stream {
                id: stream.id,
                offset: stream.offset,
                fin: stream.fin,
                data: Layout::single(end - stream.data.len()..end),
            },
            Frame::Ack(ack) => {
                let path = path_of(ack.path, max_path)?;
                let start = opened.ack_ranges.len();
                opened.ack_ranges.extend(ack.ranges().map(|range| (*range.start(), *range.end())));
                opened.ack_ranges[start..].reverse();
                let ranges = start..opened.ack_ranges.len();
                Record::Ack { path, delay: ack.delay, ranges, ecn: ack.ecn }
            }
            other => match control_record(&other, end, max_path)? {
                Some(record) => record,
                None => continue,
            },
        };
        opened.records.push(record);
    }
    Ok(eliciting)
}

/// The record of a less frequent frame; none for frames without effect.
fn control_record(frame: &Frame<'_>, end: usize, max_path: Option<PathId>) -> Result<Option<Record>, TransportError> {
    let named = |path: PathId| path_of(Some(path), max_path);
    Ok(Some(match *frame {
        Frame::Crypto { offset, data } => Record::Crypto { offset, data: end - data.len()..end },
        Frame::Datagram { data } => Record::Datagram { data: end - data.len()..end },
        Frame::ResetStream { id, code, final_size } => Record::ResetStream { id, code, final_size },
        Frame::StopSending { id, code } => Record::StopSending { id, code },
        Frame::MaxData(max) => Record::MaxData(max),
        Frame::MaxStreamData { id, max } => Record::MaxStreamData { id, max },
        Frame::MaxStreams { dir, max } => Record::MaxStreams { dir, max },
        Frame::DataBlocked(limit) => Record::DataBlocked(limit),
        Frame::StreamDataBlocked { id, limit } => Record::StreamDataBlocked { id, limit },
        Frame::NewToken { token } => Record::NewToken { token: end - token.len()..end },
        Frame::PathChallenge(data) => Record::PathChallenge(data),
        Frame::PathResponse(data) => Record::PathResponse(data),
        Frame::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
            let path = path_of(path, max_path)?;
            Record::NewConnectionId { path, sequence, retire_prior_to, id, reset_token }
        }
        Frame::RetireConnectionId { path, sequence } => {
            Record::RetireConnectionId { path: path_of(path, max_path)?, sequence }
        }
        Frame::HandshakeDone => Record::HandshakeDone,
        Frame::AckFrequency {
            sequence,
            ack_eliciting_threshold: threshold,
            requested_max_ack_delay,
            reordering_threshold: reordering,
        } => {
            let max_delay = Duration::from_micros(requested_max_ack_delay);
            Record::AckFrequency { sequence, threshold, max_delay, reordering }
        }
        Frame::ImmediateAck => Record::ImmediateAck,
        Frame::Close(close) => Record::Close {
            code: ErrorCode(close.code),
            frame_type: match close.origin {
                CloseOrigin::Transport { frame_type } => Some(frame_type),
                CloseOrigin::Application => None,
            },
            reason: end - close.reason.len()..end,
        },
        // The limit on streams grows when streams end, not because of STREAMS_BLOCKED.
        Frame::Padding { .. } | Frame::Ping | Frame::StreamsBlocked { .. } => return Ok(None),
        Frame::PathAbandon { path, code } => Record::Multipath(MultipathFrame::Abandon { path: named(path)?, code }),
        Frame::PathStatus { path, sequence, available } => {
            Record::Multipath(MultipathFrame::Status { path: named(path)?, sequence, available })
        }
        Frame::MaxPathId(path) => {
            named(PathId::ZERO)?;
            Record::Multipath(MultipathFrame::MaxPathId(path))
        }
        Frame::PathsBlocked(path) => Record::Multipath(MultipathFrame::PathsBlocked(named(path)?)),
        Frame::PathCidsBlocked { path, next_sequence } => {
            Record::Multipath(MultipathFrame::PathCidsBlocked { path: named(path)?, next_sequence })
        }
        Frame::Stream(_) | Frame::Ack(_) => unreachable!("recorded by the caller"),
    }))
}

/// The path of a frame; frames of RFC 9000 name none and belong to the first path. Fails for frames
/// that were not negotiated (RFC 9000, section 12.4) and for paths beyond the limit (multipath
/// draft-21, section 4).
fn path_of(named: Option<PathId>, max_path: Option<PathId>) -> Result<PathId, TransportError> {
    let Some(path) = named else { return Ok(PathId::ZERO) };
    match max_path {
        None => {
            let reason = "a frame of an extension that was not negotiated";
            Err(TransportError::new(ErrorCode::FRAME_ENCODING_ERROR, reason))
        }
        Some(max) if path > max => Err(TransportError::violation("a path beyond the limit")),
        Some(_) => Ok(path),
    }
}
