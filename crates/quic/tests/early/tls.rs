//! 0-RTT with rustls.

use std::sync::Arc;

use bytes::Bytes;
use quic::session::tls::{TlsClient, TlsServer};
use quic::{Dir, EarlyState, Event, Side, TransportConfig};
use rustls::{ClientConfig, ServerConfig};
use units::{Duration, Rng};
use wire::quic::{MIN_INITIAL_SIZE, PacketType};

use super::{REQUEST, answered, ask, confirmed, long_packets, read};
use crate::support::{CLIENT, Node, Pair, Sessions, Setup, apps};
use crate::tls::{asking_again, early_configs, server_key};

fn sessions(client: ClientConfig, server: ServerConfig) -> Sessions {
    Sessions {
        client: Arc::new(TlsClient::new(Arc::new(client)).expect("AES-128-GCM is there")),
        server: Arc::new(TlsServer::new(Arc::new(server)).expect("AES-128-GCM is there")),
        server_name: "server.test".to_owned(),
    }
}

/// Sessions after a connection, whose tickets the client has.
fn known(configs: (ClientConfig, ServerConfig)) -> Sessions {
    known_with(configs, |_| {})
}

/// The same, of a server with another transport configuration.
fn known_with(configs: (ClientConfig, ServerConfig), change: impl Fn(&mut TransportConfig)) -> Sessions {
    let sessions = sessions(configs.0, configs.1);
    let mut setup = Setup::new(1).with_sessions(sessions.clone());
    change(&mut setup.server);
    let mut pair = setup.build();
    pair.start();
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Unavailable);
    assert_eq!(pair.client.connection(0).open_early(Dir::Bi), None, "no session is known");
    confirmed(&mut pair);
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
    sessions
}

/// The second connection, whose client may send 0-RTT.
fn second(sessions: &Sessions) -> Pair {
    let mut pair = Setup::new(2).with_sessions(sessions.clone()).build();
    pair.start();
    pair
}

#[test]
fn a_request_in_0_rtt_is_answered_after_one_round_trip() {
    let mut pair = second(&known(early_configs(server_key())));
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Possible);
    let id = ask(&mut pair, REQUEST);
    let (server, time) = answered(&mut pair, id, Duration::from_secs(5));
    assert_eq!(server.request, REQUEST);
    assert_eq!(server.asked, Some((true, false)), "it may be replayed, and came before the handshake was complete");
    // The links take 10 ms in each direction.
    assert!(time < Duration::from_millis(30), "{time}");
    confirmed(&mut pair);
    assert!(pair.client.take_event(0, |event| *event == Event::EarlyRejected).is_none());
    for node in [&mut pair.client, &mut pair.server] {
        assert_eq!(node.connection(0).early_state(), EarlyState::Accepted);
        assert!(node.connection(0).stats().session.is_resumed);
    }
    apps::transfer(&mut pair, 1_000_000, Duration::from_secs(5));
}

#[test]
fn a_server_without_the_session_rejects_0_rtt_and_the_application_asks_again() {
    let key = server_key();
    let known = known(early_configs(key.clone()));
    let restarted = sessions(early_configs(key.clone()).0, early_configs(key).1);
    let mut pair = second(&Sessions { server: restarted.server, ..known });
    let first = ask(&mut pair, REQUEST);
    let rejected = pair.run_until(Duration::from_secs(5), |pair| {
        pair.client.take_event(0, |event| *event == Event::EarlyRejected).is_some()
    });
    assert!(rejected);
    let client = pair.client.connection(0);
    assert_eq!((client.early_state(), client.is_established()), (EarlyState::Rejected, true));
    assert!(client.write(first, Bytes::from_static(b"more")).is_err(), "the stream is gone");
    let again = ask(&mut pair, REQUEST);
    assert_eq!(again, first, "no stream was opened before");
    let (server, _) = answered(&mut pair, again, Duration::from_secs(5));
    assert_eq!((&server.request[..], server.asked), (REQUEST, Some((false, true))));
    assert!(pair.server.connection(0).stats().receive.packets_dropped > 0, "0-RTT packets were dropped");
    assert_eq!(pair.client.connection(0).stats().in_flight_bytes, 0);
    apps::transfer(&mut pair, 1_000_000, Duration::from_secs(5));
}

/// The 0-RTT packets that the client has sent so far.
fn early_packets(pair: &Pair) -> usize {
    let sent = pair.record.as_ref().expect("recording").iter().filter(|(_, direction, _)| *direction == 0);
    let types = sent.flat_map(|(.., datagram)| long_packets(datagram));
    types.filter(|ty| *ty == PacketType::ZeroRtt).count()
}

#[test]
fn a_client_that_is_asked_for_another_hello_sends_no_more_0_rtt() {
    // RFC 9001, section 5.6: HelloRetryRequest rejects 0-RTT, a round trip before the handshake
    // reaches the server's parameters.
    let key = server_key();
    let (client, server) = early_configs(key.clone());
    let again = asking_again(&server, key);
    let known = known((client, server));
    let restarted = Arc::new(TlsServer::new(Arc::new(again)).expect("AES-128-GCM is there"));
    let mut pair = second(&Sessions { server: restarted, ..known });
    pair.record = Some(Vec::new());
    let id = pair.client.connection(0).open_early(Dir::Bi).expect("0-RTT is possible");
    let write = |pair: &mut Pair| pair.client.connection(0).write(id, Bytes::from(vec![7; 3_000]));
    write(&mut pair).expect("the send buffer has space");
    // The request elicits an acknowledgement, so its datagram is a full one. Links take 10 ms.
    let has_asked = |pair: &mut Pair| {
        let mut sent = pair.record.as_ref().expect("recording").iter();
        sent.any(|(_, direction, datagram)| *direction == 1 && datagram.len() >= MIN_INITIAL_SIZE)
    };
    assert!(pair.run_until(Duration::from_secs(1), has_asked));
    pair.run_for(Duration::from_millis(11));
    let before = early_packets(&pair);
    assert!(before >= 3, "{before} packets of 0-RTT");
    // The window has space for this.
    write(&mut pair).expect("the send buffer has space");
    let rejected = pair.run_until(Duration::from_secs(5), |pair| {
        pair.client.take_event(0, |event| *event == Event::EarlyRejected).is_some()
    });
    assert!(rejected && pair.now.since_start() >= Duration::from_millis(40), "a round trip later than usual");
    assert_eq!(early_packets(&pair), before, "RFC 9001, section 5.6");
    let again = ask(&mut pair, REQUEST);
    let (server, _) = answered(&mut pair, again, Duration::from_secs(5));
    assert_eq!((&server.request[..], server.asked), (REQUEST, Some((false, true))));
    assert_eq!(early_packets(&pair), before);
    let session = pair.client.connection(0).stats().session;
    assert_eq!(session.key_exchange.as_deref(), Some("secp256r1"));
    apps::transfer(&mut pair, 1_000_000, Duration::from_secs(5));
}

#[test]
fn packets_that_overtake_the_second_half_of_the_first_message_are_kept() {
    let mut pair = second(&known(early_configs(server_key())));
    let request = vec![7; 9000];
    let id = ask(&mut pair, &request);
    pair.client.flush(pair.now);
    let mut flight: Vec<Vec<u8>> =
        std::mem::take(&mut pair.client.outbox).into_iter().map(|(_, datagram)| datagram.bytes).collect();
    // The first message takes two packets, because its key share is a post-quantum one.
    let is_initial = |datagram: &[u8]| long_packets(datagram)[0] == PacketType::Initial;
    assert!(is_initial(&flight[0]) && is_initial(&flight[1]) && flight.len() >= 6, "{}", flight.len());
    assert!(flight[2..].iter().all(|datagram| long_packets(datagram) == [PacketType::ZeroRtt]));
    let second_half = flight.remove(1);
    flight.push(second_half);
    for datagram in &flight {
        pair.server.receive(pair.now, datagram, CLIENT);
    }
    let mut arrived = Vec::new();
    assert!(pair.server.connection(0).accept(Dir::Bi) == Some(id) && read(&mut pair, true, id, &mut arrived));
    assert_eq!(arrived, request);
    assert_eq!(pair.server.connection(0).stats().receive.packets_dropped, 0);
}

#[test]
fn a_server_that_permits_less_than_its_ticket_promised_takes_no_0_rtt() {
    for (what, change) in [
        ("stream data", (|config| config.stream_window += 1) as fn(&mut TransportConfig)),
        ("data", |config| config.connection_window += 1),
        ("bidirectional streams", |config| config.max_concurrent_bidi_streams += 1),
        ("unidirectional streams", |config| config.max_concurrent_uni_streams += 1),
    ] {
        // The server of the first connection permits more than that of the second.
        let mut pair = second(&known_with(early_configs(server_key()), change));
        ask(&mut pair, REQUEST);
        confirmed(&mut pair);
        assert_eq!(pair.client.connection(0).early_state(), EarlyState::Rejected, "{what}");
        assert!(!pair.client.connection(0).stats().session.is_resumed, "{what}");
        apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
    }
    // And one that permits more takes it.
    let fewer = |config: &mut TransportConfig| config.stream_window -= 1;
    let mut pair = second(&known_with(early_configs(server_key()), fewer));
    ask(&mut pair, REQUEST);
    confirmed(&mut pair);
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Accepted);
}

#[test]
fn without_either_sides_consent_there_is_no_0_rtt() {
    for (client_wants, server_takes) in [(true, false), (false, true)] {
        let (mut client, mut server) = early_configs(server_key());
        client.enable_early_data = client_wants;
        server.max_early_data_size = if server_takes { u32::MAX } else { 0 };
        let mut pair = second(&known((client, server)));
        assert_eq!(pair.client.connection(0).early_state(), EarlyState::Unavailable);
        assert_eq!(pair.client.connection(0).open_early(Dir::Bi), None);
        confirmed(&mut pair);
        assert!(pair.client.connection(0).stats().session.is_resumed, "the session is continued all the same");
        assert!(pair.client.connection(0).open_early(Dir::Bi).is_some(), "as any other stream");
    }
}

#[test]
fn a_server_takes_the_first_flight_of_a_ticket_once() {
    let sessions = known(early_configs(server_key()));
    let mut pair = second(&sessions);
    ask(&mut pair, REQUEST);
    pair.client.flush(pair.now);
    let flight: Vec<Vec<u8>> = pair.client.outbox.iter().map(|(_, datagram)| datagram.bytes.clone()).collect();
    // An attacker delivers the same packets to another server that shares the sessions.
    let rng = Rng::from_seed(3);
    let config = TransportConfig::default();
    let mut other = Node::new(Side::Server, config, &rng, Some(sessions.server.clone()));
    let mut taken = Vec::new();
    for (node, now) in [(&mut pair.server, pair.now), (&mut other, pair.now)] {
        flight.iter().for_each(|datagram| node.receive(now, datagram, CLIENT));
        taken.push((node.connection(0).early_state(), node.connection(0).accept(Dir::Bi).is_some()));
    }
    assert_eq!(taken, [(EarlyState::Accepted, true), (EarlyState::Unavailable, false)]);
}

#[test]
fn configurations_that_could_be_replayed_or_that_quic_forbids_are_refused() {
    let (_, mut server) = early_configs(server_key());
    server.max_early_data_size = 1 << 14;
    let error = TlsServer::new(Arc::new(server)).err().expect("QUIC allows no such limit");
    assert!(error.contains("max_early_data_size is 16384"), "{error}");
    let (_, mut server) = early_configs(server_key());
    server.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("the system has randomness");
    let error = TlsServer::new(Arc::new(server)).err().expect("stateless tickets can be replayed");
    assert!(error.contains("stateless tickets"), "{error}");
}
