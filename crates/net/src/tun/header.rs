//! The offload header (`struct virtio_net_hdr`), which describes the remaining work on the packet
//! after it.
//!
//! ```text
//!  byte  0        1          2..4           4..6          6..8             8..10
//!        flags    GSO type   header bytes   segment size  checksum start   checksum offset
//! ```
//!
//! Numbers are in the machine's byte order, the default of TUN devices.

use super::segment::MalformedPacket;

/// Length of the offload header before each packet.
pub const OFFLOAD_HEADER_BYTES: usize = 10;

/// Flag for a partial checksum, whose field holds the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;

/// Flag for a verified checksum.
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag added to the type of a super-packet whose first segment has the flag CWR.
const GSO_ECN: u8 = 0x80;

/// Offset of the checksum in a TCP header (RFC 9293, section 3.1).
pub(super) const TCP_CHECKSUM_OFFSET: u16 = 16;
/// Offset of the checksum in a UDP header (RFC 768).
pub(super) const UDP_CHECKSUM_OFFSET: u16 = 6;

/// The transport protocol of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// A partial checksum: it covers everything from `start` on, and is stored `offset` bytes after
/// `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartialChecksum {
    /// Offset from the start of the IP packet.
    pub(super) start: u16,
    pub(super) offset: u16,
}

/// The parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffloadHeader {
    pub(super) checksum: Option<PartialChecksum>,
    /// For a super-packet: its transport protocol and the payload bytes per segment, at least one.
    /// Such a packet has a partial checksum.
    pub(super) gso: Option<(Transport, u16)>,
}

impl OffloadHeader {
    /// Parses the header at the front of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, MalformedPacket> {
        let Some(header) = bytes.first_chunk::<OFFLOAD_HEADER_BYTES>() else { return Err(MalformedPacket) };
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let checksum =
            (header[0] & NEEDS_CHECKSUM != 0).then(|| PartialChecksum { start: number(6), offset: number(8) });
        let transport = match header[1] & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP_V4 | GSO_TCP_V6 => Some((Transport::Tcp, TCP_CHECKSUM_OFFSET)),
            GSO_UDP => Some((Transport::Udp, UDP_CHECKSUM_OFFSET)),
            _ => return Err(MalformedPacket),
        };
        let Some((transport, checksum_offset)) = transport else { return Ok(Self { checksum, gso: None }) };
        let size = number(4);
        if size == 0 || checksum.is_none_or(|checksum| checksum.offset != checksum_offset) {
            return Err(MalformedPacket);
        }
        Ok(Self { checksum, gso: Some((transport, size)) })
    }

    /// Writes the header to the front of `bytes`, which must be long enough. `is_ipv6` and
    /// `header_bytes` (all headers of the packet) are used for super-packets only.
    pub(super) fn emit(&self, bytes: &mut [u8], is_ipv6: bool, header_bytes: u16) {
        let mut put = |at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        put(2, if self.gso.is_some() { header_bytes } else { 0 });
        put(4, self.gso.map_or(0, |(_, size)| size));
        put(6, self.checksum.map_or(0, |checksum| checksum.start));
        put(8, self.checksum.map_or(0, |checksum| checksum.offset));
        bytes[0] = if self.checksum.is_some() { NEEDS_CHECKSUM } else { 0 };
        bytes[1] = match (self.gso, is_ipv6) {
            (None, _) => GSO_NONE,
            (Some((Transport::Tcp, _)), false) => GSO_TCP_V4,
            (Some((Transport::Tcp, _)), true) => GSO_TCP_V6,
            (Some((Transport::Udp, _)), _) => GSO_UDP,
        };
    }
}

/// The kernel's description of a packet that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOffload {
    /// For a super-packet, the bytes of payload in each of its packets.
    pub segment: Option<usize>,
    /// Whether the transport checksum was verified, or is partial, which means that the packet was
    /// made on this host.
    pub is_verified: bool,
    /// For a partial checksum, the offset at which the covered bytes begin, and the offset of the
    /// checksum, both in the packet. They may lie outside.
    pub partial_checksum: Option<(usize, usize)>,
}

impl ReadOffload {
    /// Parses the header at the front of `bytes`. The packet follows after
    /// [`OFFLOAD_HEADER_BYTES`].
    ///
    /// # Errors
    /// If the header is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedPacket> {
        let header = OffloadHeader::parse(bytes)?;
        let is_verified = header.checksum.is_some() || bytes[0] & DATA_VALID != 0;
        let place = |checksum: PartialChecksum| {
            (usize::from(checksum.start), usize::from(checksum.start) + usize::from(checksum.offset))
        };
        let segment = header.gso.map(|(_, size)| size.into());
        Ok(Self { segment, is_verified, partial_checksum: header.checksum.map(place) })
    }
}

/// Returns the header to write before a TCP packet. The packet's checksum field holds the sum of
/// the pseudo-header. `ip_len` is the length of the IP headers, `header_len` that of all headers,
/// and `segment`, for a super-packet, the bytes of payload in each packet.
#[must_use]
pub fn tcp_offload(is_ipv6: bool, ip_len: u16, header_len: u16, segment: Option<u16>) -> [u8; OFFLOAD_HEADER_BYTES] {
    offload(Transport::Tcp, is_ipv6, ip_len, header_len, segment)
}

/// Returns the header to write before a UDP packet, like [`tcp_offload`].
#[must_use]
pub fn udp_offload(is_ipv6: bool, ip_len: u16, header_len: u16, segment: Option<u16>) -> [u8; OFFLOAD_HEADER_BYTES] {
    offload(Transport::Udp, is_ipv6, ip_len, header_len, segment)
}

fn offload(
    transport: Transport,
    is_ipv6: bool,
    ip_len: u16,
    header_len: u16,
    segment: Option<u16>,
) -> [u8; OFFLOAD_HEADER_BYTES] {
    let mut bytes = [0; OFFLOAD_HEADER_BYTES];
    let offset = match transport {
        Transport::Tcp => TCP_CHECKSUM_OFFSET,
        Transport::Udp => UDP_CHECKSUM_OFFSET,
    };
    let header = OffloadHeader {
        checksum: Some(PartialChecksum { start: ip_len, offset }),
        gso: segment.map(|segment| (transport, segment)),
    };
    header.emit(&mut bytes, is_ipv6, header_len);
    bytes
}
