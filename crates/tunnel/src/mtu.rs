//! Packets that the other end does not take because of their size: the report to their sender (RFC 1191,
//! RFC 4443), and the segment size of TCP connections through the tunnel.
//!
//! What a path's datagram does not hold is cut by the [packer](crate::packer), so that only the devices at
//! both ends limit packets.

use bytes::Bytes;
use units::{Duration, Instant};
use wire::checksum;
use wire::icmp::{Message, quotable};

use crate::inner::{Inner, Transport};
use crate::packer::Packet;
use crate::unpacker::Arrived;

/// The next headers of ICMP (RFC 792) and ICMPv6 (RFC 4443).
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Reports at a time, and for each second (RFC 4443, section 2.4, (f) wants a limit). A sender that has
/// missed one sends another packet that is too large.
const REPORTS_MAX: u64 = 32;
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// The hop limit of a report (RFC 1812, section 4.3.2.2, has 64 as the usual one).
const HOP_LIMIT: u8 = 64;

/// TCP's flag SYN and the kinds of options that are read (RFC 9293, section 3.2).
const TCP_SYN: u8 = 0x02;
const OPTION_END: u8 = 0;
const OPTION_NONE: u8 = 1;
const OPTION_SEGMENT_SIZE: u8 = 2;

/// The largest packet of which `packet` consists: of a super-packet, that of one segment.
fn len(packet: &Packet<'_>) -> usize {
    match (packet.segment, packet.inner.transport) {
        (Some(segment), Some((_, header_bytes))) => packet.ip.len().min(header_bytes + usize::from(segment)),
        _ => packet.ip.len(),
    }
}

/// Whether a device with this MTU does not take `packet`, and its sender is to be told: also that of an IPv4 packet
/// without DF. A router may fragment it (RFC 791, section 3.2), but need not take it, and a host that is told fragments
/// the next ones itself.
#[must_use]
pub fn is_too_large(packet: &Packet<'_>, mtu: u16) -> bool {
    len(packet) > usize::from(mtu)
}

/// Whether a packet that a peer has sent is larger than both ends have agreed on.
#[must_use]
pub fn exceeds(arrived: &Arrived<'_>, mtu: u16) -> bool {
    let payload: usize = arrived.parts.iter().map(Bytes::len).sum();
    let largest = arrived.segment.map_or(payload, |segment| payload.min(segment.into()));
    arrived.headers.len() + largest > usize::from(mtu)
}

/// Limits the reports.
#[derive(Debug)]
pub struct Reports {
    left: u64,
    counted_at: Instant,
}

impl Default for Reports {
    fn default() -> Self {
        Self { left: REPORTS_MAX, counted_at: Instant::ZERO }
    }
}

impl Reports {
    /// Appends the packet that tells the sender of `packet` that only packets up to `mtu` bytes get through;
    /// false if there must be none. It comes from the address that the packet was for: a host takes no packets
    /// from outside with an address of its own, which this end's is.
    pub fn report(&mut self, now: Instant, packet: &Packet<'_>, mtu: u16, out: &mut Vec<u8>) -> bool {
        if !may_report(packet) || !self.take(now) {
            return false;
        }
        let Inner { source, destination, .. } = packet.inner;
        let is_ipv6 = packet.inner.is_ipv6();
        let quoted = quotable(packet.ip, is_ipv6);
        // Of a version that it does not have, the message is written as that of the other.
        let message = Message::PacketTooBig { mtu: mtu.into(), quoted };
        let body = message.len(is_ipv6);
        let start = out.len();
        if is_ipv6 {
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&(body as u16).to_be_bytes());
            out.extend_from_slice(&[ICMPV6, HOP_LIMIT]);
        } else {
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&(body as u16 + 20).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0, 0, HOP_LIMIT, ICMP, 0, 0]);
        }
        for address in [destination, source] {
            match address {
                std::net::IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                std::net::IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
        }
        if !is_ipv6 {
            checksum::fill_ipv4(&mut out[start..]);
        }
        message.emit(destination, source, out);
        true
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_since(self.counted_at).as_nanos() / REPORT_INTERVAL.as_nanos();
        if passed > 0 {
            self.left = (self.left + passed).min(REPORTS_MAX);
            self.counted_at = now;
        }
        let is_left = self.left > 0;
        self.left -= u64::from(is_left);
        is_left
    }
}

/// Whether an error may answer `packet` (RFC 1812, section 4.3.2.7; RFC 4443, section 2.4, (e)): no other
/// error, no later fragment, and a source that is one host.
fn may_report(packet: &Packet<'_>) -> bool {
    let Inner { source, protocol, ip_header_bytes, .. } = packet.inner;
    let is_host = match source {
        std::net::IpAddr::V4(source) => !source.is_unspecified() && !source.is_multicast() && !source.is_broadcast(),
        std::net::IpAddr::V6(source) => !source.is_unspecified() && !source.is_multicast(),
    };
    let is_later_fragment = !packet.inner.is_ipv6() && (packet.ip[6] & 0x1f != 0 || packet.ip[7] != 0);
    let is_error = match (protocol, packet.ip.get(ip_header_bytes)) {
        // Only echo requests are no errors among those that are ever so long.
        (ICMP, Some(ty)) => !matches!(ty, 0 | 8),
        (ICMPV6, Some(ty)) => *ty < 128,
        _ => false,
    };
    is_host && !is_later_fragment && !is_error
}

/// Lowers the maximum segment size that a SYN in `ip`, with these headers, offers, to what packets of `mtu`
/// bytes hold; returns whether it did. Connections of this host have it right. Those that it forwards may
/// have ends that see no report of a packet's size, because a firewall drops it: for these it is done.
pub fn clamp_segment_size(ip: &mut [u8], inner: &Inner, is_partial: bool, mtu: u16) -> bool {
    let Some((Transport::Tcp, header_bytes)) = inner.transport else { return false };
    let at = inner.ip_header_bytes;
    if ip[at + 13] & TCP_SYN == 0 {
        return false;
    }
    // Without options of either header (RFC 9293, section 3.7.1).
    let fixed: u16 = if inner.is_ipv6() { 60 } else { 40 };
    let most = mtu.saturating_sub(fixed);
    let Some(field) = segment_size_field(&ip[..header_bytes], at + 20) else { return false };
    let offered = u16::from_be_bytes([ip[field], ip[field + 1]]);
    if offered <= most {
        return false;
    }
    ip[field..field + 2].copy_from_slice(&most.to_be_bytes());
    // A partial checksum does not cover it yet.
    if !is_partial {
        let sum = at + Transport::Tcp.checksum_offset();
        let old = !u16::from_be_bytes([ip[sum], ip[sum + 1]]);
        // At an odd place, the bytes are the other half of the words that are summed (RFC 1071, section 2, (B)).
        let is_odd = !(field - at).is_multiple_of(2);
        let of = |value: u16| if is_odd { value.swap_bytes() } else { value };
        let new = !checksum::replace(old, of(offered), of(most));
        ip[sum..sum + 2].copy_from_slice(&new.to_be_bytes());
    }
    true
}

/// Where the value of the option is.
fn segment_size_field(headers: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match (*headers.get(at)?, headers.get(at + 1)) {
            (OPTION_END, _) => return None,
            (OPTION_NONE, _) => at += 1,
            (OPTION_SEGMENT_SIZE, Some(4)) => return (at + 4 <= headers.len()).then_some(at + 2),
            (_, Some(length)) if *length >= 2 => at += usize::from(*length),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
