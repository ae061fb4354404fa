//! Division of packets that are larger than their link's MTU.

use wire::checksum;
use wire::ip::{Packet, Protocol};

/// Length of the fragment header (RFC 8200, section 4.5).
const FRAGMENT_HEADER_LEN: usize = 8;

/// Divides a packet without extension headers into fragments of at most `mtu` bytes with this
/// identification, of which IPv4 uses 16 bits. A packet that fits stays whole. Emits nothing if the
/// packet is invalid, or the link is too small for data.
pub fn split(packet: &[u8], mtu: usize, id: u32, mut each: impl FnMut(Vec<u8>)) {
    if packet.len() <= mtu {
        return each(packet.to_vec());
    }
    let Ok(parsed) = Packet::parse(packet) else { return };
    let header = &packet[..parsed.header_len];
    let taken = header.len() + if parsed.is_ipv6() { FRAGMENT_HEADER_LEN } else { 0 };
    // Multiples of eight, except for the last one.
    let part = mtu.saturating_sub(taken) & !7;
    if part == 0 {
        return;
    }
    for (index, data) in parsed.payload.chunks(part).enumerate() {
        let (offset, more) = (index * part, (index + 1) * part < parsed.payload.len());
        let mut out = Vec::with_capacity(taken + data.len());
        out.extend_from_slice(header);
        if parsed.is_ipv6() {
            let next = std::mem::replace(&mut out[6], Protocol::FRAGMENT.0);
            out[4..6].copy_from_slice(&((FRAGMENT_HEADER_LEN + data.len()) as u16).to_be_bytes());
            out.extend_from_slice(&[next, 0]);
            out.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
        } else {
            out[2..4].copy_from_slice(&((header.len() + data.len()) as u16).to_be_bytes());
            out[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            out[6..8].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
            checksum::fill_ipv4(&mut out);
        }
        out.extend_from_slice(data);
        each(out);
    }
}
