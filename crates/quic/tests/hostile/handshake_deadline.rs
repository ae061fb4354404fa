//! The handshake has a deadline that the peer cannot move: everyone can seal Initial packets (RFC
//! 9001, section 5.2), and each one restarts the idle timer (RFC 9000, section 10.1).

use quic::{ConnectionError, Event, TransportConfig};
use units::{Duration, Ratio};
use wire::quic::Space;

use super::ping;
use crate::support::Setup;
use crate::support::hostile::{Hostile, HostilePair};

const PING_INTERVAL: Duration = Duration::from_secs(1);

/// A server and a peer that has sent its hello, and from then on sends only PINGs in Initial
/// packets. The victim's newest connection is half open.
fn half_open(config: TransportConfig) -> HostilePair {
    let mut pair = HostilePair::with_server(config, Hostile::ordinary_client(7));
    pair.hostile = Hostile::ordinary_client(8);
    let hello = pair.hostile.flight();
    hello.iter().for_each(|datagram| pair.deliver(datagram));
    assert_eq!(pair.victim.connections.len(), 2);
    pair
}

/// Sends a PING each second, `count` in all.
fn send_pings(pair: &mut HostilePair, count: u64) {
    for _ in 0..count {
        pair.wait(PING_INTERVAL);
        let packet = pair.hostile.packet(Space::Initial, &ping());
        pair.deliver(&packet);
    }
}

#[test]
fn pings_in_initial_packets_do_not_keep_a_half_open_connection_beyond_the_deadline() {
    let mut pair = half_open(TransportConfig::default());
    send_pings(&mut pair, 9);
    assert!(pair.victim.connection(1).is_handshaking(), "{:?}", pair.victim.events);
    assert!(pair.victim.connection(1).stats().receive.packets_received >= 10, "the PINGs count");
    let routes = pair.victim.endpoint.route_count();

    pair.wait(PING_INTERVAL);
    assert_eq!(pair.victim.events[1].back(), Some(&Event::Closed(ConnectionError::HandshakeTimedOut)));
    assert!(pair.victim.connections[1].is_none(), "nothing is kept of it");
    assert_eq!(pair.victim.endpoint.route_count(), routes - 2, "its ID and the one that the client chose");

    send_pings(&mut pair, 3);
    assert_eq!(pair.victim.connections.len(), 2, "further PINGs begin no connection");
    assert!(pair.victim.connection(0).is_established(), "the deadline is over for a complete handshake");
}

#[test]
fn a_deadline_of_zero_is_none() {
    let mut pair = half_open(TransportConfig::default().with_handshake_timeout(Duration::ZERO));
    send_pings(&mut pair, 60);
    assert!(pair.victim.connection(1).is_handshaking(), "{:?}", pair.victim.events);
}

#[test]
fn a_client_whose_server_does_not_respond_gives_up_at_its_deadline() {
    let config = |config: &mut TransportConfig| {
        config.idle_timeout = Duration::ZERO;
        config.handshake_timeout = Duration::from_secs(3);
    };
    let mut pair = Setup::new(1).with_config(config).with_links(|link| link.loss = Ratio::ONE).build();
    let index = pair.start();
    pair.run_for(Duration::from_millis(2_999));
    assert!(pair.client.connection(index).is_handshaking());
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.client.events[index].back(), Some(&Event::Closed(ConnectionError::HandshakeTimedOut)));
    assert!(pair.client.connections[index].is_none());
}
