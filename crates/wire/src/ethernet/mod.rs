//! Ethernet frames (RFC 894 and RFC 2464: IP over Ethernet), without VLAN tags.

use std::fmt;
use std::net::IpAddr;

#[cfg(test)]
mod tests;

/// Length of a header.
pub const HEADER_LEN: usize = 14;

/// Smallest type; smaller values are lengths of IEEE 802.3 (RFC 894).
const ETHER_TYPE_MIN: u16 = 0x0600;

/// An Ethernet address.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default)]
pub struct MacAddress(
    /// The bytes, in wire order.
    pub [u8; 6],
);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether the address names a group of stations, or all of them.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the address to which packets for a multicast address are sent (RFC 1112, section
    /// 6.4; RFC 2464, section 7), or `None` for other addresses.
    pub fn for_multicast(group: IpAddr) -> Option<Self> {
        if !group.is_multicast() {
            return None;
        }
        Some(match group {
            IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(group) => {
                let [.., a, b, c, d] = group.octets();
                Self([0x33, 0x33, a, b, c, d])
            }
        })
    }
}

/// Formats the address like `02:00:5e:10:00:01`.
impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocol of a frame's payload.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct EtherType(
    /// The number on the wire.
    pub u16,
);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// IPv6 (RFC 2464, section 3).
    pub const IPV6: Self = Self(0x86dd);
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPV4"),
            Self::ARP => f.write_str("ARP"),
            Self::IPV6 => f.write_str("IPV6"),
            Self(number) => write!(f, "EtherType {number:#06x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The header of a frame.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Header {
    /// The station or stations that should receive the frame.
    pub destination: MacAddress,
    /// The station that sent the frame.
    pub source: MacAddress,
    /// The protocol of the payload.
    pub ether_type: EtherType,
}

/// Error: the bytes are not an Ethernet frame with a type. The sender or the network is at fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The frame ends before its header does.
    Truncated,
    /// The frame has a length instead of a type (IEEE 802.3). Hosts need not accept IP in such
    /// frames (RFC 1122, section 2.3.3).
    Length,
}

impl Header {
    /// Parses the header at the start of `bytes`. Also returns the payload, which may end with
    /// padding.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (&[a, b, c, d, e, f, g, h, i, j, k, l, high, low], payload) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let ether_type = u16::from_be_bytes([high, low]);
        if ether_type < ETHER_TYPE_MIN {
            return Err(ParseError::Length);
        }
        let header = Self {
            destination: MacAddress([a, b, c, d, e, f]),
            source: MacAddress([g, h, i, j, k, l]),
            ether_type: EtherType(ether_type),
        };
        Ok((header, payload))
    }

    /// Appends the header. The link pads frames to the minimum length.
    ///
    /// # Panics
    ///
    /// If the type is below 0x0600, where it would be a length.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        assert!(self.ether_type.0 >= ETHER_TYPE_MIN, "{} is a length", self.ether_type);
        let mut head = [0; HEADER_LEN];
        head[0..6].copy_from_slice(&self.destination.0);
        head[6..12].copy_from_slice(&self.source.0);
        head[12..14].copy_from_slice(&self.ether_type.0.to_be_bytes());
        out.extend_from_slice(&head);
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the frame is shorter than its header",
            Self::Length => "the frame has a length instead of a type",
        })
    }
}

impl std::error::Error for ParseError {}
