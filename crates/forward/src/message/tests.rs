use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::address::{Address, Host, HostName};

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

fn decoded(bytes: &[u8]) -> Result<Message, Malformed> {
    let (header, body) = bytes.split_first_chunk().ok_or(Malformed("no header"))?;
    let header = Header::parse(*header)?;
    if header.body_len != body.len() {
        return Err(Malformed("another length"));
    }
    Message::decode(header, body)
}

fn name(text: &str) -> Host {
    Host::Name(HostName::new(text).expect(text))
}

/// Returns a message of each kind, and of each form of its fields.
fn messages() -> Vec<Message> {
    let path = || UnixPath::new("/run/app".as_ref()).expect("a path");
    let port = |protocol, bind, port| Listen::Port { protocol, bind, port };
    let ip = "2001:db8::1".parse().expect("an address");
    let listens = [
        port(Protocol::Tcp, Bind::Loopback, 0),
        port(Protocol::Udp, Bind::Any, 53),
        port(Protocol::Tcp, Bind::Ip(ip), 65535),
        Listen::Unix(path()),
    ];
    let targets = [
        Target::Host(Protocol::Tcp, Address { host: name("db.example"), port: 5432 }),
        Target::Host(Protocol::Udp, Address { host: Host::Ip(ip), port: 53 }),
        Target::Host(Protocol::Tcp, Address::of("192.0.2.1:1".parse().expect("an address"))),
        Target::Unix(path()),
    ];
    let mut all = vec![
        Message::Hello { run: [7; 16], proof: None },
        Message::Hello { run: [7; 16], proof: Some([9; 32]) },
        Message::Accepted { proof: None },
        Message::Accepted { proof: Some([9; 32]) },
        Message::Refused { code: 3 },
        Message::Arrived { id: 9, origin: None },
        Message::Arrived { id: 9, origin: Some("192.0.2.1:65535".parse().expect("an address")) },
        Message::OpenFrom {
            source: "10.76.0.2:40000".parse().expect("an address"),
            target: "192.0.2.1:80".parse().expect("an address"),
            class: SynClass { dscp: 46, asks_for_ecn: true },
        },
        Message::OpenFrom {
            source: "[2001:db8::1]:1".parse().expect("an address"),
            target: "[2001:db8::2]:65535".parse().expect("an address"),
            class: SynClass::default(),
        },
        Message::Class { stream: u64::MAX, dscp: 63 },
        Message::Class { stream: 4, dscp: 0 },
        Message::LookUp { name: HostName::new("db.example").expect("a name") },
        Message::Addresses(vec![ip]),
        Message::Addresses(vec![Ipv4Addr::LOCALHOST.into(); ADDRESSES_MAX]),
        Message::Connected { local: None },
        Message::Connected { local: Some("[2001:db8::1]:0".parse().expect("an address")) },
    ];
    for listen in listens {
        all.push(Message::Listen { id: 1, listen: listen.clone() });
        all.push(Message::Listening { id: u32::MAX, listen });
    }
    all.extend(targets.map(|target| Message::Open { target }));
    for reason in Reason::ALL {
        all.push(Message::Failed(Failure::new(reason, "")));
        all.push(Message::NotListening { id: 2, failure: Failure::new(reason, &"d".repeat(9999)) });
    }
    all
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for message in messages() {
        assert_eq!(decoded(&encoded(&message)).as_ref(), Ok(&message));
    }
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    for (message, bytes) in [
        (Message::Refused { code: 5 }, b"\x01\x03\x00\x01\x05".to_vec()),
        (
            Message::Open { target: "db:22".parse().expect("a target") },
            b"\x01\x10\x00\x07\x01\x00\x02db\x00\x16".to_vec(),
        ),
        (
            Message::Open { target: "udp:192.0.2.1:53".parse().expect("a target") },
            b"\x01\x10\x00\x08\x02\x04\xc0\x00\x02\x01\x00\x35".to_vec(),
        ),
        (Message::Open { target: "/a".parse().expect("a target") }, b"\x01\x10\x00\x04\x03\x02/a".to_vec()),
        (
            Message::OpenFrom {
                source: "10.76.0.2:40000".parse().expect("an address"),
                target: "192.0.2.1:80".parse().expect("an address"),
                class: SynClass { dscp: 46, asks_for_ecn: true },
            },
            b"\x01\x14\x00\x0f\x04\x0a\x4c\x00\x02\x9c\x40\x04\xc0\x00\x02\x01\x00\x50\xb9".to_vec(),
        ),
        (Message::Class { stream: 260, dscp: 46 }, b"\x01\x17\x00\x09\0\0\0\0\0\0\x01\x04\xb8".to_vec()),
        (Message::LookUp { name: HostName::new("db").expect("a name") }, b"\x01\x15\x00\x02db".to_vec()),
        (Message::Addresses(vec![Ipv4Addr::LOCALHOST.into()]), b"\x01\x16\x00\x05\x04\x7f\x00\x00\x01".to_vec()),
        (Message::Connected { local: None }, b"\x01\x12\x00\x01\x00".to_vec()),
        (Message::Failed(Failure::new(Reason::Refused, "no")), b"\x01\x13\x00\x03\x03no".to_vec()),
    ] {
        assert_eq!(encoded(&message), bytes, "{message:?}");
    }
}

#[test]
fn cut_and_longer_messages_are_malformed() {
    for message in messages() {
        let bytes = encoded(&message);
        // A name may be longer or shorter, too.
        let has_text = matches!(message, Message::Failed(_) | Message::NotListening { .. } | Message::LookUp { .. });
        for len in HEADER_LEN..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            cut[2..4].copy_from_slice(&((len - HEADER_LEN) as u16).to_be_bytes());
            assert!(decoded(&cut) != Ok(message.clone()), "{message:?} of {len} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(b'x');
        let len = longer.len() - HEADER_LEN;
        longer[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        assert!(has_text || decoded(&longer).is_err(), "{message:?}");
    }
}

#[test]
fn impossible_values_are_malformed() {
    for bytes in [
        b"\x02\x03\x00\x01\x05".as_slice(),
        b"\x01\x99\x00\x00",
        b"\x01\x02\x00\x01\x02",
        b"\x01\x10\x00\x07\x01\x00\x02DB\x00\x16",
        b"\x01\x10\x00\x07\x01\x00\x02d/\x00\x16",
        b"\x01\x10\x00\x07\x01\x00\x02db\x00\x00",
        b"\x01\x10\x00\x05\x01\x00\x00\x00\x16",
        b"\x01\x10\x00\x07\x04\x00\x02db\x00\x16",
        b"\x01\x10\x00\x04\x03\x02ab",
        b"\x01\x10\x00\x05\x03\x03/\x00a",
        b"\x01\x13\x00\x01\x00",
        b"\x01\x14\x00\x09\x00\x04\xc0\x00\x02\x01\x00\x50\x00",
        b"\x01\x14\x00\x0f\x04\x0a\x4c\x00\x02\x9c\x40\x04\xc0\x00\x02\x01\x00\x50\x02",
        b"\x01\x13\x00\x02\x01\xff",
        b"\x01\x15\x00\x00",
        b"\x01\x15\x00\x02DB",
        b"\x01\x15\x00\x02d/",
        b"\x01\x16\x00\x00",
        b"\x01\x17\x00\x09\0\0\0\0\0\0\0\x04\xb9",
        b"\x01\x17\x00\x09\0\0\0\0\0\0\0\x04\x02",
        b"\x01\x16\x00\x04\x04\x7f\x00\x00",
        b"\x01\x10\x00\x14\x01\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01\x00\x16",
    ] {
        assert!(decoded(bytes).is_err(), "{bytes:?}");
    }
    let many = [b"\x01\x16\x00\x55".as_slice(), &b"\x04\x7f\x00\x00\x01".repeat(ADDRESSES_MAX + 1)].concat();
    assert!(decoded(&many).is_err(), "too many addresses");
    assert!(Header::parse([1, 0x10, 0xff, 0xff]).is_err(), "a long body is refused before it is read");
}

#[test]
fn a_detail_from_the_network_is_safe_to_print() {
    let mut bytes = b"\x01\x13\x00\x00\x01\x1b[2Jred".to_vec();
    bytes[3] = (bytes.len() - HEADER_LEN) as u8;
    let Ok(Message::Failed(failure)) = decoded(&bytes) else { panic!("a failure") };
    assert_eq!(failure.to_string(), "\u{fffd}[2Jred");
    let long = Failure::new(Reason::Other, &"é".repeat(400));
    assert_eq!(long.detail().len(), DETAIL_LEN_MAX);
    // Sanitising lengthens it beyond its limit.
    let mut out = Vec::new();
    Message::Failed(Failure::new(Reason::Other, &"\x01".repeat(DETAIL_LEN_MAX))).encode(&mut out);
    assert!(out.len() <= HEADER_LEN + BODY_LEN_MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic_and_one_message_has_one_encoding(
        ty in prop_oneof![0_u8..0x18, any::<u8>()],
        body in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let header = Header { ty, body_len: body.len() };
        if let Ok(message) = Message::decode(header, &body) {
            let has_text = matches!(message, Message::Failed(_) | Message::NotListening { .. });
            // A detail may have been sanitised.
            prop_assert!(has_text || encoded(&message)[HEADER_LEN..] == body);
        }
    }
}
