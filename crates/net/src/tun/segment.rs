//! Segmentation of super-packets, as done by a network card with segmentation offload (GSO).
//!
//! The headers are copied to each piece of payload and then adjusted: lengths, the IPv4
//! identification (incremented per segment), the TCP sequence number, and the TCP flags that belong
//! to the first or the last segment only. Checksums stay partial; the length in them is replaced.

use core::fmt;
use std::error::Error;

use wire::checksum;
use wire::segmentation::{TCP_FLAG_OF_FIRST, TCP_FLAGS_OF_LAST, TCP_FLAGS_OFFSET};

use super::header::{OFFLOAD_HEADER_BYTES, OffloadHeader, Transport};
use super::packet::TunPacket;

pub(super) const UDP_HEADER_BYTES: usize = 8;

/// A packet from the kernel with invalid or unsupported headers. None was ever observed; the error
/// avoids trusting the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPacket;

/// The segments of a packet read from a device. A packet that is not a super-packet has one
/// segment, itself.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// The offload header of every segment.
    offload: [u8; OFFLOAD_HEADER_BYTES],
    /// The IP packet.
    ip: &'a [u8],
    /// The segmentation of a super-packet; `None` for other packets.
    plan: Option<SegmentPlan>,
}

#[derive(Clone, Copy, Debug)]
struct SegmentPlan {
    transport: Transport,
    is_ipv6: bool,
    ip_header_bytes: usize,
    /// Length of all headers.
    header_bytes: usize,
    /// Payload bytes of each segment but the last.
    segment_bytes: usize,
    segments: usize,
}

impl<'a> Segments<'a> {
    /// Parses `bytes` as read by [`TunDevice::read`](super::TunDevice::read).
    ///
    /// # Errors
    /// If they are not a packet with an offload header.
    pub fn new(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        let header = OffloadHeader::parse(bytes)?;
        let ip = &bytes[OFFLOAD_HEADER_BYTES..];
        if let Some(checksum) = header.checksum
            && usize::from(checksum.start) + usize::from(checksum.offset) + 2 > ip.len()
        {
            return Err(MalformedPacket);
        }
        let plan = match (header.gso, header.checksum) {
            (Some((transport, size)), Some(checksum)) => {
                Some(SegmentPlan::new(ip, transport, usize::from(checksum.start), usize::from(size))?)
            }
            _ => None,
        };
        let mut offload = [0; OFFLOAD_HEADER_BYTES];
        OffloadHeader { gso: None, ..header }.emit(&mut offload, false, 0);
        Ok(Self { offload, ip, plan })
    }

    /// Returns the number of segments, from 1 to 65,535.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.plan.map_or(1, |plan| plan.segments)
    }

    /// Returns segment `index`, counted from zero, in the memory of `buffer`, whose contents are
    /// discarded.
    ///
    /// # Panics
    /// If there is no such segment.
    #[must_use]
    pub fn segment(&self, index: usize, mut buffer: Vec<u8>) -> TunPacket {
        assert!(index < self.len(), "segment {index} of {}", self.len());
        buffer.clear();
        buffer.extend_from_slice(&self.offload);
        match &self.plan {
            None => buffer.extend_from_slice(self.ip),
            Some(plan) => {
                let start = plan.header_bytes + index * plan.segment_bytes;
                let end = (start + plan.segment_bytes).min(self.ip.len());
                buffer.extend_from_slice(&self.ip[..plan.header_bytes]);
                buffer.extend_from_slice(&self.ip[start..end]);
                plan.fit(index, self.ip.len(), &mut buffer[OFFLOAD_HEADER_BYTES..]);
            }
        }
        TunPacket::new(buffer)
    }
}

impl SegmentPlan {
    fn new(
        ip: &[u8],
        transport: Transport,
        ip_header_bytes: usize,
        segment_bytes: usize,
    ) -> Result<Self, MalformedPacket> {
        let is_ipv6 = match ip.first().map(|first| first >> 4) {
            Some(4) if (20..=60).contains(&ip_header_bytes) => false,
            Some(6) if ip_header_bytes >= 40 => true,
            _ => return Err(MalformedPacket),
        };
        let transport_bytes = match transport {
            Transport::Udp => UDP_HEADER_BYTES,
            Transport::Tcp => usize::from(ip.get(ip_header_bytes + 12).ok_or(MalformedPacket)? >> 4) * 4,
        };
        let header_bytes = ip_header_bytes + transport_bytes;
        if transport == Transport::Tcp && transport_bytes < 20 || header_bytes >= ip.len() {
            return Err(MalformedPacket);
        }
        let segments = (ip.len() - header_bytes).div_ceil(segment_bytes);
        Ok(Self { transport, is_ipv6, ip_header_bytes, header_bytes, segment_bytes, segments })
    }

    /// Adjusts the headers in `ip`, copied from a super-packet of `whole_bytes`, for segment
    /// `index`.
    fn fit(&self, index: usize, whole_bytes: usize, ip: &mut [u8]) {
        let (is_first, is_last) = (index == 0, index + 1 == self.segments);
        let bytes = ip.len();
        let (network, transport) = ip.split_at_mut(self.ip_header_bytes);
        if self.is_ipv6 {
            // The length excludes the header itself (RFC 8200, section 3).
            put(network, 4, (bytes - 40) as u16);
        } else {
            put(network, 2, bytes as u16);
            let identification = get(network, 4).wrapping_add(index as u16);
            put(network, 4, identification);
            checksum::fill_ipv4(network);
        }
        let length = (bytes - self.ip_header_bytes) as u16;
        let (old_length, field) = match self.transport {
            Transport::Udp => {
                let old_length = get(transport, 4);
                put(transport, 4, length);
                (old_length, 6)
            }
            Transport::Tcp => {
                let offset = (index * self.segment_bytes) as u32;
                let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
                transport[4..8].copy_from_slice(&sequence.wrapping_add(offset).to_be_bytes());
                if !is_last {
                    transport[TCP_FLAGS_OFFSET] &= !TCP_FLAGS_OF_LAST;
                }
                if !is_first {
                    transport[TCP_FLAGS_OFFSET] &= !TCP_FLAG_OF_FIRST;
                }
                ((whole_bytes - self.ip_header_bytes) as u16, 16)
            }
        };
        let sum = get(transport, field);
        put(transport, field, checksum::replace(sum, old_length, length));
    }
}

pub(super) fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

impl fmt::Display for MalformedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the TUN device returned a packet with malformed headers")
    }
}

impl Error for MalformedPacket {}

#[cfg(test)]
mod tests;
