//! Parsing of frames.

use super::ack::Ack;
use super::error::{Fault, FrameError};
use super::{Close, CloseOrigin, Frame, Stream, ty};
use crate::quic::id::{ConnectionId, Dir, PathId, StreamId};
use crate::quic::reader::Reader;
use crate::quic::varint::{VARINT_MAX, varint_len};

/// An ACK_FREQUENCY frame must request less than this many microseconds: 2^14 milliseconds, the
/// bound of `max_ack_delay` (RFC 9000 §18.2), which draft-14 §4 adopts.
const ACK_DELAY_US_END: u64 = (1 << 14) * 1000;

impl<'a> Frame<'a> {
    /// Parses the next frame of a packet's payload. After an error the reader's position is
    /// unspecified.
    ///
    /// A run of PADDING is one frame. The caller must reject a payload without frames (RFC 9000
    /// §12.4).
    ///
    /// # Errors
    ///
    /// [`FrameError`] if the bytes are not a frame that RFC 9000 §19 or one of the extensions
    /// permits.
    #[inline]
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let before = reader.remaining();
        let Ok(frame_type) = reader.varint() else {
            return Err(Fault::encoding("the packet ends inside a frame type").in_frame(0));
        };
        // "An endpoint MAY treat the receipt of a frame type that uses a longer encoding than
        // necessary as a connection error of type PROTOCOL_VIOLATION" (§12.4).
        if before - reader.remaining() != varint_len(frame_type) {
            return Err(Fault::violation("frame type longer than necessary").in_frame(frame_type));
        }
        let frame = match frame_type {
            ty::STREAM..=ty::STREAM_LAST => stream(frame_type, reader),
            _ => other(frame_type, reader),
        };
        frame.map_err(|fault| fault.in_frame(frame_type))
    }
}

/// Checks the end offset of the data: "the largest offset delivered on a stream [...] cannot exceed
/// 2^62-1" (§19.8, and §19.6 for CRYPTO).
#[inline]
fn check_end(offset: u64, len: usize) -> Result<(), Fault> {
    // Both numbers are below 2^63.
    if offset + len as u64 > VARINT_MAX { Err(Fault::encoding("data beyond offset 2^62-1")) } else { Ok(()) }
}

/// Parses a STREAM frame (§19.8).
#[inline]
fn stream<'a>(frame_type: u64, reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    let id = StreamId::from_raw(reader.varint()?);
    let offset = if frame_type & ty::STREAM_OFF != 0 { reader.varint()? } else { 0 };
    let data = if frame_type & ty::STREAM_LEN != 0 { reader.prefixed()? } else { reader.rest() };
    check_end(offset, data.len())?;
    Ok(Frame::Stream(Stream { id, offset, fin: frame_type & ty::STREAM_FIN != 0, data }))
}

/// Parses any frame except STREAM. The function is not inlined, so that the code inlined for bulk
/// data stays small.
#[inline(never)]
fn other<'a>(frame_type: u64, reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    Ok(match frame_type {
        ty::PADDING => padding(reader),
        ty::PING => Frame::Ping,
        ty::ACK | ty::ACK_ECN => Frame::Ack(Ack::parse(None, frame_type == ty::ACK_ECN, reader)?),
        ty::RESET_STREAM => {
            Frame::ResetStream { id: stream_id(reader)?, code: reader.varint()?, final_size: reader.varint()? }
        }
        ty::STOP_SENDING => Frame::StopSending { id: stream_id(reader)?, code: reader.varint()? },
        ty::CRYPTO => crypto(reader)?,
        ty::NEW_TOKEN => new_token(reader)?,
        ty::MAX_DATA => Frame::MaxData(reader.varint()?),
        ty::MAX_STREAM_DATA => Frame::MaxStreamData { id: stream_id(reader)?, max: reader.varint()? },
        ty::MAX_STREAMS_BI => Frame::MaxStreams { dir: Dir::Bi, max: stream_count(reader)? },
        ty::MAX_STREAMS_UNI => Frame::MaxStreams { dir: Dir::Uni, max: stream_count(reader)? },
        ty::DATA_BLOCKED => Frame::DataBlocked(reader.varint()?),
        ty::STREAM_DATA_BLOCKED => Frame::StreamDataBlocked { id: stream_id(reader)?, limit: reader.varint()? },
        ty::STREAMS_BLOCKED_BI => Frame::StreamsBlocked { dir: Dir::Bi, limit: stream_count(reader)? },
        ty::STREAMS_BLOCKED_UNI => Frame::StreamsBlocked { dir: Dir::Uni, limit: stream_count(reader)? },
        ty::NEW_CONNECTION_ID => new_connection_id(None, reader)?,
        ty::RETIRE_CONNECTION_ID => Frame::RetireConnectionId { path: None, sequence: reader.varint()? },
        ty::PATH_CHALLENGE => Frame::PathChallenge(reader.array()?),
        ty::PATH_RESPONSE => Frame::PathResponse(reader.array()?),
        ty::CONNECTION_CLOSE | ty::CONNECTION_CLOSE_APP => close(frame_type == ty::CONNECTION_CLOSE_APP, reader)?,
        ty::HANDSHAKE_DONE => Frame::HandshakeDone,
        ty::IMMEDIATE_ACK => Frame::ImmediateAck,
        ty::DATAGRAM => Frame::Datagram { data: reader.rest() },
        ty::DATAGRAM_LEN => Frame::Datagram { data: reader.prefixed()? },
        ty::ACK_FREQUENCY => ack_frequency(reader)?,
        _ => multipath(frame_type, reader)?,
    })
}

/// Parses the frames of the multipath draft, section 4.
fn multipath<'a>(frame_type: u64, reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    Ok(match frame_type {
        ty::PATH_ACK | ty::PATH_ACK_ECN => {
            Frame::Ack(Ack::parse(Some(path_id(reader)?), frame_type == ty::PATH_ACK_ECN, reader)?)
        }
        ty::PATH_ABANDON => Frame::PathAbandon { path: path_id(reader)?, code: reader.varint()? },
        ty::PATH_STATUS_BACKUP | ty::PATH_STATUS_AVAILABLE => Frame::PathStatus {
            path: path_id(reader)?,
            sequence: reader.varint()?,
            available: frame_type == ty::PATH_STATUS_AVAILABLE,
        },
        ty::PATH_NEW_CONNECTION_ID => new_connection_id(Some(path_id(reader)?), reader)?,
        ty::PATH_RETIRE_CONNECTION_ID => {
            Frame::RetireConnectionId { path: Some(path_id(reader)?), sequence: reader.varint()? }
        }
        ty::MAX_PATH_ID => Frame::MaxPathId(path_id(reader)?),
        ty::PATHS_BLOCKED => Frame::PathsBlocked(path_id(reader)?),
        ty::PATH_CIDS_BLOCKED => Frame::PathCidsBlocked { path: path_id(reader)?, next_sequence: reader.varint()? },
        // "An endpoint MUST treat the receipt of a frame of unknown type as a connection error of
        // type FRAME_ENCODING_ERROR" (RFC 9000 §12.4).
        _ => return Err(Fault::encoding("unknown frame type")),
    })
}

/// Parses PADDING (§19.1). The first byte of the run is consumed already; takes the rest of the
/// run.
fn padding<'a>(reader: &mut Reader<'a>) -> Frame<'a> {
    let rest = reader.peek();
    let more = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
    // Cannot fail: `more` is at most the remaining length.
    let _ = reader.bytes(more);
    Frame::Padding { len: 1 + more }
}

/// Parses a CRYPTO frame (§19.6).
fn crypto<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    let offset = reader.varint()?;
    let data = reader.prefixed()?;
    check_end(offset, data.len())?;
    Ok(Frame::Crypto { offset, data })
}

/// Parses a NEW_TOKEN frame (§19.7).
fn new_token<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    match reader.prefixed()? {
        // "A client MUST treat receipt of a NEW_TOKEN frame with an empty Token field as a
        // connection error".
        [] => Err(Fault::encoding("empty token")),
        token => Ok(Frame::NewToken { token }),
    }
}

/// Parses the fields of NEW_CONNECTION_ID (§19.15) after the path ID, if there is one.
fn new_connection_id<'a>(path: Option<PathId>, reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    let sequence = reader.varint()?;
    let retire_prior_to = reader.varint()?;
    if retire_prior_to > sequence {
        return Err(Fault::encoding("retires the connection ID it issues"));
    }
    let len = reader.u8()?;
    // "Values less than 1 and greater than 20 are invalid".
    let id = match ConnectionId::new(reader.bytes(usize::from(len))?) {
        Some(id) if !id.is_empty() => id,
        _ => return Err(Fault::encoding("connection ID not of 1 to 20 bytes")),
    };
    Ok(Frame::NewConnectionId { path, sequence, retire_prior_to, id, reset_token: reader.array()? })
}

/// Parses a CONNECTION_CLOSE frame (§19.19).
fn close<'a>(by_application: bool, reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    let code = reader.varint()?;
    let origin =
        if by_application { CloseOrigin::Application } else { CloseOrigin::Transport { frame_type: reader.varint()? } };
    Ok(Frame::Close(Close { code, origin, reason: reader.prefixed()? }))
}

/// Parses an ACK_FREQUENCY frame (draft-14 §4).
fn ack_frequency<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    let sequence = reader.varint()?;
    let ack_eliciting_threshold = reader.varint()?;
    let requested_max_ack_delay = reader.varint()?;
    let reordering_threshold = reader.varint()?;
    if requested_max_ack_delay >= ACK_DELAY_US_END {
        return Err(Fault::violation("requested delay not below 2^14 ms"));
    }
    Ok(Frame::AckFrequency { sequence, ack_eliciting_threshold, requested_max_ack_delay, reordering_threshold })
}

#[inline]
fn stream_id(reader: &mut Reader<'_>) -> Result<StreamId, Fault> {
    Ok(StreamId::from_raw(reader.varint()?))
}

/// Parses a number of streams: "this value cannot exceed 2^60" (§19.11, §19.14), because stream IDs
/// have 62 bits.
#[inline]
fn stream_count(reader: &mut Reader<'_>) -> Result<u64, Fault> {
    let count = reader.varint()?;
    if count > StreamId::COUNT_MAX { Err(Fault::encoding("more than 2^60 streams")) } else { Ok(count) }
}

/// Parses a path ID. A value above 2^32-1 exceeds every limit that can be granted, which is a
/// PROTOCOL_VIOLATION (multipath §4, §4.6).
#[inline]
fn path_id(reader: &mut Reader<'_>) -> Result<PathId, Fault> {
    match u32::try_from(reader.varint()?) {
        Ok(id) => Ok(PathId(id)),
        Err(_) => Err(Fault::violation("path ID above 2^32-1")),
    }
}
