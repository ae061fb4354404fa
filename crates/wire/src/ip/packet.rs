//! Parsing of packets of both versions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::Ecn;

use super::error::ParseError;
use super::extensions::{self, Chain};
use super::protocol::Protocol;
use crate::checksum;

/// Length of an IPv4 header without options (RFC 791, section 3.1).
pub const IPV4_HEADER_LEN: usize = 20;

/// Length of an IPv6 header without extension headers (RFC 8200, section 3).
pub const IPV6_HEADER_LEN: usize = 40;

/// Maximum length that IPv4 can state for a packet, and IPv6 for the bytes after its header.
pub(super) const LEN_MAX: usize = 0xffff;

/// A parsed packet.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Packet<'a> {
    /// The source address, of the same version as the destination.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol of the payload. A host that does not know it reports this: with ICMP as an
    /// unreachable protocol (RFC 1122, section 3.2.2.1), with ICMPv6 as an unrecognized next header
    /// (RFC 8200, section 4). Hop-by-hop options that do not follow the IPv6 header are also such a
    /// protocol.
    pub protocol: Protocol,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Differentiated services codepoint (RFC 2474), at most 63.
    pub dscp: u8,
    /// ECN codepoint (RFC 3168); `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// Whether routers may fragment the packet: IPv4 without the DF flag.
    pub may_fragment: bool,
    /// Position of the payload, if it is only a part of a packet's payload. An IPv6 fragment header
    /// around a whole payload is skipped like other extension headers (RFC 6946).
    pub fragment: Option<Fragment>,
    /// Length of all IP headers, with options and extension headers. The payload begins there.
    pub header_len: usize,
    /// The payload, without padding of the link.
    pub payload: &'a [u8],
}

/// Position of a fragment in the payload that was divided.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Fragment {
    /// Identification, equal for all fragments of a packet with the same source, destination, and
    /// for IPv4 protocol.
    pub id: u32,
    /// Offset in bytes, a multiple of 8.
    pub offset: usize,
    /// Whether fragments with larger offsets exist.
    pub more: bool,
}

impl<'a> Packet<'a> {
    /// Parses the packet at the start of `bytes`. Bytes beyond the stated length are cut off. The
    /// checksum of an IPv4 header is verified.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        packet(bytes, false)
    }

    /// Parses a packet that an ICMP error message quotes. It may be truncated after its IP headers.
    /// The checksum of an IPv4 header is not verified, because not all routers adjust it when they
    /// quote a header that they have changed.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        packet(bytes, true)
    }

    /// Returns whether the packet is of version 6.
    #[inline]
    pub const fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }
}

#[inline]
fn packet(bytes: &[u8], is_quoted: bool) -> Result<Packet<'_>, ParseError> {
    match bytes.first().ok_or(ParseError::Truncated)? >> 4 {
        4 => ipv4(bytes, is_quoted),
        6 => ipv6(bytes, is_quoted),
        version => Err(ParseError::Version(version)),
    }
}

/// Parses an IPv4 packet (RFC 791, section 3.1).
#[inline]
fn ipv4(bytes: &[u8], is_quoted: bool) -> Result<Packet<'_>, ParseError> {
    let head = bytes.first_chunk::<IPV4_HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let header_len = usize::from(head[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if header_len < IPV4_HEADER_LEN || total_len < header_len {
        return Err(ParseError::HeaderLength);
    }
    let header = bytes.get(..header_len).ok_or(ParseError::Truncated)?;
    if !is_quoted && checksum::sum(header, 0) != 0xffff {
        return Err(ParseError::Checksum);
    }
    let payload = payload(bytes, header_len, total_len, is_quoted)?;
    let flags = u16::from_be_bytes([head[6], head[7]]);
    let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let fragment =
        (offset != 0 || more).then(|| Fragment { id: u32::from(u16::from_be_bytes([head[4], head[5]])), offset, more });
    if !is_quoted && let Some(fragment) = fragment {
        check_fragment(fragment, header_len, payload)?;
    }
    let (dscp, ecn) = traffic_class(head[1]);
    Ok(Packet {
        source: Ipv4Addr::new(head[12], head[13], head[14], head[15]).into(),
        destination: Ipv4Addr::new(head[16], head[17], head[18], head[19]).into(),
        protocol: Protocol(head[9]),
        hop_limit: head[8],
        dscp,
        ecn,
        may_fragment: flags & 0x4000 == 0,
        fragment,
        header_len,
        payload,
    })
}

/// Parses an IPv6 packet (RFC 8200, section 3).
#[inline]
fn ipv6(bytes: &[u8], is_quoted: bool) -> Result<Packet<'_>, ParseError> {
    let (head, rest) = bytes.split_first_chunk::<IPV6_HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let rest = payload(rest, 0, len, is_quoted)?;
    let Chain { protocol, len, fragment } = extensions::walk(Protocol(head[6]), rest, is_quoted)?;
    let payload = &rest[len..];
    if !is_quoted && let Some(fragment) = fragment {
        // The fragment header, always the last one here, is not a part of the whole packet.
        check_fragment(fragment, len - extensions::FRAGMENT_HEADER_LEN, payload)?;
    }
    let (dscp, ecn) = traffic_class(head[0] << 4 | head[1] >> 4);
    Ok(Packet {
        source: address(head, 8).into(),
        destination: address(head, 24).into(),
        protocol,
        hop_limit: head[7],
        dscp,
        ecn,
        // Only the source may fragment (RFC 8200, section 4.5).
        may_fragment: false,
        fragment,
        header_len: IPV6_HEADER_LEN + len,
        payload,
    })
}

/// Returns the bytes from `start` to `end`, or fewer if a quoted packet is truncated.
#[inline]
fn payload(bytes: &[u8], start: usize, end: usize, is_quoted: bool) -> Result<&[u8], ParseError> {
    let end = if is_quoted { end.min(bytes.len()) } else { end };
    bytes.get(start..end).ok_or(ParseError::Truncated)
}

/// Checks a fragment (RFC 791, section 3.2, and RFC 8200, section 4.5). `before` is the number of
/// bytes before the payload in the whole packet.
fn check_fragment(fragment: Fragment, before: usize, payload: &[u8]) -> Result<(), ParseError> {
    if fragment.more && !payload.len().is_multiple_of(8) {
        return Err(ParseError::FragmentLength);
    }
    if before + fragment.offset + payload.len() > LEN_MAX {
        return Err(ParseError::FragmentEnd);
    }
    Ok(())
}

/// Splits the byte into DSCP and ECN (RFC 3168, section 5).
#[inline]
const fn traffic_class(byte: u8) -> (u8, Option<Ecn>) {
    let ecn = match byte & 0b11 {
        0b00 => None,
        0b01 => Some(Ecn::Ect1),
        0b10 => Some(Ecn::Ect0),
        _ => Some(Ecn::Ce),
    };
    (byte >> 2, ecn)
}

#[inline]
fn address(head: &[u8; IPV6_HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    octets.into()
}
