//! Super-packets for tests.

use proptest::prelude::*;
use wire::checksum;

use super::header::{OFFLOAD_HEADER_BYTES, OffloadHeader, PartialChecksum, Transport};
use super::segment::put;

/// The parameters of a super-packet.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) is_ipv6: bool,
    pub(super) is_tcp: bool,
    /// Extra words of TCP options.
    pub(super) options: usize,
    pub(super) payload: Vec<u8>,
    pub(super) segment_bytes: u16,
    pub(super) sequence: u32,
    pub(super) identification: u16,
    pub(super) flags: u8,
}

pub(super) fn samples() -> impl Strategy<Value = Sample> {
    let flags = any::<(u32, u16, u8)>();
    (any::<[bool; 2]>(), 0..11_usize, prop::collection::vec(any::<u8>(), 1..20_000), 1..3000_u16, flags).prop_map(
        |([is_ipv6, is_tcp], options, payload, segment_bytes, (sequence, identification, flags))| Sample {
            is_ipv6,
            is_tcp,
            options,
            payload,
            segment_bytes,
            sequence,
            identification,
            flags,
        },
    )
}

impl Sample {
    pub(super) fn ip_header_bytes(&self) -> usize {
        if self.is_ipv6 { 40 } else { 20 }
    }

    pub(super) fn header_bytes(&self) -> usize {
        self.ip_header_bytes() + if self.is_tcp { 20 + 4 * self.options } else { 8 }
    }

    /// Returns the packet in the kernel's form: lengths of the whole, and the sum of the
    /// pseudo-header in the checksum field.
    pub(super) fn super_packet(&self) -> Vec<u8> {
        let mut ip = vec![0; self.header_bytes()];
        let at = self.ip_header_bytes();
        let protocol = if self.is_tcp { 6 } else { 17 };
        let bytes = self.header_bytes() + self.payload.len();
        if self.is_ipv6 {
            ip[0] = 0x60;
            put(&mut ip, 4, (bytes - 40) as u16);
            ip[6] = protocol;
            (8..40).for_each(|index| ip[index] = (index as u8).wrapping_mul(7));
        } else {
            ip[0] = 0x45;
            put(&mut ip, 2, bytes as u16);
            put(&mut ip, 4, self.identification);
            ip[9] = protocol;
            ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        if self.is_tcp {
            ip[at + 4..at + 8].copy_from_slice(&self.sequence.to_be_bytes());
            ip[at + 12] = ((5 + self.options) << 4) as u8;
            ip[at + 13] = self.flags;
        } else {
            put(&mut ip, at + 4, (bytes - at) as u16);
        }
        ip.extend_from_slice(&self.payload);
        let sum = pseudo_header(&ip, at);
        put(&mut ip, at + if self.is_tcp { 16 } else { 6 }, sum);
        let header = OffloadHeader {
            checksum: Some(PartialChecksum { start: at as u16, offset: if self.is_tcp { 16 } else { 6 } }),
            gso: Some((if self.is_tcp { Transport::Tcp } else { Transport::Udp }, self.segment_bytes)),
        };
        let mut packet = vec![0; OFFLOAD_HEADER_BYTES];
        header.emit(&mut packet, self.is_ipv6, self.header_bytes() as u16);
        packet.extend_from_slice(&ip);
        packet
    }
}

/// Sums the pseudo-header (RFC 9293, section 3.1, and RFC 8200, section 8.1): addresses, length,
/// protocol.
pub(super) fn pseudo_header(ip: &[u8], transport_at: usize) -> u16 {
    let length = (ip.len() - transport_at) as u16;
    let (addresses, protocol) = if ip[0] >> 4 == 6 { (&ip[8..40], ip[6]) } else { (&ip[12..20], ip[9]) };
    checksum::sum(addresses, checksum::sum(&[0, protocol], length))
}
