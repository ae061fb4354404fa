//! Packets as the TUN device has them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::tun::{OFFLOAD_HEADER_BYTES, ReadOffload, Segments, Tun, TunDevice, tcp_offload, udp_offload};
use tunnel::inner::{Inner, Transport};
use tunnel::unpacker::PARTS_MAX;
use tunnel::{Arrived, PacketHead};

/// The slices of a packet, at most: its offload header, its headers, and its parts.
const SLICES_MAX: usize = 2 + PARTS_MAX;

/// Counters of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    /// Packets that the kernel refused.
    pub(crate) refused: AtomicU64,
    /// Packets read that are malformed.
    pub(crate) malformed: AtomicU64,
}

/// What the packet is that `bytes` has as they were read, with its offload header. A checksum that only a network card
/// could complete is completed here, which changes `bytes` (the tunnel passes on partial checksums of TCP
/// and UDP alone). None if it is malformed.
pub(crate) fn parse_read(bytes: &mut [u8]) -> Option<PacketHead> {
    let offload = ReadOffload::parse(bytes).ok()?;
    let inner = Inner::parse(&bytes[OFFLOAD_HEADER_BYTES..]).ok()?;
    let transport = inner
        .transport
        .map(|(transport, _)| (inner.ip_header_bytes, inner.ip_header_bytes + transport.checksum_offset()));
    let is_own = offload.partial_checksum.is_none() || offload.partial_checksum == transport;
    if !is_own {
        if offload.segment.is_some() {
            return None;
        }
        // A checksum of another protocol, or of a packet within the packet.
        let mut packet = Segments::new(bytes).ok()?.segment(0, Vec::new());
        packet.finish_checksum();
        bytes[OFFLOAD_HEADER_BYTES..].copy_from_slice(packet.ip());
    }
    let segment = offload.segment.and_then(|segment| u16::try_from(segment).ok());
    let is_partial = is_own && offload.partial_checksum.is_some();
    Some(PacketHead { inner, is_partial, segment })
}

/// Writes packets that leave the tunnel to the device.
pub(crate) struct Writer {
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
