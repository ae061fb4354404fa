//! A server that answers a client's first packet with Retry (RFC 9000, sections 8.1.2 and 17.2.5).

use quic::session::deterministic::DeterministicFactory;
use quic::session::retry::retry_tag;
use quic::{Addresses, ConnectionId, Event, Side, TransportConfig, Version};
use units::{Instant, Rng};
use wire::quic::{ErrorCode, Parsed, Space, TransportParameters, emit_retry, parse_packet};

use crate::support::Node;
use crate::support::hostile::{HOSTILE, Hostile, client_parameters, encode};

const TOKEN: &[u8] = b"a token of the server";

fn id(byte: u8) -> ConnectionId {
    ConnectionId::new(&[byte; 8]).expect("eight bytes")
}

/// A client that has sent its first datagram.
fn client() -> (Node, Vec<u8>) {
    let rng = Rng::from_seed(1).split("client");
    let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = client.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    let first = sent(&mut client, Instant::ZERO).remove(0);
    (client, first)
}

fn sent(client: &mut Node, now: Instant) -> Vec<Vec<u8>> {
    client.flush(now);
    std::mem::take(&mut client.outbox).into_iter().map(|(_, datagram)| datagram.bytes).collect()
}

/// Destination, source and token of an Initial packet.
fn header(datagram: &[u8]) -> (ConnectionId, ConnectionId, Vec<u8>) {
    match parse_packet(datagram, 8) {
        Ok(Parsed::Protected(header)) => {
            let token = datagram[header.token.clone()].to_vec();
            (header.dcid, header.scid, token)
        }
        other => panic!("{other:?}"),
    }
}

/// A Retry packet for a first datagram, from `source`.
fn retry(first: &[u8], source: ConnectionId, token: &[u8]) -> Vec<u8> {
    let (original, client, _) = header(first);
    let mut packet = Vec::new();
    emit_retry(Version::V1, &client, &source, token, 0, &mut packet);
    let tag = retry_tag(Version::V1, &original, &packet);
    packet.extend_from_slice(&tag);
    packet
}

/// The server that continues after its Retry packet, whose source it announces as `announced`.
fn server(second: &[u8], original: ConnectionId, announced: Option<ConnectionId>) -> Hostile {
    Hostile::server(7, second, |id, _| {
        encode(&TransportParameters {
            original_destination_connection_id: Some(original),
            retry_source_connection_id: announced,
            ..client_parameters(id)
        })
    })
}

/// Completes the handshake as far as both want.
fn complete(client: &mut Node, server: &mut Hostile, first: Vec<Vec<u8>>) {
    let mut from_client = first;
    for _ in 0..10 {
        from_client.iter().for_each(|datagram| server.receive(datagram));
        for datagram in server.flight() {
            client.receive(Instant::ZERO, &datagram, HOSTILE);
        }
        from_client = sent(client, Instant::ZERO);
    }
}

#[test]
fn a_client_repeats_its_first_flight_with_the_token() {
    let (mut client, first) = client();
    let (original, own, none) = header(&first);
    assert!(none.is_empty());
    client.receive(Instant::ZERO, &retry(&first, id(9), TOKEN), HOSTILE);
    let second = sent(&mut client, Instant::ZERO);
    assert_eq!(header(&second[0]), (id(9), own, TOKEN.to_vec()));
    assert!(second[0].len() >= 1200);
    let mut server = server(&second[0], original, Some(id(9)));
    complete(&mut client, &mut server, second);
    assert!(server.is_ready() && client.connection(0).is_established(), "{:?}", client.events);
    // Packet numbers go on (section 17.2.5.3).
    let numbers: Vec<u64> =
        server.opened.iter().filter(|packet| packet.space == Space::Initial).map(|p| p.number).collect();
    assert!(numbers.iter().all(|number| *number > 0), "{numbers:?}");
    let with_token = server.opened.iter().filter(|packet| packet.space == Space::Initial).count();
    assert!(with_token >= 1);
}

#[test]
fn the_token_is_repeated_with_every_initial_packet() {
    let (mut client, first) = client();
    client.receive(Instant::ZERO, &retry(&first, id(9), TOKEN), HOSTILE);
    let mut datagrams = sent(&mut client, Instant::ZERO);
    // Nothing arrives: the probes carry it, too.
    while datagrams.len() < 4 {
        let now = client.timeout().expect("probes are due");
        client.handle_timeouts(now);
        datagrams.extend(sent(&mut client, now));
    }
    for datagram in datagrams {
        let (destination, _, token) = header(&datagram);
        assert_eq!((destination, &token[..]), (id(9), TOKEN));
    }
}

#[test]
fn only_the_first_valid_retry_counts() {
    let (mut client, first) = client();
    let (original, ..) = header(&first);
    let mut forged = retry(&first, id(9), TOKEN);
    *forged.last_mut().expect("a tag") ^= 1;
    let mut other_client = first.clone();
    other_client[15] ^= 1; // Within the source connection ID.
    let ignored =
        [forged, retry(&first, original, TOKEN), retry(&first, id(9), &[1; 1100]), retry(&other_client, id(9), TOKEN)];
    for packet in ignored {
        client.receive(Instant::ZERO, &packet, HOSTILE);
        client.connection(0).handle_datagrams(
            Instant::ZERO,
            Addresses::of(HOSTILE),
            bytes::BytesMut::from(&packet[..]),
            packet.len(),
        );
        assert_eq!(sent(&mut client, Instant::ZERO), Vec::<Vec<u8>>::new());
    }
    client.receive(Instant::ZERO, &retry(&first, id(9), TOKEN), HOSTILE);
    let second = sent(&mut client, Instant::ZERO);
    assert_eq!(header(&second[0]).0, id(9));
    // A second one, of either.
    client.receive(Instant::ZERO, &retry(&first, id(8), b"another"), HOSTILE);
    client.receive(Instant::ZERO, &retry(&second[0], id(8), b"another"), HOSTILE);
    assert_eq!(sent(&mut client, Instant::ZERO), Vec::<Vec<u8>>::new());
}

#[test]
fn a_retry_after_a_packet_of_the_server_is_ignored() {
    let (mut client, first) = client();
    let (original, ..) = header(&first);
    let mut server = server(&first, original, None);
    server.receive(&first);
    let flight = server.flight();
    client.receive(Instant::ZERO, &flight[0], HOSTILE);
    sent(&mut client, Instant::ZERO);
    client.receive(Instant::ZERO, &retry(&first, id(9), TOKEN), HOSTILE);
    let rest: Vec<_> = flight[1..].to_vec();
    for datagram in rest {
        client.receive(Instant::ZERO, &datagram, HOSTILE);
    }
    let replies = sent(&mut client, Instant::ZERO);
    complete(&mut client, &mut server, replies);
    assert!(client.connection(0).is_established(), "{:?}", client.events);
}

#[test]
fn the_server_must_announce_the_source_of_its_retry() {
    // One that did not send it, one that says so wrongly, and one that says nothing (section 7.3).
    for (is_sent, announced) in [(false, Some(id(9))), (true, Some(id(8))), (true, None)] {
        let (mut client, first) = client();
        let (original, ..) = header(&first);
        let mut flight = vec![first.clone()];
        if is_sent {
            client.receive(Instant::ZERO, &retry(&first, id(9), TOKEN), HOSTILE);
            flight = sent(&mut client, Instant::ZERO);
        }
        let mut server = server(&flight[0], original, announced);
        complete(&mut client, &mut server, flight);
        assert_eq!(server.close().map(|(code, _)| code), Some(ErrorCode::TRANSPORT_PARAMETER_ERROR));
        assert!(client.events[0].iter().any(|event| matches!(event, Event::Closed(_))));
    }
}
