//! ICMP (RFC 792) and ICMPv6 (RFC 4443): both versions behind one type.
//!
//! The addresses of the packet determine the version. [`Message::parse`] verifies the checksum,
//! which covers the addresses in ICMPv6. [`Message::emit`] writes a complete message.
//!
//! Error messages quote the start of the packet that caused them. [`Packet::parse_quoted`] reads
//! it. A received quotation is as untrusted as any packet: anyone may send it. A transport must
//! check that it sent the quoted packet (RFC 5927).
//!
//! [`Packet::parse_quoted`]: crate::ip::Packet::parse_quoted

use std::fmt;

use crate::ndp;

mod emit;
mod parse;
#[cfg(test)]
mod tests;
mod unreachable;

pub use emit::quotable;
pub use unreachable::Unreachable;

/// Length of type, code, checksum and four bytes that depend on the type. Shorter messages of known
/// types do not exist.
pub const HEADER_LEN: usize = 8;

/// Types of ICMP messages (RFC 792).
mod v4 {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const SOURCE_QUENCH: u8 = 4;
    pub(super) const REDIRECT: u8 = 5;
    pub(super) const ECHO_REQUEST: u8 = 8;
    pub(super) const TIME_EXCEEDED: u8 = 11;
    pub(super) const PARAMETER_PROBLEM: u8 = 12;
}

/// Types of ICMPv6 messages (RFC 4443).
mod v6 {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const PACKET_TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    /// Smallest type that is not an error (RFC 4443, section 2.1).
    pub(super) const INFORMATIONAL: u8 = 128;
    pub(super) const ECHO_REQUEST: u8 = 128;
    pub(super) const ECHO_REPLY: u8 = 129;
    pub(super) const REDIRECT: u8 = 137;
}

/// A message of either version.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub enum Message<'a> {
    /// Request to send the data back.
    EchoRequest {
        /// Identifier that distinguishes programs of the sender.
        id: u16,
        /// Sequence number that distinguishes requests.
        seq: u16,
        /// Arbitrary bytes.
        data: &'a [u8],
    },
    /// The answer to an echo request, with its content.
    EchoReply {
        /// Identifier from the request.
        id: u16,
        /// Sequence number from the request.
        seq: u16,
        /// Data from the request.
        data: &'a [u8],
    },
    /// A packet could not be delivered.
    Unreachable {
        /// The reason.
        code: Unreachable,
        /// MTU of the link for which the packet was too long, with
        /// [`Unreachable::FragmentationNeeded`] only. `None` if the router does not report it (RFC
        /// 1191, section 5).
        mtu: Option<u32>,
        /// Start of the packet.
        quoted: &'a [u8],
    },
    /// A packet was longer than the MTU of a link. ICMPv6 only: ICMP reports this with
    /// [`Message::Unreachable`].
    PacketTooBig {
        /// MTU of the link. The receiver checks the range.
        mtu: u32,
        /// Start of the packet.
        quoted: &'a [u8],
    },
    /// The hop limit of a packet reached zero (code 0), or fragments did not arrive in time (code
    /// 1).
    TimeExceeded {
        /// The reason.
        code: u8,
        /// Start of the packet.
        quoted: &'a [u8],
    },
    /// A header has a value that cannot be processed.
    ParameterProblem {
        /// The kind of problem. In both versions, 0 is a wrong value. In ICMPv6, 1 is an
        /// unrecognized next header, 2 an unrecognized option, 3 a first fragment without all
        /// headers (RFC 7112).
        code: u8,
        /// Offset of the problem in the packet. ICMP has 8 bits for it.
        pointer: u32,
        /// Start of the packet.
        quoted: &'a [u8],
    },
    /// Neighbor discovery, ICMPv6 only.
    Ndp(ndp::Message),
    /// A message that is not parsed.
    Other {
        /// The type.
        ty: u8,
        /// The code.
        code: u8,
        /// The bytes after the checksum.
        body: &'a [u8],
    },
}

/// Error: the bytes are not a message that a host may accept. The sender or the network is at
/// fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The message ends too early.
    Truncated,
    /// The checksum is wrong.
    Checksum,
    /// A message of neighbor discovery must be discarded.
    Ndp(ndp::ParseError),
}

impl Message<'_> {
    /// Returns whether the message reports an error. Errors and redirects must not be answered with
    /// an error (RFC 1122, section 3.2.2; RFC 4443, section 2.4, (e.1) and (e.2)); redirects count
    /// as errors here.
    pub const fn is_error(&self, is_ipv6: bool) -> bool {
        match *self {
            Self::Unreachable { .. }
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            Self::EchoRequest { .. } | Self::EchoReply { .. } | Self::Ndp(_) => false,
            Self::Other { ty, .. } if is_ipv6 => ty < v6::INFORMATIONAL || ty == v6::REDIRECT,
            Self::Other { ty, .. } => matches!(ty, v4::SOURCE_QUENCH | v4::REDIRECT),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message ends too early"),
            Self::Checksum => f.write_str("wrong checksum"),
            Self::Ndp(error) => write!(f, "neighbor discovery: {error}"),
        }
    }
}

impl std::error::Error for ParseError {}
