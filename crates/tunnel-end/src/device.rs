//! Packets as the TUN device has them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::tun::{OFFLOAD_HEADER_BYTES, ReadOffload, Segments, Tun, TunDevice, tcp_offload, udp_offload};
use tunnel::inner::{Inner, Transport};
use tunnel::intake::Intake;
use tunnel::unpacker::PARTS_MAX;
use tunnel::{Arrived, PacketHead};

/// The slices of a packet, at most: its offload header, its headers, and its parts.
const SLICES_MAX: usize = 2 + PARTS_MAX;

/// Counters of a device.
#[derive(Debug, Default)]
pub struct DeviceCounters {
    /// Packets that the kernel refused.
    pub refused: AtomicU64,
    /// What becomes of packets that are read.
    pub intake: Intake,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadPacket {
    /// A packet or super-packet with these headers.
    Whole(PacketHead),
    /// A super-packet whose headers the tunnel does not pass on as those of one, such as IPv6 extension headers. Its
    /// packets are.
    ToCut,
}

/// The length of the packet at the front of `bytes`, with its offload header: a receiver drops what follows it.
pub(crate) fn len_without_padding(bytes: &[u8]) -> usize {
    let whole = bytes.get(OFFLOAD_HEADER_BYTES..).and_then(Inner::whole_bytes);
    whole.map_or(bytes.len(), |whole| bytes.len().min(OFFLOAD_HEADER_BYTES + whole))
}

/// Parses a packet as it was read, with its offload header. A checksum that only a network card could complete is completed
/// here, which changes `bytes` (the tunnel passes on partial checksums of TCP and UDP alone). None if it is malformed.
pub(crate) fn parse_read(bytes: &mut [u8]) -> Option<ReadPacket> {
    let offload = ReadOffload::parse(bytes).ok()?;
    let inner = Inner::parse(&bytes[OFFLOAD_HEADER_BYTES..]).ok()?;
    let transport = inner
        .transport
        .map(|(transport, _)| (inner.ip_header_bytes, inner.ip_header_bytes + transport.checksum_offset()));
    let is_own = offload.partial_checksum.is_none() || offload.partial_checksum == transport;
    if !is_own {
        if offload.segment.is_some() {
            return Some(ReadPacket::ToCut);
        }
        // A checksum of another protocol, or of a packet within the packet.
        let mut packet = Segments::new(bytes).ok()?.segment(0, Vec::new());
        packet.finish_checksum();
        bytes[OFFLOAD_HEADER_BYTES..].copy_from_slice(packet.ip());
    }
    let segment = offload.segment.and_then(|segment| u16::try_from(segment).ok());
    let is_partial = is_own && offload.partial_checksum.is_some();
    Some(ReadPacket::Whole(PacketHead { inner, is_partial, segment }))
}

/// Writes packets that leave the tunnel to the device.
pub struct Writer {
    tun: Tun,
    counters: Arc<DeviceCounters>,
}

impl Writer {
    pub(crate) fn new(tun: Tun, counters: Arc<DeviceCounters>) -> Self {
        Self { tun, counters }
    }

    /// Whether the kernel takes super-packets of UDP.
    pub(crate) fn takes_udp_super_packets(&self) -> bool {
        self.tun.has_udp_gso()
    }

    pub(crate) fn write(&mut self, packet: &Arrived<'_>) {
        let Arrived { inner, headers, parts, is_partial, segment, .. } = *packet;
        let offload = match inner.transport {
            Some((transport, header_bytes)) if is_partial => {
                let make = match transport {
                    Transport::Tcp => tcp_offload,
                    Transport::Udp => udp_offload,
                };
                make(inner.is_ipv6(), inner.ip_header_bytes as u16, header_bytes as u16, segment)
            }
            _ => [0; OFFLOAD_HEADER_BYTES],
        };
        let empty: &[u8] = &[];
        let mut slices = [IoSlice::new(empty); SLICES_MAX];
        slices[0] = IoSlice::new(&offload);
        slices[1] = IoSlice::new(headers);
        for (slice, part) in slices[2..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        // The device is down or memory is short: the packet is lost, as on any link.
        if self.tun.write(&slices[..2 + parts.len()]).is_err() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::checksum;
    use wire::ip::Protocol;

    use super::*;

    /// Segmentation kinds of the offload header: none, TCP over IPv4 and IPv6, UDP; the last one has the flag ECN.
    const KINDS: [u8; 5] = [0, 1, 4, 5, 0x81];

    /// Payload of a super-packet, and of each of its packets.
    const PAYLOAD: usize = 3000;
    const SEGMENT: u16 = 1200;

    /// A packet as the kernel has it: an offload header with this kind, `options` after the IP header, as IPv6 extension
    /// headers or IPv4 options, and TCP or UDP.
    fn packet(kind: u8, is_ipv6: bool, is_tcp: bool, options: usize, needs_checksum: bool) -> Vec<u8> {
        let (transport, at) = (if is_tcp { 20 } else { 8 }, if is_ipv6 { 40 } else { 20 } + options);
        let payload = if kind == 0 { 500 } else { PAYLOAD };
        let (protocol, len) = (if is_tcp { 6 } else { 17 }, at + transport + payload);
        let mut ip = vec![0; len];
        if is_ipv6 {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
            ip[6] = if options == 0 { protocol } else { 60 };
            (ip[8], ip[24]) = (0xfd, 0xfd);
            if options > 0 {
                // Destination options (RFC 8200, section 4.6): one PadN.
                ip[40..44].copy_from_slice(&[protocol, (options / 8 - 1) as u8, 1, (options - 4) as u8]);
            }
        } else {
            ip[0] = 0x40 | ((20 + options) / 4) as u8;
            ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            ip[9] = protocol;
            (ip[12], ip[16]) = (10, 10);
            ip[20..20 + options].fill(1);
            checksum::fill_ipv4(&mut ip[..at]);
        }
        if is_tcp {
            (ip[at + 12], ip[at + 13]) = (0x50, 0x10);
        } else {
            ip[at + 4..at + 6].copy_from_slice(&((len - at) as u16).to_be_bytes());
        }
        let offset = if is_tcp { 16 } else { 6 };
        let inner = Inner::parse(&ip).expect("a packet");
        let sum = checksum::pseudo_header(inner.source, inner.destination, Protocol(protocol), (len - at) as u32);
        ip[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
        let mut header = [0; OFFLOAD_HEADER_BYTES];
        (header[0], header[1]) = (u8::from(needs_checksum), kind);
        for (place, value) in [(2, at + transport), (4, SEGMENT.into()), (6, at), (8, offset)] {
            header[place..place + 2].copy_from_slice(&(value as u16).to_ne_bytes());
        }
        [&header[..], &ip].concat()
    }

    /// Whether the transport checksum of a complete packet is right.
    fn is_right(ip: &[u8], at: usize, protocol: u8) -> bool {
        let inner = Inner::parse(ip).expect("a packet");
        let sum = checksum::pseudo_header(inner.source, inner.destination, Protocol(protocol), (ip.len() - at) as u32);
        checksum::sum(&ip[at..], sum) == 0xffff
    }

    #[test]
    fn all_that_the_device_can_deliver_is_passed_on() {
        let mut cut = 0;
        for kind in KINDS {
            for (is_ipv6, is_tcp, options, needs_checksum) in combinations() {
                let is_super = kind != 0;
                let of_kind = match kind & 0x7f {
                    1 => (is_tcp, !is_ipv6),
                    4 => (is_tcp, is_ipv6),
                    5 => (!is_tcp, true),
                    _ => (true, true),
                };
                if of_kind != (true, true) || is_super && !needs_checksum {
                    continue;
                }
                let shown = format!("{kind} {is_ipv6} {is_tcp} {options} {needs_checksum}");
                let mut bytes = packet(kind, is_ipv6, is_tcp, options, needs_checksum);
                let (at, protocol) = (if is_ipv6 { 40 } else { 20 } + options, if is_tcp { 6 } else { 17 });
                match parse_read(&mut bytes) {
                    Some(ReadPacket::Whole(head)) => {
                        assert_eq!(head.segment, is_super.then_some(SEGMENT), "{shown}");
                        assert!(head.segment.is_none() || head.is_partial, "{shown}");
                        let is_complete = needs_checksum && !head.is_partial;
                        assert!(!is_complete || is_right(&bytes[OFFLOAD_HEADER_BYTES..], at, protocol), "{shown}");
                    }
                    Some(ReadPacket::ToCut) => {
                        let segments = Segments::new(&bytes).expect("a super-packet");
                        assert_eq!(segments.len(), PAYLOAD.div_ceil(SEGMENT.into()), "{shown}");
                        for index in 0..segments.len() {
                            let mut segment = segments.segment(index, Vec::new());
                            segment.finish_checksum();
                            assert!(is_right(segment.ip(), at, protocol), "{shown}: segment {index}");
                        }
                        cut += 1;
                    }
                    None => panic!("dropped: {shown}"),
                }
            }
        }
        assert_eq!(cut, 2, "TCP and UDP behind IPv6 extension headers");
    }

    /// IP version, transport, length of options, and whether the checksum is partial.
    fn combinations() -> impl Iterator<Item = (bool, bool, usize, bool)> {
        (0..16).map(|bits| (bits & 1 > 0, bits & 2 > 0, if bits & 4 > 0 { 16 } else { 0 }, bits & 8 > 0))
    }

    #[test]
    fn bytes_after_a_packet_are_dropped_as_the_kernel_drops_them() {
        let bytes = packet(0, false, true, 0, false);
        let padded = [&bytes[..], &[0; 6]].concat();
        assert_eq!(len_without_padding(&padded), bytes.len());
        assert_eq!(len_without_padding(&bytes), bytes.len());
        assert_eq!(len_without_padding(&bytes[..30]), 30, "it is cut short");
        assert!(parse_read(&mut bytes[..30].to_vec()).is_none());
    }
}
