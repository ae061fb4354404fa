use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::ip::Protocol;
use proptest::collection::vec;
use proptest::prelude::*;

/// From port 53 to port 4660 with the data "hi!".
const DATAGRAM: [u8; 11] = *b"\x00\x35\x12\x34\x00\x0b\x00\x00hi!";

fn pseudo(is_ipv6: bool, len: usize) -> u16 {
    if is_ipv6 {
        let (a, b) = (Ipv6Addr::from(1), Ipv6Addr::from(2));
        checksum::pseudo_header(a.into(), b.into(), Protocol::UDP, len as u32)
    } else {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        checksum::pseudo_header(a.into(), b.into(), Protocol::UDP, len as u32)
    }
}

#[test]
fn a_known_datagram_is_parsed() {
    let mut bytes = DATAGRAM.to_vec();
    let header = Header { source_port: 53, destination_port: 0x1234, len: 11, checksum: 0 };
    assert_eq!(Header::parse(&bytes), Ok((header, &b"hi!"[..])));
    bytes.extend_from_slice(&[0; 5]);
    assert_eq!(Header::parse(&bytes), Ok((header, &b"hi!"[..])), "padding is cut off");
}

#[test]
fn impossible_lengths_are_errors() {
    for len in 0..DATAGRAM.len() {
        assert_eq!(Header::parse(&DATAGRAM[..len]), Err(ParseError::Truncated), "{len} bytes");
    }
    for len in 0..8 {
        let mut bytes = DATAGRAM;
        bytes[5] = len;
        assert_eq!(Header::parse(&bytes), Err(ParseError::Length));
    }
    let mut bytes = DATAGRAM;
    bytes[5] = 12;
    assert_eq!(Header::parse(&bytes), Err(ParseError::Truncated));
}

#[test]
fn a_known_checksum_matches() {
    let mut bytes = DATAGRAM;
    let pseudo = pseudo(false, bytes.len());
    fill_checksum(&mut bytes, pseudo);
    // Other code computed this value.
    assert_eq!(bytes[6..8], [0x50, 0x03]);
    assert!(is_checksum_valid(&bytes, pseudo, false));
    let mut offloaded = DATAGRAM;
    fill_partial_checksum(&mut offloaded, pseudo);
    assert_eq!(!checksum::sum(&offloaded, 0), u16::from_be_bytes([bytes[6], bytes[7]]));
    for at in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[at] ^= 0x10;
        assert!(!is_checksum_valid(&damaged, pseudo, false), "byte {at}");
    }
}

#[test]
fn no_checksum_is_right_for_ipv4_alone() {
    assert!(is_checksum_valid(&DATAGRAM, pseudo(false, DATAGRAM.len()), false));
    assert!(!is_checksum_valid(&DATAGRAM, pseudo(true, DATAGRAM.len()), true));
    assert!(!is_checksum_valid(&DATAGRAM[..7], 0, false));
}

#[test]
fn a_checksum_of_zero_is_written_as_all_ones() {
    let mut bytes = [0, 0, 0, 0, 0, 10, 0, 0, 0, 0];
    let pseudo = pseudo(true, bytes.len());
    let rest = !checksum::sum(&bytes, pseudo);
    bytes[8..10].copy_from_slice(&rest.to_be_bytes());
    fill_checksum(&mut bytes, pseudo);
    assert_eq!(bytes[6..8], [0xff, 0xff]);
    assert!(is_checksum_valid(&bytes, pseudo, true));
}

proptest! {
    #[test]
    fn datagrams_round_trip(words: [u16; 2], data in vec(any::<u8>(), 0..100), is_ipv6: bool) {
        let len = (HEADER_LEN + data.len()) as u16;
        let header = Header { source_port: words[0], destination_port: words[1], len, checksum: 0 };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes.extend_from_slice(&data);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &data[..])));
        let pseudo = pseudo(is_ipv6, bytes.len());
        fill_checksum(&mut bytes, pseudo);
        prop_assert!(is_checksum_valid(&bytes, pseudo, is_ipv6));
        for len in 0..bytes.len() {
            prop_assert_eq!(Header::parse(&bytes[..len]), Err(ParseError::Truncated));
        }
    }

    #[test]
    fn random_bytes_are_no_danger(bytes in vec(any::<u8>(), 0..40), len in 0..50_u8) {
        let mut bytes = bytes;
        if bytes.len() > 5 {
            bytes[4..6].copy_from_slice(&[0, len]);
        }
        if let Ok((header, data)) = Header::parse(&bytes) {
            prop_assert_eq!(usize::from(header.len), HEADER_LEN + data.len());
            let mut out = Vec::new();
            header.emit(&mut out);
            prop_assert_eq!(&out, &bytes[..HEADER_LEN]);
        }
        let _ = is_checksum_valid(&bytes, 0, true);
    }
}
