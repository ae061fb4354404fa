//! Answers to a client's first packet for which the endpoint keeps no state.

use wire::quic::frame::Frame;
use wire::quic::{
    Close, CloseOrigin, ConnectionId, ErrorCode, LongHeader, PacketType, PathId, ProtectedHeader, emit_long, emit_retry,
};

use crate::seal::protect;
use crate::session::retry::retry_tag;
use crate::session::{DirectionKeys, TAG_LEN};

/// The packet number of a packet that ends a connection which never began.
const NUMBER: u64 = 0;
const NUMBER_LEN: u8 = 1;

/// A Retry packet in response to a client's first packet: the client shall come again with `token`,
/// to the connection ID `source` (RFC 9000, section 17.2.5.1).
pub(super) fn retry(first: &ProtectedHeader, source: &ConnectionId, token: &[u8], random: u8) -> Vec<u8> {
    let mut packet = Vec::new();
    emit_retry(first.version, &first.scid, source, token, random, &mut packet);
    let tag = retry_tag(first.version, &first.dcid, &packet);
    packet.extend_from_slice(&tag);
    packet
}

/// An Initial packet that closes the connection which a client's first packet would begin (RFC
/// 9000, sections 5.2.2 and 10.2.3). `keys` follow from that packet's destination.
pub(super) fn close(first: &ProtectedHeader, source: ConnectionId, keys: &DirectionKeys, code: ErrorCode) -> Vec<u8> {
    let header =
        LongHeader { ty: PacketType::Initial, version: first.version, dcid: first.scid, scid: source, token: &[] };
    let mut payload = Vec::new();
    Frame::Close(Close { code: code.0, origin: CloseOrigin::Transport { frame_type: 0 }, reason: b"" })
        .emit(&mut payload);
    let mut packet = Vec::new();
    let number_at = emit_long(&header, NUMBER, usize::from(NUMBER_LEN), payload.len() + TAG_LEN, true, &mut packet);
    packet.extend_from_slice(&payload);
    protect(keys, PathId::ZERO, NUMBER, NUMBER_LEN, number_at + usize::from(NUMBER_LEN), 0, &mut packet);
    packet
}
