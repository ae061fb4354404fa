use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The request "Who has 192.0.2.1? Tell 192.0.2.2."
const REQUEST: [u8; 28] = *b"\x00\x01\x08\x00\x06\x04\x00\x01\x02\x00\x00\x00\x00\x02\xc0\x00\x02\x02\
    \x00\x00\x00\x00\x00\x00\xc0\x00\x02\x01";

#[test]
fn a_known_request_is_parsed_and_written() {
    let packet = Packet {
        operation: Operation::REQUEST,
        sender_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        sender_ip: Ipv4Addr::new(192, 0, 2, 2),
        target_mac: MacAddress::default(),
        target_ip: Ipv4Addr::new(192, 0, 2, 1),
    };
    let mut out = Vec::new();
    packet.emit(&mut out);
    assert_eq!(out, REQUEST);
    assert_eq!(Packet::parse(&out), Ok(packet));
    out.resize(46, 0);
    assert_eq!(Packet::parse(&out), Ok(packet), "padding is no part of the packet");
}

#[test]
fn impossible_packets_are_errors() {
    for len in 0..PACKET_LEN {
        assert_eq!(Packet::parse(&REQUEST[..len]), Err(ParseError::Truncated), "{len} bytes");
    }
    for at in 0..FORMAT.len() {
        let mut bytes = REQUEST;
        bytes[at] ^= 0x10;
        assert_eq!(Packet::parse(&bytes), Err(ParseError::Format), "byte {at}");
    }
}

proptest! {
    #[test]
    fn packets_round_trip(operation: u16, macs: [[u8; 6]; 2], ips: [[u8; 4]; 2]) {
        let packet = Packet {
            operation: Operation(operation),
            sender_mac: MacAddress(macs[0]),
            sender_ip: ips[0].into(),
            target_mac: MacAddress(macs[1]),
            target_ip: ips[1].into(),
        };
        let mut out = Vec::new();
        packet.emit(&mut out);
        prop_assert_eq!(out.len(), PACKET_LEN);
        prop_assert_eq!(Packet::parse(&out), Ok(packet));
    }

    #[test]
    fn random_bytes_are_no_danger(mut bytes in vec(any::<u8>(), 0..40), has_format: bool) {
        if has_format && bytes.len() >= FORMAT.len() {
            bytes[..FORMAT.len()].copy_from_slice(&FORMAT);
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut out = Vec::new();
            packet.emit(&mut out);
            prop_assert_eq!(&out, &bytes[..PACKET_LEN]);
        }
    }
}
