//! The inner packets: what the tunnel reads of their headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum;
use wire::segmentation::{TCP_FLAG_OF_FIRST, TCP_FLAGS_OF_LAST, TCP_FLAGS_OFFSET};

use crate::item::FLOWS_MAX;

/// Length of an IPv4 header without options (RFC 791, section 3.1).
const IPV4_HEADER_BYTES: usize = 20;
/// Length of an IPv6 header (RFC 8200, section 3).
const IPV6_HEADER_BYTES: usize = 40;
/// Length of a TCP header without options (RFC 9293, section 3.1).
const TCP_HEADER_BYTES: usize = 20;
/// Length of a UDP header (RFC 768).
const UDP_HEADER_BYTES: usize = 8;

/// All headers of a super-packet, at most: IPv4 and TCP with all options. IPv6 extension headers are not
/// passed over.
pub const HEADERS_BYTES_MAX: usize = 120;

/// The ECN field value for congestion experienced (RFC 3168, section 5).
const ECN_CE: u8 = 0b11;

/// The DSCP of lower effort (RFC 8622, section 4). CS1, which had this meaning before, is served like other
/// packets: a class selector may not be served worse than the default (RFC 2474, section 4.2.2.2), and programs
/// such as ssh mark data with it that their users wait for.
pub const LOWER_EFFORT: u8 = 1;

/// A step of a hash.
fn mix(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state ^ word ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word.rotate_left(32) ^ 0xd6e8_feb8_6659_fd93);
    (product >> 64) as u64 ^ product as u64
}

/// The transport protocol of a packet that can be cut into segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The headers of an IP packet whose lengths are consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inner {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same version.
    pub destination: IpAddr,
    /// The protocol number of what follows the IP header, or an extension header's (IPv6).
    pub protocol: u8,
    /// Differentiated services and ECN fields.
    pub traffic_class: u8,
    /// Source and destination port of TCP and UDP packets that are no later fragments; else zero.
    pub ports: [u16; 2],
    /// The length of the IP header, without extension headers.
    pub ip_header_bytes: usize,
    /// The transport protocol and the length of all headers, if the transport header follows the IP
    /// header and the packet is no fragment.
    pub transport: Option<(Transport, usize)>,
}

/// The bytes are not one whole IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAPacket;

impl Inner {
    /// Reads the headers of `ip`, which must be one packet without bytes after it. The checksum of an
    /// IPv4 header is not verified: the host that takes the packet does it.
    ///
    /// # Errors
    /// If the version or a length is wrong.
    #[inline]
    pub fn parse(ip: &[u8]) -> Result<Self, NotAPacket> {
        if Self::whole_bytes(ip) != Some(ip.len()) {
            return Err(NotAPacket);
        }
        Self::parse_super_packet(ip)
    }

    /// As [`parse`](Self::parse), for the first bytes of a packet, with all its headers.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_super_packet(ip: &[u8]) -> Result<Self, NotAPacket> {
        match ip.first().map(|first| first >> 4) {
            Some(4) => Self::ipv4(ip),
            Some(6) => Self::ipv6(ip),
            _ => Err(NotAPacket),
        }
    }

    /// The length of the packet of which `ip` is the beginning, as its header gives it.
    #[must_use]
    pub fn whole_bytes(ip: &[u8]) -> Option<usize> {
        match ip.first()? >> 4 {
            4 if ip.len() >= IPV4_HEADER_BYTES => Some(usize::from(get(ip, 2))),
            6 if ip.len() >= IPV6_HEADER_BYTES => Some(usize::from(get(ip, 4)) + IPV6_HEADER_BYTES),
            _ => None,
        }
    }

    fn ipv4(ip: &[u8]) -> Result<Self, NotAPacket> {
        let head = ip.first_chunk::<IPV4_HEADER_BYTES>().ok_or(NotAPacket)?;
        let ip_header_bytes = usize::from(head[0] & 0x0f) * 4;
        if ip_header_bytes < IPV4_HEADER_BYTES || ip_header_bytes > ip.len() {
            return Err(NotAPacket);
        }
        let address = |at: usize| IpAddr::V4(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]));
        // More fragments, or an offset (RFC 791, section 3.1).
        let (is_fragment, is_later) = (get(head, 6) & 0x3fff != 0, get(head, 6) & 0x1fff != 0);
        let (ports, transport) = transport_of(head[9], &ip[ip_header_bytes..], is_later);
        Ok(Self {
            source: address(12),
            destination: address(16),
            protocol: head[9],
            traffic_class: head[1],
            ports,
            ip_header_bytes,
            transport: transport.filter(|_| !is_fragment).map(|(kind, bytes)| (kind, ip_header_bytes + bytes)),
        })
    }

    fn ipv6(ip: &[u8]) -> Result<Self, NotAPacket> {
        let head = ip.first_chunk::<IPV6_HEADER_BYTES>().ok_or(NotAPacket)?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&head[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let (ports, transport) = transport_of(head[6], &ip[IPV6_HEADER_BYTES..], false);
        Ok(Self {
            source: address(8),
            destination: address(24),
            protocol: head[6],
            traffic_class: (get(head, 0) >> 4) as u8,
            ports,
            ip_header_bytes: IPV6_HEADER_BYTES,
            transport: transport.map(|(kind, bytes)| (kind, IPV6_HEADER_BYTES + bytes)),
        })
    }

    /// A number below [`FLOWS_MAX`] for the packets between the same addresses and ports. Others cannot
    /// foresee it if the `seed` is secret.
    #[must_use]
    pub fn flow(&self, seed: u64) -> u16 {
        let words = |address: IpAddr| match address {
            IpAddr::V4(address) => (u64::from(address.to_bits()), 4),
            IpAddr::V6(address) => ((address.to_bits() >> 64) as u64, address.to_bits() as u64),
        };
        let ((source, s), (destination, d)) = (words(self.source), words(self.destination));
        let ports = u64::from(self.ports[0]) << 32 | u64::from(self.ports[1]) << 16 | u64::from(self.protocol);
        let hash = [source, s, destination, d, ports].into_iter().fold(seed, mix);
        (mix(hash, seed) % u64::from(FLOWS_MAX)) as u16
    }

    /// Sets the congestion mark in `ip`, the packet with these headers, if it is ECN-capable (RFC 3168,
    /// section 5); returns whether it is.
    pub fn mark_congestion(&mut self, ip: &mut [u8]) -> bool {
        if self.traffic_class & ECN_CE == 0 {
            return false;
        }
        self.traffic_class |= ECN_CE;
        if self.is_ipv6() {
            // The traffic class begins in the first byte: its last bits are bits 4 and 5 of the second.
            ip[1] |= ECN_CE << 4;
        } else {
            ip[1] |= ECN_CE;
            checksum::fill_ipv4(&mut ip[..self.ip_header_bytes]);
        }
        true
    }

    /// The length of all headers: those of IP, and those of TCP or UDP if they follow and the packet is no fragment.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.transport.map_or(self.ip_header_bytes, |(_, bytes)| bytes)
    }

    /// Whether the packet may wait for all others.
    #[must_use]
    pub const fn is_lower_effort(&self) -> bool {
        self.traffic_class >> 2 == LOWER_EFFORT
    }

    /// Whether the packet is of version 6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }
}

/// The ports and, if the whole header is there, the length of the transport header.
fn transport_of(protocol: u8, rest: &[u8], is_later_fragment: bool) -> ([u16; 2], Option<(Transport, usize)>) {
    if is_later_fragment || rest.len() < 4 || !matches!(protocol, 6 | 17) {
        return ([0; 2], None);
    }
    let ports = [get(rest, 0), get(rest, 2)];
    let header = match protocol {
        6 if rest.len() >= TCP_HEADER_BYTES => {
            let bytes = usize::from(rest[12] >> 4) * 4;
            (TCP_HEADER_BYTES..=rest.len()).contains(&bytes).then_some((Transport::Tcp, bytes))
        }
        17 if rest.len() >= UDP_HEADER_BYTES => Some((Transport::Udp, UDP_HEADER_BYTES)),
        _ => None,
    };
    (ports, header)
}

impl Transport {
    /// Offset of the checksum in the transport header (RFC 9293, section 3.1; RFC 768).
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// A part of a super-packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it begins, a multiple of the segment size.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// The bytes of the whole payload.
    pub total: usize,
    /// Payload of each segment but the last, in bytes.
    pub segment: usize,
}

/// Changes `headers`, those of a super-packet with a partial checksum, to the headers of the packet that
/// carries only this part of its payload, as segmentation offload does.
///
/// # Panics
/// If `inner` was not read from `headers`, or has no transport header.
pub fn fit_headers(headers: &mut [u8], inner: &Inner, part: Part) {
    let (transport, header_bytes) = inner.transport.expect("a super-packet has a transport header");
    assert!(headers.len() == header_bytes && part.from <= part.to && part.to <= part.total, "the headers alone");
    if !inner.is_ipv6() {
        // Each segment has an identification of its own (RFC 6864 lets it be anything if DF is set).
        let identification = get(headers, 4).wrapping_add((part.from / part.segment) as u16);
        put(headers, 4, identification);
    }
    if transport == Transport::Tcp {
        let rest = &mut headers[inner.ip_header_bytes..];
        let sequence = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        rest[4..8].copy_from_slice(&sequence.wrapping_add(part.from as u32).to_be_bytes());
        if part.to < part.total {
            rest[TCP_FLAGS_OFFSET] &= !TCP_FLAGS_OF_LAST;
        }
        if part.from > 0 {
            rest[TCP_FLAGS_OFFSET] &= !TCP_FLAG_OF_FIRST;
        }
    }
    set_payload_bytes(headers, inner, part.total, part.to - part.from);
}

/// Changes `headers`, those of a packet with a partial checksum and `old` bytes of payload, to those of one
/// with `new` bytes.
///
/// # Panics
/// If `inner` was not read from `headers`, or has no transport header.
pub fn set_payload_bytes(headers: &mut [u8], inner: &Inner, old: usize, new: usize) {
    let (transport, header_bytes) = inner.transport.expect("a partial checksum is that of a transport");
    let (network, rest) = headers.split_at_mut(inner.ip_header_bytes);
    if inner.is_ipv6() {
        put(network, 4, (header_bytes + new - IPV6_HEADER_BYTES) as u16);
    } else {
        put(network, 2, (header_bytes + new) as u16);
        checksum::fill_ipv4(network);
    }
    let transport_bytes = header_bytes - inner.ip_header_bytes;
    let (old_length, length) = ((transport_bytes + old) as u16, (transport_bytes + new) as u16);
    if transport == Transport::Udp {
        put(rest, 4, length);
    }
    // The checksum is partial: the sum of the pseudo-header, which has the length.
    let at = transport.checksum_offset();
    let sum = get(rest, at);
    put(rest, at, checksum::replace(sum, old_length, length));
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
