//! Packets of one flow that follow each other leave as one super-packet: the device takes it with one system
//! call, and the receiver's kernel with one passage. They come one by one because a program sends each UDP
//! packet with a call of its own, or because the segments of TCP do not fit into the datagrams of a path.
//!
//! The rules are those of receive offload in Linux (`tcp_gro_receive`, `inet_gro_receive`): segmentation
//! restores the packets bit by bit, but for the identification of IPv4 packets with DF that all have the same
//! one. Without fragments it has no meaning (RFC 6864, section 4.1).

use bytes::{Buf, Bytes};
use wire::checksum;
use wire::ip::Protocol;
use wire::segmentation::{TCP_FLAGS_OF_ALL, TCP_FLAGS_OF_LAST, TCP_FLAGS_OFFSET, continues_ip, continues_tcp};

use crate::inner::{HEADERS_BYTES_MAX, Inner, Transport, set_payload_bytes};
use crate::unpacker::{Arrived, PARTS_MAX, Sink};

/// Segments of a UDP super-packet that every kernel takes (`UDP_MAX_SEGMENTS`, since raised to 128).
const UDP_SEGMENTS_MAX: usize = 64;

/// The largest IP packet, super-packets included.
const IP_BYTES_MAX: usize = 65_535;

/// Length of an IPv4 header without options.
const IPV4_HEADER_BYTES: usize = 20;

/// DF, in byte 6 of an IPv4 header (RFC 791, section 3.1).
const DO_NOT_FRAGMENT: u8 = 0x40;

/// Packets that are joined, so far.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) flow: u16,
    inner: Inner,
    transport: Transport,
    header_bytes: usize,
    is_partial: bool,
    /// The payload of each but the last.
    segment_bytes: usize,
    payload_bytes: usize,
    /// Whether all packets have the same identification (IPv4), once there are two.
    has_fixed_identification: bool,
    /// Flags of the last packet alone (TCP).
    flags_of_last: u8,
    /// No other may follow.
    pub(crate) is_complete: bool,
    /// The first packet, and the payload of each other one.
    parts: Vec<Bytes>,
}

impl Run {
    /// Whether others may follow this packet with these headers.
    pub(crate) fn may_begin(inner: &Inner, is_partial: bool, packet: &[u8]) -> bool {
        let Some((transport, header_bytes)) = inner.transport else { return false };
        let at = inner.ip_header_bytes;
        let may_follow = match transport {
            Transport::Udp => is_partial,
            // CWR is left to the packet that has it: super-packets with it need a mark of their own.
            Transport::Tcp => packet[at + TCP_FLAGS_OFFSET] & !TCP_FLAGS_OF_ALL == 0,
        };
        may_follow
            && packet.len() > header_bytes
            && (inner.is_ipv6() || at == IPV4_HEADER_BYTES)
            && has_ipv4_checksum(&packet[..at])
    }

    /// A run with a packet that [may begin](Self::may_begin) one. `parts` is its memory, empty.
    pub(crate) fn begin(flow: u16, is_partial: bool, inner: Inner, packet: Bytes, mut parts: Vec<Bytes>) -> Self {
        let (transport, header_bytes) = inner.transport.expect("it may begin a run");
        let segment_bytes = packet.len() - header_bytes;
        parts.push(packet);
        Self {
            flow,
            inner,
            transport,
            header_bytes,
            is_partial,
            segment_bytes,
            payload_bytes: segment_bytes,
            has_fixed_identification: false,
            flags_of_last: 0,
            is_complete: false,
            parts,
        }
    }

    /// Adds the next packet of the flow.
    ///
    /// # Errors
    /// The packet, if it does not continue the run.
    pub(crate) fn push(&mut self, is_partial: bool, mut packet: Bytes) -> Result<(), Bytes> {
        if is_partial != self.is_partial || !self.is_next(&packet) {
            return Err(packet);
        }
        if self.transport == Transport::Tcp {
            self.flags_of_last = packet[self.inner.ip_header_bytes + TCP_FLAGS_OFFSET] & TCP_FLAGS_OF_LAST;
        }
        self.has_fixed_identification = self.identification_step(&packet) == 0;
        packet.advance(self.header_bytes);
        self.is_complete = packet.len() < self.segment_bytes || self.flags_of_last != 0;
        self.payload_bytes += packet.len();
        self.parts.push(packet);
        Ok(())
    }

    /// Packets of the run.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of the packets.
    pub(crate) fn bytes(&self) -> usize {
        self.payload_bytes + self.len() * self.header_bytes
    }

    /// The headers of the first packet.
    pub(crate) const fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Delivers the packets in one, or the only one. Returns the memory of the run.
    pub(crate) fn deliver(mut self, sink: &mut impl Sink) -> Vec<Bytes> {
        let (inner, packets) = (self.inner, self.len());
        if packets == 1 {
            let (parts, is_partial) = (&self.parts, self.is_partial);
            sink.deliver(&Arrived { inner, headers: &[], parts, is_partial, segment: None, packets });
        } else {
            let mut headers = [0; HEADERS_BYTES_MAX];
            let headers = &mut headers[..self.header_bytes];
            headers.copy_from_slice(&self.parts[0][..self.header_bytes]);
            self.parts[0].advance(self.header_bytes);
            self.fit(headers);
            let segment = Some(self.segment_bytes as u16);
            sink.deliver(&Arrived { inner, headers, parts: &self.parts, is_partial: true, segment, packets });
        }
        self.drop_packets()
    }

    /// Drops the packets. Returns the memory of the run.
    pub(crate) fn drop_packets(mut self) -> Vec<Bytes> {
        self.parts.clear();
        self.parts
    }

    /// Changes the headers of the first packet to those of all.
    fn fit(&self, headers: &mut [u8]) {
        let at = self.inner.ip_header_bytes;
        if !self.is_partial {
            // All packets were verified.
            let field = at + self.transport.checksum_offset();
            let sum = self.pseudo_header(self.header_bytes + self.segment_bytes);
            headers[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        if self.transport == Transport::Tcp {
            headers[at + TCP_FLAGS_OFFSET] |= self.flags_of_last;
        }
        set_payload_bytes(headers, &self.inner, self.segment_bytes, self.payload_bytes);
    }

    /// Whether the packet is the one that segmentation gives after those of the run.
    fn is_next(&self, packet: &[u8]) -> bool {
        let (first, at, all) = (&self.parts[0][..], self.inner.ip_header_bytes, self.header_bytes);
        let payload_bytes = packet.len().saturating_sub(all);
        let (has_length, parts_max) = match self.transport {
            Transport::Udp => (payload_bytes == self.segment_bytes, UDP_SEGMENTS_MAX),
            Transport::Tcp => ((1..=self.segment_bytes).contains(&payload_bytes), PARTS_MAX),
        };
        has_length
            && self.parts.len() < parts_max
            && all + self.payload_bytes + payload_bytes <= IP_BYTES_MAX
            && Inner::whole_bytes(packet) == Some(packet.len())
            && continues_ip(&first[..at], &packet[..at], self.identification_step(packet))
            && has_ipv4_checksum(&packet[..at])
            && match self.transport {
                // The length is in them, and with it the sum of the pseudo-header.
                Transport::Udp => first[at..all] == packet[at..all],
                Transport::Tcp => {
                    continues_tcp(&first[at..all], &packet[at..all], self.payload_bytes as u32)
                        && self.has_tcp_checksum(packet)
                }
            }
    }

    /// By how much the identification (IPv4) of the next packet, which may be this one, exceeds the first's.
    fn identification_step(&self, packet: &[u8]) -> u16 {
        let first = &self.parts[0];
        let is_fixed = match self.parts.len() {
            1 => first[6] & DO_NOT_FRAGMENT != 0 && first[4..6] == packet[4..6],
            _ => self.has_fixed_identification,
        };
        if is_fixed { 0 } else { self.parts.len() as u16 }
    }

    /// Whether the checksum of a packet is right if it is complete; or if it is partial, whether it differs
    /// from the first's by the length alone.
    fn has_tcp_checksum(&self, packet: &[u8]) -> bool {
        let first = &self.parts[0];
        if !self.is_partial {
            let is_first_right = self.parts.len() > 1 || self.is_right(first);
            return is_first_right && self.is_right(packet);
        }
        let field = self.inner.ip_header_bytes + self.transport.checksum_offset();
        let sum = |packet: &[u8]| u16::from_be_bytes([packet[field], packet[field + 1]]);
        let length = |bytes: usize| (bytes - self.inner.ip_header_bytes) as u16;
        let first_bytes = self.header_bytes + self.segment_bytes;
        checksum::replace(sum(first), length(first_bytes), length(packet.len())) == sum(packet)
    }

    /// Whether the complete checksum of a packet is right. Linear in its length: the host that takes the packet
    /// verifies it if this does not.
    fn is_right(&self, packet: &[u8]) -> bool {
        checksum::sum(&packet[self.inner.ip_header_bytes..], self.pseudo_header(packet.len())) == 0xffff
    }

    /// The sum of the pseudo-header of a packet with so many bytes.
    fn pseudo_header(&self, bytes: usize) -> u16 {
        let Inner { source, destination, protocol, ip_header_bytes, .. } = self.inner;
        checksum::pseudo_header(source, destination, Protocol(protocol), (bytes - ip_header_bytes) as u32)
    }
}

/// Whether the checksum of an IPv4 header is right; IPv6 has none. A new one is made for packets that are joined,
/// which must not repair it.
fn has_ipv4_checksum(header: &[u8]) -> bool {
    header[0] >> 4 == 6 || checksum::sum(header, 0) == 0xffff
}

#[cfg(test)]
mod tests;
