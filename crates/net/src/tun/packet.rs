//! A packet with its offload header.

use wire::checksum;

use super::header::{OFFLOAD_HEADER_BYTES, OffloadHeader, PartialChecksum};

/// The ECN field value for congestion experienced (RFC 3168, section 5).
const ECN_CE: u8 = 0b11;

/// ECN field value ECT(1) (RFC 3168, section 5).
const ECT1: u8 = 0b01;

/// An IP packet that fits its link's MTU, after its offload header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunPacket {
    /// A valid offload header without segmentation, and the IP packet.
    bytes: Vec<u8>,
}

impl TunPacket {
    /// Creates a packet from `bytes`, which must begin with a valid offload header.
    pub(super) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the IP packet.
    #[must_use]
    pub fn ip(&self) -> &[u8] {
        &self.bytes[OFFLOAD_HEADER_BYTES..]
    }

    /// Returns the IP packet, for modification. [Complete its checksum](Self::finish_checksum)
    /// first.
    pub fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[OFFLOAD_HEADER_BYTES..]
    }

    /// Returns the packet with its offload header, in the form that
    /// [`TunDevice::write`](super::TunDevice::write) accepts.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the buffer of the packet, for reuse.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Computes the checksum if it is partial. The cost is linear in the packet's length; a second
    /// call does nothing.
    pub fn finish_checksum(&mut self) {
        let Ok(header) = OffloadHeader::parse(&self.bytes) else { return };
        let Some(PartialChecksum { start, offset }) = header.checksum else { return };
        OffloadHeader { checksum: None, gso: None }.emit(&mut self.bytes, false, 0);
        let Some(summed) = self.ip_mut().get_mut(usize::from(start)..) else { return };
        let field = usize::from(offset)..usize::from(offset) + 2;
        if field.end > summed.len() {
            return;
        }
        // The field holds the sum of the pseudo-header, which is thereby included.
        let sum = !checksum::sum(summed, 0);
        // UDP encodes a zero checksum as all ones, because zero means no checksum (RFC 768). For
        // TCP both values are equivalent.
        let sum = if sum == 0 { 0xffff } else { sum };
        summed[field].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns whether the packet carries ECT(1), the codepoint of scalable senders (RFC 9331,
    /// section 4.1).
    pub fn is_ect1(&self) -> bool {
        let ip = self.ip();
        match ip.first().map(|first| first >> 4) {
            Some(4) if ip.len() >= 20 => ip[1] & ECN_CE == ECT1,
            Some(6) if ip.len() >= 40 => ip[1] >> 4 & ECN_CE == ECT1,
            _ => false,
        }
    }

    /// Sets the congestion mark if the packet is ECN-capable (RFC 3168, section 5), and returns
    /// whether it is.
    pub fn mark_ce(&mut self) -> bool {
        let ip = self.ip_mut();
        match ip.first().map(|first| first >> 4) {
            Some(4) if ip.len() >= 20 => {
                if ip[1] & ECN_CE == 0 {
                    return false;
                }
                ip[1] |= ECN_CE;
                let header_bytes = usize::from(ip[0] & 0x0f) * 4;
                if let Some(header) = ip.get_mut(..header_bytes.max(20)) {
                    checksum::fill_ipv4(header);
                }
                true
            }
            // The traffic class begins in the first byte; its last two bits are bits 4 and 5 of the
            // second.
            Some(6) if ip.len() >= 40 && ip[1] >> 4 & ECN_CE != 0 => {
                ip[1] |= ECN_CE << 4;
                true
            }
            _ => false,
        }
    }
}
