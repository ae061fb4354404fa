//! Packets for tests.

use proptest::prelude::*;
use wire::checksum;
use wire::ip::Protocol;

use crate::inner::{Inner, Transport};
use crate::packer::Packet;

/// A packet as the kernel gives it.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) ip: Vec<u8>,
    pub(crate) is_partial: bool,
    pub(crate) segment: Option<u16>,
}

impl Sample {
    pub(crate) fn inner(&self) -> Inner {
        Inner::parse(&self.ip).expect("samples are packets")
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet { ip: &self.ip, inner: self.inner(), is_partial: self.is_partial, segment: self.segment }
    }

    /// The packets on a link: a super-packet is cut as a network card does it.
    pub(crate) fn segments(&self) -> Vec<Vec<u8>> {
        let (Some(segment), Some((_, header_bytes))) = (self.segment, self.inner().transport) else {
            return vec![self.ip.clone()];
        };
        let (headers, payload) = self.ip.split_at(header_bytes);
        let segments = payload.chunks(segment.into()).enumerate().map(|(index, part)| {
            let mut ip = [headers, part].concat();
            adjust(&mut ip, &self.inner(), index, usize::from(segment), payload.len());
            ip
        });
        segments.collect()
    }
}

/// A packet as it leaves a network card: a partial checksum is completed.
pub(crate) fn completed(mut ip: Vec<u8>, is_partial: bool) -> Vec<u8> {
    let inner = Inner::parse(&ip).expect("a packet");
    if let Some((transport, _)) = inner.transport.filter(|_| is_partial) {
        let (at, field) = (inner.ip_header_bytes, inner.ip_header_bytes + transport.checksum_offset());
        let sum = !checksum::sum(&ip[at..], 0);
        ip[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    ip
}

/// Segmentation, written again: every field is computed from its meaning.
fn adjust(ip: &mut [u8], inner: &Inner, index: usize, segment: usize, total: usize) {
    let at = inner.ip_header_bytes;
    let bytes = ip.len();
    let is_last = (index + 1) * segment >= total;
    if inner.is_ipv6() {
        ip[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
    } else {
        ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        checksum::fill_ipv4(&mut ip[..at]);
    }
    let (transport, _) = inner.transport.expect("a super-packet");
    match transport {
        Transport::Tcp => {
            let sequence = u32::from_be_bytes([ip[at + 4], ip[at + 5], ip[at + 6], ip[at + 7]]);
            ip[at + 4..at + 8].copy_from_slice(&sequence.wrapping_add((index * segment) as u32).to_be_bytes());
            if !is_last {
                ip[at + 13] &= !0x09;
            }
            if index > 0 {
                ip[at + 13] &= !0x80;
            }
        }
        Transport::Udp => ip[at + 4..at + 6].copy_from_slice(&((bytes - at) as u16).to_be_bytes()),
    }
    let field = at + transport.checksum_offset();
    let sum = partial_sum(inner, bytes - at);
    ip[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of the pseudo-header of a packet whose transport has so many bytes.
pub(crate) fn partial_sum(inner: &Inner, bytes: usize) -> u16 {
    checksum::pseudo_header(inner.source, inner.destination, Protocol(inner.protocol), bytes as u32)
}

/// A TCP or UDP packet with a partial checksum, or a super-packet.
pub(crate) fn transport_packet(is_ipv6: bool, is_tcp: bool, port: u16, payload: &[u8], segment: Option<u16>) -> Sample {
    let (at, header) = (if is_ipv6 { 40 } else { 20 }, if is_tcp { 32 } else { 8 });
    let bytes = at + header + payload.len();
    let mut ip = vec![0; at + header];
    if is_ipv6 {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
        ip[6] = if is_tcp { 6 } else { 17 };
        ip[7] = 64;
        ip[8..24].copy_from_slice(&[0xfd, 0x76, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip[24..40].copy_from_slice(&[0xfd, 0x76, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&[0xff, 0xf0]);
        (ip[8], ip[9]) = (64, if is_tcp { 6 } else { 17 });
        ip[12..20].copy_from_slice(&[10, 76, 0, 2, 10, 76, 0, 1]);
        checksum::fill_ipv4(&mut ip[..20]);
    }
    ip[at..at + 2].copy_from_slice(&port.to_be_bytes());
    ip[at + 2..at + 4].copy_from_slice(&[0x14, 0x51]);
    if is_tcp {
        ip[at + 4..at + 8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        // Eight words of header; CWR, ACK and PSH.
        (ip[at + 12], ip[at + 13]) = (0x80, 0x98);
    } else {
        ip[at + 4..at + 6].copy_from_slice(&((bytes - at) as u16).to_be_bytes());
    }
    ip.extend_from_slice(payload);
    let inner = Inner::parse(&ip).expect("a packet");
    let field = at + if is_tcp { 16 } else { 6 };
    let sum = partial_sum(&inner, bytes - at);
    ip[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    Sample { ip, is_partial: true, segment }
}

/// Packets of all kinds.
pub(crate) fn samples() -> impl Strategy<Value = Sample> {
    let payload = prop_oneof![3 => 0..600_usize, 2 => 600..3000_usize, 2 => 3000..65_000_usize];
    (any::<[bool; 3]>(), 1..20_u16, payload, 200..1500_u16, any::<u8>()).prop_map(
        |([is_ipv6, is_tcp, is_super], port, len, segment, fill)| {
            let payload: Vec<u8> = (0..len).map(|index| (index as u8).wrapping_mul(31) ^ fill).collect();
            let segment = (is_super && len > usize::from(segment)).then_some(segment);
            transport_packet(is_ipv6, is_tcp, port, &payload, segment)
        },
    )
}
