//! 0-RTT with deterministic sessions: limits, losses, Retry, reordering.

use std::sync::Arc;

use bytes::Bytes;
use quic::session::deterministic::{DeterministicFactory, Tickets};
use quic::{AddressValidation, Dir, EarlyState, Event, Side};
use units::{Duration, Ratio, Rng};
use wire::quic::PacketType;

use super::{REQUEST, Server, answered, ask, confirmed, long_packets, read};
use crate::support::{CLIENT, Pair, Sessions, Setup, apps};

/// Sessions that share tickets.
fn sessions(seed: u64) -> (Sessions, Tickets) {
    let (root, tickets) = (Rng::from_seed(seed), Tickets::default());
    let make = |side, name| Arc::new(DeterministicFactory::new(side, root.split(name)).with_tickets(&tickets));
    let sessions = Sessions {
        client: make(Side::Client, "client session"),
        server: make(Side::Server, "server session"),
        server_name: "server".to_owned(),
    };
    (sessions, tickets)
}

/// Sessions after a connection with this setup, whose ticket the client has.
fn known(setup: Setup) -> (Sessions, Tickets) {
    let (sessions, tickets) = sessions(setup.seed);
    let mut pair = setup.with_sessions(sessions.clone()).build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(tickets.held_count(), 1);
    (sessions, tickets)
}

/// The second connection with this setup, whose client may send 0-RTT.
fn second(setup: Setup) -> (Pair, Tickets) {
    let (sessions, tickets) = known(Setup::new(setup.seed));
    let mut pair = setup.with_sessions(sessions).build();
    pair.record = Some(Vec::new());
    pair.start();
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Possible);
    (pair, tickets)
}

/// How many 0-RTT packets a direction has carried.
fn early_packets(pair: &Pair, direction: usize) -> usize {
    let datagrams = pair.record.as_ref().expect("recording").iter().filter(|(_, of, _)| *of == direction);
    datagrams.flat_map(|(.., datagram)| long_packets(datagram)).filter(|ty| *ty == PacketType::ZeroRtt).count()
}

#[test]
fn only_the_streams_that_the_application_opens_for_it_are_sent_in_0_rtt() {
    let (mut pair, _) = second(Setup::new(1));
    let client = pair.client.connection(0);
    assert_eq!(client.open(Dir::Bi), None, "an ordinary stream waits for the handshake");
    confirmed(&mut pair);
    assert_eq!((early_packets(&pair, 0), early_packets(&pair, 1)), (0, 0));
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
}

#[test]
fn requests_in_0_rtt_arrive_whole_despite_loss_and_reordering() {
    let (mut lost, mut early, mut sent) = (0, 0, 0);
    for seed in 0..40 {
        let faulty = Setup::new(seed).with_loss(seed % 5 * 6).with_links(|link| {
            link.reorder = Ratio::new(seed % 3 * 15, 100);
            link.reorder_by = Duration::from_millis(15);
            link.corrupt = Ratio::new(seed % 2 * 3, 100);
        });
        let (mut pair, _) = second(faulty);
        let request: Vec<u8> = (0..9_000_u32).map(|index| (index / 7) as u8).collect();
        let id = ask(&mut pair, &request);
        let (server, _) = answered(&mut pair, id, Duration::from_secs(120));
        assert_eq!(server.request, request, "seed {seed}");
        assert_eq!(pair.client.connection(0).early_state(), EarlyState::Accepted, "seed {seed}");
        early += u64::from(server.asked.expect("it was answered").0);
        sent += early_packets(&pair, 0);
        assert_eq!(early_packets(&pair, 1), 0, "seed {seed}: a server sends none");
        lost += pair.link_stats()[0].lost;
        apps::transfer(&mut pair, 100_000, Duration::from_secs(120));
    }
    assert!(lost > 10 && early >= 30 && sent >= 40 * 6, "{lost} {early} {sent}");
}

#[test]
fn a_rejected_client_forgets_its_streams_and_asks_again_despite_loss() {
    let mut lost = 0;
    for seed in 0..30 {
        let (mut pair, tickets) = second(Setup::new(seed).with_loss(seed % 4 * 6));
        tickets.forget();
        let request = vec![7; 20_000];
        let first = ask(&mut pair, &request);
        let rejected = pair.run_until(Duration::from_secs(120), |pair| {
            pair.client.take_event(0, |event| *event == Event::EarlyRejected).is_some()
        });
        assert!(rejected && early_packets(&pair, 0) > 0, "seed {seed}");
        let sent_before = early_packets(&pair, 0);
        let again = ask(&mut pair, REQUEST);
        assert_eq!(first, again, "seed {seed}: no stream was opened before");
        let (server, _) = answered(&mut pair, again, Duration::from_secs(120));
        assert_eq!((&server.request[..], server.asked), (REQUEST, Some((false, true))), "seed {seed}");
        assert_eq!(early_packets(&pair, 0), sent_before, "seed {seed}: no 0-RTT follows 1-RTT keys");
        lost += pair.link_stats()[0].lost;
        apps::transfer(&mut pair, 100_000, Duration::from_secs(120));
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn after_a_retry_the_request_leaves_again_with_other_packet_numbers() {
    let (sessions, _) = known(Setup::new(3));
    let mut pair = Setup::new(3).with_sessions(sessions).build();
    pair.record = Some(Vec::new());
    pair.server.endpoint.set_address_validation(AddressValidation::Always);
    pair.start();
    let id = ask(&mut pair, REQUEST);
    let (server, time) = answered(&mut pair, id, Duration::from_secs(5));
    assert_eq!((&server.request[..], server.asked), (REQUEST, Some((true, false))));
    assert!(time < Duration::from_millis(50), "one more round trip of 20 ms: {time}");
    // Once before the Retry packet and once after it. All have numbers of their own, or the server
    // could not have opened and acknowledged them: check the counts of both sides.
    assert_eq!(early_packets(&pair, 0), 2);
    confirmed(&mut pair);
    let stats = pair.server.connection(0).stats().receive;
    assert_eq!((stats.packets_unauthentic, stats.packets_duplicate), (0, 0));
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
}

#[test]
fn a_client_keeps_to_the_limits_that_it_remembers() {
    let (sessions, _) = known(Setup::new(4).with_config(|config| {
        config.stream_window = 3000;
        config.connection_window = 5000;
        config.max_concurrent_bidi_streams = 2;
    }));
    // The server permits more today.
    let mut pair = Setup::new(4).with_sessions(sessions).build();
    pair.start();
    let client = pair.client.connection(0);
    let ids = [client.open_early(Dir::Bi), client.open_early(Dir::Bi)].map(|id| id.expect("two are permitted"));
    assert_eq!(client.open_early(Dir::Bi), None, "a third one is not");
    for id in ids {
        client.write(id, Bytes::from(vec![1; 10_000])).expect("the send buffer has space");
        client.finish(id).expect("the stream is open");
    }
    // All that may leave in 0-RTT has left before anything comes back.
    pair.run_for(Duration::from_millis(5));
    let sent = pair.client.connection(0).stats().in_flight_bytes;
    assert!((5000..7000).contains(&sent), "{sent}");
    confirmed(&mut pair);
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Accepted);
    // The new limits count now.
    let (mut bytes, mut ended) = ([Vec::new(), Vec::new()], [false; 2]);
    let done = pair.run_until(Duration::from_secs(5), |pair| {
        for index in 0..2 {
            ended[index] = ended[index] || read(pair, true, ids[index], &mut bytes[index]);
        }
        ended == [true, true]
    });
    assert!(done && bytes.iter().all(|bytes| bytes[..] == vec![1; 10_000]));
    assert!(pair.client.connection(0).open(Dir::Bi).is_some());
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
}

#[test]
fn a_server_that_permits_less_than_before_takes_no_0_rtt() {
    let (sessions, _) = known(Setup::new(5));
    let setup = Setup::new(5).with_sessions(sessions).with_config(|config| config.stream_window -= 1);
    let mut pair = setup.build();
    pair.start();
    ask(&mut pair, REQUEST);
    confirmed(&mut pair);
    assert_eq!(pair.client.connection(0).early_state(), EarlyState::Rejected);
    assert_eq!(pair.server.connection(0).early_state(), EarlyState::Unavailable);
}

#[test]
fn a_ticket_serves_for_one_connection() {
    let (sessions, tickets) = known(Setup::new(6));
    for attempt in 0..2 {
        let mut pair = Setup::new(7 + attempt).with_sessions(sessions.clone()).build();
        pair.start();
        let state = pair.client.connection(0).early_state();
        assert_eq!(state, if attempt == 0 { EarlyState::Possible } else { EarlyState::Unavailable });
        // The connection ends before it gets a ticket.
        pair.flush();
    }
    assert_eq!(tickets.held_count(), 0);
}

#[test]
fn packets_before_the_clients_first_initial_packet_are_dropped_and_sent_again() {
    let (mut pair, _) = second(Setup::new(8));
    let id = ask(&mut pair, &[9; 4000]);
    pair.client.flush(pair.now);
    let flight: Vec<Vec<u8>> = pair.client.outbox.iter().map(|(_, datagram)| datagram.bytes.clone()).collect();
    let early: Vec<&Vec<u8>> =
        flight.iter().filter(|datagram| long_packets(datagram) == [PacketType::ZeroRtt]).collect();
    assert!(early.len() >= 2, "{}", early.len());
    for datagram in early {
        pair.server.receive(pair.now, datagram, CLIENT);
    }
    assert!(pair.server.connections.is_empty(), "a 0-RTT packet begins no connection");
    let (server, _) = answered(&mut pair, id, Duration::from_secs(5));
    assert_eq!(server.request, [9; 4000]);
}

#[test]
fn a_server_opens_streams_of_its_own_before_the_handshake_is_complete() {
    let (mut pair, _) = second(Setup::new(9));
    let id = ask(&mut pair, REQUEST);
    let mut server = Server::default();
    let asked = pair.run_until(Duration::from_secs(5), |pair| {
        server.pump(pair);
        server.asked.is_some()
    });
    assert!(asked);
    let connection = pair.server.connection(0);
    assert!(!connection.is_established());
    let push = connection.open(Dir::Uni).expect("the client's limits are known");
    connection.write(push, Bytes::from_static(b"more")).expect("the send buffer has space");
    connection.finish(push).expect("the stream is open");
    let (mut answer, mut pushed) = (Vec::new(), Vec::new());
    let done = pair.run_until(Duration::from_secs(5), |pair| {
        let ended = read(pair, false, id, &mut answer);
        pair.client.connections[0].is_some() && ended && pair.client.connection(0).accept(Dir::Uni) == Some(push)
    });
    assert!(done && read(&mut pair, false, push, &mut pushed));
    assert_eq!((&answer[..], &pushed[..]), (super::ANSWER, &b"more"[..]));
}
