//! Versions: supported ones, others, and forged Version Negotiation packets (RFC 9000, section 6).

use quic::{ConnectionError, Event};
use units::Duration;
use wire::quic::{Parsed, Version, emit_version_negotiation, parse_packet, versions};

use crate::support::{SERVER, Setup};

/// The connection IDs of a long header.
fn ids(datagram: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match parse_packet(datagram, 8) {
        Ok(Parsed::Protected(header)) => (header.dcid.as_slice().to_vec(), header.scid.as_slice().to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_version_gets_version_negotiation() {
    let mut pair = Setup::new(1).build();
    pair.start();
    pair.client.flush(pair.now);
    let (_, first) = pair.client.outbox.remove(0);
    let mut other = first.bytes.clone();
    other[1..5].copy_from_slice(&0xff00_001d_u32.to_be_bytes());
    pair.server.receive(pair.now, &other, crate::support::CLIENT);
    assert_eq!(pair.server.connections.len(), 0);
    let (_, answer) = pair.server.outbox.remove(0);
    let (dcid, scid) = ids(&first);
    match parse_packet(&answer, 8) {
        Ok(Parsed::VersionNegotiation { dcid: to, scid: from, versions: list }) => {
            assert_eq!((to, from), (&scid[..], &dcid[..]), "the IDs are swapped");
            assert!(versions(list).any(|version| version == Version::V1.number()));
            assert!(versions(list).any(|version| version & 0x0f0f_0f0f == 0x0a0a_0a0a), "a reserved one among them");
        }
        other => panic!("{other:?}"),
    }
    assert!(answer.len() * 10 < other.len(), "no amplification");
    // Too small to be answered (section 6.1).
    pair.server.receive(pair.now, &other[..1199], crate::support::CLIENT);
    assert!(pair.server.outbox.is_empty());
}

#[test]
fn a_server_without_our_version_ends_the_attempt_at_once() {
    let mut pair = Setup::new(1).build();
    pair.start();
    pair.client.flush(pair.now);
    let (_, first) = pair.client.outbox.remove(0);
    let (dcid, scid) = ids(&first);
    let mut answer = Vec::new();
    // A packet that offers our version is a forgery or a mistake, and is ignored (section 6.2).
    emit_version_negotiation(&scid, &dcid, &[0xff00_001d, Version::V1.number()], 0, &mut answer);
    pair.client.receive(pair.now, &answer, SERVER);
    assert!(pair.client.connection(0).is_handshaking());
    // A packet with connection IDs other than those we sent is ignored: its sender has not seen our
    // packet.
    answer.clear();
    emit_version_negotiation(&scid, &[1; 8], &[0xff00_001d], 0, &mut answer);
    pair.client.receive(pair.now, &answer, SERVER);
    assert!(pair.client.connection(0).is_handshaking(), "the source is not the one we sent to");
    answer.clear();
    emit_version_negotiation(&scid, &dcid, &[0xff00_001d], 0, &mut answer);
    pair.client.receive(pair.now, &answer, SERVER);
    pair.client.flush(pair.now);
    assert_eq!(pair.client.events[0].back(), Some(&Event::Closed(ConnectionError::VersionMismatch)));
    assert!(pair.client.connections[0].is_none());
    assert_eq!(pair.client.endpoint.route_count(), 0);
}

#[test]
fn a_forged_negotiation_after_the_first_authentic_packet_changes_nothing() {
    let mut pair = Setup::new(1).build();
    pair.record = Some(Vec::new());
    pair.start();
    pair.flush();
    let (dcid, scid) = ids(&pair.record.as_ref().expect("recording")[0].2);
    let mut forged = Vec::new();
    emit_version_negotiation(&scid, &dcid, &[0xff00_001d], 0, &mut forged);
    // The server's first packets are processed, and the handshake continues.
    let has_received = |pair: &mut crate::support::Pair| pair.client.connection(0).stats().receive.packets_received > 0;
    assert!(pair.run_until(Duration::from_secs(1), has_received));
    for _ in 0..5 {
        pair.client.receive(pair.now, &forged, SERVER);
    }
    let connected =
        |pair: &mut crate::support::Pair| pair.client.take_event(0, |event| *event == Event::Confirmed).is_some();
    assert!(pair.run_until(Duration::from_secs(1), connected));
    pair.client.receive(pair.now, &forged, SERVER);
    assert!(pair.client.connection(0).is_established());
    assert!(pair.client.connection(0).stats().receive.packets_dropped > 0);
}

#[test]
fn the_quic_bit_is_greased_only_towards_peers_that_support_it() {
    for (client, server) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut setup = Setup::new(3);
        setup.client.grease = client;
        setup.server.grease = server;
        let mut pair = setup.build();
        pair.record = Some(Vec::new());
        pair.connect();
        crate::support::apps::transfer(&mut pair, 300_000, Duration::from_secs(5));
        let record = pair.record.take().expect("recording");
        for direction in 0..2 {
            let cleared = record.iter().filter(|(_, sent, d)| *sent == direction && d[0] & 0x40 == 0).count();
            // Cleared only by a side that greases, towards a peer that announced support.
            assert_eq!(cleared > 5, client && server, "direction {direction}, client {client}, server {server}");
            assert_eq!(cleared == 0, !(client && server), "direction {direction}, client {client}, server {server}");
            let initial = record.iter().filter(|(_, sent, d)| *sent == direction && d[0] & 0xb0 == 0x80);
            assert!(initial.clone().count() > 0);
            assert!(initial.into_iter().all(|(.., d)| d[0] & 0x40 != 0), "Initial packets are never greased");
        }
    }
}
