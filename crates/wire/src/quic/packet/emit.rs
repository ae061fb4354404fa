//! Writing headers.

use super::{
    FIXED_BIT, KEY_PHASE, LONG_FORM, LONG_TYPE_RETRY, LONG_TYPE_SHIFT, NUMBER_LEN_MAX, PacketType, SPIN, VERSION_1,
};
use crate::quic::id::ConnectionId;
use crate::quic::varint::{put_varint, put_varint_2, varint_len};

/// What a long header says, apart from length and packet number.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct LongHeader<'a> {
    /// The kind of packet; not [`PacketType::OneRtt`].
    pub ty: PacketType,
    /// The version.
    pub version: u32,
    /// Who the packet is for.
    pub dcid: ConnectionId,
    /// Where answers go.
    pub scid: ConnectionId,
    /// The token of an Initial packet, empty if there is none. Not looked at for other packets, which have no such field.
    pub token: &'a [u8],
}

/// Bytes that [`emit_long`] writes, including the packet number.
pub fn long_header_len(header: &LongHeader<'_>, number_len: usize) -> usize {
    let token_len = match header.ty {
        PacketType::Initial => varint_len(header.token.len() as u64) + header.token.len(),
        _ => 0,
    };
    1 + 4 + 1 + header.dcid.len() + 1 + header.scid.len() + token_len + 2 + number_len
}

/// Appends a long header up to and including the packet number, and returns where in it the packet number begins.
///
/// `payload_len` counts the frames and the cipher's tag. The length field always has two bytes, so that
/// [`long_header_len`] is known before the payload is.
///
/// # Panics
///
/// If the type is [`PacketType::OneRtt`], `number_len` is not 1 to 4, or `number_len + payload_len` is not below 2^14.
pub fn emit_long(
    header: &LongHeader<'_>,
    number: u64,
    number_len: usize,
    payload_len: usize,
    fixed_bit: bool,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    let type_bits = header.ty.long_type_bits().expect("a 1-RTT packet has no long header");
    out.push(LONG_FORM | fixed(fixed_bit) | type_bits << LONG_TYPE_SHIFT | number_len_bits(number_len));
    out.extend_from_slice(&header.version.to_be_bytes());
    put_ids(header.dcid.as_slice(), header.scid.as_slice(), out);
    if header.ty == PacketType::Initial {
        put_varint(out, header.token.len() as u64);
        out.extend_from_slice(header.token);
    }
    let length = u16::try_from(number_len + payload_len).expect("the length field of a long header has 14 bits");
    put_varint_2(out, length);
    let number_offset = out.len() - start;
    put_number(number, number_len, out);
    number_offset
}

/// Appends a short header up to and including the packet number, and returns where in it the packet number begins.
///
/// # Panics
///
/// If `number_len` is not 1 to 4.
#[inline]
pub fn emit_short(
    dcid: &ConnectionId,
    number: u64,
    number_len: usize,
    key_phase: bool,
    spin: bool,
    fixed_bit: bool,
    out: &mut Vec<u8>,
) -> usize {
    let flags = if key_phase { KEY_PHASE } else { 0 } | if spin { SPIN } else { 0 };
    out.push(fixed(fixed_bit) | flags | number_len_bits(number_len));
    out.extend_from_slice(dcid.as_slice());
    put_number(number, number_len, out);
    1 + dcid.len()
}

/// Appends a Version Negotiation packet (RFC 9000 §17.2.1) that answers a packet: `dcid` is its source connection ID,
/// `scid` its destination connection ID. Six bits of `first_byte_random` fill the bits that mean nothing; the bit that would
/// be the fixed bit is set, so that QUIC can be told from other protocols on the port.
///
/// # Panics
///
/// If a connection ID has more than 255 bytes, or there is no version to offer.
pub fn emit_version_negotiation(dcid: &[u8], scid: &[u8], versions: &[u32], first_byte_random: u8, out: &mut Vec<u8>) {
    assert!(!versions.is_empty(), "version negotiation offers a version");
    out.push(LONG_FORM | FIXED_BIT | first_byte_random);
    out.extend_from_slice(&0_u32.to_be_bytes());
    put_ids(dcid, scid, out);
    for version in versions {
        out.extend_from_slice(&version.to_be_bytes());
    }
}

/// Appends a Retry packet (RFC 9000 §17.2.5) without its integrity tag, which the caller computes over the original
/// destination connection ID and these bytes (RFC 9001 §5.8) and appends. Four bits of `first_byte_random` fill the bits
/// that mean nothing.
///
/// # Panics
///
/// If the token is empty: clients discard such a packet.
pub fn emit_retry(dcid: &ConnectionId, scid: &ConnectionId, token: &[u8], first_byte_random: u8, out: &mut Vec<u8>) {
    assert!(!token.is_empty(), "a retry carries a token");
    out.push(LONG_FORM | FIXED_BIT | LONG_TYPE_RETRY << LONG_TYPE_SHIFT | first_byte_random & 0x0f);
    out.extend_from_slice(&VERSION_1.to_be_bytes());
    put_ids(dcid.as_slice(), scid.as_slice(), out);
    out.extend_from_slice(token);
}

/// The fixed bit, or nothing.
#[inline]
const fn fixed(set: bool) -> u8 {
    if set { FIXED_BIT } else { 0 }
}

/// The length of the packet number as the first byte tells it.
#[inline]
const fn number_len_bits(number_len: usize) -> u8 {
    assert!(matches!(number_len, 1..=NUMBER_LEN_MAX), "a packet number has one to four bytes");
    (number_len - 1) as u8
}

/// The lowest `number_len` bytes of `number`.
#[inline]
fn put_number(number: u64, number_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number as u32).to_be_bytes()[NUMBER_LEN_MAX - number_len..]);
}

/// Both connection IDs, each behind a byte of length (RFC 8999 §5.1).
fn put_ids(dcid: &[u8], scid: &[u8], out: &mut Vec<u8>) {
    for id in [dcid, scid] {
        out.push(u8::try_from(id.len()).expect("a connection ID has at most 255 bytes"));
        out.extend_from_slice(id);
    }
}
