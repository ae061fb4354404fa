//! The data that unauthenticated datagrams can make a server send and store.

use std::net::{Ipv4Addr, SocketAddr};

use quic::{Event, Side};
use units::Duration;
use wire::quic::{LongHeader, PacketType, Version, emit_long};

use crate::support::{CLIENT, Pair, Setup};

const VICTIM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 53);

/// The first datagrams of `count` clients.
fn first_datagrams(pair: &mut Pair, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let index = pair.start();
            pair.client.flush(pair.now);
            pair.client.connections[index] = None;
            let mut outbox = std::mem::take(&mut pair.client.outbox);
            assert_eq!(outbox.len(), 1);
            outbox.remove(0).1.bytes
        })
        .collect()
}

#[test]
fn a_spoofed_address_gets_at_most_three_times_the_bytes_sent_in_its_name() {
    let mut pair = Setup::new(1).build();
    let datagrams = first_datagrams(&mut pair, 20);
    let mut received = 0;
    for datagram in &datagrams {
        pair.server.receive(pair.now, datagram, VICTIM);
        received += datagram.len();
    }
    // Until every connection has given up: retransmissions count too.
    pair.run_for(Duration::from_secs(300));
    let sent: usize = pair
        .misaddressed
        .iter()
        .map(|(to, datagram)| {
            assert_eq!(*to, VICTIM);
            datagram.len()
        })
        .sum();
    assert!(sent > received, "the server responded: {sent} bytes");
    assert!(sent <= 3 * received, "{sent} bytes for {received}");
    assert!(pair.server.connections.iter().all(Option::is_none), "half-open connections end by themselves");
    assert_eq!(pair.server.endpoint.route_count(), 0);
}

#[test]
fn the_amplification_limit_holds_for_every_single_connection() {
    let mut pair = Setup::new(2).build();
    let datagram = first_datagrams(&mut pair, 1).remove(0);
    for replay in 1..=10 {
        pair.server.receive(pair.now, &datagram, VICTIM);
        pair.run_for(Duration::from_millis(700));
        let sent: usize = pair.misaddressed.iter().map(|(_, datagram)| datagram.len()).sum();
        assert!(sent <= 3 * replay * datagram.len(), "{sent} bytes after {replay} datagrams");
    }
    assert_eq!(pair.server.connections.len(), 1);
}

#[test]
fn a_limit_too_small_for_a_packet_causes_no_busy_loop() {
    // A limit a few bytes above a packet's size leaves a remainder too small for a packet. The
    // harness detects a connection that spins.
    let mut pair = Setup::new(2).with_config(|config| config.idle_timeout = Duration::ZERO).build();
    let mut datagram = first_datagrams(&mut pair, 1).remove(0);
    datagram.resize(datagram.len() + 10, 0);
    pair.server.receive(pair.now, &datagram, VICTIM);
    pair.run_for(Duration::from_secs(3600));
    let sent: usize = pair.misaddressed.iter().map(|(_, datagram)| datagram.len()).sum();
    assert!(sent <= 3 * datagram.len() && sent + 64 > 3 * datagram.len(), "{sent} bytes for {}", datagram.len());
}

#[test]
fn a_replayed_first_datagram_begins_one_connection() {
    let mut pair = Setup::new(3).build();
    pair.record = Some(Vec::new());
    pair.start();
    pair.flush();
    let first = pair.record.as_ref().expect("recording")[0].2.clone();
    // During the handshake.
    for _ in 0..100 {
        pair.server.receive(pair.now, &first, CLIENT);
    }
    assert_eq!(pair.server.connections.len(), 1);
    pair.client.events.iter_mut().for_each(|events| events.clear());
    let confirmed = |pair: &mut Pair| pair.client.take_event(0, |event| *event == Event::Confirmed).is_some();
    assert!(pair.run_until(Duration::from_secs(5), confirmed));
    // While the connection is alive.
    for _ in 0..100 {
        pair.server.receive(pair.now, &first, CLIENT);
        pair.run_for(Duration::from_millis(1));
    }
    assert_eq!(pair.server.connections.len(), 1, "a second connection while the first is open");
    assert!(pair.client.connection(0).is_established() && pair.server.connection(0).is_established());
    // After it has ended, the datagram looks like a new client, so one more connection may begin,
    // but not a hundred.
    let now = pair.now;
    pair.client.connection(0).close(now, 1, "done");
    pair.run_for(Duration::from_secs(5));
    assert!(pair.server.connections[0].is_none() && pair.client.connections[0].is_none());
    assert_eq!(pair.server.endpoint.route_count(), 0);
    for _ in 0..100 {
        pair.server.receive(pair.now, &first, CLIENT);
        pair.run_for(Duration::from_millis(1));
    }
    assert_eq!(pair.server.connections.len(), 2);
    pair.run_for(Duration::from_secs(60));
    assert!(pair.server.connections[1].is_none(), "it gets no response");
    assert_eq!(pair.server.endpoint.route_count(), 0);
}

#[test]
fn datagrams_that_may_begin_no_connection_leave_no_state() {
    let mut pair = Setup::new(4).build();
    let first = first_datagrams(&mut pair, 1).remove(0);
    // Too small (RFC 9000, section 14.1), at any length.
    for len in 0..1200 {
        pair.server.receive(pair.now, &first[..len], VICTIM);
    }
    // A destination of fewer than eight bytes (section 7.2).
    for len in 0..8 {
        let dcid = quic::ConnectionId::new(&[7; 8][..len]).expect("short");
        let header = LongHeader { ty: PacketType::Initial, version: Version::V1, dcid, scid: dcid, token: &[] };
        let mut datagram = Vec::new();
        emit_long(&header, 0, 4, 1150, true, &mut datagram);
        datagram.resize(1250, 0);
        pair.server.receive(pair.now, &datagram, VICTIM);
    }
    // Unauthentic: any bit flipped.
    for index in (0..first.len()).step_by(7) {
        let mut bad = first.clone();
        bad[index] ^= 0x10;
        pair.server.receive(pair.now, &bad, VICTIM);
    }
    // A Handshake packet without a connection.
    let mut handshake = first.clone();
    handshake[0] |= 0x20;
    pair.server.receive(pair.now, &handshake, VICTIM);
    pair.flush();
    assert_eq!(pair.server.connections.len(), 0);
    assert_eq!(pair.server.endpoint.route_count(), 0);
    // Bits of the version may be flipped, which causes a response, smaller than the datagram.
    assert!(pair.misaddressed.iter().all(|(_, answer)| answer.len() < 100), "{:?}", pair.misaddressed);
    assert_eq!(pair.client.side, Side::Client);
    // The unmodified datagram still works.
    pair.server.receive(pair.now, &first, VICTIM);
    assert_eq!(pair.server.connections.len(), 1);
}

#[test]
fn a_handshake_packet_begins_no_connection_and_gets_no_answer() {
    let mut pair = Setup::new(4).build();
    let dcid = quic::ConnectionId::new(&[7; 8]).expect("short");
    let header = LongHeader { ty: PacketType::Handshake, version: Version::V1, dcid, scid: dcid, token: &[] };
    let mut datagram = Vec::new();
    emit_long(&header, 0, 4, 1220, true, &mut datagram);
    datagram.resize(datagram.len() + 1220, 0);
    assert!(wire::quic::parse_packet(&datagram, 8).is_ok(), "only the rule of RFC 9000, section 5.2.2, is in its way");
    assert_eq!(pair.server.endpoint.route(&datagram), quic::Route::Unknown);
    pair.server.receive(pair.now, &datagram, VICTIM);
    pair.flush();
    assert!(pair.server.connections.is_empty() && pair.server.endpoint.route_count() == 0);
    assert!(pair.misaddressed.is_empty(), "{:?}", pair.misaddressed);
}
