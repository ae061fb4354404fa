//! ICMP (RFC 792, RFC 4443): errors about a connection, and the answers of a host.

use units::Seq32;
use wire::icmp::{Message, Unreachable, quotable};
use wire::ip::{self, Protocol};
use wire::tcp::HEADER_LEN;

use crate::arrival::authentication_len;
use crate::plan::{HOP_LIMIT, SuperPacket};
use crate::tuple::Tuple;

/// An error reported by a router or the peer about one of our segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Addresses of the connection, as seen from this side.
    pub tuple: Tuple,
    /// Sequence number of the segment: a node that does not see our segments cannot guess it (RFC
    /// 5927, section 4.1).
    pub seq: Seq32,
    /// Kind of the error.
    pub kind: IcmpErrorKind,
}

/// Kind of a reported error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpErrorKind {
    /// A packet was too large for a link. `None`: the router did not report the largest size.
    PacketTooBig(Option<u32>),
    /// The peer rejects the packet: a hard error (RFC 1122, section 4.2.3.9).
    Refused,
    /// The packet did not reach the peer, perhaps a transient problem.
    Unreachable,
}

/// ICMPv6 Parameter Problem code for a protocol unknown to the host (RFC 4443, section 3.4).
const UNKNOWN_NEXT_HEADER: u8 = 1;

/// Parses the error about a TCP segment in an ICMP packet; returns `None` if it is something else,
/// or too short.
pub fn error_of(packet: &ip::Packet<'_>) -> Option<IcmpError> {
    let (kind, quoted) = match message_of(packet)? {
        Message::Unreachable { code: Unreachable::FragmentationNeeded, mtu, quoted } => {
            (IcmpErrorKind::PacketTooBig(mtu), quoted)
        }
        Message::PacketTooBig { mtu, quoted } => (IcmpErrorKind::PacketTooBig(Some(mtu)), quoted),
        Message::Unreachable { code: Unreachable::Port | Unreachable::Protocol, quoted, .. } => {
            (IcmpErrorKind::Refused, quoted)
        }
        // The peer itself does not know the protocol, as in the report of IPv4. RFC 9293, section
        // 3.9.2.2, calls it soft and the other one hard, but the application must not have to wait
        // a minute with one of the two families.
        Message::ParameterProblem { code: UNKNOWN_NEXT_HEADER, quoted, .. } if packet.source.is_ipv6() => {
            (IcmpErrorKind::Refused, quoted)
        }
        Message::Unreachable { quoted, .. }
        | Message::TimeExceeded { quoted, .. }
        | Message::ParameterProblem { quoted, .. } => (IcmpErrorKind::Unreachable, quoted),
        _ => return None,
    };
    let ours = ip::Packet::parse_quoted(quoted).ok()?;
    let below_len = match ours.protocol {
        Protocol::TCP => 0,
        // The peer does not know the digest, and rejects the protocol.
        Protocol::AH => authentication_len(ours.payload).ok()?,
        _ => return None,
    };
    // Ports and sequence number are always quoted (RFC 792).
    let fields = ours.payload.get(below_len..below_len + 8)?;
    let port = |at: usize| u16::from_be_bytes([fields[at], fields[at + 1]]);
    let seq = u32::from_be_bytes([fields[4], fields[5], fields[6], fields[7]]);
    let tuple = Tuple { local: (ours.source, port(0)).into(), remote: (ours.destination, port(2)).into() };
    Some(IcmpError { tuple, seq: Seq32::new(seq), kind })
}

fn message_of<'a>(packet: &ip::Packet<'a>) -> Option<Message<'a>> {
    let is_icmp = match packet.protocol {
        Protocol::ICMP => packet.source.is_ipv4(),
        Protocol::ICMPV6 => packet.source.is_ipv6(),
        _ => false,
    };
    let is_whole = packet.fragment.is_none();
    (is_icmp && is_whole).then(|| Message::parse(packet.source, packet.destination, packet.payload).ok())?
}

/// Writes this host's answer to a packet that no connection accepts: an echo reply (RFC 1122,
/// section 3.2.2.6), or a report that its protocol or port is not in use. Returns false if there is
/// none. The caller limits their rate (RFC 4443, section 2.4).
pub fn answer(bytes: &[u8], out: &mut SuperPacket) -> bool {
    let Ok(packet) = ip::Packet::parse(bytes) else { return false };
    let is_group = packet.source.is_multicast() || packet.destination.is_multicast();
    if is_group || packet.fragment.is_some() || packet.source.is_unspecified() {
        return false;
    }
    let message = match (packet.protocol, message_of(&packet)) {
        (_, Some(Message::EchoRequest { id, seq, data })) => Message::EchoReply { id, seq, data },
        (Protocol::TCP | Protocol::ICMP | Protocol::ICMPV6, _) => return false,
        (protocol, _) => {
            let code = if protocol == Protocol::UDP { Unreachable::Port } else { Unreachable::Protocol };
            Message::Unreachable { code, mtu: None, quoted: quotable(bytes, packet.source.is_ipv6()) }
        }
    };
    emit(&packet, &message, out);
    true
}

/// Writes the report that the destination host of the packet `bytes` is unreachable. Returns false
/// if it must not be reported (RFC 1122, section 3.2.2).
pub fn unreachable(bytes: &[u8], out: &mut SuperPacket) -> bool {
    let Ok(packet) = ip::Packet::parse(bytes) else { return false };
    let is_group = packet.source.is_multicast() || packet.destination.is_multicast();
    let is_icmp = matches!(packet.protocol, Protocol::ICMP | Protocol::ICMPV6);
    if is_group || is_icmp || packet.fragment.is_some() || packet.source.is_unspecified() {
        return false;
    }
    let quoted = quotable(bytes, packet.source.is_ipv6());
    emit(&packet, &Message::Unreachable { code: Unreachable::Host, mtu: None, quoted }, out);
    true
}

/// Writes the report that a packet, whose first fragment is `first`, did not arrive in time (RFC
/// 1122, section 3.3.2; RFC 8200, section 4.5). Returns false if it must not be reported. The
/// caller limits their rate.
pub fn reassembly_timed_out(first: &[u8], out: &mut SuperPacket) -> bool {
    let Ok(packet) = ip::Packet::parse(first) else { return false };
    let is_group = packet.source.is_multicast() || packet.destination.is_multicast();
    // Errors are not answered with errors (RFC 1122, section 3.2.2). Among ICMP messages, only echo
    // requests are certain not to be errors.
    let is_reported = match packet.protocol {
        Protocol::ICMP => packet.payload.first() == Some(&8),
        Protocol::ICMPV6 => packet.payload.first() == Some(&128),
        _ => true,
    };
    if is_group || !is_reported || packet.source.is_unspecified() {
        return false;
    }
    let quoted = quotable(first, packet.source.is_ipv6());
    emit(&packet, &Message::TimeExceeded { code: 1, quoted }, out);
    true
}

/// Writes a message in answer to `packet`.
fn emit(packet: &ip::Packet<'_>, message: &Message<'_>, out: &mut SuperPacket) {
    let (source, destination) = (packet.destination, packet.source);
    let header = ip::Header {
        source,
        destination,
        protocol: if source.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMP },
        hop_limit: HOP_LIMIT,
        dscp: packet.dscp,
        ecn: None,
        id: 0,
        may_fragment: true,
    };
    out.clear();
    header.emit(message.len(source.is_ipv6()), &mut out.bytes);
    out.ip_len = out.bytes.len();
    message.emit(source, destination, &mut out.bytes);
    (out.header_len, out.segment, out.is_checksum_partial, out.stride) = (out.bytes.len(), HEADER_LEN, false, 0);
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;

    fn packet(protocol: Protocol, payload: impl FnOnce(&mut Vec<u8>), len: usize) -> Vec<u8> {
        let header = ip::Header {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol,
            hop_limit: 64,
            dscp: 0,
            ecn: None,
            id: 0,
            may_fragment: false,
        };
        let mut bytes = Vec::new();
        header.emit(len, &mut bytes);
        payload(&mut bytes);
        bytes
    }

    #[test]
    fn an_echo_request_is_answered_with_its_data() {
        let request = Message::EchoRequest { id: 7, seq: 9, data: b"data" };
        let emit = |out: &mut Vec<u8>| request.emit([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), out);
        let bytes = packet(Protocol::ICMP, emit, request.len(false));
        let mut out = SuperPacket::default();
        assert!(answer(&bytes, &mut out));
        let reply = ip::Packet::parse(&out.bytes).unwrap();
        assert_eq!((reply.source, reply.destination), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        assert_eq!(message_of(&reply), Some(Message::EchoReply { id: 7, seq: 9, data: b"data" }));
        // Answers are not answered.
        assert!(!answer(&out.bytes.clone(), &mut out));
    }

    #[test]
    fn an_error_names_the_connection_and_the_segment() {
        let ours = packet(Protocol::TCP, |out| out.extend_from_slice(&[0x13, 0x88, 0, 80, 1, 2, 3, 4]), 8);
        let error = Message::Unreachable { code: Unreachable::FragmentationNeeded, mtu: Some(1300), quoted: &ours };
        let emit = |out: &mut Vec<u8>| error.emit([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), out);
        let bytes = packet(Protocol::ICMP, emit, error.len(false));
        let found = error_of(&ip::Packet::parse(&bytes).unwrap()).unwrap();
        assert_eq!(found.kind, IcmpErrorKind::PacketTooBig(Some(1300)));
        assert_eq!(found.seq, Seq32::new(0x0102_0304));
        assert_eq!(found.tuple.local, ([10, 0, 0, 1], 5000).into());
        assert_eq!(found.tuple.remote, ([10, 0, 0, 2], 80).into());
        for len in 0..bytes.len() {
            // Truncated packets give no error, and nothing panics.
            let _nothing = ip::Packet::parse(&bytes[..len]).ok().and_then(|packet| error_of(&packet));
        }
    }

    #[test]
    fn an_error_about_a_segment_behind_a_digest_names_the_connection_too() {
        let segment = [0x13, 0x88, 0, 80, 1, 2, 3, 4];
        // An Authentication Header before TCP, with a digest of 16 bytes (RFC 4302, section 2).
        let header = |next: u8| [&[next, 4, 0, 0][..], &[0; 20], &segment].concat();
        let refused = |ours: &[u8]| {
            let error = Message::Unreachable { code: Unreachable::Protocol, mtu: None, quoted: ours };
            let emit = |out: &mut Vec<u8>| error.emit([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), out);
            error_of(&ip::Packet::parse(&packet(Protocol::ICMP, emit, error.len(false))).unwrap())
        };
        let quoting = |bytes: &[u8]| refused(&packet(Protocol::AH, |out| out.extend_from_slice(bytes), bytes.len()));
        let found = quoting(&header(6)).unwrap();
        assert_eq!((found.kind, found.tuple.remote), (IcmpErrorKind::Refused, ([10, 0, 0, 2], 80).into()));
        // UDP behind it, and headers that are cut off.
        assert!(quoting(&header(17)).is_none());
        for len in 0..24 + 8 {
            assert!(quoting(&header(6)[..len]).is_none(), "{len}");
        }
    }

    /// Both versions' reports count (RFC 9293, section 3.9.2.2), and equal reports have the same
    /// meaning.
    #[test]
    fn reports_of_both_versions_mean_the_same() {
        let kind = |is_ipv6: bool, ty: u8, code: u8| {
            let ip =
                |host: u8| if is_ipv6 { IpAddr::V6(Ipv6Addr::from(u128::from(host))) } else { [10, 0, 0, host].into() };
            let header = |source, destination, protocol| ip::Header {
                source,
                destination,
                protocol,
                hop_limit: 64,
                dscp: 0,
                ecn: None,
                id: 0,
                may_fragment: false,
            };
            let mut ours = Vec::new();
            header(ip(2), ip(1), Protocol::TCP).emit(8, &mut ours);
            ours.extend_from_slice(&[0x13, 0x88, 0, 80, 1, 2, 3, 4]);
            let mut message = vec![ty, code, 0, 0, 0, 0, 0, 0];
            message.extend_from_slice(&ours);
            let protocol = if is_ipv6 { Protocol::ICMPV6 } else { Protocol::ICMP };
            let pseudo = wire::checksum::pseudo_header(ip(1), ip(2), protocol, message.len() as u32);
            let sum = !wire::checksum::sum(&message, if is_ipv6 { pseudo } else { 0 });
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut bytes = Vec::new();
            header(ip(1), ip(2), protocol).emit(message.len(), &mut bytes);
            bytes.extend_from_slice(&message);
            error_of(&ip::Packet::parse(&bytes).unwrap()).map(|error| error.kind)
        };
        let (refused, unreachable) = (Some(IcmpErrorKind::Refused), Some(IcmpErrorKind::Unreachable));
        // Protocol and port.
        assert_eq!([kind(false, 3, 2), kind(false, 3, 3)], [refused; 2]);
        assert_eq!([kind(true, 4, 1), kind(true, 1, 4)], [refused; 2]);
        for (ty, code) in [(3, 0), (3, 1), (3, 5), (3, 13), (11, 0), (11, 1), (12, 0), (12, 1)] {
            assert_eq!(kind(false, ty, code), unreachable, "{ty} {code}");
        }
        for (ty, code) in [(1, 0), (1, 1), (1, 3), (3, 0), (3, 1), (4, 0), (4, 2)] {
            assert_eq!(kind(true, ty, code), unreachable, "{ty} {code}");
        }
        assert_eq!([kind(false, 4, 0), kind(false, 8, 0), kind(true, 128, 0)], [None; 3]);
    }

    #[test]
    fn a_source_quench_says_nothing() {
        let ours = packet(Protocol::TCP, |out| out.extend_from_slice(&[0x13, 0x88, 0, 80, 1, 2, 3, 4]), 8);
        // Type 4 (RFC 792), four unused bytes, and our packet.
        let mut message = vec![4, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&ours);
        let sum = !wire::checksum::sum(&message, 0);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let bytes = packet(Protocol::ICMP, |out| out.extend_from_slice(&message), message.len());
        let parsed = ip::Packet::parse(&bytes).unwrap();
        assert!(message_of(&parsed).is_some(), "it is valid");
        assert_eq!(error_of(&parsed), None);
    }
}
