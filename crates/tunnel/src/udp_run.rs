//! UDP packets of one flow and length that follow each other leave as one super-packet: the device takes it
//! with one system call, and the receiver's kernel with one passage. A sender gives each with a call of its
//! own, unless it uses UDP_SEGMENT.
//!
//! Segmentation restores the packets bit by bit.

use bytes::{Buf, Bytes};

use crate::inner::{HEADERS_BYTES_MAX, Inner, Transport, set_payload_bytes};
use crate::unpacker::Arrived;

/// Segments of a super-packet that every kernel takes (`UDP_MAX_SEGMENTS`, since raised to 128).
const SEGMENTS_MAX: usize = 64;

/// The largest IP packet, super-packets included.
const IP_BYTES_MAX: usize = 65_535;

/// Packets that are joined, so far.
#[derive(Debug)]
pub(crate) struct UdpRun {
    flow: u16,
    first: Bytes,
    inner: Inner,
    header_bytes: usize,
    /// The identification of the last one (IPv4).
    identification: [u8; 2],
    /// The payload of each.
    parts: Vec<Bytes>,
}

/// Several packets in one.
#[derive(Debug)]
pub(crate) struct Joined {
    headers: [u8; HEADERS_BYTES_MAX],
    header_bytes: usize,
    pub(crate) inner: Inner,
    segment: u16,
    pub(crate) parts: Vec<Bytes>,
}

impl UdpRun {
    /// A run with this packet, which has a partial checksum. None if it is not of UDP.
    pub(crate) fn begin(flow: u16, packet: &Bytes) -> Option<Self> {
        let inner = Inner::parse(packet).ok()?;
        let (transport, header_bytes) = inner.transport?;
        if transport != Transport::Udp || packet.len() == header_bytes {
            return None;
        }
        let identification = [packet[4], packet[5]];
        let parts = vec![packet.slice(header_bytes..)];
        Some(Self { flow, first: packet.clone(), inner, header_bytes, identification, parts })
    }

    /// Whether a packet, which has a partial checksum, is the next of the run.
    pub(crate) fn is_next(&self, flow: u16, packet: &[u8]) -> bool {
        flow == self.flow
            && packet.len() == self.first.len()
            && self.parts.len() < SEGMENTS_MAX
            && self.header_bytes + (self.parts.len() + 1) * self.parts[0].len() <= IP_BYTES_MAX
            && self.continues(packet)
    }

    /// Adds the next packet.
    pub(crate) fn push(&mut self, mut packet: Bytes) {
        self.identification = [packet[4], packet[5]];
        packet.advance(self.header_bytes);
        self.parts.push(packet);
    }

    /// Whether the headers are those that segmentation gives to the next packet. The length is in them, and
    /// with it the sum of the pseudo-header.
    fn continues(&self, packet: &[u8]) -> bool {
        let (first, all) = (&self.first[..], self.header_bytes);
        if self.inner.is_ipv6() {
            return first[..all] == packet[..all];
        }
        let next = u16::from_be_bytes(self.identification).wrapping_add(1);
        first[..4] == packet[..4]
            && u16::from_be_bytes([packet[4], packet[5]]) == next
            && first[6..10] == packet[6..10]
            && first[12..all] == packet[12..all]
    }

    /// The packets in one, or the only one.
    pub(crate) fn finish(self) -> Result<Joined, Bytes> {
        let Self { first, inner, header_bytes, parts, .. } = self;
        if parts.len() == 1 {
            return Err(first);
        }
        let mut headers = [0; HEADERS_BYTES_MAX];
        headers[..header_bytes].copy_from_slice(&first[..header_bytes]);
        let segment = parts[0].len();
        set_payload_bytes(&mut headers[..header_bytes], &inner, segment, segment * parts.len());
        Ok(Joined { headers, header_bytes, inner, segment: segment as u16, parts })
    }
}

impl Joined {
    /// Bytes of the super-packet.
    pub(crate) fn bytes(&self) -> usize {
        self.header_bytes + usize::from(self.segment) * self.parts.len()
    }

    pub(crate) fn arrived(&self) -> Arrived<'_> {
        Arrived {
            inner: self.inner,
            headers: &self.headers[..self.header_bytes],
            parts: &self.parts,
            is_partial: true,
            segment: Some(self.segment),
        }
    }
}
