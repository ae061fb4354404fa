//! Invalid transport parameters (RFC 9000, sections 7.3, 7.4 and 18.2).

use quic::{ConnectionId, ErrorCode, TransportConfig};
use wire::quic::TransportParameters;

use crate::support::hostile::{Hostile, HostilePair, client_parameters, encode, number, parameter};

/// Parameter IDs in the IANA registry.
mod id {
    pub(super) const ORIGINAL_DESTINATION: u64 = 0x00;
    pub(super) const IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const RESET_TOKEN: u64 = 0x02;
    pub(super) const UDP_PAYLOAD: u64 = 0x03;
    pub(super) const MAX_DATA: u64 = 0x04;
    pub(super) const STREAMS_BIDI: u64 = 0x08;
    pub(super) const STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const NO_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE: u64 = 0x0f;
    pub(super) const RETRY_SOURCE: u64 = 0x10;
    pub(super) const PATH_ID: u64 = 0x3e;
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
}

const TPE: ErrorCode = ErrorCode::TRANSPORT_PARAMETER_ERROR;

/// A client with ordinary parameters and `extra`.
fn client_with(extra: &[u8]) -> HostilePair {
    let hostile = Hostile::client(11, |id| {
        let mut bytes = encode(&client_parameters(id));
        bytes.extend_from_slice(extra);
        bytes
    });
    HostilePair::with_server(TransportConfig::default(), hostile)
}

/// A server whose parameters `change` has modified.
fn server_with(change: impl Fn(&mut TransportParameters), extra: &[u8]) -> HostilePair {
    HostilePair::with_client(TransportConfig::default(), |first| {
        Hostile::server(11, first, |id, original| {
            let mut parameters = client_parameters(id);
            parameters.original_destination_connection_id = Some(original);
            change(&mut parameters);
            let mut bytes = encode(&parameters);
            bytes.extend_from_slice(extra);
            bytes
        })
    })
}

#[test]
fn parameters_out_of_range_are_refused_by_both_sides() {
    let two_62 = (1_u64 << 62) - 1;
    let lies = [
        ("max_udp_payload_size below 1200", parameter(id::UDP_PAYLOAD, &number(1199))),
        ("ack_delay_exponent above 20", parameter(id::ACK_DELAY_EXPONENT, &number(21))),
        ("max_ack_delay of 2^14", parameter(id::MAX_ACK_DELAY, &number(1 << 14))),
        ("active_connection_id_limit below 2", parameter(id::ID_LIMIT, &number(1))),
        ("2^60 + 1 bidirectional streams", parameter(0x21, &[]).into_iter().chain(streams(id::STREAMS_BIDI)).collect()),
        ("a flag with a value", parameter(id::NO_MIGRATION, &[1])),
        ("a path id above 2^32 - 1", parameter(id::PATH_ID, &number(1 << 32))),
        ("min_ack_delay above max_ack_delay", parameter(id::MIN_ACK_DELAY, &number(two_62))),
        ("a number cut short", parameter(id::IDLE_TIMEOUT, &[0xc0, 1])),
        ("a number with bytes behind it", parameter(id::IDLE_TIMEOUT, &[1, 2])),
        ("an empty number", parameter(id::IDLE_TIMEOUT, &[])),
        ("a duplicate", parameter(id::MAX_DATA, &number(5))),
        ("a duplicate of the connection id", parameter(id::INITIAL_SOURCE, &[9; 8])),
        ("a length beyond the end", vec![id::IDLE_TIMEOUT as u8, 63, 0]),
        ("an id cut short", vec![0xc0]),
    ];
    for (what, extra) in lies {
        client_with(&extra).assert_closed(TPE, what);
        server_with(|_| (), &extra).assert_closed(TPE, what);
    }
}

/// More streams than there are stream IDs, in one parameter.
fn streams(id: u64) -> Vec<u8> {
    parameter(id, &number((1 << 60) + 1))
}

#[test]
fn stream_counts_beyond_2_60_are_refused() {
    for (id, what) in [(id::STREAMS_BIDI, "bidirectional"), (id::STREAMS_UNI, "unidirectional")] {
        let hostile = Hostile::client(11, |own| {
            let bytes = encode(&TransportParameters {
                initial_max_streams_bidi: 0,
                initial_max_streams_uni: 0,
                ..client_parameters(own)
            });
            [bytes, streams(id)].concat()
        });
        HostilePair::with_server(TransportConfig::default(), hostile).assert_closed(TPE, what);
    }
}

#[test]
fn parameters_of_servers_are_refused_from_clients() {
    let mut preferred = vec![0; 4 + 2 + 16 + 2];
    preferred.push(8);
    preferred.extend_from_slice(&[7; 8 + 16]);
    let lies = [
        ("original_destination_connection_id", parameter(id::ORIGINAL_DESTINATION, &[1; 8])),
        ("stateless_reset_token", parameter(id::RESET_TOKEN, &[1; 16])),
        ("preferred_address", parameter(id::PREFERRED_ADDRESS, &preferred)),
        ("retry_source_connection_id", parameter(id::RETRY_SOURCE, &[1; 8])),
    ];
    for (what, extra) in lies {
        client_with(&extra).assert_closed(TPE, what);
    }
}

#[test]
fn connection_ids_other_than_the_handshakes_are_refused() {
    let other = ConnectionId::new(&[9; 8]);
    let wrong_source = Hostile::client(11, |_| encode(&client_parameters(other.expect("eight bytes"))));
    HostilePair::with_server(TransportConfig::default(), wrong_source).assert_closed(TPE, "a client's source");
    let no_source = Hostile::client(11, |id| {
        encode(&TransportParameters { initial_source_connection_id: None, ..client_parameters(id) })
    });
    HostilePair::with_server(TransportConfig::default(), no_source).assert_closed(TPE, "no source of a client");

    type InvalidParameter = (&'static str, fn(&mut TransportParameters));
    let lies: [InvalidParameter; 6] = [
        ("wrong source", |lie| lie.initial_source_connection_id = ConnectionId::new(&[9; 8])),
        ("no source", |lie| lie.initial_source_connection_id = None),
        ("wrong original destination", |lie| lie.original_destination_connection_id = ConnectionId::new(&[9; 8])),
        ("no original destination", |lie| lie.original_destination_connection_id = None),
        ("empty original destination", |lie| lie.original_destination_connection_id = Some(ConnectionId::EMPTY)),
        ("a Retry that was never sent", |lie| lie.retry_source_connection_id = ConnectionId::new(&[9; 8])),
    ];
    for (what, lie) in lies {
        server_with(lie, &[]).assert_closed(TPE, what);
    }
}

#[test]
fn no_parameters_at_all_are_refused() {
    let empty = Hostile::client(11, |_| Vec::new());
    HostilePair::with_server(TransportConfig::default(), empty).assert_closed(TPE, "an empty extension");
}

#[test]
fn the_largest_valid_parameters_are_accepted() {
    let max = (1_u64 << 62) - 1;
    let generous = |id| TransportParameters {
        max_idle_timeout_ms: max,
        max_udp_payload_size: max,
        initial_max_data: max,
        initial_max_stream_data_bidi_local: max,
        initial_max_stream_data_bidi_remote: max,
        initial_max_stream_data_uni: max,
        initial_max_streams_bidi: 1 << 60,
        initial_max_streams_uni: 1 << 60,
        ack_delay_exponent: 20,
        max_ack_delay_ms: (1 << 14) - 1,
        active_connection_id_limit: max,
        max_datagram_frame_size: max,
        ..client_parameters(id)
    };
    let hostile = Hostile::client(11, |id| encode(&generous(id)));
    let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), hostile));
    let now = pair.now;
    let connection = pair.victim.connection(0);
    let stream = connection.open(quic::Dir::Uni).expect("streams without end");
    connection.write(stream, bytes::Bytes::from(vec![1; 100_000])).expect("the buffer is empty");
    assert!(connection.datagram_len_max().is_some_and(|len| len < 1200));
    pair.send_and_ack(&[1]);
    pair.wait(units::Duration::from_secs(1));
    pair.assert_alive("generosity");
    assert!(pair.now > now);
    let issued = pair.hostile.opened.iter().flat_map(|packet| packet.frames().len().checked_sub(0)).count();
    assert!(issued > 0 && pair.victim.endpoint.route_count() <= 8, "{} routes", pair.victim.endpoint.route_count());
}

#[test]
fn the_smallest_valid_parameters_are_obeyed() {
    let hostile = Hostile::client(11, |id| {
        encode(&TransportParameters { initial_source_connection_id: Some(id), ..TransportParameters::default() })
    });
    let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), hostile));
    let connection = pair.victim.connection(0);
    assert_eq!(connection.open(quic::Dir::Uni), None);
    assert_eq!(connection.datagram_len_max(), None);
    assert_eq!(connection.send_datagram(bytes::Bytes::from_static(b"x")), Err(quic::SendDatagramError::Unsupported));
    pair.send_and_ack(&[1]);
    pair.assert_alive("a peer with the smallest limits");
}

#[test]
fn any_number_of_unknown_parameters_is_ignored() {
    let mut extra = Vec::new();
    for n in 0..60 {
        extra.extend(parameter(31 * n + 27, &[n as u8; 5]));
        extra.extend(parameter(31 * 7 + 27, b"again"));
    }
    let pair = client_with(&extra);
    pair.assert_alive("unknown parameters");
}
