//! Address resolution of IPv4 on Ethernet (RFC 826).

use std::fmt;
use std::net::Ipv4Addr;

use crate::ethernet::{EtherType, MacAddress};

#[cfg(test)]
mod tests;

/// Length of a packet.
pub const PACKET_LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, and the lengths of their addresses.
const FORMAT: [u8; 6] = [0, 1, (EtherType::IPV4.0 >> 8) as u8, EtherType::IPV4.0 as u8, 6, 4];

/// Purpose of a packet.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Hash)]
pub struct Operation(
    /// The number on the wire.
    pub u16,
);

impl Operation {
    /// The sender looks for the station with the target's IPv4 address.
    pub const REQUEST: Self = Self(1);
    /// The sender is the station that a request looks for.
    pub const REPLY: Self = Self(2);
}

/// A request or a reply.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Packet {
    /// Request, reply, or an operation that other RFCs define.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address; unspecified in a probe (RFC 5227, section 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address, without meaning in a request.
    pub target_mac: MacAddress,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

/// Error: the bytes are not an ARP packet for IPv4 on Ethernet. The sender or the network is at
/// fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The packet ends too early.
    Truncated,
    /// The addresses are not Ethernet and IPv4 addresses.
    Format,
}

impl Packet {
    /// Parses the packet at the start of `bytes`. The bytes after it are padding.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (&format, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let (&operation, rest) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        let (&sender_mac, rest) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        let (&sender_ip, rest) = rest.split_first_chunk::<4>().ok_or(ParseError::Truncated)?;
        let (&target_mac, rest) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        let &target_ip = rest.first_chunk::<4>().ok_or(ParseError::Truncated)?;
        if format != FORMAT {
            return Err(ParseError::Format);
        }
        Ok(Self {
            operation: Operation(u16::from_be_bytes(operation)),
            sender_mac: MacAddress(sender_mac),
            sender_ip: sender_ip.into(),
            target_mac: MacAddress(target_mac),
            target_ip: target_ip.into(),
        })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&FORMAT);
        out.extend_from_slice(&self.operation.0.to_be_bytes());
        out.extend_from_slice(&self.sender_mac.0);
        out.extend_from_slice(&self.sender_ip.octets());
        out.extend_from_slice(&self.target_mac.0);
        out.extend_from_slice(&self.target_ip.octets());
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet ends too early",
            Self::Format => "the addresses are not those of Ethernet and IPv4",
        })
    }
}

impl std::error::Error for ParseError {}
