//! Joining segments that follow each other into a super-packet, as receive offload (GRO) does.
//!
//! Strict: what is joined comes out the same, bit by bit, when it is [cut](super::Cut). That needs no look at the payload,
//! because checksums that are unfinished stay so; packets whose checksum is finished are never joined.

use super::checksum;
use super::cut::{TCP_FLAG_OF_FIRST, TCP_FLAGS_OF_LAST, UDP_HEADER_BYTES, get, put};
use super::header::{
    OFFLOAD_HEADER_BYTES, OffloadHeader, TCP_CHECKSUM_OFFSET, Transport, UDP_CHECKSUM_OFFSET, Unfinished,
};
use super::packet::TunPacket;

/// Segments of one UDP super-packet that every kernel takes (`UDP_MAX_SEGMENTS`, since raised to 128).
const UDP_SEGMENTS_MAX: usize = 64;

/// The largest IP packet, super-packets included.
const IP_BYTES_MAX: usize = 65_535;

/// TCP flags that a segment in the middle may have: ACK and ECE.
const TCP_FLAGS_OF_ALL: u8 = 0x10 | 0x40;

/// Packets that become one.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The offload header, the headers of the first packet, all payloads.
    buffer: Vec<u8>,
    segments: usize,
    /// How more can join; `None` if nothing can.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    shape: Shape,
    /// Payload of each.
    segment_bytes: usize,
}

/// Where things are in a packet with an unfinished checksum of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    transport: Transport,
    is_ipv6: bool,
    /// Where the transport header begins.
    at: usize,
    /// All headers together.
    header_bytes: usize,
}

impl Joiner {
    /// An empty one. It keeps its memory from packet to packet.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), segments: 0, open: None }
    }

    /// Takes the packet as the next segment; false if it cannot be. The first packet is always taken.
    pub fn push(&mut self, packet: &TunPacket) -> bool {
        let shape = Shape::of(packet);
        let ip = packet.ip();
        if self.segments == 0 {
            self.buffer.clear();
            self.buffer.extend_from_slice(packet.as_bytes());
            self.segments = 1;
            self.open = shape
                .filter(|shape| ip.len() > shape.header_bytes && shape.may_be_followed(ip))
                .map(|shape| Open { shape, segment_bytes: ip.len() - shape.header_bytes });
            return true;
        }
        let (Some(open), Some(shape)) = (self.open, shape) else { return false };
        let payload = &ip[shape.header_bytes.min(ip.len())..];
        let whole = &self.buffer[OFFLOAD_HEADER_BYTES..];
        let fits = !payload.is_empty()
            && payload.len() <= open.segment_bytes
            && whole.len() + payload.len() <= IP_BYTES_MAX
            && (shape.transport == Transport::Tcp || self.segments < UDP_SEGMENTS_MAX)
            && shape == open.shape
            && shape.follows(whole, ip, self.segments);
        if !fits {
            return false;
        }
        let is_last = payload.len() < open.segment_bytes || !shape.may_be_followed(ip);
        self.buffer.extend_from_slice(payload);
        if shape.transport == Transport::Tcp {
            // The end of what is sent is the end of the last one.
            self.buffer[OFFLOAD_HEADER_BYTES + shape.at + 13] |= ip[shape.at + 13] & TCP_FLAGS_OF_LAST;
        }
        self.segments += 1;
        if is_last {
            self.close();
        }
        true
    }

    /// How many packets it holds.
    #[must_use]
    pub const fn segments(&self) -> usize {
        self.segments
    }

    /// What it holds, as [`TunDevice::write`](super::TunDevice::write) takes it, and starts anew with the next packet.
    #[must_use]
    pub fn take(&mut self) -> &[u8] {
        self.close();
        self.segments = 0;
        &self.buffer
    }

    /// Nothing can join any more: the headers are made those of the whole.
    fn close(&mut self) {
        let Some(Open { shape, segment_bytes }) = self.open.take().filter(|_| self.segments > 1) else { return };
        let (offload, ip) = self.buffer.split_at_mut(OFFLOAD_HEADER_BYTES);
        let bytes = ip.len();
        let (network, transport) = ip.split_at_mut(shape.at);
        if shape.is_ipv6 {
            put(network, 4, (bytes - 40) as u16);
        } else {
            put(network, 2, bytes as u16);
            checksum::fill_ipv4(network);
        }
        let (old_length, length) = ((shape.header_bytes - shape.at + segment_bytes) as u16, (bytes - shape.at) as u16);
        let field = usize::from(shape.checksum_offset());
        if shape.transport == Transport::Udp {
            put(transport, 4, length);
        }
        let sum = get(transport, field);
        put(transport, field, checksum::replace(sum, old_length, length));
        let checksum = Some(Unfinished { start: shape.at as u16, offset: shape.checksum_offset() });
        let header = OffloadHeader { checksum, cut: Some((shape.transport, segment_bytes as u16)) };
        header.emit(offload, shape.is_ipv6, shape.header_bytes as u16);
    }
}

impl Shape {
    /// `None` for packets that are never joined.
    fn of(packet: &TunPacket) -> Option<Self> {
        let Unfinished { start, offset } = OffloadHeader::parse(packet.as_bytes()).ok()?.checksum?;
        let (ip, at) = (packet.ip(), usize::from(start));
        let (is_ipv6, protocol, is_fragment) = match ip.first()? {
            0x40..0x50 if (20..=60).contains(&at) => (false, *ip.get(9)?, get(ip.get(6..8)?, 0) & 0x3fff != 0),
            // Only without extension headers, so that this says what follows.
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
        // Lengths that lie, or bytes behind the packet, would not come out the same.
        let has_length = match is_ipv6 {
            true => usize::from(get(ip, 4)) + 40 == ip.len(),
            false => usize::from(get(ip, 2)) == ip.len() && usize::from(ip[0] & 0x0f) * 4 == at,
        };
        let is_whole = ip.len() >= header_bytes && header_bytes >= smallest && has_length && !is_fragment;
        let has_udp_length = transport == Transport::Tcp || is_whole && usize::from(get(ip, at + 4)) == ip.len() - at;
        let has_ipv4_checksum = is_ipv6 || is_whole && checksum::sum(&ip[..at], 0) == 0xffff;
        // A sum of anything but zeros is never zero, and only then is there one way to write it.
        let has_sum = is_whole && get(ip, at + usize::from(offset)) != 0;
        (has_sum && has_udp_length && has_ipv4_checksum).then_some(Self { transport, is_ipv6, at, header_bytes })
    }

    const fn checksum_offset(&self) -> u16 {
        match self.transport {
            Transport::Tcp => TCP_CHECKSUM_OFFSET,
            Transport::Udp => UDP_CHECKSUM_OFFSET,
        }
    }

    /// Whether another segment may come behind `ip`.
    fn may_be_followed(&self, ip: &[u8]) -> bool {
        self.transport == Transport::Udp || ip[self.at + 13] & !(TCP_FLAGS_OF_ALL | TCP_FLAG_OF_FIRST) == 0
    }

    /// Whether `ip`, of the same shape, is what a cut would put behind `whole`, which holds `segments`.
    fn follows(&self, whole: &[u8], ip: &[u8], segments: usize) -> bool {
        let at = self.at;
        let network_is_same = if self.is_ipv6 {
            whole[..4] == ip[..4] && whole[6..at] == ip[6..at]
        } else {
            let identification = get(whole, 4).wrapping_add(segments as u16);
            whole[..2] == ip[..2]
                && get(ip, 4) == identification
                && whole[6..10] == ip[6..10]
                && whole[12..at] == ip[12..at]
        };
        network_is_same
            && self.checksum_follows(whole, ip)
            && match self.transport {
                Transport::Udp => whole[at..at + 4] == ip[at..at + 4],
                Transport::Tcp => {
                    let sequence = |ip: &[u8]| u32::from_be_bytes([ip[at + 4], ip[at + 5], ip[at + 6], ip[at + 7]]);
                    let sent = (whole.len() - self.header_bytes) as u32;
                    let (first_flags, flags) = (whole[at + 13], ip[at + 13]);
                    whole[at..at + 4] == ip[at..at + 4]
                        && sequence(ip) == sequence(whole).wrapping_add(sent)
                        && whole[at + 8..at + 13] == ip[at + 8..at + 13]
                        && first_flags & !TCP_FLAG_OF_FIRST == flags & !TCP_FLAGS_OF_LAST
                        && whole[at + 14..at + 16] == ip[at + 14..at + 16]
                        && whole[at + 18..self.header_bytes] == ip[at + 18..self.header_bytes]
                }
            }
    }

    /// Whether both checksums differ by the lengths alone. `whole` still has the headers of the first packet.
    fn checksum_follows(&self, whole: &[u8], ip: &[u8]) -> bool {
        let field = self.at + usize::from(self.checksum_offset());
        let first_length = if self.is_ipv6 { get(whole, 4) + 40 } else { get(whole, 2) } - self.at as u16;
        let length = (ip.len() - self.at) as u16;
        checksum::replace(get(whole, field), first_length, length) == get(ip, field)
    }
}

#[cfg(test)]
mod tests;
