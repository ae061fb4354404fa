//! [`Arrival`]: a received segment, as the serial step sees it.

use std::fmt;

use bytes::Bytes;
use units::Ecn;
use wire::ip::{self, Protocol};
use wire::tcp::{self, Flags};
use wire::{checksum, tcp::Header};

use crate::tuple::Tuple;

/// A received segment, or several in a row that the device has joined.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Addresses and ports; the local ones are the destination.
    pub tuple: Tuple,
    /// The header.
    pub header: Header,
    /// The data.
    pub data: Bytes,
    /// Bytes of data in each joined segment but the last; the length of the data if there is one.
    pub segment: usize,
    /// A congestion mark of the IP header.
    pub ecn: Option<Ecn>,
}

/// The reason why a packet is dropped.
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

impl Arrival {
    /// Parses an IP packet with a segment. `segment`: bytes of data in each joined segment, if the
    /// device has joined several. `is_verified`: the device, or a sender on this host, vouches for the
    /// checksum.
    ///
    /// # Errors
    /// If it holds no valid segment.
    pub fn open(packet: &Bytes, segment: Option<usize>, is_verified: bool) -> Result<Self, OpenError> {
        let ip = ip::Packet::parse(packet).map_err(OpenError::Ip)?;
        if ip.fragment.is_some() {
            return Err(OpenError::Fragment);
        }
        if ip.protocol != Protocol::TCP {
            return Err(OpenError::NotTcp(ip.protocol));
        }
        let (header, header_len) = Header::parse(ip.payload).map_err(OpenError::Tcp)?;
        if !is_verified {
            let pseudo = checksum::pseudo_header(ip.source, ip.destination, ip.protocol, ip.payload.len() as u32);
            if !tcp::is_checksum_valid(ip.payload, pseudo) {
                return Err(OpenError::Checksum);
            }
        }
        let data = packet.slice_ref(&ip.payload[header_len..]);
        let tuple = Tuple {
            local: (ip.destination, header.destination_port).into(),
            remote: (ip.source, header.source_port).into(),
        };
        Ok(Self { tuple, header, segment: segment.unwrap_or(data.len()), data, ecn: ip.ecn })
    }

    /// The number of sequence numbers that it takes (RFC 9293, section 3.4, SEG.LEN).
    pub(crate) fn sequence_len(&self) -> u64 {
        let flag = |flag| u64::from(self.header.flags.contains(flag));
        self.data.len() as u64 + flag(Flags::SYN) + flag(Flags::FIN)
    }

    pub(crate) const fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }
}
