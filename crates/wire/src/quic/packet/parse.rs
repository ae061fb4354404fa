//! Parsing of packet headers.

use std::fmt;
use std::ops::Range;

use super::ty::PacketType;
use super::version::Version;
use super::{
    FIXED_BIT, KEY_PHASE, LONG_FORM, LONG_RESERVED, LONG_TYPE_BITS, LONG_TYPE_SHIFT, NUMBER_LEN_BITS, NUMBER_LEN_MAX,
    RETRY_TAG_LEN, SAMPLE_LEN, SHORT_RESERVED, SPIN,
};
use crate::quic::id::{ConnectionId, MAX_CID_LEN};
use crate::quic::reader::{Reader, UnexpectedEnd};

/// The part of a packet header that is readable before header protection is removed. All offsets
/// index the parsed slice.
#[derive(Debug, Clone, Eq, PartialEq)]
pub struct ProtectedHeader {
    /// The packet type.
    pub ty: PacketType,
    /// The version of a long header. [`Version::V1`] for a short header, which does not name one.
    pub version: Version,
    /// The destination connection ID.
    pub dcid: ConnectionId,
    /// The source connection ID. [`ConnectionId::EMPTY`] for a short header, which has none.
    pub scid: ConnectionId,
    /// The token of an Initial packet; empty for other packets.
    pub token: Range<usize>,
    /// Offset of the packet number.
    pub number_offset: usize,
    /// End of this packet, where a coalesced packet may begin (RFC 9000 §12.2). At least
    /// `number_offset + 4 + 16`, so the sample and four bytes of packet number can be read.
    pub end: usize,
    /// Whether the fixed bit was set.
    pub fixed_bit: bool,
}

/// The first packet in a slice.
#[derive(Debug, Clone, Eq, PartialEq)]
pub enum Parsed<'a> {
    /// A protected packet with frames.
    Protected(ProtectedHeader),
    /// Version Negotiation (RFC 9000 §17.2.1). It extends to the end of the datagram.
    VersionNegotiation {
        /// Destination connection ID, up to 255 bytes (RFC 8999 §5.1).
        dcid: &'a [u8],
        /// Source connection ID, up to 255 bytes.
        scid: &'a [u8],
        /// Four bytes per version, at least one version: see [`versions`].
        versions: &'a [u8],
    },
    /// Retry (RFC 9000 §17.2.5). It extends to the end of the datagram.
    Retry {
        /// The version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID. The client uses it as destination from now on.
        scid: ConnectionId,
        /// The token that the client must repeat; not empty.
        token: &'a [u8],
        /// Integrity tag (RFC 9001 §5.8), which proves that the sender saw the client's first
        /// packet. Parsing does not verify it.
        tag: [u8; RETRY_TAG_LEN],
    },
    /// A long header of an unsupported version. Only the version-independent fields are readable
    /// (RFC 8999 §5.1).
    UnknownVersion {
        /// The version.
        version: u32,
        /// Destination connection ID, up to 255 bytes.
        dcid: &'a [u8],
        /// Source connection ID, up to 255 bytes.
        scid: &'a [u8],
    },
}

/// The reason why a packet is dropped. None of these closes a connection, because anyone can send
/// such bytes (RFC 9000 §12.2).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum PacketError {
    /// The header, or the packet length it states, extends beyond the datagram.
    Truncated,
    /// A connection ID of a known version has more than 20 bytes (RFC 9000 §17.2).
    ConnectionIdTooLong,
    /// The packet is too short for a packet number and the sample for header protection (RFC 9001
    /// §5.4.2).
    TooShortToSample,
    /// Version Negotiation with an empty list of versions or an incomplete last entry.
    BadVersionList,
    /// Retry without a token (RFC 9000 §17.2.5.2).
    EmptyRetryToken,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "packet extends beyond the datagram",
            Self::ConnectionIdTooLong => "connection ID longer than 20 bytes",
            Self::TooShortToSample => "packet too short for header protection",
            Self::BadVersionList => "version negotiation with an empty or incomplete version list",
            Self::EmptyRetryToken => "retry without a token",
        })
    }
}

impl std::error::Error for PacketError {}

impl From<UnexpectedEnd> for PacketError {
    #[inline]
    fn from(_: UnexpectedEnd) -> Self {
        Self::Truncated
    }
}

/// Parses the header of the packet at the start of `bytes`, which is a datagram or the remainder of
/// one. `local_cid_len` is the length of locally issued connection IDs, which a short header does
/// not state.
///
/// # Panics
///
/// If `local_cid_len` is above [`MAX_CID_LEN`].
#[inline]
pub fn parse_packet(bytes: &[u8], local_cid_len: usize) -> Result<Parsed<'_>, PacketError> {
    assert!(local_cid_len <= MAX_CID_LEN, "local connection IDs have at most 20 bytes");
    let first = *bytes.first().ok_or(PacketError::Truncated)?;
    if first & LONG_FORM != 0 {
        return parse_long(bytes, first);
    }
    let number_offset = 1 + local_cid_len;
    if bytes.len() < number_offset + NUMBER_LEN_MAX + SAMPLE_LEN {
        return Err(PacketError::TooShortToSample);
    }
    Ok(Parsed::Protected(ProtectedHeader {
        ty: PacketType::OneRtt,
        version: Version::V1,
        dcid: ConnectionId::new(&bytes[1..number_offset]).ok_or(PacketError::ConnectionIdTooLong)?,
        scid: ConnectionId::EMPTY,
        token: 0..0,
        number_offset,
        end: bytes.len(),
        fixed_bit: first & FIXED_BIT != 0,
    }))
}

/// Implements [`parse_packet`] for a long header. The function is not inlined: a connection
/// receives a few long headers and then short headers only.
#[inline(never)]
fn parse_long(bytes: &[u8], first: u8) -> Result<Parsed<'_>, PacketError> {
    let mut reader = Reader::new(bytes);
    reader.u8()?;
    let version = reader.u32()?;
    let dcid = length_and_bytes(&mut reader)?;
    let scid = length_and_bytes(&mut reader)?;
    if version == 0 {
        let versions = reader.rest();
        // An endpoint ignores a packet it cannot parse; an empty list of versions negotiates nothing.
        if versions.is_empty() || !versions.len().is_multiple_of(4) {
            return Err(PacketError::BadVersionList);
        }
        return Ok(Parsed::VersionNegotiation { dcid, scid, versions });
    }
    let Some(version) = Version::from_number(version) else {
        return Ok(Parsed::UnknownVersion { version, dcid, scid });
    };
    let dcid = ConnectionId::new(dcid).ok_or(PacketError::ConnectionIdTooLong)?;
    let scid = ConnectionId::new(scid).ok_or(PacketError::ConnectionIdTooLong)?;
    let Some(ty) = version.packet_type((first >> LONG_TYPE_SHIFT) & LONG_TYPE_BITS) else {
        return parse_retry(reader, version, dcid, scid);
    };
    let token = if ty == PacketType::Initial {
        let len = reader.prefixed()?.len();
        reader.position() - len..reader.position()
    } else {
        0..0
    };
    // `Length` counts the packet number and the payload including its tag.
    let len = reader.prefixed()?.len();
    let end = reader.position();
    if len < NUMBER_LEN_MAX + SAMPLE_LEN {
        return Err(PacketError::TooShortToSample);
    }
    let fixed_bit = first & FIXED_BIT != 0;
    Ok(Parsed::Protected(ProtectedHeader { ty, version, dcid, scid, token, number_offset: end - len, end, fixed_bit }))
}

/// Parses a Retry packet from the end of its connection IDs.
fn parse_retry(
    mut reader: Reader<'_>,
    version: Version,
    dcid: ConnectionId,
    scid: ConnectionId,
) -> Result<Parsed<'_>, PacketError> {
    let token_len = reader.remaining().checked_sub(RETRY_TAG_LEN).ok_or(PacketError::Truncated)?;
    let token = reader.bytes(token_len)?;
    let tag = reader.array()?;
    // "A client MUST discard a Retry packet with a zero-length Retry Token field" (RFC 9000
    // §17.2.5.2).
    if token.is_empty() {
        return Err(PacketError::EmptyRetryToken);
    }
    Ok(Parsed::Retry { version, dcid, scid, token, tag })
}

/// Parses a connection ID as defined by the invariants: a length byte, then that many bytes (RFC
/// 8999 §5.1).
#[inline]
fn length_and_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], UnexpectedEnd> {
    let len = reader.u8()?;
    reader.bytes(usize::from(len))
}

/// Returns the versions listed in [`Parsed::VersionNegotiation`], in the order sent.
pub fn versions(list: &[u8]) -> impl Iterator<Item = u32> + Clone + '_ {
    list.as_chunks().0.iter().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The fields of a datagram that routing needs.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Destination<'a> {
    /// The destination connection ID of the first packet: up to 255 bytes in a long header, whose
    /// version may be unknown.
    pub dcid: &'a [u8],
    /// Whether the first packet has a long header.
    pub is_long: bool,
}

/// Reads the destination of the datagram `bytes` for routing; `None` if it is too short. This
/// checks less than [`parse_packet`], which must follow. `local_cid_len` has the same meaning as in
/// [`parse_packet`].
#[inline]
pub fn destination(bytes: &[u8], local_cid_len: usize) -> Option<Destination<'_>> {
    let first = *bytes.first()?;
    if first & LONG_FORM == 0 {
        return Some(Destination { dcid: bytes.get(1..)?.get(..local_cid_len)?, is_long: false });
    }
    let len = usize::from(*bytes.get(5)?);
    Some(Destination { dcid: bytes.get(6..)?.get(..len)?, is_long: true })
}

/// The fields under header protection: the low bits of the first byte and the packet number.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Unprotected {
    /// Length of the packet number in bytes, 1 to 4.
    pub number_len: usize,
    /// The lowest `8 * number_len` bits of the packet number: see
    /// [`decode_number`](super::decode_number).
    pub truncated: u32,
    /// The key phase bit (RFC 9001 §6); false for a long header.
    pub key_phase: bool,
    /// The latency spin bit (RFC 9000 §17.4); false for a long header.
    pub spin: bool,
    /// Whether the reserved bits are zero. If not, and once the packet is authenticated, the
    /// connection is closed with PROTOCOL_VIOLATION (RFC 9000 §17.2, §17.3.1).
    pub reserved_ok: bool,
}

/// Returns the offset of the sample for header protection, given the offset of the packet number
/// (RFC 9001 §5.4.2). The sample is taken as if the packet number had four bytes. It has
/// [`SAMPLE_LEN`] bytes.
#[inline]
pub const fn sample_offset(number_offset: usize) -> usize {
    number_offset + NUMBER_LEN_MAX
}

/// Reads the fields under header protection, after the caller has removed it in place.
/// `number_bytes` begins at the packet number.
///
/// # Panics
///
/// If `number_bytes` ends before the packet number. Four bytes are always sufficient, and
/// [`parse_packet`] has checked that they exist.
#[inline]
pub fn read_unprotected(first_byte: u8, number_bytes: &[u8]) -> Unprotected {
    let number_len = usize::from(first_byte & NUMBER_LEN_BITS) + 1;
    let truncated = match number_bytes.first_chunk() {
        Some(word) => u32::from_be_bytes(*word) >> (32 - 8 * number_len),
        None => number_bytes[..number_len].iter().fold(0, |number, byte| number << 8 | u32::from(*byte)),
    };
    let is_long = first_byte & LONG_FORM != 0;
    Unprotected {
        number_len,
        truncated,
        key_phase: !is_long && first_byte & KEY_PHASE != 0,
        spin: !is_long && first_byte & SPIN != 0,
        reserved_ok: first_byte & if is_long { LONG_RESERVED } else { SHORT_RESERVED } == 0,
    }
}
