use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;
use crate::checksum;
use crate::ip::{Packet, Protocol};
use proptest::collection::vec;
use proptest::prelude::*;

/// Addresses of a version.
fn addresses(is_ipv6: bool) -> (IpAddr, IpAddr) {
    if is_ipv6 {
        (Ipv6Addr::from(1).into(), Ipv6Addr::from(2).into())
    } else {
        (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into())
    }
}

fn parse(is_ipv6: bool, bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    let (source, destination) = addresses(is_ipv6);
    Message::parse(source, destination, bytes)
}

fn emitted(is_ipv6: bool, message: &Message<'_>) -> Vec<u8> {
    let (source, destination) = addresses(is_ipv6);
    let mut out = vec![0xee];
    message.emit(source, destination, &mut out);
    assert_eq!(out.len() - 1, message.len(is_ipv6));
    out.split_off(1)
}

/// Returns the bytes with the correct checksum.
fn sealed(is_ipv6: bool, bytes: &[u8]) -> Vec<u8> {
    let (source, destination) = addresses(is_ipv6);
    let pseudo = checksum::pseudo_header(source, destination, Protocol::ICMPV6, bytes.len() as u32);
    let mut bytes = bytes.to_vec();
    checksum::fill(&mut bytes, 2, if is_ipv6 { pseudo } else { 0 });
    bytes
}

/// Returns the type and code with which a message is written.
fn code_of(is_ipv6: bool, code: Unreachable) -> (u8, u8) {
    let bytes = emitted(is_ipv6, &Message::Unreachable { code, mtu: None, quoted: b"quoted" });
    (bytes[0], bytes[1])
}

#[test]
fn known_echo_messages_are_written_and_parsed() {
    // The checksums were computed by other code.
    let request = Message::EchoRequest { id: 0x1234, seq: 1, data: b"abc" };
    let bytes = *b"\x08\x00\x21\x68\x12\x34\x00\x01abc";
    assert_eq!(emitted(false, &request), bytes);
    assert_eq!(parse(false, &bytes), Ok(request));
    let reply = Message::EchoReply { id: 0x1234, seq: 1, data: b"abc" };
    let bytes = *b"\x81\x00\xa8\x1f\x12\x34\x00\x01abc";
    assert_eq!(emitted(true, &reply), bytes);
    assert_eq!(parse(true, &bytes), Ok(reply));
}

#[test]
fn wrong_checksums_are_errors() {
    for is_ipv6 in [false, true] {
        let bytes = emitted(is_ipv6, &Message::EchoRequest { id: 1, seq: 2, data: b"data" });
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(parse(is_ipv6, &damaged), Err(ParseError::Checksum), "byte {at}");
        }
    }
    // The checksum of ICMPv6 covers the addresses.
    let bytes = emitted(true, &Message::EchoRequest { id: 1, seq: 2, data: b"data" });
    let other = Ipv6Addr::from(3).into();
    assert_eq!(Message::parse(other, addresses(true).1, &bytes), Err(ParseError::Checksum));
}

#[test]
fn messages_that_end_too_early_are_errors() {
    for is_ipv6 in [false, true] {
        for ty in [0, 1, 2, 3, 4, 8, 11, 12, 128, 129, 133, 134, 135, 136] {
            for len in 0..HEADER_LEN {
                let bytes = [ty, 0, 0, 0, 0, 0, 0, 0];
                let bytes = if len < 4 { bytes[..len].to_vec() } else { sealed(is_ipv6, &bytes[..len]) };
                match parse(is_ipv6, &bytes) {
                    // The version has no message of this type.
                    Ok(message) => assert!(matches!(message, Message::Other { .. }) && len >= 4, "{ty} {message:?}"),
                    Err(ParseError::Truncated | ParseError::Ndp(ndp::ParseError::Truncated)) => {}
                    Err(error) => panic!("{error:?} with {len} bytes"),
                }
            }
        }
    }
}

#[test]
fn reasons_have_the_codes_of_their_version() {
    let cases = [
        (Unreachable::Network, (3, 0), (1, 0)),
        (Unreachable::Host, (3, 1), (1, 3)),
        (Unreachable::Protocol, (3, 2), (4, 1)),
        (Unreachable::Port, (3, 3), (1, 4)),
        (Unreachable::FragmentationNeeded, (3, 4), (2, 0)),
        (Unreachable::SourceRoute, (3, 5), (1, 7)),
        (Unreachable::Administrative, (3, 13), (1, 1)),
        (Unreachable::BeyondScope, (3, 1), (1, 2)),
        (Unreachable::Other(99), (3, 99), (1, 99)),
    ];
    for (code, v4, v6) in cases {
        assert_eq!((code_of(false, code), code_of(true, code)), (v4, v6), "{code:?}");
    }
    for code in 0..=u8::MAX {
        // Codes with the same meaning are written as one.
        let reason = Unreachable::from_v4(code);
        assert_eq!(Unreachable::from_v4(reason.to_v4()), reason);
        let reason = Unreachable::from_v6(code);
        assert_eq!(reason.to_v6().map(Unreachable::from_v6), Some(reason));
    }
}

#[test]
fn an_mtu_comes_with_fragmentation_needed_and_packet_too_big() {
    let quoted = b"quoted";
    let v4 = |mtu: [u8; 2], code| sealed(false, &[&[3, code, 0, 0, 0, 0, mtu[0], mtu[1]][..], quoted].concat());
    let code = Unreachable::FragmentationNeeded;
    assert_eq!(parse(false, &v4([5, 0], 4)), Ok(Message::Unreachable { code, mtu: Some(1280), quoted }));
    assert_eq!(parse(false, &v4([0, 0], 4)), Ok(Message::Unreachable { code, mtu: None, quoted }));
    let code = Unreachable::Host;
    assert_eq!(parse(false, &v4([5, 0], 1)), Ok(Message::Unreachable { code, mtu: None, quoted }));
    let too_big = Message::PacketTooBig { mtu: 0x0001_0000, quoted };
    assert_eq!(parse(true, &emitted(true, &too_big)), Ok(too_big));
    // Each version has its own message for this.
    let code = Unreachable::FragmentationNeeded;
    let needed = Message::Unreachable { code, mtu: Some(1400), quoted };
    assert_eq!(parse(true, &emitted(true, &needed)), Ok(Message::PacketTooBig { mtu: 1400, quoted }));
    let most = Message::Unreachable { code, mtu: Some(0xffff), quoted };
    assert_eq!(parse(false, &emitted(false, &too_big)), Ok(most));
}

#[test]
fn extensions_do_not_belong_to_the_quotation() {
    // 8 words of 4 bytes, or 4 of 8.
    let body = [&[7; 32][..], &[0x20, 0, 0, 0, 0, 4, 1, 1]].concat();
    let quoted_in = |is_ipv6, head: [u8; 8]| {
        let bytes = sealed(is_ipv6, &[&head[..], &body].concat());
        match parse(is_ipv6, &bytes).unwrap() {
            Message::Unreachable { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::PacketTooBig { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => quoted.len(),
            message => panic!("{message:?}"),
        }
    };
    for ty in [3, 11, 12] {
        assert_eq!(quoted_in(false, [ty, 0, 0, 0, 0, 8, 0, 0]), 32, "type {ty}");
        assert_eq!(quoted_in(false, [ty, 0, 0, 0, 0, 0, 0, 0]), 40);
        assert_eq!(quoted_in(false, [ty, 0, 0, 0, 0, 11, 0, 0]), 40, "an impossible length");
    }
    for ty in [1, 3] {
        assert_eq!(quoted_in(true, [ty, 0, 0, 0, 4, 0, 0, 0]), 32, "type {ty}");
        assert_eq!(quoted_in(true, [ty, 0, 0, 0, 0, 0, 0, 0]), 40);
        assert_eq!(quoted_in(true, [ty, 0, 0, 0, 6, 0, 0, 0]), 40);
    }
    for ty in [2, 4] {
        assert_eq!(quoted_in(true, [ty, 0, 0, 0, 4, 0, 0, 0]), 40, "the bytes mean something else");
    }
}

#[test]
fn errors_stay_within_the_least_mtu() {
    let packet = [0x45; 3000];
    for message in [
        Message::Unreachable { code: Unreachable::Port, mtu: None, quoted: &packet },
        Message::PacketTooBig { mtu: 1500, quoted: &packet },
        Message::TimeExceeded { code: 0, quoted: &packet },
        Message::ParameterProblem { code: 0, pointer: 1, quoted: &packet },
    ] {
        assert_eq!(emitted(false, &message).len(), 576 - 20);
        assert_eq!(emitted(true, &message).len(), 1280 - 40);
    }
    assert_eq!(emitted(true, &Message::EchoReply { id: 1, seq: 1, data: &packet }).len(), 3008);
    assert_eq!(quotable(&packet[..9], false).len(), 9);
}

#[test]
fn a_known_error_leads_to_its_connection() {
    // Port unreachable for a UDP packet from 10.0.0.2, port 53, whose hop limit a router changed.
    let bytes = sealed(
        false,
        b"\x03\x03\x00\x00\x00\x00\x00\x00\x45\x00\x04\x00\x00\x00\x00\x00\x3f\x11\x00\x00\
        \x0a\x00\x00\x02\x0a\x00\x00\x01\x00\x35\x12\x34\x03\xec\x00\x00",
    );
    let Ok(Message::Unreachable { code: Unreachable::Port, mtu: None, quoted }) = parse(false, &bytes) else {
        panic!("not parsed")
    };
    let packet = Packet::parse_quoted(quoted).unwrap();
    assert_eq!((packet.source, packet.protocol), (addresses(false).1, Protocol::UDP));
    assert_eq!(packet.payload[..4], [0x00, 0x35, 0x12, 0x34]);
}

#[test]
fn errors_and_redirects_must_not_be_answered_with_errors() {
    let other = |ty| Message::Other { ty, code: 0, body: &[] };
    assert!(Message::TimeExceeded { code: 0, quoted: &[] }.is_error(true));
    assert!(!Message::EchoReply { id: 0, seq: 0, data: &[] }.is_error(false));
    assert!(other(5).is_error(false) && other(4).is_error(false) && !other(13).is_error(false));
    assert!(other(137).is_error(true) && other(100).is_error(true) && !other(143).is_error(true));
}

#[test]
#[should_panic(expected = "a part of ICMPv6")]
fn neighbor_discovery_for_ipv4_panics() {
    emitted(false, &Message::Ndp(ndp::Message::RouterSolicitation { source_link: None }));
}

fn messages(is_ipv6: bool) -> impl Strategy<Value = (u8, u8, [u8; 4], Vec<u8>)> {
    let types = if is_ipv6 {
        prop::sample::select(vec![1, 2, 3, 4, 100, 128, 129, 133, 134, 135, 136, 137, 143])
    } else {
        prop::sample::select(vec![0, 3, 4, 5, 8, 11, 12, 13, 135])
    };
    (types, 0..17_u8, any::<[u8; 4]>(), vec(any::<u8>(), 0..100))
}

/// Checks that a parsed message is the same after writing and parsing.
fn check(is_ipv6: bool, bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = parse(is_ipv6, bytes) {
        let again = emitted(is_ipv6, &message);
        prop_assert_eq!(parse(is_ipv6, &again), Ok(message));
    }
    Ok(())
}

proptest! {
    #[test]
    fn messages_round_trip((ty, code, word, rest) in messages(false), (ty6, code6, word6, rest6) in messages(true)) {
        check(false, &sealed(false, &[&[ty, code, 0, 0], &word[..], &rest].concat()))?;
        check(true, &sealed(true, &[&[ty6, code6, 0, 0], &word6[..], &rest6].concat()))?;
    }

    #[test]
    fn echo_messages_round_trip(id: u16, seq: u16, data in vec(any::<u8>(), 0..100), is_ipv6: bool) {
        for message in [Message::EchoRequest { id, seq, data: &data }, Message::EchoReply { id, seq, data: &data }] {
            let bytes = emitted(is_ipv6, &message);
            prop_assert_eq!(parse(is_ipv6, &bytes), Ok(message));
            for len in 0..bytes.len() {
                // The checksum may be correct by chance.
                if let Ok(shorter) = parse(is_ipv6, &bytes[..len]) {
                    prop_assert_ne!(shorter, message);
                }
            }
        }
    }

    #[test]
    fn random_bytes_are_no_danger(bytes in vec(any::<u8>(), 0..100)) {
        for is_ipv6 in [false, true] {
            let _ = parse(is_ipv6, &bytes);
            if bytes.len() >= 4 {
                check(is_ipv6, &sealed(is_ipv6, &bytes))?;
            }
        }
    }
}
