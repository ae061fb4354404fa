use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const FRAME: [u8; 18] = *b"\xff\xff\xff\xff\xff\xff\x02\x00\x5e\x10\x00\x01\x08\x06data";

#[test]
fn a_known_frame_is_parsed_and_written() {
    let header = Header {
        destination: MacAddress::BROADCAST,
        source: MacAddress([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]),
        ether_type: EtherType::ARP,
    };
    assert_eq!(Header::parse(&FRAME), Ok((header, &b"data"[..])));
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!(out, FRAME[..14]);
}

#[test]
fn impossible_frames_are_errors() {
    for len in 0..HEADER_LEN {
        assert_eq!(Header::parse(&FRAME[..len]), Err(ParseError::Truncated), "{len} bytes");
    }
    let mut bytes = FRAME;
    bytes[12..14].copy_from_slice(&[0x05, 0xff]);
    assert_eq!(Header::parse(&bytes), Err(ParseError::Length));
    bytes[12..14].copy_from_slice(&[0x06, 0x00]);
    assert!(Header::parse(&bytes).is_ok());
}

#[test]
fn addresses_and_types_are_shown() {
    let address = MacAddress([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);
    assert_eq!(address.to_string(), "02:00:5e:10:00:01");
    assert_eq!(format!("{address:?}"), "02:00:5e:10:00:01");
    assert!(!address.is_multicast() && MacAddress::BROADCAST.is_multicast());
    assert_eq!(EtherType::IPV6.to_string(), "IPV6");
    assert_eq!(EtherType(0x88cc).to_string(), "EtherType 0x88cc");
}

#[test]
fn groups_have_their_own_addresses() {
    let of = |group: IpAddr| MacAddress::for_multicast(group);
    assert_eq!(of(Ipv4Addr::new(224, 128, 1, 2).into()), Some(MacAddress([0x01, 0x00, 0x5e, 0, 1, 2])));
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456);
    assert_eq!(of(group.into()), Some(MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])));
    assert_eq!(of(Ipv4Addr::LOCALHOST.into()), None);
    assert_eq!(of(Ipv6Addr::LOCALHOST.into()), None);
}

proptest! {
    #[test]
    fn frames_round_trip(destination: [u8; 6], source: [u8; 6], ether_type in 0x600_u16.., data in vec(any::<u8>(), 0..50)) {
        let header = Header {
            destination: MacAddress(destination),
            source: MacAddress(source),
            ether_type: EtherType(ether_type),
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes.extend_from_slice(&data);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &data[..])));
    }

    #[test]
    fn random_bytes_are_no_danger(bytes in vec(any::<u8>(), 0..40)) {
        if let Ok((header, data)) = Header::parse(&bytes) {
            let mut out = Vec::new();
            header.emit(&mut out);
            out.extend_from_slice(data);
            prop_assert_eq!(out, bytes);
        }
    }
}
