//! Encoding of headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::Ecn;

use super::packet::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, LEN_MAX};
use super::protocol::Protocol;
use crate::checksum;

/// A header to write, without options, extension headers or fragmentation.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Header {
    /// The source address, of the same version as the destination.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol of the payload.
    pub protocol: Protocol,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Differentiated services codepoint (RFC 2474), at most 63.
    pub dscp: u8,
    /// ECN codepoint (RFC 3168); `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// IPv4 identification. It is meaningful only if `may_fragment` is set (RFC 6864, section 4.1);
    /// IPv6 has no such field.
    pub id: u16,
    /// Whether routers may fragment the packet. IPv6 routers never do.
    pub may_fragment: bool,
}

impl Header {
    /// Returns the length of the header in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[inline]
    pub const fn len(&self) -> usize {
        if self.source.is_ipv6() { IPV6_HEADER_LEN } else { IPV4_HEADER_LEN }
    }

    /// Appends the header of a packet with `payload_len` bytes of payload.
    ///
    /// # Panics
    ///
    /// If the addresses are of different versions, if the DSCP is above 63, or if the length has
    /// more than 16 bits: `payload_len` for IPv6, `self.len() + payload_len` for IPv4.
    #[inline]
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.emit_v4(source, destination, payload_len, out),
            (IpAddr::V6(source), IpAddr::V6(destination)) => self.emit_v6(source, destination, payload_len, out),
            (source, destination) => panic!("{source} and {destination} are of different versions"),
        }
    }

    /// Appends an IPv4 header (RFC 791, section 3.1).
    fn emit_v4(&self, source: Ipv4Addr, destination: Ipv4Addr, payload_len: usize, out: &mut Vec<u8>) {
        let mut head = [0; IPV4_HEADER_LEN];
        head[0] = 4 << 4 | (IPV4_HEADER_LEN / 4) as u8;
        head[1] = self.traffic_class();
        head[2..4].copy_from_slice(&len_field(IPV4_HEADER_LEN + payload_len));
        head[4..6].copy_from_slice(&self.id.to_be_bytes());
        head[6] = if self.may_fragment { 0 } else { 0x40 };
        head[8] = self.hop_limit;
        head[9] = self.protocol.0;
        head[12..16].copy_from_slice(&source.octets());
        head[16..20].copy_from_slice(&destination.octets());
        checksum::fill_ipv4(&mut head);
        out.extend_from_slice(&head);
    }

    /// Appends an IPv6 header (RFC 8200, section 3). The flow label is zero: "not labelled" (RFC
    /// 6437, section 2).
    fn emit_v6(&self, source: Ipv6Addr, destination: Ipv6Addr, payload_len: usize, out: &mut Vec<u8>) {
        let class = self.traffic_class();
        let mut head = [0; IPV6_HEADER_LEN];
        head[0] = 6 << 4 | class >> 4;
        head[1] = class << 4;
        head[4..6].copy_from_slice(&len_field(payload_len));
        head[6] = self.protocol.0;
        head[7] = self.hop_limit;
        head[8..24].copy_from_slice(&source.octets());
        head[24..40].copy_from_slice(&destination.octets());
        out.extend_from_slice(&head);
    }

    /// Returns the DSCP and ECN bits (RFC 3168, section 5).
    const fn traffic_class(&self) -> u8 {
        assert!(self.dscp < 64, "a DSCP has six bits");
        let ecn = match self.ecn {
            None => 0b00,
            Some(Ecn::Ect1) => 0b01,
            Some(Ecn::Ect0) => 0b10,
            Some(Ecn::Ce) => 0b11,
        };
        self.dscp << 2 | ecn
    }
}

fn len_field(len: usize) -> [u8; 2] {
    assert!(len <= LEN_MAX, "{len} bytes do not fit a length of 16 bits");
    (len as u16).to_be_bytes()
}
