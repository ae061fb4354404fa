//! Coalescing of consecutive segments into a super-packet, as done by receive offload (GRO).
//!
//! The result is strict: [segmentation](super::Segments) of the super-packet restores the packets
//! bit by bit. This does not read the payload, because partial checksums stay partial; packets with
//! a complete checksum are never coalesced.

use wire::checksum;
use wire::segmentation::{
    TCP_FLAG_OF_FIRST, TCP_FLAGS_OF_ALL, TCP_FLAGS_OF_LAST, TCP_FLAGS_OFFSET, continues_ip, continues_tcp,
};

use super::header::{
    OFFLOAD_HEADER_BYTES, OffloadHeader, PartialChecksum, TCP_CHECKSUM_OFFSET, Transport, UDP_CHECKSUM_OFFSET,
};
use super::packet::TunPacket;
use super::segment::{UDP_HEADER_BYTES, get, put};

/// Number of segments per UDP super-packet that every kernel accepts (`UDP_MAX_SEGMENTS`, since
/// raised to 128).
const UDP_SEGMENTS_MAX: usize = 64;

/// Size of the largest IP packet, including super-packets.
const IP_BYTES_MAX: usize = 65_535;

/// Coalesces packets into one super-packet.
#[derive(Debug, Default)]
pub struct Coalescer {
    /// Offload header, headers of the first packet, and all payloads.
    buffer: Vec<u8>,
    segments: usize,
    /// State for further segments; `None` if no more can be added.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    layout: HeaderLayout,
    /// Payload bytes per segment.
    segment_bytes: usize,
}

/// Header offsets of a packet with a partial TCP or UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeaderLayout {
    transport: Transport,
    is_ipv6: bool,
    /// Offset of the transport header.
    at: usize,
    /// Length of all headers.
    header_bytes: usize,
}

impl Coalescer {
    /// Creates an empty coalescer. It reuses its memory from packet to packet.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), segments: 0, open: None }
    }

    /// Adds the packet as the next segment; returns false if that is not possible. The first packet
    /// is always accepted.
    pub fn push(&mut self, packet: &TunPacket) -> bool {
        let layout = HeaderLayout::of(packet);
        let ip = packet.ip();
        if self.segments == 0 {
            self.buffer.clear();
            self.buffer.extend_from_slice(packet.as_bytes());
            self.segments = 1;
            self.open = layout
                .filter(|layout| ip.len() > layout.header_bytes && layout.may_continue(ip))
                .map(|layout| Open { layout, segment_bytes: ip.len() - layout.header_bytes });
            return true;
        }
        let (Some(open), Some(layout)) = (self.open, layout) else { return false };
        let payload = &ip[layout.header_bytes.min(ip.len())..];
        let whole = &self.buffer[OFFLOAD_HEADER_BYTES..];
        let fits = !payload.is_empty()
            && payload.len() <= open.segment_bytes
            && whole.len() + payload.len() <= IP_BYTES_MAX
            && (layout.transport == Transport::Tcp || self.segments < UDP_SEGMENTS_MAX)
            && layout == open.layout
            && layout.continues(whole, ip, self.segments);
        if !fits {
            return false;
        }
        let is_last = payload.len() < open.segment_bytes || !layout.may_continue(ip);
        self.buffer.extend_from_slice(payload);
        if layout.transport == Transport::Tcp {
            // The super-packet has the FIN and PSH flags of its last segment.
            let at = layout.at + TCP_FLAGS_OFFSET;
            self.buffer[OFFLOAD_HEADER_BYTES + at] |= ip[at] & TCP_FLAGS_OF_LAST;
        }
        self.segments += 1;
        if is_last {
            self.close();
        }
        true
    }

    /// Returns the number of packets in the super-packet.
    #[must_use]
    pub const fn segments(&self) -> usize {
        self.segments
    }

    /// Returns the super-packet in the form that [`TunDevice::write`](super::TunDevice::write)
    /// accepts. The next packet starts a new one.
    #[must_use]
    pub fn take(&mut self) -> &[u8] {
        self.close();
        self.segments = 0;
        &self.buffer
    }

    /// Ends the super-packet: adjusts its headers to its total length.
    fn close(&mut self) {
        let Some(Open { layout, segment_bytes }) = self.open.take().filter(|_| self.segments > 1) else { return };
        let (offload, ip) = self.buffer.split_at_mut(OFFLOAD_HEADER_BYTES);
        let bytes = ip.len();
        let (network, transport) = ip.split_at_mut(layout.at);
        if layout.is_ipv6 {
            put(network, 4, (bytes - 40) as u16);
        } else {
            put(network, 2, bytes as u16);
            checksum::fill_ipv4(network);
        }
        let (old_length, length) =
            ((layout.header_bytes - layout.at + segment_bytes) as u16, (bytes - layout.at) as u16);
        let field = usize::from(layout.checksum_offset());
        if layout.transport == Transport::Udp {
            put(transport, 4, length);
        }
        let sum = get(transport, field);
        put(transport, field, checksum::replace(sum, old_length, length));
        let checksum = Some(PartialChecksum { start: layout.at as u16, offset: layout.checksum_offset() });
        let header = OffloadHeader { checksum, gso: Some((layout.transport, segment_bytes as u16)) };
        header.emit(offload, layout.is_ipv6, layout.header_bytes as u16);
    }
}

impl HeaderLayout {
    /// Returns the layout of a packet; `None` for packets that are never coalesced.
    fn of(packet: &TunPacket) -> Option<Self> {
        let PartialChecksum { start, offset } = OffloadHeader::parse(packet.as_bytes()).ok()?.checksum?;
        let (ip, at) = (packet.ip(), usize::from(start));
        let (is_ipv6, protocol, is_fragment) = match ip.first()? {
            0x40..0x50 if (20..=60).contains(&at) => (false, *ip.get(9)?, get(ip.get(6..8)?, 0) & 0x3fff != 0),
            // Accept only packets without extension headers, so that this field gives the transport
            // protocol.
            0x60..0x70 if at == 40 => (true, *ip.get(6)?, false),
            _ => return None,
        };
        let transport = match (protocol, offset) {
            (6, TCP_CHECKSUM_OFFSET) => Transport::Tcp,
            (17, UDP_CHECKSUM_OFFSET) => Transport::Udp,
            _ => return None,
        };
        let header_bytes = at
            + match transport {
                Transport::Udp => UDP_HEADER_BYTES,
                Transport::Tcp => usize::from(ip.get(at + 12)? >> 4) * 4,
            };
        let smallest = at + if transport == Transport::Tcp { 20 } else { UDP_HEADER_BYTES };
        // With wrong lengths, or bytes after the packet, segmentation would not restore the packet.
        let has_length = match is_ipv6 {
            true => usize::from(get(ip, 4)) + 40 == ip.len(),
            false => usize::from(get(ip, 2)) == ip.len() && usize::from(ip[0] & 0x0f) * 4 == at,
        };
        let is_whole = ip.len() >= header_bytes && header_bytes >= smallest && has_length && !is_fragment;
        let has_udp_length = transport == Transport::Tcp || is_whole && usize::from(get(ip, at + 4)) == ip.len() - at;
        let has_ipv4_checksum = is_ipv6 || is_whole && checksum::sum(&ip[..at], 0) == 0xffff;
        // A checksum over non-zero data is never zero, so its encoding is unique.
        let has_sum = is_whole && get(ip, at + usize::from(offset)) != 0;
        (has_sum && has_udp_length && has_ipv4_checksum).then_some(Self { transport, is_ipv6, at, header_bytes })
    }

    const fn checksum_offset(&self) -> u16 {
        match self.transport {
            Transport::Tcp => TCP_CHECKSUM_OFFSET,
            Transport::Udp => UDP_CHECKSUM_OFFSET,
        }
    }

    /// Returns whether another segment may follow `ip`.
    fn may_continue(&self, ip: &[u8]) -> bool {
        self.transport == Transport::Udp
            || ip[self.at + TCP_FLAGS_OFFSET] & !(TCP_FLAGS_OF_ALL | TCP_FLAG_OF_FIRST) == 0
    }

    /// Returns whether `ip`, of the same layout, is the segment that segmentation would produce
    /// after `whole`, which holds `segments`.
    fn continues(&self, whole: &[u8], ip: &[u8], segments: usize) -> bool {
        let (at, all) = (self.at, self.header_bytes);
        continues_ip(&whole[..at], &ip[..at], segments as u16)
            && self.checksum_continues(whole, ip)
            && match self.transport {
                Transport::Udp => whole[at..at + 4] == ip[at..at + 4],
                Transport::Tcp => continues_tcp(&whole[at..all], &ip[at..all], (whole.len() - all) as u32),
            }
    }

    /// Returns whether both checksums differ by the lengths alone. `whole` still has the headers of
    /// the first packet.
    fn checksum_continues(&self, whole: &[u8], ip: &[u8]) -> bool {
        let field = self.at + usize::from(self.checksum_offset());
        let first_length = if self.is_ipv6 { get(whole, 4) + 40 } else { get(whole, 2) } - self.at as u16;
        let length = (ip.len() - self.at) as u16;
        checksum::replace(get(whole, field), first_length, length) == get(ip, field)
    }
}

#[cfg(test)]
mod tests;
