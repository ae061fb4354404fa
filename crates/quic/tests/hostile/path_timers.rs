//! How long a connection closes, idles and keeps old keys, in probe timeouts; what it sends to
//! addresses that are not validated meanwhile. `docs/spec/requirements` names the clauses.

use std::net::SocketAddr;

use quic::{PreferredAddresses, TransportConfig};
use units::Duration;
use wire::quic::{Frame, Space, emit_ack};

use super::{ping, server_for};
use crate::support::hostile::{HOSTILE, Hostile, HostilePair, SealOverrides, hostile_on, payload};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The probe timeout of [`after_a_round_trip`]: 40 ms, four times half of it, and max_ack_delay.
const PROBE_TIMEOUT: Duration = ms(40 + 80 + 25);

/// A server that has measured a round trip of 40 ms, and has nothing in flight.
fn after_a_round_trip(config: TransportConfig) -> HostilePair {
    let mut pair = HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)));
    pair.wait(ms(40));
    let packets = pair.hostile.opened.iter().filter(|packet| packet.space == Space::Data);
    let newest = packets.map(|packet| packet.number).max().expect("HANDSHAKE_DONE");
    let mut ack = Vec::new();
    emit_ack(None, 0, std::iter::once(0..=newest), None, &mut ack);
    pair.send(&ack);
    let stats = pair.victim.connection(0).stats();
    assert_eq!((stats.round_trip, stats.in_flight_bytes), (ms(40), 0));
    pair
}

/// How long from now until the victim has forgotten its connection, to the millisecond.
fn lifetime(pair: &mut HostilePair) -> Duration {
    let from = pair.now;
    while pair.victim.connections[0].is_some() {
        assert!(pair.now - from < Duration::from_secs(60), "it does not end");
        pair.wait(ms(1));
    }
    pair.now - from
}

#[test]
fn closing_and_draining_last_three_probe_timeouts() {
    // RFC 9000, section 10.2.
    let mut pair = after_a_round_trip(TransportConfig::default());
    let now = pair.now;
    pair.victim.connection(0).close(now, 1, "enough");
    pair.settle();
    assert_eq!(lifetime(&mut pair), PROBE_TIMEOUT * 3);
    let mut pair = after_a_round_trip(TransportConfig::default());
    let close = wire::quic::Close { code: 0, origin: wire::quic::CloseOrigin::Application, reason: b"" };
    pair.send(&payload(&[Frame::Close(close)]));
    assert!(!pair.victim_is_alive());
    assert_eq!(lifetime(&mut pair), PROBE_TIMEOUT * 3);
}

#[test]
fn a_short_idle_timeout_lasts_three_probe_timeouts() {
    // RFC 9000, section 10.1.
    let mut pair = after_a_round_trip(TransportConfig::default().with_idle_timeout(ms(50)));
    pair.send(&ping());
    assert_eq!(lifetime(&mut pair), PROBE_TIMEOUT * 3);
}

#[test]
fn a_closing_connection_sends_little_to_an_address_that_is_not_validated() {
    // RFC 9000, section 10.2.1.
    let moved = SocketAddr::new(HOSTILE.ip(), 7777);
    let stranger = SocketAddr::new(HOSTILE.ip(), 8888);
    let sent_to = |pair: &HostilePair, address| pair.victim_bytes.get(&address).copied().unwrap_or(0);
    let mut pair = after_a_round_trip(TransportConfig::default());
    let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]));
    let mut received = packet.len() as u64;
    pair.deliver_unpadded(&packet, moved);
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, moved);
    let now = pair.now;
    pair.victim.connection(0).close(now, 1, &"enough ".repeat(100));
    pair.settle();
    let mut from_stranger = 0;
    for _ in 0..200 {
        let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]));
        received += packet.len() as u64;
        pair.deliver_unpadded(&packet, moved);
        assert!(sent_to(&pair, moved) <= 3 * received, "{} bytes for {received}", sent_to(&pair, moved));
        let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]));
        from_stranger += packet.len() as u64;
        pair.deliver_unpadded(&packet, stranger);
        assert!(sent_to(&pair, stranger) <= 3 * from_stranger, "{} bytes", sent_to(&pair, stranger));
    }
    assert!(!pair.victim_is_alive());
}

// ── Key updates ──────────────────────────────────────────────────────────────────────────────────

#[test]
fn old_keys_open_packets_for_three_probe_timeouts() {
    // RFC 9001, section 6.5.
    for (late, opens) in [(PROBE_TIMEOUT * 3 - ms(1), true), (PROBE_TIMEOUT * 3 + ms(1), false)] {
        let mut pair = after_a_round_trip(TransportConfig::default());
        let old = pair.hostile.packet(Space::Data, &ping());
        pair.hostile.update_keys();
        pair.send(&ping());
        let before = pair.victim.connection(0).stats().receive;
        pair.wait(late);
        pair.deliver(&old);
        let after = pair.victim.connection(0).stats().receive;
        assert_eq!(after.packets_received - before.packets_received, u64::from(opens), "after {late}");
        assert_eq!(after.packets_unauthentic - before.packets_unauthentic, u64::from(!opens), "after {late}");
    }
}

#[test]
fn the_next_key_update_waits_for_three_probe_timeouts() {
    // RFC 9001, section 6.5, and the multipath draft, section 2.5. Each packet asks for an update.
    let mut pair = after_a_round_trip(TransportConfig::default().with_key_update_interval(2));
    let updates = |pair: &mut HostilePair| pair.victim.connection(0).stats().send.key_updates;
    let exchange = |pair: &mut HostilePair| {
        pair.send_and_ack(&ping());
        pair.send_and_ack(&ping());
    };
    while updates(&mut pair) == 0 {
        exchange(&mut pair);
    }
    // This peer follows, and acknowledges a packet of the new phase.
    pair.hostile.update_keys();
    exchange(&mut pair);
    let followed_at = pair.now;
    while updates(&mut pair) == 1 {
        pair.wait(ms(1));
        exchange(&mut pair);
        assert!(pair.now - followed_at < Duration::from_secs(10), "no second update");
    }
    // The round trip has changed with these acknowledgements.
    let stats = pair.victim.connection(0).stats();
    assert!(pair.now - followed_at >= (stats.round_trip_min + ms(25)) * 3, "{}", pair.now - followed_at);
    assert!(pair.now - followed_at >= PROBE_TIMEOUT * 3 - ms(1), "{}", pair.now - followed_at);
}

#[test]
fn keys_are_not_updated_before_the_handshake_is_confirmed() {
    // RFC 9001, section 6.1.
    for is_confirmed in [false, true] {
        let config = TransportConfig::default().with_key_update_interval(2);
        let mut pair = HostilePair::established(HostilePair::with_client(config, server_for));
        if is_confirmed {
            pair.send(&payload(&[Frame::HandshakeDone]));
        }
        for _ in 0..50 {
            pair.send_and_ack(&ping());
            pair.wait(ms(50));
        }
        let stats = pair.victim.connection(0).stats().send;
        assert!(stats.packets_sent > 20, "{stats:?}");
        assert_eq!(stats.key_updates > 0, is_confirmed);
    }
}

// ── The preferred address ────────────────────────────────────────────────────────────────────────

#[test]
fn a_client_at_the_preferred_address_is_validated_from_there() {
    // RFC 9000, sections 9.6.2 and 9.6.3. Socket 1 has the preferred address.
    let preferred = "10.0.0.3:3000".parse().expect("an address");
    let addresses = PreferredAddresses { ipv4: Some(preferred), ipv6: None };
    let mut pair = after_a_round_trip(TransportConfig::default().with_preferred_addresses(addresses));
    let connection = pair.victim.connection(0);
    let id = connection.open(quic::Dir::Uni).expect("a stream is allowed");
    connection.write(id, bytes::Bytes::from(vec![7; 100_000])).expect("the send buffer has space");
    let packet = pair.hostile.packet(Space::Data, &ping());
    pair.deliver_on(1, &packet);
    let addresses = pair.victim.connection(0).path_stats()[0].addresses;
    assert_eq!((addresses.remote, addresses.socket), (hostile_on(1), 1), "the client has moved");
    let asked = pair.hostile.challenges_to(hostile_on(1));
    assert_eq!(asked.len(), 1, "it is validated there");
    pair.wait(ms(200));
    let sent = pair.victim_bytes[&hostile_on(1)];
    assert!(sent <= 3 * packet.len() as u64, "{sent} bytes for {} from any sender", packet.len());
    let response = pair.hostile.packet(Space::Data, &payload(&[Frame::PathResponse(asked[0]), Frame::Ping]));
    pair.deliver_on(1, &response);
    pair.wait(ms(200));
    assert!(pair.victim_bytes[&hostile_on(1)] > 5_000, "the data follow");
}

// ── The spin bit ─────────────────────────────────────────────────────────────────────────────────

#[test]
fn the_spin_bit_is_neither_sent_nor_followed() {
    // RFC 9000, section 17.4.
    for mut pair in [HostilePair::against_server(), HostilePair::against_client()] {
        for round in 0..20 {
            let odd = SealOverrides { spin: round % 3 > 0, ..SealOverrides::default() };
            let body = [pair.hostile.ack(Space::Data), ping()].concat();
            let before = pair.victim.connection(0).stats().receive.packets_received;
            let packet = pair.hostile.packet_with(Space::Data, &body, odd);
            pair.deliver(&packet);
            assert_eq!(pair.victim.connection(0).stats().receive.packets_received, before + 1);
            pair.wait(ms(30));
        }
        assert!(pair.hostile.opened.len() > 20 && pair.hostile.opened.iter().all(|packet| !packet.spin));
    }
}
