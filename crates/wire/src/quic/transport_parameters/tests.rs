use super::*;
use crate::quic::id::Side;
use crate::quic::varint::VARINT_MAX;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn emitted(parameters: &TransportParameters) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.emit(&mut out, None);
    out
}

fn reason(bytes: &[u8], from: Side) -> &'static str {
    TransportParameters::parse(bytes, from).expect_err("the parameters must be rejected").reason
}

#[test]
fn missing_parameters_have_the_defaults_of_the_rfc() {
    let parameters = TransportParameters::parse(&[], Side::Client).unwrap();
    assert_eq!(parameters, TransportParameters::default());
    assert_eq!(parameters.max_udp_payload_size, 65527);
    assert_eq!((parameters.ack_delay_exponent, parameters.max_ack_delay_ms), (3, 25));
    assert_eq!(parameters.active_connection_id_limit, 2);
    assert_eq!(emitted(&parameters), []);
}

/// Written by hand from RFC 9000 §18.2 and the specifications of the extensions.
#[test]
fn parameters_match_the_ids_of_the_specifications() {
    let bytes = [
        &[0x00, 2, 0xa1, 0xa2][..],
        &[0x01, 2, 0x40, 0x80],
        &[0x02, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[0x03, 2, 0x45, 0xdc],
        &[0x04, 1, 4],
        &[0x05, 1, 5],
        &[0x06, 1, 6],
        &[0x07, 1, 7],
        &[0x08, 1, 8],
        &[0x09, 1, 9],
        &[0x0a, 1, 10],
        &[0x0b, 1, 11],
        &[0x0c, 0],
        &[0x0d, 42, 192, 0, 2, 1, 0x11, 0x51],
        &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x11, 0x52, 1, 0xcc],
        &[9; 16],
        &[0x0e, 1, 14],
        &[0x0f, 1, 0xb1],
        &[0x10, 0],
        // Version 2, of versions 2 and 1.
        &[0x11, 12, 0x6b, 0x33, 0x43, 0xcf, 0x6b, 0x33, 0x43, 0xcf, 0, 0, 0, 1],
        &[0x20, 1, 32],
        &[0x3e, 1, 3],
        &[0x6a, 0xb2, 0],
        &[0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 2, 0x43, 0xe8],
        // 31 * 2 + 27, reserved; then an undefined one.
        &[0x40, 89, 3, 1, 2, 3],
        &[0x2f, 0],
    ]
    .concat();
    let expected = TransportParameters {
        original_destination_connection_id: ConnectionId::new(&[0xa1, 0xa2]),
        max_idle_timeout_ms: 128,
        stateless_reset_token: Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
        max_udp_payload_size: 1500,
        initial_max_data: 4,
        initial_max_stream_data_bidi_local: 5,
        initial_max_stream_data_bidi_remote: 6,
        initial_max_stream_data_uni: 7,
        initial_max_streams_bidi: 8,
        initial_max_streams_uni: 9,
        ack_delay_exponent: 10,
        max_ack_delay_ms: 11,
        disable_active_migration: true,
        preferred_address: Some(PreferredAddress {
            ipv4: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 4433)),
            ipv6: Some(SocketAddrV6::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), 4434, 0, 0)),
            id: ConnectionId::new(&[0xcc]).unwrap(),
            reset_token: [9; 16],
        }),
        active_connection_id_limit: 14,
        initial_source_connection_id: ConnectionId::new(&[0xb1]),
        retry_source_connection_id: Some(ConnectionId::EMPTY),
        version_information: Some(VersionInformation { chosen: 0x6b33_43cf, available: vec![0x6b33_43cf, 1] }),
        max_datagram_frame_size: 32,
        grease_quic_bit: true,
        initial_max_path_id: Some(PathId(3)),
        min_ack_delay_us: Some(1000),
    };
    assert_eq!(TransportParameters::parse(&bytes, Side::Server), Ok(expected.clone()));
    assert_eq!(TransportParameters::parse(&emitted(&expected), Side::Server), Ok(expected));
    // Every prefix ends inside a parameter or at the end of one.
    let whole = (0..bytes.len()).filter(|cut| TransportParameters::parse(&bytes[..*cut], Side::Server).is_ok()).count();
    assert_eq!(whole, 24);
}

#[test]
fn values_outside_their_range_are_rejected() {
    let refused: Vec<(&[u8], &str)> = vec![
        (&[0x03, 2, 0x44, 0xaf], "below 1200"),
        (&[0x08, 8, 0xd0, 0, 0, 0, 0, 0, 0, 1], "more than 2^60 streams"),
        (&[0x09, 8, 0xd0, 0, 0, 0, 0, 0, 0, 1], "more than 2^60 streams"),
        (&[0x0a, 1, 21], "above 20"),
        (&[0x0b, 4, 0x80, 0, 0x40, 0], "not below 2^14"),
        (&[0x0c, 1, 0], "value too long"),
        (&[0x0e, 1, 1], "below 2"),
        (&[0x3e, 8, 0xc0, 0, 0, 1, 0, 0, 0, 0], "above 2^32-1"),
        (&[0x6a, 0xb2, 1, 0], "value too long"),
        (&[0x04, 1, 0x40], "value too short"),
        (&[0x04, 0], "value too short"),
        (&[0x04, 3, 0x40, 1, 0], "value too long"),
        (&[0x02, 1, 0], "value too short"),
        (
            &[0x0f, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "connection ID longer than 20 bytes",
        ),
        (&[0x11, 3, 0, 0, 1], "not of four bytes for each version"),
        (&[0x11, 6, 0, 0, 0, 1, 0, 0], "not of four bytes for each version"),
        (&[0x11, 4, 0, 0, 0, 0], "a version of zero"),
        (&[0x11, 8, 0, 0, 0, 1, 0, 0, 0, 0], "a version of zero"),
        (&[0x04, 1, 1, 0x04, 1, 1], "sent twice"),
        (&[0x0c, 0, 0x0c, 0], "sent twice"),
        (&[0x04, 2, 1], "the parameters end inside one"),
        (&[0x40], "the parameters end inside one"),
    ];
    for (bytes, expected) in refused {
        assert_eq!(reason(bytes, Side::Server), expected, "{bytes:02x?}");
    }
}

#[test]
fn values_at_the_end_of_their_range_are_accepted() {
    let taken: [&[u8]; 6] = [
        &[0x03, 2, 0x44, 0xb0],
        &[0x08, 8, 0xd0, 0, 0, 0, 0, 0, 0, 0],
        &[0x0a, 1, 20],
        &[0x0b, 2, 0x7f, 0xff],
        &[0x0e, 1, 2],
        &[0x3e, 8, 0xc0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
    ];
    for bytes in taken {
        assert!(TransportParameters::parse(bytes, Side::Client).is_ok(), "{bytes:02x?}");
    }
}

#[test]
fn min_ack_delay_above_max_ack_delay_is_rejected() {
    let min_of_1000_us: &[u8] = &[0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 2, 0x43, 0xe8];
    let max_of = |ms| [0x0b, 1, ms];
    for (ms, fits) in [(0, false), (1, true)] {
        // In both orders.
        for bytes in [[min_of_1000_us, &max_of(ms)].concat(), [&max_of(ms), min_of_1000_us].concat()] {
            assert_eq!(TransportParameters::parse(&bytes, Side::Server).is_ok(), fits, "max_ack_delay of {ms} ms");
        }
    }
}

#[test]
fn server_only_parameters_are_rejected_from_clients() {
    let token = [[0x02, 16].as_slice(), &[0; 16]].concat();
    let preferred = [[0x0d, 42].as_slice(), &[0; 24], &[1, 0xcc], &[0; 16]].concat();
    for bytes in [&[0x00, 0][..], &[0x10, 0], &token, &preferred] {
        assert_eq!(reason(bytes, Side::Client), "sent by a client");
        assert!(TransportParameters::parse(bytes, Side::Server).is_ok());
    }
}

#[test]
fn a_preferred_address_needs_a_connection_id_but_no_address_family() {
    let with_id =
        |len: u8| [[0x0d, 41 + len].as_slice(), &[0; 24], &[len], &vec![7; usize::from(len)], &[0; 16]].concat();
    assert_eq!(reason(&with_id(0), Side::Server), "connection ID not of 1 to 20 bytes");
    assert_eq!(reason(&with_id(21), Side::Server), "connection ID not of 1 to 20 bytes");
    let parameters = TransportParameters::parse(&with_id(20), Side::Server).unwrap();
    let preferred = parameters.preferred_address.unwrap();
    assert_eq!((preferred.ipv4, preferred.ipv6, preferred.id.len()), (None, None, 20));
}

#[test]
fn errors_name_the_parameter() {
    let error = TransportParameters::parse(&[0x0a, 1, 21], Side::Client).unwrap_err();
    assert_eq!(error.to_string(), "transport parameter 0xa: above 20");
    assert_eq!(TransportParameterError::CODE, ErrorCode(0x08));
}

#[test]
#[should_panic(expected = "not an ID reserved for greasing")]
fn greasing_with_an_unreserved_id_panics() {
    TransportParameters::default().emit(&mut Vec::new(), Some((0x04, &[])));
}

fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 2_u32..64).prop_map(|(raw, shift)| raw >> shift)
}

fn cid(min: usize) -> impl Strategy<Value = ConnectionId> {
    vec(any::<u8>(), min..=20).prop_map(|bytes| ConnectionId::new(&bytes).unwrap())
}

fn preferred_address() -> impl Strategy<Value = PreferredAddress> {
    let v4 = (any::<Ipv4Addr>(), 1_u16..).prop_map(|(ip, port)| SocketAddrV4::new(ip, port));
    let v6 = (any::<Ipv6Addr>(), 1_u16..).prop_map(|(ip, port)| SocketAddrV6::new(ip, port, 0, 0));
    (option::of(v4), option::of(v6), cid(1), any::<[u8; 16]>())
        .prop_map(|(ipv4, ipv6, id, reset_token)| PreferredAddress { ipv4, ipv6, id, reset_token })
}

prop_compose! {
    /// Generates any parameters that a server may send.
    fn parameters()(
        ids in [option::of(cid(0)), option::of(cid(0)), option::of(cid(0))],
        numbers in vec(number(), 7),
        streams in [0..=1_u64 << 60, 0..=1_u64 << 60],
        (payload, limit) in (1200..=VARINT_MAX, 2..=VARINT_MAX),
        (exponent, delay) in (0_u8..=20, 0_u64..1 << 14),
        (migration, grease) in any::<(bool, bool)>(),
        token in any::<Option<[u8; 16]>>(),
        preferred in option::of(preferred_address()),
        path in any::<Option<u32>>(),
        min_delay in any::<Option<u64>>(),
        versions in option::of(vec(1_u32.., 1..5)),
    ) -> TransportParameters {
        TransportParameters {
            original_destination_connection_id: ids[0],
            max_idle_timeout_ms: numbers[0],
            stateless_reset_token: token,
            max_udp_payload_size: payload,
            initial_max_data: numbers[1],
            initial_max_stream_data_bidi_local: numbers[2],
            initial_max_stream_data_bidi_remote: numbers[3],
            initial_max_stream_data_uni: numbers[4],
            initial_max_streams_bidi: streams[0],
            initial_max_streams_uni: streams[1],
            ack_delay_exponent: exponent,
            max_ack_delay_ms: delay,
            disable_active_migration: migration,
            preferred_address: preferred,
            active_connection_id_limit: limit,
            initial_source_connection_id: ids[1],
            retry_source_connection_id: ids[2],
            version_information: versions.map(|mut available| VersionInformation {
                chosen: available.remove(0),
                available,
            }),
            max_datagram_frame_size: numbers[5],
            grease_quic_bit: grease,
            initial_max_path_id: path.map(PathId),
            min_ack_delay_us: min_delay.map(|min| min % (delay * 1000 + 1)),
        }
    }
}

#[test]
fn no_parameter_is_sent_twice() {
    let mut out = Vec::new();
    TransportParameters::default().emit(&mut out, Some((27, b"x")));
    let mut reader = crate::quic::Reader::new(&out);
    let mut seen = std::collections::BTreeSet::new();
    while !reader.is_empty() {
        assert!(seen.insert(reader.varint().unwrap()));
        reader.prefixed().unwrap();
    }
    assert!(seen.contains(&27));
}

proptest! {
    #[test]
    fn every_parameter_set_round_trips(parameters in parameters(), n in 0_u64..1000, value in vec(any::<u8>(), 0..20)) {
        let mut out = Vec::new();
        parameters.emit(&mut out, Some((31 * n + 27, &value)));
        prop_assert_eq!(TransportParameters::parse(&out, Side::Server), Ok(parameters));
    }

    #[test]
    fn hostile_parameters_never_panic(bytes in vec(any::<u8>(), 0..100), parameters in parameters(), at: usize, mask: u8) {
        for from in [Side::Client, Side::Server] {
            let _ = TransportParameters::parse(&bytes, from);
            let mut damaged = emitted(&parameters);
            if !damaged.is_empty() {
                let at = at % damaged.len();
                damaged[at] ^= mask;
            }
            if let Ok(read) = TransportParameters::parse(&damaged, from) {
                prop_assert_eq!(TransportParameters::parse(&emitted(&read), from), Ok(read));
            }
        }
    }
}
