//! A server that lets clients prove their addresses before their connections begin (RFC 9000,
//! section 8.1).

use quic::{AddressValidation, Addresses, BeginError, Event, Side, TransportConfig};
use units::{Duration, Instant, Rng};
use wire::quic::{ErrorCode, Parsed, parse_packet};

use crate::support::apps::transfer;
use crate::support::hostile::{HOSTILE, Hostile};
use crate::support::{CLIENT, Node, Pair, Setup};

fn pair(seed: u64) -> Pair {
    let mut pair = Setup::new(seed).build();
    pair.server.endpoint.set_address_validation(AddressValidation::Always);
    pair
}

/// The code with which a client's connection ended.
fn close_code(client: &mut Node) -> Option<ErrorCode> {
    client.events[0].iter().find_map(|event| match event {
        Event::Closed(quic::ConnectionError::ClosedByPeerTransport(error)) => Some(error.code),
        _ => None,
    })
}

/// A server whose clients must prove their addresses.
fn server(seed: u64) -> Node {
    let mut server = pair(seed).server;
    server.endpoint.set_address_validation(AddressValidation::Always);
    server
}

fn answers(server: &mut Node, now: Instant, datagram: &[u8], from: std::net::SocketAddr) -> Vec<Vec<u8>> {
    server.receive(now, datagram, from);
    server.flush(now);
    std::mem::take(&mut server.outbox).into_iter().map(|(_, datagram)| datagram.bytes).collect()
}

fn is_retry(datagram: &[u8]) -> bool {
    matches!(parse_packet(datagram, 8), Ok(Parsed::Retry { .. }))
}

#[test]
fn a_client_proves_its_address_and_connects_a_round_trip_later() {
    let mut plain = Setup::new(1).build();
    plain.connect();
    let mut validated = pair(1);
    validated.connect();
    let difference = validated.now - plain.now;
    assert!(difference > Duration::ZERO && difference < Duration::from_millis(200), "{difference}");
    transfer(&mut validated, 1 << 20, Duration::from_secs(60));
    // The packet that ended the first try began no connection.
    assert_eq!(validated.server.connections.len(), 1);
}

#[test]
fn a_retry_comes_from_an_id_that_the_client_has_not_chosen() {
    // RFC 9000, section 17.2.5.1.
    for seed in 0..50 {
        let (mut server, mut pair) = (server(seed), Setup::new(seed).build());
        pair.start();
        pair.client.flush(pair.now);
        let first = pair.client.outbox.remove(0).1.bytes;
        let answer = answers(&mut server, pair.now, &first, CLIENT).remove(0);
        let Ok(Parsed::Protected(asked)) = parse_packet(&first, 8) else { panic!("no Initial packet") };
        let Ok(Parsed::Retry { scid, dcid, .. }) = parse_packet(&answer, 8) else { panic!("no Retry packet") };
        assert!(scid != asked.dcid && dcid == asked.scid, "seed {seed}");
    }
}

#[test]
fn retry_works_at_any_loss() {
    for seed in 0..20 {
        let mut pair = Setup::new(seed).with_loss(20).build();
        pair.server.endpoint.set_address_validation(AddressValidation::Always);
        pair.connect();
        transfer(&mut pair, 100_000, Duration::from_secs(120));
    }
}

#[test]
fn no_state_is_kept_before_the_proof_and_the_answer_is_small() {
    let mut server = server(2);
    for seed in 0..100 {
        let mut client = Hostile::ordinary_client(seed);
        let first = client.flight().remove(0);
        let answers = answers(&mut server, Instant::ZERO, &first, HOSTILE);
        assert!(answers.len() == 1 && is_retry(&answers[0]) && answers[0].len() < 120, "{answers:?}");
    }
    assert_eq!((server.connections.len(), server.endpoint.route_count()), (0, 0));
}

#[test]
fn a_busy_server_demands_the_proof_and_an_idle_one_does_not() {
    let mut server = Setup::new(3).build().server;
    for (is_busy, is_demanded) in [(false, false), (true, true)] {
        let first = Hostile::ordinary_client(5).flight().remove(0);
        let accepted = server.endpoint.accept(Instant::ZERO, Addresses::of(HOSTILE), first[..].into(), None, is_busy);
        assert_eq!(matches!(accepted, Err(BeginError::NotValidated { .. })), is_demanded);
    }
    server.endpoint.set_address_validation(AddressValidation::Never);
    let first = Hostile::ordinary_client(6).flight().remove(0);
    assert!(server.endpoint.accept(Instant::ZERO, Addresses::of(HOSTILE), first[..].into(), None, true).is_ok());
}

/// A client that has received the server's Retry packet, and its second first datagram.
fn client_with_token(server: &mut Node, now: Instant) -> (Node, Vec<u8>) {
    let rng = Rng::from_seed(9).split("client");
    let factory = quic::session::deterministic::DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = client.endpoint.connect(now, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    client.flush(now);
    let (_, first) = client.outbox.remove(0);
    let retry = answers(server, now, &first, HOSTILE).remove(0);
    assert!(is_retry(&retry));
    client.outbox.clear();
    client.receive(now, &retry, HOSTILE);
    client.flush(now);
    let (_, second) = client.outbox.remove(0);
    client.outbox.clear();
    (client, second.bytes)
}

#[test]
fn a_stale_or_stolen_token_closes_the_connection() {
    let late = Duration::from_secs(16);
    let elsewhere = "192.0.2.99:6666".parse().expect("an address");
    for (span, from, what) in [(late, HOSTILE, "stale"), (Duration::ZERO, elsewhere, "from another address")] {
        let mut server = server(4);
        let (mut client, second) = client_with_token(&mut server, Instant::ZERO);
        let now = Instant::ZERO + span;
        let answers = answers(&mut server, now, &second, from);
        assert_eq!(server.connections.len(), 0, "{what}");
        assert_eq!(answers.len(), 1, "{what}");
        client.receive(Instant::ZERO, &answers[0], HOSTILE);
        client.flush(Instant::ZERO);
        assert_eq!(close_code(&mut client), Some(ErrorCode::INVALID_TOKEN), "{what}");
    }
}

#[test]
fn a_client_with_a_proof_is_not_limited_to_three_times_what_it_sent() {
    let mut server = server(5);
    let (_, second) = client_with_token(&mut server, Instant::ZERO);
    answers(&mut server, Instant::ZERO, &second, HOSTILE);
    // Unanswered, the server repeats its flight: more than three times 1200 bytes in a minute.
    let mut sent = 0;
    for millis in (0..9000).step_by(10) {
        server.flush(Instant::ZERO + Duration::from_millis(millis));
        sent += std::mem::take(&mut server.outbox).iter().map(|(_, datagram)| datagram.len()).sum::<usize>();
        server.handle_timeouts(Instant::ZERO + Duration::from_millis(millis));
    }
    assert!(sent > 3 * second.len(), "{sent}");
}

#[test]
fn a_refused_client_knows_it_at_once() {
    let mut server = server(6);
    let rng = Rng::from_seed(9).split("client");
    let factory = quic::session::deterministic::DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = client.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    client.flush(Instant::ZERO);
    let (_, first) = client.outbox.remove(0);
    let mut answer = Vec::new();
    assert!(server.endpoint.refuse(&first, &mut answer));
    assert!(answer.len() < 100, "{}", answer.len());
    client.receive(Instant::ZERO, &answer, HOSTILE);
    client.flush(Instant::ZERO);
    assert_eq!(close_code(&mut client), Some(ErrorCode::CONNECTION_REFUSED));
    // Nothing else is answered.
    assert!(!server.endpoint.refuse(&first[..1199], &mut answer), "too small to begin a connection");
    assert!(!server.endpoint.refuse(&[0x45; 1200], &mut answer), "no Initial packet");
}
