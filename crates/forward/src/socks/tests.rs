use proptest::prelude::*;

use super::*;

#[test]
fn a_greeting_is_read_when_it_is_whole() {
    assert_eq!(parse_greeting(b"\x05\x01\x00"), Ok(Some((true, 3))));
    assert_eq!(parse_greeting(b"\x05\x02\x02\x01rest"), Ok(Some((false, 4))));
    assert_eq!(parse_greeting(b"\x05\x00"), Ok(Some((false, 2))));
    for cut in [b"".as_slice(), b"\x05", b"\x05\x02\x00"] {
        assert_eq!(parse_greeting(cut), Ok(None));
    }
    assert!(parse_greeting(b"\x04\x01").is_err() && parse_greeting(b"GET / HTTP").is_err());
}

#[test]
fn requests_name_addresses_and_names() {
    for (bytes, text) in [
        (b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50".as_slice(), "192.0.2.1:80"),
        (b"\x05\x01\x00\x03\x03db.\x00\x50", "db:80"),
        (b"\x05\x01\x00\x03\x0aDb.exampLE\x00\x50", "db.example:80"),
        (b"\x05\x01\x00\x03\x09192.0.2.7\x00\x50", "192.0.2.7:80"),
        (b"\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50", "[2001:db8::1]:80"),
    ] {
        let Ok(Some((Request::Connect(address), len))) = parse_request(bytes) else { panic!("{text}") };
        assert_eq!((address.to_string().as_str(), len), (text, bytes.len()));
        for cut in 0..bytes.len() {
            assert_eq!(parse_request(&bytes[..cut]), Ok(None), "{text} cut at {cut}");
        }
    }
    let associate = b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00";
    assert_eq!(parse_request(associate), Ok(Some((Request::Associate, 10))));
    assert_eq!(parse_request(b"\x05\x02\x00\x01\0\0\0\0\0\x01"), Ok(Some((Request::Unsupported, 10))));
    for bad in [
        b"\x04\x01\x00\x01".as_slice(),
        b"\x05\x01\x01",
        b"\x05\x01\x00\x02",
        b"\x05\x01\x00\x03\x00\x00\x50",
        b"\x05\x01\x00\x03\x01/\x00\x50",
        b"\x05\x01\x00\x03\x01\xff\x00\x50",
        b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00",
    ] {
        assert!(parse_request(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn the_longest_request_fits() {
    let mut bytes = b"\x05\x01\x00\x03\xff".to_vec();
    bytes.extend([b'a'; 255]);
    bytes.extend([0, 80]);
    assert!(bytes.len() <= MESSAGE_LEN_MAX);
    assert!(parse_request(&bytes).is_err(), "no name has 255 bytes");
    assert_eq!(parse_request(&bytes[..bytes.len() - 3]), Ok(None));
}

#[test]
fn replies_have_the_bound_address() {
    let mut out = Vec::new();
    put_reply(Reply::Refused, "192.0.2.1:80".parse().expect("an address"), &mut out);
    assert_eq!(out, b"\x05\x05\x00\x01\xc0\x00\x02\x01\x00\x50");
    let replies = [Reason::NotAllowed, Reason::Refused, Reason::NameNotFound, Reason::TimedOut].map(Reply::from);
    assert_eq!(replies.map(|reply| reply as u8), [2, 5, 4, 6]);
}

#[test]
fn udp_packets_have_a_header_both_ways() {
    let origin: Address = Address::of("192.0.2.1:53".parse().expect("an address"));
    let mut packet = Vec::new();
    put_udp_header(&origin, &mut packet);
    packet.extend_from_slice(b"answer");
    assert_eq!(parse_udp(&packet), Ok((origin, 10)));
    assert!(parse_udp(b"\0\0\x01\x01\xc0\x00\x02\x01\x00\x35x").is_err(), "a fragment");
    assert!(parse_udp(b"\0\x01\0\x01\xc0\x00\x02\x01\x00\x35x").is_err(), "a reserved byte");
    assert!(parse_udp(b"\0\0\0\x01\xc0\x00\x02\x01\x00\x00x").is_err(), "port 0");
    for cut in 0..10 {
        assert!(parse_udp(&packet[..cut]).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _greeting = parse_greeting(&bytes);
        if let Ok(Some((_, len))) = parse_request(&bytes) {
            prop_assert!(len <= bytes.len() && len <= MESSAGE_LEN_MAX);
        }
        if let Ok((_, at)) = parse_udp(&bytes) {
            prop_assert!(at <= bytes.len() && at <= UDP_HEADER_LEN_MAX);
        }
    }
}
