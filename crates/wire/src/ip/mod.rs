//! IPv4 (RFC 791) and IPv6 (RFC 8200): packets with their headers.
//!
//! [`Packet::parse`] reads a packet of either version, [`Header::emit`] writes a header. IPv4
//! options and IPv6 extension headers are read over; none is ever written. Fragments are parsed but
//! not put together. After the caller has done so, an IPv6 payload may still begin with extension
//! headers: see [`skip_extensions`].
//!
//! ```text
//!            header_len               payload
//! |--------------------------------|-----------|
//! IPv4 header, options             | TCP, UDP ...| padding of the link, ignored
//! IPv6 header, extension headers   |
//! ```

use std::net::IpAddr;

use units::Ecn;

mod error;
mod extensions;
mod header;
mod parse;
mod protocol;
#[cfg(test)]
mod tests;

pub use error::{OptionReport, ParseError};
pub use extensions::{EXTENSIONS_MAX, skip_extensions};
pub use header::Header;
pub use protocol::Protocol;

/// Length of an IPv4 header without options (RFC 791, section 3.1).
pub const IPV4_HEADER_LEN: usize = 20;

/// Length of an IPv6 header without extension headers (RFC 8200, section 3).
pub const IPV6_HEADER_LEN: usize = 40;

/// A parsed packet.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Packet<'a> {
    /// The source address, of the same version as the destination.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol of the payload. A host that does not know it reports so: with ICMP as an
    /// unreachable protocol (RFC 1122, section 3.2.2.1), with ICMPv6 as an unrecognized next header
    /// (RFC 8200, section 4). Hop-by-hop options that do not follow the IPv6 header are such a
    /// protocol, too.
    pub protocol: Protocol,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Differentiated services codepoint (RFC 2474), at most 63.
    pub dscp: u8,
    /// ECN codepoint (RFC 3168); `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// Whether routers may fragment the packet: IPv4 without the DF flag.
    pub may_fragment: bool,
    /// Set if the payload is only a part of a packet's payload. An IPv6 fragment header around a
    /// whole payload is read over like other extension headers (RFC 6946).
    pub fragment: Option<Fragment>,
    /// Length of all IP headers, with options and extension headers. The payload begins there.
    pub header_len: usize,
    /// The payload, without padding of the link.
    pub payload: &'a [u8],
}

/// The position of a fragment in the payload that was divided.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Fragment {
    /// Fragments of one packet have the same number, source, destination, and for IPv4 protocol.
    pub id: u32,
    /// Offset in bytes, a multiple of 8.
    pub offset: usize,
    /// Whether fragments with larger offsets exist.
    pub more: bool,
}

impl<'a> Packet<'a> {
    /// Reads the packet at the start of `bytes`. What follows the length that the packet gives is
    /// cut off. The checksum of an IPv4 header is verified.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        parse::packet(bytes, false)
    }

    /// Reads a packet that an ICMP error message quotes. It may be cut off behind its IP headers.
    /// The checksum of an IPv4 header is not verified, because routers adjust it in several ways
    /// before they quote (RFC 1812, section 4.3.2.3, requires none).
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        parse::packet(bytes, true)
    }

    /// Whether the packet is of version 6.
    #[inline]
    pub const fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }
}
