//! CONNECTION_CLOSE, received and lost.

use std::cell::Cell;
use std::rc::Rc;

use quic::{ConnectionError, ErrorCode, Event};
use units::{Duration, Ratio};

use crate::support::{Node, Pair, Setup, apps};

fn closed(node: &mut Node) -> Option<ConnectionError> {
    node.take_event(0, |event| matches!(event, Event::Closed(_))).map(|event| match event {
        Event::Closed(error) => error,
        _ => unreachable!("asked for a closed one"),
    })
}

#[test]
fn code_and_reason_arrive() {
    for by_server in [false, true] {
        let mut pair = Setup::new(1).build();
        pair.connect();
        let now = pair.now;
        let closer = if by_server { &mut pair.server } else { &mut pair.client };
        closer.connection(0).close(now, 4242, "all data sent");
        pair.run_for(Duration::from_millis(50));
        let (closer, other) =
            if by_server { (&mut pair.server, &mut pair.client) } else { (&mut pair.client, &mut pair.server) };
        assert_eq!(closed(closer), Some(ConnectionError::ClosedLocally));
        let error = closed(other);
        assert_eq!(error, Some(ConnectionError::ClosedByPeer { code: 4242, reason: "all data sent".into() }));
        // Both sides discard it in time, with all its routes.
        pair.run_for(Duration::from_secs(10));
        assert!(pair.client.connections[0].is_none() && pair.server.connections[0].is_none());
        assert_eq!(pair.client.endpoint.route_count() + pair.server.endpoint.route_count(), 0);
    }
}

#[test]
fn a_long_reason_is_cut_to_fit() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    let now = pair.now;
    pair.client.connection(0).close(now, 1, &"ä".repeat(5000));
    pair.run_for(Duration::from_millis(50));
    let Some(ConnectionError::ClosedByPeer { code: 1, reason }) = closed(&mut pair.server) else {
        panic!("no close arrived")
    };
    assert!(reason.len() > 1000 && reason.len() < 1200, "{} bytes", reason.len());
}

#[test]
fn closed_is_the_last_event_and_everything_is_refused_afterwards() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    let id = pair.client.connection(0).open(quic::Dir::Bi).expect("streams are allowed");
    let mut writer = apps::Writer::new(id, 1_000_000);
    writer.pump(pair.client.connection(0));
    pair.run_for(Duration::from_millis(35));
    let now = pair.now;
    let client = pair.client.connection(0);
    client.close(now, 7, "enough");
    client.close(now, 8, "again");
    assert_eq!(client.open(quic::Dir::Uni), None);
    assert_eq!(client.write(id, bytes::Bytes::from_static(b"x")), Err(quic::WriteError::Closed));
    pair.run_for(Duration::from_secs(20));
    for node in [&pair.client, &pair.server] {
        let events = &node.events[0];
        assert!(matches!(events.back(), Some(Event::Closed(_))), "{events:?}");
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Closed(_))).count(), 1);
    }
}

#[test]
fn a_lost_close_is_repeated_while_the_peer_keeps_sending() {
    for seed in 0..5 {
        let mut pair = Setup::new(seed).build();
        pair.connect();
        let id = pair.server.connection(0).open(quic::Dir::Uni).expect("streams are allowed");
        let mut writer = apps::Writer::new(id, 50_000_000);
        writer.pump(pair.server.connection(0));
        pair.run_for(Duration::from_millis(60));
        let now = pair.now;
        pair.client.connection(0).close(now, 9, "bye");
        // The first CONNECTION_CLOSE is lost.
        let dropped = Rc::new(Cell::new(0));
        let counter = dropped.clone();
        pair.tap(0, move |_, _| {
            counter.set(counter.get() + 1);
            counter.get() > 1
        });
        let is_closed = pair.run_until(Duration::from_secs(3), |pair| {
            pair.server.events[0].iter().any(|event| matches!(event, Event::Closed(_)))
        });
        assert!(is_closed, "seed {seed}: the server received no repetition");
        assert_eq!(pair.tapped[0], 1);
        let error = closed(&mut pair.server);
        assert_eq!(error, Some(ConnectionError::ClosedByPeer { code: 9, reason: "bye".into() }));
        // Few repetitions: each needs twice as many packets as the one before.
        assert!(dropped.get() < 12, "{} closes", dropped.get());
    }
}

#[test]
fn a_close_on_a_dead_link_leaves_the_peer_to_its_idle_timer() {
    let mut pair = Setup::new(1).with_config(|config| config.idle_timeout = Duration::from_secs(5)).build();
    pair.connect();
    pair.set_links(|link| link.loss = Ratio::ONE);
    let now = pair.now;
    pair.client.connection(0).close(now, 9, "bye");
    pair.run_for(Duration::from_secs(20));
    assert!(pair.link_stats()[0].lost > 0);
    assert_eq!(closed(&mut pair.server), Some(ConnectionError::TimedOut));
    assert!(pair.client.connections[0].is_none() && pair.server.connections[0].is_none());
}

#[test]
fn both_may_close_at_once() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    let now = pair.now;
    pair.client.connection(0).close(now, 1, "client");
    pair.server.connection(0).close(now, 2, "server");
    let before = pair.link_stats();
    pair.run_for(Duration::from_secs(10));
    let after = pair.link_stats();
    for direction in 0..2 {
        let closes = after[direction].offered - before[direction].offered;
        assert!((1..=3).contains(&closes), "{closes} closes");
    }
    assert!(pair.client.connections[0].is_none() && pair.server.connections[0].is_none());
}

fn close_in_the_handshake(by_server: bool) -> Pair {
    let mut pair = Setup::new(1).build();
    pair.start();
    let reached = pair.run_until(Duration::from_secs(1), |pair| !by_server || !pair.server.connections.is_empty());
    assert!(reached);
    let now = pair.now;
    let closer = if by_server { &mut pair.server } else { &mut pair.client };
    assert!(closer.connection(0).is_handshaking());
    closer.connection(0).close(now, 77, "a secret");
    pair.record = Some(Vec::new());
    pair.run_for(Duration::from_secs(1));
    pair
}

#[test]
fn a_close_during_the_handshake_hides_the_applications_reason() {
    // RFC 9000, section 10.2.3: packets that an observer can open carry APPLICATION_ERROR without a
    // reason.
    let mut pair = close_in_the_handshake(true);
    match closed(&mut pair.client) {
        Some(ConnectionError::ClosedByPeerTransport(error)) => {
            assert_eq!(error.code, ErrorCode::APPLICATION_ERROR);
            assert_eq!(error.reason, "");
        }
        other => panic!("{other:?}"),
    }
    // A client that closes before the server responded: the server learns of it with the first
    // datagram, or times out.
    let mut pair = close_in_the_handshake(false);
    pair.run_for(Duration::from_secs(60));
    assert!(pair.client.connections[0].is_none());
    assert!(pair.server.connections.iter().all(Option::is_none));
    for (_, _, datagram) in pair.record.take().expect("recording") {
        assert!(!datagram.windows(8).any(|window| window == b"a secret"));
    }
}
