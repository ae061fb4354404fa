//! One packet with its offload header.

use super::checksum;
use super::header::{OFFLOAD_HEADER_BYTES, OffloadHeader, Unfinished};

/// The ECN field says congestion experienced (RFC 3168, section 5).
const ECN_CE: u8 = 0b11;

/// An IP packet, no longer than its link carries, behind its offload header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunPacket {
    /// The offload header, which is valid and asks for no cutting, and the IP packet.
    bytes: Vec<u8>,
}

impl TunPacket {
    /// `bytes` hold a valid offload header.
    pub(super) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The IP packet.
    #[must_use]
    pub fn ip(&self) -> &[u8] {
        &self.bytes[OFFLOAD_HEADER_BYTES..]
    }

    /// The IP packet, to change it: [finish its checksum](Self::finish_checksum) first.
    pub fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[OFFLOAD_HEADER_BYTES..]
    }

    /// The packet behind its offload header, as [`TunDevice::write`](super::TunDevice::write) takes it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory of it, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Computes the checksum if the kernel has left that to us. Linear in the packet; does nothing the second time.
    pub fn finish_checksum(&mut self) {
        let Ok(header) = OffloadHeader::parse(&self.bytes) else { return };
        let Some(Unfinished { start, offset }) = header.checksum else { return };
        OffloadHeader { checksum: None, cut: None }.emit(&mut self.bytes, false, 0);
        let Some(summed) = self.ip_mut().get_mut(usize::from(start)..) else { return };
        let field = usize::from(offset)..usize::from(offset) + 2;
        if field.end > summed.len() {
            return;
        }
        // The field holds the sum of the pseudo-header, so that it is summed with the rest.
        let sum = !checksum::sum(summed, 0);
        // UDP writes a zero as all ones, because zero means no checksum (RFC 768); to TCP both are the same number.
        let sum = if sum == 0 { 0xffff } else { sum };
        summed[field].copy_from_slice(&sum.to_be_bytes());
    }

    /// Marks that it met congestion, if it says that both ends understand the mark (RFC 3168, section 5); whether it does.
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
            // The traffic class begins in the first byte; its last two bits are bits 4 and 5 of the second.
            Some(6) if ip.len() >= 40 && ip[1] >> 4 & ECN_CE != 0 => {
                ip[1] |= ECN_CE << 4;
                true
            }
            _ => false,
        }
    }
}
