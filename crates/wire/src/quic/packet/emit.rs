//! Encoding of packet headers.

use super::ty::PacketType;
use super::version::Version;
use super::{FIXED_BIT, KEY_PHASE, LONG_FORM, LONG_TYPE_SHIFT, NUMBER_LEN_MAX, SPIN};
use crate::quic::id::ConnectionId;
use crate::quic::varint::{put_varint, put_varint_2, varint_len};

/// The fields of a long header, except the length and the packet number.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct LongHeader<'a> {
    /// The kind of packet; not [`PacketType::OneRtt`].
    pub ty: PacketType,
    /// The version.
    pub version: Version,
    /// The destination connection ID.
    pub dcid: ConnectionId,
    /// The source connection ID.
    pub scid: ConnectionId,
    /// The token of an Initial packet, or empty. Ignored for other packets, which have no token
    /// field.
    pub token: &'a [u8],
}

/// Returns the number of bytes that [`emit_long`] writes, including the packet number.
pub fn long_header_len(header: &LongHeader<'_>, number_len: usize) -> usize {
    let token_len = match header.ty {
        PacketType::Initial => varint_len(header.token.len() as u64) + header.token.len(),
        _ => 0,
    };
    1 + 4 + 1 + header.dcid.len() + 1 + header.scid.len() + token_len + 2 + number_len
}

/// Appends a long header up to and including the packet number. Returns the offset of the packet
/// number in the header.
///
/// `payload_len` counts the frames and the cipher's tag. The length field always takes two bytes,
/// so that [`long_header_len`] is known before the payload.
///
/// # Panics
///
/// If the type is [`PacketType::OneRtt`], `number_len` is not 1 to 4, or `number_len + payload_len`
/// is not below 2^14.
pub fn emit_long(
    header: &LongHeader<'_>,
    number: u64,
    number_len: usize,
    payload_len: usize,
    fixed_bit: bool,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    let type_bits = header.version.long_type_bits(header.ty).expect("a 1-RTT packet has no long header");
    out.push(LONG_FORM | fixed(fixed_bit) | type_bits << LONG_TYPE_SHIFT | number_len_bits(number_len));
    out.extend_from_slice(&header.version.number().to_be_bytes());
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

/// Appends a short header up to and including the packet number. Returns the offset of the packet
/// number in the header.
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

/// Appends a Version Negotiation packet (RFC 9000 §17.2.1) that answers a packet: `dcid` is that
/// packet's source connection ID, `scid` its destination connection ID. Six bits of
/// `first_byte_random` fill the unused bits. The bit at the position of the fixed bit is set, so
/// that the packet can be distinguished from other protocols on the same port.
///
/// # Panics
///
/// If a connection ID has more than 255 bytes, or `versions` is empty.
pub fn emit_version_negotiation(dcid: &[u8], scid: &[u8], versions: &[u32], first_byte_random: u8, out: &mut Vec<u8>) {
    assert!(!versions.is_empty(), "version negotiation needs a version");
    out.push(LONG_FORM | FIXED_BIT | first_byte_random);
    out.extend_from_slice(&0_u32.to_be_bytes());
    put_ids(dcid, scid, out);
    for version in versions {
        out.extend_from_slice(&version.to_be_bytes());
    }
}

/// Appends a Retry packet (RFC 9000 §17.2.5) without its integrity tag. The caller computes the tag
/// over the original destination connection ID and these bytes (RFC 9001 §5.8) and appends it. Four
/// bits of `first_byte_random` fill the unused bits.
///
/// # Panics
///
/// If the token is empty: clients discard such a packet.
pub fn emit_retry(
    version: Version,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    first_byte_random: u8,
    out: &mut Vec<u8>,
) {
    assert!(!token.is_empty(), "a Retry packet needs a token");
    out.push(LONG_FORM | FIXED_BIT | version.retry_type_bits() << LONG_TYPE_SHIFT | first_byte_random & 0x0f);
    out.extend_from_slice(&version.number().to_be_bytes());
    put_ids(dcid.as_slice(), scid.as_slice(), out);
    out.extend_from_slice(token);
}

/// Returns the fixed bit if `set`, otherwise 0.
#[inline]
const fn fixed(set: bool) -> u8 {
    if set { FIXED_BIT } else { 0 }
}

/// Returns the packet number length as encoded in the first byte.
#[inline]
const fn number_len_bits(number_len: usize) -> u8 {
    assert!(matches!(number_len, 1..=NUMBER_LEN_MAX), "a packet number has one to four bytes");
    (number_len - 1) as u8
}

/// Appends the lowest `number_len` bytes of `number`.
#[inline]
fn put_number(number: u64, number_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number as u32).to_be_bytes()[NUMBER_LEN_MAX - number_len..]);
}

/// Appends both connection IDs, each after a byte with its length (RFC 8999 §5.1).
fn put_ids(dcid: &[u8], scid: &[u8], out: &mut Vec<u8>) {
    for id in [dcid, scid] {
        out.push(u8::try_from(id.len()).expect("a connection ID has at most 255 bytes"));
        out.extend_from_slice(id);
    }
}
