//! Encoding of frames.

use super::{Close, CloseOrigin, Frame, ty};
use crate::quic::id::{ConnectionId, PathId, StreamId};
use crate::quic::varint::{put_varint, varint_len};

impl Frame<'_> {
    /// Returns the number of bytes that [`Frame::emit`] writes.
    ///
    /// # Panics
    ///
    /// Under the same conditions as [`Frame::emit`].
    pub fn encoded_len(&self) -> usize {
        let ty_len = varint_len(self.frame_type());
        match *self {
            Self::Padding { len } => len,
            Self::Ack(ack) => ack.encoded_len(),
            Self::Crypto { offset, data } => crypto_header_len(offset, data.len()) + data.len(),
            Self::Stream(stream) => {
                stream_header_len(stream.id, stream.offset, stream.data.len(), false) + stream.data.len()
            }
            Self::Datagram { data } => datagram_header_len(data.len(), false) + data.len(),
            Self::NewToken { token } => ty_len + prefixed_len(token),
            Self::Close(Close { code, origin, reason }) => close_head_len(code, origin) + prefixed_len(reason),
            Self::PathChallenge(data) | Self::PathResponse(data) => ty_len + data.len(),
            Self::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
                let path_len = path.map_or(0, |path| varint_len(u64::from(path.0)));
                let numbers_len = varint_len(sequence) + varint_len(retire_prior_to);
                ty_len + path_len + numbers_len + 1 + id.len() + reset_token.len()
            }
            _ => {
                let (fields, count) = self.fields();
                fields[..count].iter().fold(ty_len, |len, field| len + varint_len(*field))
            }
        }
    }

    /// Appends the frame in its shortest encoding that does not depend on the end of the packet:
    /// STREAM and DATAGRAM get a length field.
    ///
    /// # Panics
    ///
    /// If a number is above 2^62-1. The caller must observe the other limits of the formats, which
    /// [`Frame::parse`] checks.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            // PADDING, acknowledgements and frames with data write their own type.
            Self::Padding { .. } | Self::Ack(_) | Self::Crypto { .. } | Self::Stream(_) | Self::Datagram { .. } => {}
            _ => put_varint(out, self.frame_type()),
        }
        match *self {
            Self::Padding { len } => out.resize(out.len() + len, ty::PADDING as u8),
            Self::Ack(ack) => ack.emit(out),
            Self::Crypto { offset, data } => {
                emit_crypto_header(offset, data.len(), out);
                out.extend_from_slice(data);
            }
            Self::Stream(stream) => {
                emit_stream_header(stream.id, stream.offset, stream.data.len(), stream.fin, false, out);
                out.extend_from_slice(stream.data);
            }
            Self::Datagram { data } => {
                emit_datagram_header(data.len(), false, out);
                out.extend_from_slice(data);
            }
            Self::NewToken { token } => put_prefixed(token, out),
            Self::Close(Close { code, origin, reason }) => {
                put_close_fields(code, origin, out);
                put_prefixed(reason, out);
            }
            Self::PathChallenge(data) | Self::PathResponse(data) => out.extend_from_slice(&data),
            Self::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
                put_new_connection_id(path, sequence, retire_prior_to, &id, &reset_token, out);
            }
            _ => {
                let (fields, count) = self.fields();
                fields[..count].iter().for_each(|field| put_varint(out, *field));
            }
        }
    }

    /// Returns the fields of a frame that consists of a type and numbers only, and the count of
    /// them.
    const fn fields(&self) -> ([u64; 4], usize) {
        match *self {
            Self::ResetStream { id, code, final_size } => ([id.raw(), code, final_size, 0], 3),
            Self::StopSending { id, code } => ([id.raw(), code, 0, 0], 2),
            Self::MaxData(max) => ([max, 0, 0, 0], 1),
            Self::MaxStreamData { id, max } => ([id.raw(), max, 0, 0], 2),
            Self::MaxStreams { max, .. } => ([max, 0, 0, 0], 1),
            Self::DataBlocked(limit) => ([limit, 0, 0, 0], 1),
            Self::StreamDataBlocked { id, limit } => ([id.raw(), limit, 0, 0], 2),
            Self::StreamsBlocked { limit, .. } => ([limit, 0, 0, 0], 1),
            Self::RetireConnectionId { path: None, sequence } => ([sequence, 0, 0, 0], 1),
            Self::RetireConnectionId { path: Some(path), sequence } => ([path.0 as u64, sequence, 0, 0], 2),
            Self::AckFrequency { sequence, ack_eliciting_threshold, requested_max_ack_delay, reordering_threshold } => {
                ([sequence, ack_eliciting_threshold, requested_max_ack_delay, reordering_threshold], 4)
            }
            Self::PathAbandon { path, code } => ([path.0 as u64, code, 0, 0], 2),
            Self::PathStatus { path, sequence, .. } => ([path.0 as u64, sequence, 0, 0], 2),
            Self::MaxPathId(path) | Self::PathsBlocked(path) => ([path.0 as u64, 0, 0, 0], 1),
            Self::PathCidsBlocked { path, next_sequence } => ([path.0 as u64, next_sequence, 0, 0], 2),
            Self::Ping | Self::HandshakeDone | Self::ImmediateAck => ([0; 4], 0),
            Self::Padding { .. }
            | Self::Ack(_)
            | Self::Crypto { .. }
            | Self::NewToken { .. }
            | Self::Stream(_)
            | Self::NewConnectionId { .. }
            | Self::PathChallenge(_)
            | Self::PathResponse(_)
            | Self::Close(_)
            | Self::Datagram { .. } => panic!("the frame does not consist of numbers only"),
        }
    }
}

/// Returns the type of a STREAM frame. All eight types take one byte.
#[inline]
pub(super) const fn stream_type(offset: u64, fin: bool, last: bool) -> u8 {
    let off = if offset == 0 { 0 } else { ty::STREAM_OFF };
    let len = if last { 0 } else { ty::STREAM_LEN };
    (ty::STREAM | off | len | fin as u64) as u8
}

/// Appends the header of a STREAM frame (RFC 9000 §19.8). The caller appends `len` bytes of data.
/// `last` omits the length field: the frame then extends to the end of the packet.
///
/// # Panics
///
/// If a number is above 2^62-1.
#[inline]
pub fn emit_stream_header(id: StreamId, offset: u64, len: usize, fin: bool, last: bool, out: &mut Vec<u8>) {
    out.push(stream_type(offset, fin, last));
    put_varint(out, id.raw());
    if offset != 0 {
        put_varint(out, offset);
    }
    if !last {
        put_varint(out, len as u64);
    }
}

/// Returns the number of bytes that [`emit_stream_header`] writes for the same arguments.
#[inline]
pub const fn stream_header_len(id: StreamId, offset: u64, len: usize, last: bool) -> usize {
    let offset_len = if offset == 0 { 0 } else { varint_len(offset) };
    let len_len = if last { 0 } else { varint_len(len as u64) };
    1 + varint_len(id.raw()) + offset_len + len_len
}

/// Appends the header of a CRYPTO frame (RFC 9000 §19.6). The caller appends `len` bytes of data.
///
/// # Panics
///
/// If a number is above 2^62-1.
pub fn emit_crypto_header(offset: u64, len: usize, out: &mut Vec<u8>) {
    out.push(ty::CRYPTO as u8);
    put_varint(out, offset);
    put_varint(out, len as u64);
}

/// Returns the number of bytes that [`emit_crypto_header`] writes for the same arguments.
pub const fn crypto_header_len(offset: u64, len: usize) -> usize {
    1 + varint_len(offset) + varint_len(len as u64)
}

/// Appends the header of a DATAGRAM frame (RFC 9221 §4). The caller appends `len` bytes of data.
/// `last` omits the length field: the frame then extends to the end of the packet.
#[inline]
pub fn emit_datagram_header(len: usize, last: bool, out: &mut Vec<u8>) {
    if last {
        out.push(ty::DATAGRAM as u8);
    } else {
        out.push(ty::DATAGRAM_LEN as u8);
        put_varint(out, len as u64);
    }
}

/// Returns the number of bytes that [`emit_datagram_header`] writes for the same arguments.
#[inline]
pub const fn datagram_header_len(len: usize, last: bool) -> usize {
    if last { 1 } else { 1 + varint_len(len as u64) }
}

/// Appends a CONNECTION_CLOSE frame (RFC 9000 §19.19) of at most `max_len` bytes. A longer reason
/// is truncated at a character boundary.
///
/// # Panics
///
/// If `max_len` is below [`close_len_min`], or a number is above 2^62-1.
pub fn emit_close(code: u64, origin: CloseOrigin, reason: &str, max_len: usize, out: &mut Vec<u8>) {
    let space = max_len
        .checked_sub(close_head_len(code, origin))
        .expect("max_len is too small for the fields of CONNECTION_CLOSE");
    let mut len = reason.len().min(space.checked_sub(1).expect("max_len is too small for the length of the reason"));
    // A reason of 64 bytes or more needs a longer length field. If that field forces the reason
    // below 64 bytes, one byte stays unused.
    while varint_len(len as u64) + len > space || !reason.is_char_boundary(len) {
        len -= 1;
    }
    put_varint(out, close_type(origin));
    put_close_fields(code, origin, out);
    put_prefixed(&reason.as_bytes()[..len], out);
}

/// Returns the length of a CONNECTION_CLOSE frame without a reason: the smallest `max_len` of
/// [`emit_close`].
pub const fn close_len_min(code: u64, origin: CloseOrigin) -> usize {
    close_head_len(code, origin) + 1
}

const fn close_type(origin: CloseOrigin) -> u64 {
    match origin {
        CloseOrigin::Transport { .. } => ty::CONNECTION_CLOSE,
        CloseOrigin::Application => ty::CONNECTION_CLOSE_APP,
    }
}

/// Returns the length of a CONNECTION_CLOSE frame before its reason.
const fn close_head_len(code: u64, origin: CloseOrigin) -> usize {
    let frame_type_len = match origin {
        CloseOrigin::Transport { frame_type } => varint_len(frame_type),
        CloseOrigin::Application => 0,
    };
    1 + varint_len(code) + frame_type_len
}

fn put_close_fields(code: u64, origin: CloseOrigin, out: &mut Vec<u8>) {
    put_varint(out, code);
    if let CloseOrigin::Transport { frame_type } = origin {
        put_varint(out, frame_type);
    }
}

fn put_new_connection_id(
    path: Option<PathId>,
    sequence: u64,
    retire_prior_to: u64,
    id: &ConnectionId,
    reset_token: &[u8; 16],
    out: &mut Vec<u8>,
) {
    if let Some(path) = path {
        put_varint(out, u64::from(path.0));
    }
    put_varint(out, sequence);
    put_varint(out, retire_prior_to);
    out.push(id.len() as u8);
    out.extend_from_slice(id.as_slice());
    out.extend_from_slice(reset_token);
}

const fn prefixed_len(bytes: &[u8]) -> usize {
    varint_len(bytes.len() as u64) + bytes.len()
}

fn put_prefixed(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
