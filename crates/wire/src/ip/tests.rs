use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::Ecn;

use super::*;
use crate::checksum;
use proptest::collection::vec;
use proptest::prelude::*;

const A: Ipv4Addr = Ipv4Addr::new(172, 16, 10, 99);
const B: Ipv4Addr = Ipv4Addr::new(172, 16, 10, 12);

/// An IPv4 packet with a payload of 4 bytes.
const V4: [u8; 24] = *b"\x45\x02\x00\x18\x1c\x46\x40\x00\x40\x06\xb2\x08\xac\x10\x0a\x63\xac\x10\x0a\x0cdata";

/// Returns the start of an IPv6 packet: DSCP 46, ECT(1), hop limit 64, from ::1 to ::2.
pub(super) fn v6(next: Protocol, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x6b, 0x91, 0x23, 0x45, 0, 0, next.0, 64];
    bytes[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&Ipv6Addr::from(1).octets());
    bytes.extend_from_slice(&Ipv6Addr::from(2).octets());
    bytes.extend_from_slice(rest);
    bytes
}

/// Returns `V4` with changes, and with the checksum of the changed header.
fn v4(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = V4.to_vec();
    change(&mut bytes);
    let len = usize::from(bytes[0] & 0x0f) * 4;
    checksum::fill_ipv4(&mut bytes[..len]);
    bytes
}

pub(super) fn error(bytes: &[u8]) -> ParseError {
    Packet::parse(bytes).expect_err("the packet must be refused")
}

#[test]
fn a_known_ipv4_packet_is_parsed() {
    let packet = Packet {
        source: A.into(),
        destination: B.into(),
        protocol: Protocol::TCP,
        hop_limit: 64,
        dscp: 0,
        ecn: Some(Ecn::Ect0),
        may_fragment: false,
        fragment: None,
        header_len: 20,
        payload: b"data",
    };
    assert_eq!(Packet::parse(&v4(|_| ())), Ok(packet));
    assert_eq!(v4(|_| ()), V4, "the checksum in the constant");
    assert!(!packet.is_ipv6());
}

#[test]
fn a_known_ipv6_packet_is_parsed() {
    let packet = Packet {
        source: Ipv6Addr::from(1).into(),
        destination: Ipv6Addr::from(2).into(),
        protocol: Protocol::UDP,
        hop_limit: 64,
        dscp: 46,
        ecn: Some(Ecn::Ect1),
        may_fragment: false,
        fragment: None,
        header_len: 40,
        payload: b"data",
    };
    assert_eq!(Packet::parse(&v6(Protocol::UDP, b"data")), Ok(packet));
    assert!(packet.is_ipv6());
}

#[test]
fn bytes_after_the_packet_are_cut_off() {
    for mut bytes in [V4.to_vec(), v6(Protocol::UDP, b"data")] {
        bytes.extend_from_slice(&[0; 18]);
        assert_eq!(Packet::parse(&bytes).unwrap().payload, b"data");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let mut rest = vec![Protocol::DESTINATION_OPTIONS.0, 0, 1, 4, 0, 0, 0, 0];
    rest.extend_from_slice(&[Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0]);
    rest.extend_from_slice(b"data");
    for bytes in [V4.to_vec(), v6(Protocol::HOP_BY_HOP, &rest)] {
        assert!(Packet::parse(&bytes).is_ok());
        for len in 0..bytes.len() {
            assert_eq!(error(&bytes[..len]), ParseError::Truncated, "{len} bytes");
        }
    }
    // The length in the header is adjusted as well.
    for len in 0..16 {
        assert_eq!(error(&v6(Protocol::HOP_BY_HOP, &rest[..len])), ParseError::Truncated, "{len} bytes");
    }
}

#[test]
fn impossible_ipv4_headers_are_errors() {
    for version in [0, 3, 5, 7, 15] {
        assert_eq!(error(&v4(|bytes| bytes[0] = version << 4 | 5)), ParseError::Version(version));
    }
    assert_eq!(error(&v4(|bytes| bytes[0] = 0x44)), ParseError::HeaderLength);
    assert_eq!(error(&v4(|bytes| bytes[3] = 19)), ParseError::HeaderLength);
    assert_eq!(error(&v4(|bytes| bytes[3] = 25)), ParseError::Truncated);
    for at in 1..20 {
        let mut bytes = V4;
        bytes[at] ^= 1;
        // A longer packet ends too early, and a packet with a wrong checksum may not be parsed at
        // all.
        let expected = [ParseError::Checksum, ParseError::Truncated];
        assert!(expected.contains(&error(&bytes)), "byte {at}");
    }
}

#[test]
fn ipv4_options_belong_to_the_header() {
    let bytes = v4(|bytes| {
        bytes[0] = 0x46;
        bytes[3] = 28;
        bytes.splice(20..20, [0x94, 4, 0, 0]);
    });
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.header_len, packet.payload), (24, &b"data"[..]));
    // A header longer than the packet.
    let bytes = v4(|bytes| {
        bytes[0] = 0x47;
        bytes.extend_from_slice(&[0; 8]);
    });
    assert_eq!(error(&bytes), ParseError::HeaderLength);
}

#[test]
fn ipv4_fragments_are_marked() {
    let of = |flags: u16, payload_len: usize| {
        v4(|bytes| {
            bytes.resize(20 + payload_len, 0);
            bytes[2..4].copy_from_slice(&(20 + payload_len as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        })
    };
    let fragment = |bytes: &[u8]| Packet::parse(bytes).unwrap().fragment;
    assert_eq!(fragment(&of(0, 4)), None);
    assert_eq!(fragment(&of(0x2000, 16)), Some(Fragment { id: 0x1c46, offset: 0, more: true }));
    assert_eq!(fragment(&of(0x0003, 5)), Some(Fragment { id: 0x1c46, offset: 24, more: false }));
    assert!(Packet::parse(&of(0, 4)).unwrap().may_fragment);
    assert_eq!(error(&of(0x2000, 15)), ParseError::FragmentLength);
    // 20 + 65,496 + 19 bytes fit 16 bits, one byte more does not.
    assert!(Packet::parse(&of(0x1ffb, 19)).is_ok());
    assert_eq!(error(&of(0x1ffb, 20)), ParseError::FragmentEnd);
}

#[test]
fn quoted_packets_may_be_cut_off() {
    let mut bytes = V4;
    bytes[8] -= 1;
    assert_eq!(error(&bytes), ParseError::Checksum);
    let packet = Packet::parse_quoted(&bytes[..22]).unwrap();
    assert_eq!((packet.payload, packet.hop_limit), (&b"da"[..], 63));
    let bytes = v6(Protocol::UDP, b"data");
    assert_eq!(Packet::parse_quoted(&bytes[..41]).unwrap().payload, b"d");
    for len in 0..40 {
        assert_eq!(Packet::parse_quoted(&bytes[..len]), Err(ParseError::Truncated));
    }
    for len in 0..20 {
        assert_eq!(Packet::parse_quoted(&V4[..len]), Err(ParseError::Truncated));
    }
}

#[test]
fn a_known_header_is_written() {
    let header = Header {
        source: A.into(),
        destination: B.into(),
        protocol: Protocol::TCP,
        hop_limit: 64,
        dscp: 0,
        ecn: Some(Ecn::Ect0),
        id: 0x1c46,
        may_fragment: false,
    };
    let mut out = Vec::new();
    header.emit(4, &mut out);
    assert_eq!(out, V4[..20]);
}

#[test]
fn protocols_are_shown_by_name() {
    assert_eq!(Protocol::ICMPV6.to_string(), "ICMPV6");
    assert_eq!(format!("{:?}", Protocol(200)), "protocol 200");
}

fn ecn() -> impl Strategy<Value = Option<Ecn>> {
    prop_oneof![Just(None), Just(Some(Ecn::Ect0)), Just(Some(Ecn::Ect1)), Just(Some(Ecn::Ce))]
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    (addresses(), any::<(u8, u8, u16, bool)>(), 0..64_u8, ecn()).prop_map(
        |((source, destination), (protocol, hop_limit, id, may_fragment), dscp, ecn)| Header {
            source,
            destination,
            // No extension header.
            protocol: Protocol(if matches!(protocol, 0 | 43 | 44 | 60) { 6 } else { protocol }),
            hop_limit,
            dscp,
            ecn,
            id,
            may_fragment: may_fragment && source.is_ipv4(),
        },
    )
}

proptest! {
    #[test]
    fn headers_round_trip(header in headers(), payload in vec(any::<u8>(), 0..100), padding in 0..20_usize) {
        let mut out = vec![0xee];
        header.emit(payload.len(), &mut out);
        prop_assert_eq!(out.len() - 1, header.len());
        out.extend_from_slice(&payload);
        let end = out.len();
        out.resize(end + padding, 0xee);
        let packet = Packet::parse(&out[1..]).unwrap();
        let parsed = Header {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            hop_limit: packet.hop_limit,
            dscp: packet.dscp,
            ecn: packet.ecn,
            id: header.id,
            may_fragment: packet.may_fragment,
        };
        prop_assert_eq!(parsed, header);
        prop_assert_eq!((packet.header_len, packet.payload, packet.fragment), (header.len(), &payload[..], None));
        for len in 1..end {
            prop_assert_eq!(Packet::parse(&out[1..len]), Err(ParseError::Truncated));
        }
    }

    #[test]
    fn random_bytes_are_no_danger(mut bytes in vec(any::<u8>(), 0..200), kind in 0..4_u8, next in 0..5_usize) {
        match kind {
            0 => {}
            1 if bytes.len() >= 60 => {
                bytes[0] = 0x40 | bytes[0] & 0x0f;
                bytes[2] = 0;
                let len = usize::from(bytes[0] & 0x0f) * 4;
                if len >= 20 {
                    checksum::fill_ipv4(&mut bytes[..len]);
                }
            }
            _ if bytes.len() >= 48 => {
                bytes[0] = 0x60;
                let len = bytes.len() - 40;
                bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                bytes[6] = [0, 43, 44, 60, 6][next];
                bytes[41] &= 1;
            }
            _ => {}
        }
        for packet in [Packet::parse(&bytes), Packet::parse_quoted(&bytes)].into_iter().flatten() {
            prop_assert!(packet.header_len + packet.payload.len() <= bytes.len());
            prop_assert_eq!(&bytes[packet.header_len..][..packet.payload.len()], packet.payload);
        }
    }
}
