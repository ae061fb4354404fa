//! Reasons to drop a packet.

use std::fmt;

/// Error: the bytes are not an IP packet that a host may accept. The sender or the network is at
/// fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The packet ends before its headers or before the length that it gives.
    Truncated,
    /// The version is neither 4 nor 6.
    Version(u8),
    /// The header length is below the fixed header or above the packet's length.
    HeaderLength,
    /// The checksum of the IPv4 header is wrong.
    Checksum,
    /// More than [`EXTENSIONS_MAX`](super::EXTENSIONS_MAX) IPv6 extension headers.
    TooManyExtensions,
    /// An unknown option with a type that requires dropping the packet (RFC 8200, section 4.2).
    UnknownOption {
        /// Offset of the option's type in the packet, for the Parameter Problem message.
        pointer: usize,
        /// Whether the sender shall get a Parameter Problem message with code 2.
        report: OptionReport,
    },
    /// A routing header with segments left, which only a router on the route may accept.
    Routing {
        /// Offset of the routing type in the packet. The sender shall get a Parameter Problem
        /// message with code 0 (RFC 8200, section 4.4).
        pointer: usize,
    },
    /// A fragment other than the last whose length is not a multiple of 8. For IPv6 the sender
    /// shall get a Parameter Problem message with code 0 for the payload length (RFC 8200, section
    /// 4.5).
    FragmentLength,
    /// A fragment that ends beyond the largest packet. For IPv6 the sender shall get a Parameter
    /// Problem message with code 0 for the fragment offset (RFC 8200, section 4.5).
    FragmentEnd,
    /// The first fragment lacks a part of the headers. The sender may get a Parameter Problem
    /// message with code 3 (RFC 7112, section 5).
    IncompleteHeaders,
}

/// Whether an unknown IPv6 option is reported to the sender: the action of its type (RFC 8200,
/// section 4.2).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub enum OptionReport {
    /// Never.
    Never,
    /// Always, even if the packet's destination is a multicast address.
    Always,
    /// Only if the packet's destination is not a multicast address.
    Unicast,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the packet is shorter than its headers tell"),
            Self::Version(version) => write!(f, "IP version {version}"),
            Self::HeaderLength => f.write_str("impossible header length"),
            Self::Checksum => f.write_str("wrong header checksum"),
            Self::TooManyExtensions => f.write_str("too many extension headers"),
            Self::UnknownOption { pointer, .. } => write!(f, "unknown option at byte {pointer}"),
            Self::Routing { .. } => f.write_str("routing header with segments left"),
            Self::FragmentLength => f.write_str("fragment length is not a multiple of 8"),
            Self::FragmentEnd => f.write_str("fragment ends beyond the largest packet"),
            Self::IncompleteHeaders => f.write_str("the first fragment lacks headers"),
        }
    }
}

impl std::error::Error for ParseError {}
