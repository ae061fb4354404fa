//! [`Arrival`]: a received segment, as the serial step sees it.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use units::Ecn;
use wire::ip::{self, Protocol};
use wire::tcp::{self, Flags};
use wire::{checksum, tcp::Header};

use crate::listen::{self, Listening};
use crate::tuple::Tuple;

/// A received segment, or several consecutive ones that the device has joined.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Addresses and ports; the local ones are the destination.
    pub tuple: Tuple,
    /// The header.
    pub header: Header,
    /// Payload.
    pub data: Bytes,
    /// Bytes of data in each joined segment but the last; the length of the data if there is only
    /// one.
    pub segment: usize,
    /// Congestion mark in the IP header.
    pub ecn: Option<Ecn>,
}

/// Position and addresses of the segment in an IP packet: all that routing needs. With it the
/// packet is parsed only once, and the segment is parsed where it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHead {
    /// Addresses and ports; the local ones are the destination.
    pub tuple: Tuple,
    /// The flags.
    pub flags: Flags,
    /// Whether an Authentication Header precedes TCP. It is not verified.
    pub is_authenticated: bool,
    ecn: Option<Ecn>,
    /// Start of the TCP header and end of the data.
    start: u32,
    end: u32,
}

/// Reason for dropping a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The IP headers are malformed.
    Ip(ip::ParseError),
    /// A fragment, which must be reassembled first.
    Fragment,
    /// The packet holds something else.
    NotTcp(Protocol),
    /// The TCP header is malformed.
    Tcp(tcp::ParseError),
    /// The checksum is wrong.
    Checksum,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(error) => error.fmt(f),
            Self::Fragment => f.write_str("a fragment"),
            Self::NotTcp(protocol) => write!(f, "protocol {}", protocol.0),
            Self::Tcp(error) => error.fmt(f),
            Self::Checksum => f.write_str("the checksum is wrong"),
        }
    }
}

impl std::error::Error for OpenError {}

impl SegmentHead {
    /// Locates the segment of a parsed packet.
    ///
    /// # Errors
    /// Fails if the packet holds no complete segment.
    #[inline]
    pub fn of(ip: &ip::Packet<'_>) -> Result<Self, OpenError> {
        if ip.fragment.is_some() {
            return Err(OpenError::Fragment);
        }
        let is_authenticated = ip.protocol == Protocol::AH;
        let below_len = if is_authenticated { authentication_len(ip.payload)? } else { 0 };
        if !is_authenticated && ip.protocol != Protocol::TCP {
            return Err(OpenError::NotTcp(ip.protocol));
        }
        let payload = &ip.payload[below_len..];
        let Some(header) = payload.first_chunk::<{ tcp::HEADER_LEN }>() else {
            return Err(OpenError::Tcp(tcp::ParseError::Truncated));
        };
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Ok(Self {
            tuple: Tuple { local: (ip.destination, port(2)).into(), remote: (ip.source, port(0)).into() },
            flags: Flags(u16::from(header[13])),
            is_authenticated,
            ecn: ip.ecn,
            start: (ip.header_len + below_len) as u32,
            end: (ip.header_len + ip.payload.len()) as u32,
        })
    }

    /// Returns whether the segment is a SYN that may open a connection.
    pub fn is_opening(&self) -> bool {
        listen::judge(self.flags) == Listening::Begins
    }

    /// Returns whether the segment may complete a handshake: it has ACK, but neither SYN nor RST.
    pub fn is_acknowledging(&self) -> bool {
        is_acknowledging(self.flags)
    }

    /// Returns the segment within the packet that this head was parsed from.
    ///
    /// # Panics
    /// Panics if the head was parsed from a longer packet.
    pub fn segment<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        &packet[self.range()]
    }

    /// Returns whether the checksum of the segment is correct.
    ///
    /// # Panics
    /// Panics if the head was parsed from a longer packet.
    pub fn is_checksum_valid(&self, packet: &[u8]) -> bool {
        let (Tuple { local, remote }, bytes) = (self.tuple, self.segment(packet));
        let pseudo = checksum::pseudo_header(remote.ip(), local.ip(), Protocol::TCP, bytes.len() as u32);
        tcp::is_checksum_valid(bytes, pseudo)
    }

    const fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

fn is_acknowledging(flags: Flags) -> bool {
    flags.contains(Flags::ACK) && !flags.intersects(Flags::SYN | Flags::RST)
}

/// Returns the length of the Authentication Header at the start of `payload`, before the segment:
/// two 32-bit words more than its second byte says (RFC 4302, section 2.2).
pub(crate) fn authentication_len(payload: &[u8]) -> Result<usize, OpenError> {
    let [next, words, ..] = payload else { return Err(OpenError::Tcp(tcp::ParseError::Truncated)) };
    if Protocol(*next) != Protocol::TCP {
        return Err(OpenError::NotTcp(Protocol::AH));
    }
    let len = (usize::from(*words) + 2) * 4;
    if payload.len() < len { Err(OpenError::Tcp(tcp::ParseError::Truncated)) } else { Ok(len) }
}

impl Arrival {
    /// Parses an IP packet that contains a segment. `segment`: bytes of data in each joined
    /// segment, if the device has joined several. `is_verified`: the device, or a sender on this
    /// host, vouches for the checksum.
    ///
    /// # Errors
    /// Fails if the packet holds no valid segment.
    pub fn open(packet: &Bytes, segment: Option<usize>, is_verified: bool) -> Result<Self, OpenError> {
        let ip = ip::Packet::parse(packet).map_err(OpenError::Ip)?;
        Self::open_at(&SegmentHead::of(&ip)?, packet, segment, is_verified)
    }

    /// Does the same as [`open`](Self::open) for a packet whose `head` is known.
    ///
    /// # Errors
    /// Fails if the packet holds no valid segment.
    ///
    /// # Panics
    /// Panics if `head` belongs to a longer packet.
    pub fn open_at(
        head: &SegmentHead,
        packet: &Bytes,
        segment: Option<usize>,
        is_verified: bool,
    ) -> Result<Self, OpenError> {
        let bytes = &packet[head.range()];
        let (header, header_len) = Header::parse(bytes).map_err(OpenError::Tcp)?;
        if !is_verified && !head.is_checksum_valid(packet) {
            return Err(OpenError::Checksum);
        }
        let data = packet.slice(head.start as usize + header_len..head.end as usize);
        Ok(Self { tuple: head.tuple, header, segment: segment.unwrap_or(data.len()), data, ecn: head.ecn })
    }

    /// Returns the number of sequence numbers that the segment occupies (RFC 9293, section 3.4,
    /// SEG.LEN).
    pub(crate) fn sequence_len(&self) -> u64 {
        let flag = |flag| u64::from(self.header.flags.contains(flag));
        self.data.len() as u64 + flag(Flags::SYN) + flag(Flags::FIN)
    }

    /// See [`SegmentHead::is_acknowledging`].
    pub fn is_acknowledging(&self) -> bool {
        is_acknowledging(self.header.flags)
    }

    pub(crate) const fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }
}
