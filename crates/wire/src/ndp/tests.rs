use std::net::IpAddr;

use super::*;
use crate::icmp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x1234, 0x5678);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

/// Returns the bytes after the checksum.
fn body(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit_body(&mut out);
    assert_eq!(out.len(), message.body_len());
    out
}

fn parse(source: Ipv6Addr, destination: Ipv6Addr, ty: u8, body: &[u8]) -> Result<Message, ParseError> {
    Message::parse(source, destination, ty, 0, body).expect("a type of neighbor discovery")
}

fn solicitation(target: Ipv6Addr, source_link: Option<MacAddress>) -> Vec<u8> {
    body(&Message::NeighborSolicitation { target, source_link })
}

fn advertisement(is_solicited: bool) -> Vec<u8> {
    body(&Message::NeighborAdvertisement {
        target: TARGET,
        is_router: false,
        is_solicited,
        is_override: true,
        target_link: Some(MAC),
    })
}

#[test]
fn a_known_solicitation_is_written_and_parsed() {
    let bytes = b"\x00\x00\x00\x00\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x12\x34\x56\x78\
        \x01\x01\x02\x00\x00\x00\x00\x09";
    let message = Message::NeighborSolicitation { target: TARGET, source_link: Some(MAC) };
    assert_eq!(body(&message), bytes);
    assert_eq!(message.ty(), 135);
    assert_eq!(parse(HOST, solicited_node(TARGET), 135, bytes), Ok(message));
}

#[test]
fn a_known_neighbor_advertisement_is_parsed() {
    let bytes = b"\x60\x00\x00\x00\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x12\x34\x56\x78\
        \x02\x01\x02\x00\x00\x00\x00\x09";
    let message = Message::NeighborAdvertisement {
        target: TARGET,
        is_router: false,
        is_solicited: true,
        is_override: true,
        target_link: Some(MAC),
    };
    assert_eq!(parse(TARGET, HOST, 136, bytes), Ok(message));
    assert_eq!(body(&message), bytes);
}

#[test]
fn a_known_router_advertisement_is_parsed() {
    let bytes = b"\x40\x80\x07\x08\x00\x00\x75\x30\x00\x00\x03\xe8\
        \x01\x01\x02\x00\x00\x00\x00\x09\x05\x01\x00\x00\x00\x00\x05\xdc\
        \x03\x04\x40\xc0\x00\x27\x8d\x00\x00\x09\x3a\x80\x00\x00\x00\x00\
        \x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let mut prefixes = Prefixes::default();
    prefixes.push(Prefix {
        address: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        len: 64,
        is_on_link: true,
        is_autonomous: true,
        valid_s: 2_592_000,
        preferred_s: 604_800,
    });
    let message = Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: 64,
        is_managed: true,
        has_other_configuration: false,
        router_lifetime_s: 1800,
        reachable_time_ms: 30_000,
        retransmit_timer_ms: 1000,
        source_link: Some(MAC),
        mtu: Some(1500),
        prefixes,
    });
    assert_eq!(parse(HOST, ALL_NODES, 134, bytes), Ok(message));
    assert_eq!(body(&message), bytes);
}

#[test]
fn messages_against_the_rules_are_refused() {
    let nowhere = Ipv6Addr::UNSPECIFIED;
    // RFC 4861, section 6.1.1.
    let solicitation_of_routers = body(&Message::RouterSolicitation { source_link: Some(MAC) });
    assert!(parse(HOST, ALL_NODES, 133, &solicitation_of_routers).is_ok());
    assert_eq!(parse(nowhere, ALL_NODES, 133, &solicitation_of_routers), Err(ParseError::Unspecified));
    assert!(parse(nowhere, ALL_NODES, 133, &[0; 4]).is_ok());
    // Section 6.1.2.
    let router = body(&Message::RouterAdvertisement(RouterAdvertisement::default()));
    assert!(parse(HOST, ALL_NODES, 134, &router).is_ok());
    assert_eq!(parse(TARGET, ALL_NODES, 134, &router), Err(ParseError::Source));
    // Section 7.1.1.
    let group = solicited_node(TARGET);
    assert_eq!(parse(HOST, group, 135, &solicitation(ALL_NODES, None)), Err(ParseError::Target));
    assert_eq!(parse(nowhere, group, 135, &solicitation(TARGET, Some(MAC))), Err(ParseError::Unspecified));
    assert_eq!(parse(nowhere, TARGET, 135, &solicitation(TARGET, None)), Err(ParseError::Unspecified));
    assert!(parse(nowhere, group, 135, &solicitation(TARGET, None)).is_ok());
    assert!(parse(HOST, TARGET, 135, &solicitation(TARGET, Some(MAC))).is_ok());
    // Section 7.1.2.
    assert_eq!(parse(TARGET, ALL_NODES, 136, &advertisement(true)), Err(ParseError::Solicited));
    assert!(parse(TARGET, ALL_NODES, 136, &advertisement(false)).is_ok());
    assert!(parse(TARGET, HOST, 136, &advertisement(true)).is_ok());
    // All.
    for (ty, body) in
        [(133, &[0; 4][..]), (134, &router), (135, &solicitation(TARGET, None)), (136, &advertisement(false))]
    {
        assert_eq!(Message::parse(HOST, group, ty, 1, body), Some(Err(ParseError::Code)));
    }
    assert_eq!(Message::parse(HOST, group, 137, 0, &[0; 40]), None);
}

#[test]
fn options_of_impossible_length_are_refused_and_unknown_ones_skipped() {
    let with = |option: &[u8]| {
        let bytes = [&solicitation(TARGET, None), option].concat();
        parse(HOST, solicited_node(TARGET), 135, &bytes)
    };
    let message = |source_link| Ok(Message::NeighborSolicitation { target: TARGET, source_link });
    assert_eq!(with(&[1, 0, 0, 0, 0, 0, 0, 0]), Err(ParseError::OptionLength));
    assert_eq!(with(&[1, 2, 0, 0, 0, 0, 0, 0]), Err(ParseError::OptionLength));
    assert_eq!(with(&[1, 1, 0, 0, 0, 0, 0]), Err(ParseError::OptionLength));
    assert_eq!(with(&[1]), Err(ParseError::OptionLength));
    assert_eq!(with(&[14, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 9]), message(Some(MAC)));
    // This is an address of another link layer.
    assert_eq!(with(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), message(None));
}

#[test]
fn prefixes_beyond_the_limit_and_the_address_are_ignored() {
    let router = body(&Message::RouterAdvertisement(RouterAdvertisement::default()));
    let prefix = |len| [&[3, 4, len, 0xc0][..], &[0; 28]].concat();
    let count = |options: &[Vec<u8>]| {
        let bytes = [&router[..], &options.concat()].concat();
        let Ok(Message::RouterAdvertisement(router)) = parse(HOST, ALL_NODES, 134, &bytes) else { panic!() };
        router.prefixes.len()
    };
    assert_eq!(count(&[prefix(64), prefix(129), prefix(128)]), 2);
    assert_eq!(count(&vec![prefix(64); PREFIXES_MAX + 1]), PREFIXES_MAX);
}

#[test]
fn solicited_node_addresses_end_with_the_target() {
    assert_eq!(solicited_node(TARGET), "ff02::1:ff34:5678".parse::<Ipv6Addr>().unwrap());
}

fn messages() -> impl Strategy<Value = Message> {
    let mac = || option::of(any::<[u8; 6]>().prop_map(MacAddress));
    let target = || any::<[u8; 16]>().prop_map(Ipv6Addr::from).prop_filter("unicast", |target| !target.is_multicast());
    let prefix = (any::<[u8; 16]>(), 0..=128_u8, any::<(bool, bool, u32, u32)>()).prop_map(
        |(address, len, (is_on_link, is_autonomous, valid_s, preferred_s))| Prefix {
            address: address.into(),
            len,
            is_on_link,
            is_autonomous,
            valid_s,
            preferred_s,
        },
    );
    let router = (any::<(u8, bool, bool, u16, u32, u32)>(), mac(), any::<Option<u32>>(), vec(prefix, 0..=PREFIXES_MAX));
    let router = router.prop_map(|(fields, source_link, mtu, list)| {
        let mut prefixes = Prefixes::default();
        for prefix in list {
            prefixes.push(prefix);
        }
        Message::RouterAdvertisement(RouterAdvertisement {
            hop_limit: fields.0,
            is_managed: fields.1,
            has_other_configuration: fields.2,
            router_lifetime_s: fields.3,
            reachable_time_ms: fields.4,
            retransmit_timer_ms: fields.5,
            source_link,
            mtu,
            prefixes,
        })
    });
    prop_oneof![
        mac().prop_map(|source_link| Message::RouterSolicitation { source_link }),
        router,
        (target(), mac()).prop_map(|(target, source_link)| Message::NeighborSolicitation { target, source_link }),
        (target(), any::<[bool; 3]>(), mac()).prop_map(
            |(target, [is_router, is_solicited, is_override], target_link)| {
                Message::NeighborAdvertisement { target, is_router, is_solicited, is_override, target_link }
            }
        ),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip(message in messages()) {
        let (source, destination): (IpAddr, IpAddr) = (HOST.into(), TARGET.into());
        let mut out = Vec::new();
        let whole = icmp::Message::Ndp(message);
        whole.emit(source, destination, &mut out);
        prop_assert_eq!(out.len(), whole.len(true));
        prop_assert_eq!(icmp::Message::parse(source, destination, &out), Ok(whole));
        // A message may end after any option, but nowhere else.
        let body = body(&message);
        for len in 0..body.len() {
            if let Ok(shorter) = parse(HOST, TARGET, message.ty(), &body[..len]) {
                prop_assert_eq!(shorter.body_len(), len);
            }
        }
    }

    #[test]
    fn random_bytes_are_no_danger(ty in 133..138_u8, bytes in vec(any::<u8>(), 0..100), units in 0..5_u8, is_unspecified: bool) {
        let mut bytes = bytes;
        for at in [4, 12, 20] {
            if let Some(len) = bytes.get_mut(at + 1) {
                *len = units;
            }
        }
        let source = if is_unspecified { Ipv6Addr::UNSPECIFIED } else { HOST };
        if let Some(Ok(message)) = Message::parse(source, solicited_node(TARGET), ty, 0, &bytes) {
            let again = parse(source, solicited_node(TARGET), ty, &body(&message));
            prop_assert_eq!(again, Ok(message));
        }
    }
}
