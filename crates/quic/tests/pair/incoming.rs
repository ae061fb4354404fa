//! Attempts to connect that a server holds before it decides about them.

use bytes::BytesMut;
use quic::session::deterministic::DeterministicFactory;
use quic::{
    Addresses, BeginError, ConnectionError, ConnectionKey, Event, INCOMING_DATAGRAMS_MAX, Incoming, Side,
    TransportConfig,
};
use units::{Duration, Instant, Rng};
use wire::quic::{ErrorCode, Parsed, parse_packet};

use crate::support::hostile::HOSTILE;
use crate::support::{Node, Setup};

/// A server, and a client with its first datagram.
fn begin(seed: u64) -> (Node, Node, Vec<u8>) {
    let server = Setup::new(seed).build().server;
    let rng = Rng::from_seed(seed).split("client");
    let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = client.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    let first = sent(&mut client).remove(0);
    (server, client, first)
}

fn sent(node: &mut Node) -> Vec<Vec<u8>> {
    node.flush(Instant::ZERO);
    std::mem::take(&mut node.outbox).into_iter().map(|(_, datagram)| datagram.bytes).collect()
}

fn hold(server: &mut Node, datagram: &[u8]) -> Result<Incoming, BeginError> {
    server.endpoint.hold(Instant::ZERO, Addresses::of(HOSTILE), BytesMut::from(datagram), None)
}

/// The server begins the connection, and both complete the handshake.
fn accept(server: &mut Node, client: &mut Node, incoming: Incoming) {
    let mut connection = server.endpoint.accept_held(Instant::ZERO, incoming).expect("sessions start");
    let key = ConnectionKey(server.connections.len() as u32);
    while let Some(change) = connection.poll_route() {
        server.endpoint.apply(key, change);
    }
    let index = server.add(connection);
    for _ in 0..10 {
        for datagram in sent(server) {
            client.receive(Instant::ZERO, &datagram, HOSTILE);
        }
        for datagram in sent(client) {
            server.receive(Instant::ZERO, &datagram, HOSTILE);
        }
    }
    assert!(server.connection(index).is_established() && client.connection(0).is_established());
    assert_eq!(server.connections.len(), index + 1, "no second connection began");
}

#[test]
fn an_attempt_keeps_its_datagrams_up_to_a_bound_and_becomes_a_connection() {
    let (mut server, mut client, first) = begin(1);
    let mut incoming = hold(&mut server, &first).expect("an authentic packet");
    assert!(!incoming.is_validated());
    assert_eq!(server.endpoint.route_count(), 0, "nothing else is kept");
    // The client repeats its flight meanwhile.
    let mut kept = 1;
    for _ in 0..6 {
        let now = client.timeout().expect("a probe is due");
        client.handle_timeouts(now);
        client.flush(now);
        for (_, again) in std::mem::take(&mut client.outbox) {
            assert!(incoming.is_continued_by(&Addresses::of(HOSTILE), &again));
            let elsewhere = Addresses::of("192.0.2.1:1".parse().expect("an address"));
            assert!(!incoming.is_continued_by(&elsewhere, &again));
            kept += usize::from(incoming.add(BytesMut::from(&again[..]), None));
        }
    }
    assert_eq!(kept, INCOMING_DATAGRAMS_MAX);
    let (_, _, other) = begin(2);
    assert!(!incoming.is_continued_by(&Addresses::of(HOSTILE), &other), "another client behind the address");
    accept(&mut server, &mut client, incoming);
}

#[test]
fn only_an_authentic_first_packet_is_an_attempt() {
    let (mut server, _, first) = begin(3);
    let mut forged = first.clone();
    *forged.last_mut().expect("a tag") ^= 1;
    for datagram in [&forged[..], &first[..1199], &[0x45; 1200]] {
        assert_eq!(hold(&mut server, datagram).err(), Some(BeginError::NotInitial));
    }
    assert!(hold(&mut server, &first).is_ok());
}

#[test]
fn a_client_proves_its_address_between_two_attempts() {
    let (mut server, mut client, first) = begin(4);
    let incoming = hold(&mut server, &first).expect("an authentic packet");
    let retry = server.endpoint.retry_held(Instant::ZERO, &incoming).expect("it has not proved its address");
    assert!(matches!(parse_packet(&retry, 8), Ok(Parsed::Retry { .. })));
    client.receive(Instant::ZERO, &retry, HOSTILE);
    let second = sent(&mut client).remove(0);
    let again = hold(&mut server, &second).expect("an authentic packet");
    assert!(again.is_validated());
    assert_eq!(again.original_destination(), incoming.original_destination());
    assert_eq!(server.endpoint.retry_held(Instant::ZERO, &again), None);
    // Too late, the token is not valid any more.
    let late = Instant::ZERO + Duration::from_secs(60);
    let expired = server.endpoint.hold(late, Addresses::of(HOSTILE), BytesMut::from(&second[..]), None);
    assert!(matches!(expired.err(), Some(BeginError::InvalidToken { .. })));
    accept(&mut server, &mut client, again);
}

#[test]
fn a_refused_client_knows_it_at_once() {
    let (mut server, mut client, first) = begin(5);
    let incoming = hold(&mut server, &first).expect("an authentic packet");
    let refusal = server.endpoint.refuse_held(&incoming);
    client.receive(Instant::ZERO, &refusal, HOSTILE);
    sent(&mut client);
    let code = client.events[0].iter().find_map(|event| match event {
        Event::Closed(ConnectionError::ClosedByPeerTransport(error)) => Some(error.code),
        _ => None,
    });
    assert_eq!(code, Some(ErrorCode::CONNECTION_REFUSED));
}
