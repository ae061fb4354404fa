//! [`Plan`]: one segment to send, or several that differ only in sequence number; and
//! [`SuperPacket`]: its bytes.

use bytes::Bytes;
use units::{Ecn, Seq32};
use wire::ip::Protocol;
use wire::tcp::Flags;
use wire::{checksum, ip, tcp};

use crate::md5::Md5Key;
use crate::tuple::Tuple;

/// Time to live of our packets (RFC 1700).
pub(crate) const HOP_LIMIT: u8 = 64;

/// Length limit of IP packets (RFC 791, section 3.1), and of those with TCP over IPv6 here:
/// jumbograms (RFC 2675) have no use on the devices of a host.
pub(crate) const IP_PACKET_MAX: usize = 65_535;

/// Data limit of a plan of several segments, in bytes: it fits into an IP packet with all headers.
/// A single segment with shorter headers may have more, so that it always fits into a plan.
pub const PLAN_BYTES_MAX: usize = IP_PACKET_MAX - 60 - 60;

/// Data up to this length are copied, which is cheaper than a reference.
const COPIED_BYTES_MAX: usize = 2048;

/// Data in more pieces are copied, too: each piece is an entry in the system call.
const PIECES_MAX: usize = 16;

/// Segments to send. It shares no state with its connection, so any processor can
/// [seal](Self::seal) it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) tuple: Tuple,
    pub(crate) header: tcp::Header,
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) data_len: usize,
    /// Bytes of data in each segment but the last.
    pub(crate) segment: usize,
    /// Differentiated services code point (RFC 2474): six bits.
    pub(crate) dscp: u8,
    pub(crate) ecn: Option<Ecn>,
    /// The send half's number of this plan.
    pub(crate) transmission: Option<u64>,
    /// Key of the digest that each segment carries (RFC 2385).
    pub(crate) md5: Option<Md5Key>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            tuple: Tuple::UNSPECIFIED,
            header: tcp::Header::default(),
            pieces: Vec::new(),
            data_len: 0,
            segment: 1,
            dscp: 0,
            ecn: None,
            transmission: None,
            md5: None,
        }
    }
}

impl Plan {
    /// Returns the addresses and ports of the connection.
    pub const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> usize {
        self.data_len.div_ceil(self.segment).max(1)
    }

    /// Returns the number of bytes of data in all segments.
    pub const fn data_len(&self) -> usize {
        self.data_len
    }

    /// Returns the send half's number of this plan: the argument of
    /// [`Connection::handle_emitted`](crate::Connection::handle_emitted). Returns `None` if the
    /// plan takes no sequence numbers.
    pub const fn transmission(&self) -> Option<u64> {
        self.transmission
    }

    /// Makes each segment carry a digest with this key (RFC 2385).
    pub fn sign(&mut self, key: Option<&Md5Key>) {
        self.md5 = key.cloned();
    }

    /// Drops the references to the data.
    pub fn release(&mut self) {
        self.pieces.clear();
        (self.data_len, self.transmission) = (0, None);
    }

    /// Writes the packet. Deterministic: the same plan gives the same bytes on any processor.
    pub fn seal(&self, out: &mut SuperPacket) {
        // No device computes digests.
        if self.md5.is_some() {
            return self.seal_packets(None, out);
        }
        self.write_headers(out);
        self.pieces.iter().for_each(|piece| out.bytes.extend_from_slice(piece));
        debug_assert_eq!(out.bytes.len() - out.header_len, self.data_len);
    }

    /// Does the same as [`seal`](Self::seal), but refers to large data instead of copying them: the
    /// packet is [`SuperPacket::bytes`] followed by [`SuperPacket::data`].
    pub fn seal_shared(&self, out: &mut SuperPacket) {
        if self.md5.is_some() || self.data_len <= COPIED_BYTES_MAX || self.pieces.len() > PIECES_MAX {
            return self.seal(out);
        }
        self.write_headers(out);
        out.data.extend_from_slice(&self.pieces);
    }

    /// Writes the headers of a packet whose checksum is completed later.
    fn write_headers(&self, out: &mut SuperPacket) {
        let header = self.ip_header(Protocol::TCP);
        let segment_len = self.header.len() + self.data_len;
        out.clear();
        header.emit(segment_len, &mut out.bytes);
        out.ip_len = out.bytes.len();
        self.header.emit(&mut out.bytes);
        out.header_len = out.bytes.len();
        debug_assert_eq!(out.header_len - out.ip_len, self.header.len());
        (out.segment, out.is_checksum_partial) = (self.segment, true);
        let pseudo = checksum::pseudo_header(header.source, header.destination, header.protocol, segment_len as u32);
        tcp::fill_partial_checksum(&mut out.bytes[out.ip_len..], pseudo);
    }

    /// Does the same as [`seal`](Self::seal), but writes the packet of each segment with its
    /// checksum, one after the other. `below` is a header between IP and TCP.
    pub fn seal_packets(&self, below: Option<&dyn HeaderBelow>, out: &mut SuperPacket) {
        let ip = self.ip_header(below.map_or(Protocol::TCP, HeaderBelow::protocol));
        let below_len = below.map_or(0, HeaderBelow::header_len);
        let mut header = self.header;
        header.options.md5 = self.md5.as_ref().map(|_| [0; 16]);
        let (ip_len, tcp_len, count) = (ip.len(), header.len(), self.segment_count());
        let mut data = Pieces { first: &[], rest: self.pieces.iter() };
        out.clear();
        for index in 0..count {
            let start = index * self.segment;
            let len = self.segment.min(self.data_len - start);
            header.seq = self.header.seq + start as u32;
            header.flags = flags_of_part(self.header.flags, index == 0, index + 1 == count);
            let from = out.bytes.len();
            ip.emit(below_len + tcp_len + len, &mut out.bytes);
            out.bytes.resize(from + ip_len + below_len, 0);
            header.emit(&mut out.bytes);
            data.copy(len, &mut out.bytes);
            let packet = &mut out.bytes[from..];
            if let Some(key) = &self.md5 {
                write_digest(key, &self.tuple, &mut header, &mut packet[ip_len + below_len..]);
            }
            let pseudo = checksum::pseudo_header(ip.source, ip.destination, Protocol::TCP, (tcp_len + len) as u32);
            tcp::fill_checksum(&mut packet[ip_len + below_len..], pseudo);
            if let Some(below) = below {
                below.fill(packet, ip_len);
            }
        }
        (out.ip_len, out.header_len) = (ip_len, ip_len + below_len + tcp_len);
        (out.segment, out.is_checksum_partial) = (self.segment, false);
        out.stride = out.header_len + self.segment.min(self.data_len);
    }

    fn ip_header(&self, protocol: Protocol) -> ip::Header {
        ip::Header {
            source: self.tuple.local.ip(),
            destination: self.tuple.remote.ip(),
            protocol,
            hop_limit: HOP_LIMIT,
            dscp: self.dscp,
            ecn: self.ecn,
            id: 0,
            // Oversized packets are reported (RFC 1191, RFC 8201).
            may_fragment: false,
        }
    }
}

/// Fills in the digest of a segment; the previous content of the option is ignored.
fn write_digest(key: &Md5Key, tuple: &Tuple, header: &mut tcp::Header, segment: &mut [u8]) {
    let (head, data) = segment.split_at_mut(header.len());
    let first = head.first_chunk().expect("a header has 20 bytes");
    header.options.md5 = Some(key.digest(tuple, first, head.len() - tcp::HEADER_LEN, data));
    let mut again = Vec::with_capacity(head.len());
    header.emit(&mut again);
    head.copy_from_slice(&again);
}

/// A header between IP and TCP.
pub trait HeaderBelow {
    /// Returns its protocol number.
    fn protocol(&self) -> Protocol;

    /// Returns its length in bytes.
    fn header_len(&self) -> usize;

    /// Fills in the header at `ip_len` in a packet that is complete otherwise.
    fn fill(&self, packet: &mut [u8], ip_len: usize);
}

/// Data pieces not copied yet.
struct Pieces<'a> {
    first: &'a [u8],
    rest: std::slice::Iter<'a, Bytes>,
}

impl Pieces<'_> {
    /// Appends the next `len` bytes.
    fn copy(&mut self, mut len: usize, out: &mut Vec<u8>) {
        while len > 0 {
            if self.first.is_empty() {
                self.first = self.rest.next().expect("a plan has all of its data");
            }
            let (part, left) = self.first.split_at(self.first.len().min(len));
            out.extend_from_slice(part);
            (self.first, len) = (left, len - part.len());
        }
    }
}

/// An IP packet of up to 64 KiB that stands for several segments; a device, or
/// [`packets`](Self::packets), splits it. With a partial checksum, the checksum field holds the sum
/// of the pseudo-header, as devices expect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuperPacket {
    /// The packet without [`data`](Self::data).
    pub bytes: Vec<u8>,
    /// Data pieces by reference; empty if `bytes` holds everything. Otherwise `bytes` holds the
    /// headers only.
    pub data: Vec<Bytes>,
    /// Length of the IP header, which the TCP header follows.
    pub ip_len: usize,
    /// Length of all headers.
    pub header_len: usize,
    /// Bytes of data in each segment but the last.
    pub segment: usize,
    /// Whether the checksum must be completed. Otherwise it is complete, and `bytes` holds single
    /// packets.
    pub is_checksum_partial: bool,
    /// Length of each packet if `bytes` holds several complete ones; the last may be shorter. Zero
    /// for a single packet.
    pub stride: usize,
}

impl SuperPacket {
    /// Limit on the number of [`parts`](Self::parts) of a packet.
    pub const PARTS_MAX: usize = 1 + PIECES_MAX;

    /// Drops the contents and the references to data, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.data.clear();
        (self.ip_len, self.header_len, self.segment, self.stride) = (0, 0, 0, 0);
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.data.iter().map(Bytes::len).sum::<usize>()
    }

    /// Returns whether there are no contents.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the pieces of the packet, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> + Clone {
        std::iter::once(&self.bytes[..]).chain(self.data.iter().map(|piece| &piece[..]))
    }

    /// Returns whether the packet is a single segment.
    pub fn is_single(&self) -> bool {
        self.packet_count() == 1
    }

    /// Returns the number of packets that this one stands for.
    pub fn packet_count(&self) -> usize {
        match self.stride {
            0 => self.len().saturating_sub(self.header_len).div_ceil(self.segment.max(1)).max(1),
            stride => self.bytes.len().div_ceil(stride),
        }
    }

    /// Returns whether it is an IPv6 packet.
    pub fn is_ipv6(&self) -> bool {
        self.bytes.first().is_some_and(|first| first >> 4 == 6)
    }

    /// Calls `each` with the packet of each segment, checksum included.
    pub fn packets(&self, mut each: impl FnMut(&[u8])) {
        if !self.is_checksum_partial {
            let stride = if self.stride == 0 { self.bytes.len().max(1) } else { self.stride };
            return self.bytes.chunks(stride).for_each(each);
        }
        let (headers, first) = self.bytes.split_at(self.header_len);
        let (data_len, mut data) = (self.len() - self.header_len, Pieces { first, rest: self.data.iter() });
        // Parsed like a quoted packet, because the data may be elsewhere.
        let Ok(whole) = ip::Packet::parse_quoted(headers) else { return };
        let Ok((mut header, _)) = tcp::Header::parse(&headers[self.ip_len..]) else { return };
        let (first_seq, flags) = (header.seq, header.flags);
        let count = data_len.div_ceil(self.segment).max(1);
        let mut packet = Vec::with_capacity(self.header_len + self.segment.min(data_len));
        for index in 0..count {
            let at = index * self.segment;
            let part_len = self.segment.min(data_len - at);
            header.seq = first_seq + at as u32;
            header.flags = flags_of_part(flags, index == 0, index + 1 == count);
            let ip = ip::Header {
                source: whole.source,
                destination: whole.destination,
                protocol: whole.protocol,
                hop_limit: whole.hop_limit,
                dscp: whole.dscp,
                ecn: whole.ecn,
                id: 0,
                may_fragment: whole.may_fragment,
            };
            packet.clear();
            ip.emit(header.len() + part_len, &mut packet);
            header.emit(&mut packet);
            data.copy(part_len, &mut packet);
            let segment_len = (packet.len() - self.ip_len) as u32;
            let pseudo = checksum::pseudo_header(whole.source, whole.destination, whole.protocol, segment_len);
            tcp::fill_checksum(&mut packet[self.ip_len..], pseudo);
            each(&packet);
        }
    }
}

/// Returns the flags of one segment of several: the end of the data is flagged in the last one, a
/// reduced window in the first.
fn flags_of_part(flags: Flags, is_first: bool, is_last: bool) -> Flags {
    let mut part = flags;
    if !is_last {
        part = part.without(Flags::FIN | Flags::PSH);
    }
    if !is_first {
        part = part.without(Flags::CWR);
    }
    part
}

impl Plan {
    /// Returns the sequence number of the first segment.
    pub const fn seq(&self) -> Seq32 {
        self.header.seq
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn plan(local: &str, remote: &str, pieces: &[usize]) -> Plan {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut next = 0_u8;
        let piece = |len: &usize| {
            (0..*len).map(|_| (next, next = next.wrapping_mul(5).wrapping_add(7)).0).collect::<Vec<u8>>().into()
        };
        let pieces: Vec<Bytes> = pieces.iter().map(piece).collect();
        let flags = Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR;
        Plan {
            tuple: Tuple { local: address(local), remote: address(remote) },
            header: tcp::Header { flags, seq: Seq32::new(u32::MAX - 1000), ..tcp::Header::default() },
            data_len: pieces.iter().map(Bytes::len).sum(),
            pieces,
            segment: 1448,
            ..Plan::default()
        }
    }

    fn packets_of(packet: &SuperPacket) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        packet.packets(|packet| all.push(packet.to_vec()));
        all
    }

    const V4: [&str; 2] = ["10.0.0.1:80", "10.0.0.2:5000"];
    const V6: [&str; 2] = ["[fd00::1]:80", "[fd00::2]:5000"];

    #[test]
    fn references_to_data_and_copies_are_the_same_packets() {
        for [local, remote] in [V4, V6] {
            for pieces in [&[1][..], &[1448, 1448], &[1000, 1, 2500], &[65_000], &[3000; PIECES_MAX]] {
                let plan = plan(local, remote, pieces);
                let (mut copied, mut shared, mut cut) = Default::default();
                plan.seal(&mut copied);
                plan.seal_shared(&mut shared);
                plan.seal_packets(None, &mut cut);
                assert_eq!(shared.parts().collect::<Vec<_>>().concat(), copied.bytes);
                assert_eq!((shared.len(), shared.packet_count()), (copied.len(), copied.packet_count()));
                assert_eq!(packets_of(&shared), packets_of(&copied));
                assert_eq!(packets_of(&cut), packets_of(&copied));
                assert_eq!(packets_of(&cut).len(), plan.segment_count());
            }
        }
    }

    #[test]
    fn only_large_data_in_few_pieces_are_referred_to() {
        let is_shared = |pieces: &[usize]| {
            let mut packet = SuperPacket::default();
            plan(V4[0], V4[1], pieces).seal_shared(&mut packet);
            assert!(packet.parts().count() <= SuperPacket::PARTS_MAX);
            !packet.data.is_empty()
        };
        assert!(is_shared(&[COPIED_BYTES_MAX + 1]) && is_shared(&[1000; PIECES_MAX]));
        assert!(!is_shared(&[COPIED_BYTES_MAX]) && !is_shared(&[1000; PIECES_MAX + 1]));
    }

    #[test]
    fn a_cleared_packet_has_no_reference_to_data() {
        let plan = plan(V4[0], V4[1], &[9000]);
        let mut packet = SuperPacket::default();
        plan.seal_shared(&mut packet);
        assert!(!plan.pieces[0].is_unique());
        packet.clear();
        assert!(plan.pieces[0].is_unique() && packet.is_empty());
    }
}
