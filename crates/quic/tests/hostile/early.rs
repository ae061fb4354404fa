//! 0-RTT with a peer that follows no rules (RFC 9001, section 4.6; RFC 9000, sections 7.4.1 and
//! 17.2.3).

use bytes::Bytes;
use quic::session::deterministic::{DeterministicFactory, Tickets};
use quic::{Addresses, ConnectionId, Dir, EarlyState, ErrorCode, Side, StreamId, TransportConfig};
use units::{Instant, Rng};
use wire::quic::{Frame, PathId, Space, Stream, TransportParameters};

use super::{ping, received};
use crate::support::Node;
use crate::support::hostile::{HOSTILE, Hostile, HostilePair, SealOverrides, client_parameters, encode, payload};

fn stream(index: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    payload(&[Frame::Stream(Stream { id: StreamId::new(Side::Client, Dir::Bi, index), offset, fin: false, data })])
}

fn victim() -> HostilePair {
    let mut pair = HostilePair::with_early_server(TransportConfig::default());
    assert_eq!(pair.victim.connection(0).early_state(), EarlyState::Accepted);
    pair
}

#[test]
fn frames_that_0_rtt_packets_must_not_have_close_the_connection() {
    let token = [7; 16];
    let id = ConnectionId::new(&[9; 8]).expect("eight bytes");
    let named = Some(PathId(1));
    for (what, frame) in [
        ("ACK", vec![0x02, 0, 0, 0, 0]),
        ("CRYPTO", payload(&[Frame::Crypto { offset: 0, data: b"crypto" }])),
        ("HANDSHAKE_DONE", payload(&[Frame::HandshakeDone])),
        ("NEW_TOKEN", payload(&[Frame::NewToken { token: b"token" }])),
        ("PATH_RESPONSE", payload(&[Frame::PathResponse([1; 8])])),
        ("RETIRE_CONNECTION_ID", payload(&[Frame::RetireConnectionId { path: None, sequence: 0 }])),
        (
            "a frame of multipath",
            payload(&[Frame::NewConnectionId { path: named, sequence: 0, retire_prior_to: 0, id, reset_token: token }]),
        ),
    ] {
        let mut pair = victim();
        pair.send_early(&stream(0, 0, b"a request"));
        pair.assert_alive(what);
        pair.send_early(&[frame, ping()].concat());
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, what);
    }
}

#[test]
fn reserved_bits_in_0_rtt_packets_close_the_connection() {
    let mut pair = victim();
    let odd = SealOverrides { reserved_bits: true, ..SealOverrides::default() };
    let packet = pair.hostile.early_packet(&ping(), odd);
    pair.deliver(&packet);
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "reserved bits");
}

#[test]
fn more_than_a_client_may_remember_closes_the_connection() {
    let config = TransportConfig::default()
        .with_stream_window(1 << 18)
        .with_connection_window(1 << 20)
        .with_max_concurrent_bidi_streams(100)
        .with_max_concurrent_uni_streams(100);
    for (what, frames, code) in [
        ("stream data", stream(0, (1 << 18) - 1, b"ab"), ErrorCode::FLOW_CONTROL_ERROR),
        ("a stream", stream(100, 0, b"a"), ErrorCode::STREAM_LIMIT_ERROR),
    ] {
        let mut pair = HostilePair::with_early_server(config.clone());
        pair.send_early(&stream(99, (1 << 18) - 1, b"a"));
        pair.assert_alive(what);
        pair.send_early(&frames);
        pair.assert_closed(code, what);
    }
}

#[test]
fn streams_in_0_rtt_are_bounded_by_what_the_client_remembers_even_if_the_application_ends_some() {
    let config = TransportConfig::default().with_max_concurrent_bidi_streams(100).with_max_concurrent_uni_streams(100);
    let mut pair = HostilePair::with_early_server(config);
    let whole = |index| {
        let id = StreamId::new(Side::Client, Dir::Uni, index);
        payload(&[Frame::Stream(Stream { id, offset: 0, fin: true, data: b"a" })])
    };
    // The application reads each to its end, so that the client may open others in 1-RTT packets.
    for index in 0..1000 {
        pair.send_early(&whole(index));
        if !pair.victim_is_alive() {
            assert!(index > 100, "{index}");
            return pair.assert_closed(ErrorCode::STREAM_LIMIT_ERROR, "too many streams");
        }
        let (now, connection) = (pair.now, pair.victim.connection(0));
        while let Some(id) = connection.accept(Dir::Uni) {
            while connection.read(now, id, 100).is_ok() {}
        }
    }
    panic!("the victim takes as many streams as it is sent");
}

#[test]
fn packets_of_0_rtt_are_dropped_once_the_handshake_is_complete() {
    let mut pair = victim();
    pair.send_early(&stream(0, 0, b"a request"));
    pair.run_session();
    assert!(pair.victim.connection(0).is_established());
    let before = received(&mut pair);
    pair.send_early(&stream(4, 0, b"a late one"));
    assert_eq!(received(&mut pair), before, "RFC 9001, section 4.9.3");
    pair.assert_alive("a late packet");
    let connection = pair.victim.connection(0);
    let id = connection.accept(Dir::Bi).expect("one stream came in time");
    assert!(connection.may_be_replayed(id));
    assert_eq!(connection.accept(Dir::Bi), None);
    // What comes in 1-RTT packets cannot be replayed.
    pair.send(&stream(1, 0, b"another"));
    let connection = pair.victim.connection(0);
    let id = connection.accept(Dir::Bi).expect("a stream was opened");
    assert!(!connection.may_be_replayed(id));
}

#[test]
fn few_0_rtt_packets_are_kept_before_the_first_message_is_whole() {
    let (rng, tickets) = (Rng::from_seed(1).split("victim"), Tickets::default());
    let promised = encode(&client_parameters(ConnectionId::EMPTY));
    tickets.issue(5, &promised, &promised);
    let factory = DeterministicFactory::new(Side::Server, rng.split("session")).with_tickets(&tickets);
    let mut victim = Node::new(Side::Server, TransportConfig::default(), &rng, Some(std::sync::Arc::new(factory)));
    let mut hostile = Hostile::client_with_tickets(7, &tickets);
    let hello = hostile.flight().remove(0);
    // A first packet without any of the message.
    let first = hostile.packet(Space::Initial, &payload(&[Frame::Ping, Frame::Padding { len: 1160 }]));
    assert!(first.len() >= 1200);
    victim.receive(Instant::ZERO, &first, HOSTILE);
    for _ in 0..100 {
        let packet = hostile.early_packet(&ping(), SealOverrides::default());
        victim.receive(Instant::ZERO, &packet, HOSTILE);
    }
    victim.receive(Instant::ZERO, &hello, HOSTILE);
    let stats = victim.connection(0).stats().receive;
    assert_eq!(stats.packets_received, 2 + 16);
    assert!(stats.packets_dropped >= 100 - 16, "{}", stats.packets_dropped);
}

#[test]
fn a_server_that_takes_no_0_rtt_drops_its_packets() {
    let mut pair = HostilePair::with_server(TransportConfig::default(), Hostile::ordinary_client(7));
    assert_eq!(pair.victim.connection(0).early_state(), EarlyState::Unavailable);
    let tickets = Tickets::default();
    let promised = encode(&client_parameters(ConnectionId::EMPTY));
    tickets.issue(5, &promised, &promised);
    tickets.forget();
    let rng = Rng::from_seed(1).split("victim");
    let factory = DeterministicFactory::new(Side::Server, rng.split("session")).with_tickets(&tickets);
    pair.victim = Node::new(Side::Server, TransportConfig::default(), &rng, Some(std::sync::Arc::new(factory)));
    pair.hostile = Hostile::client_with_tickets(8, &tickets);
    for datagram in pair.hostile.flight() {
        pair.deliver(&datagram);
    }
    let before = received(&mut pair);
    pair.send_early(&stream(0, 0, b"a request"));
    pair.assert_alive("a packet of 0-RTT");
    assert_eq!(received(&mut pair), before);
    pair.run_session();
    assert!(pair.victim.connection(0).is_established());
    assert_eq!(pair.victim.connection(0).accept(Dir::Bi), None);
}

/// A client that has sent a request in 0-RTT to a hostile server, which answers with changed
/// parameters. The server knows the ticket if it `takes` 0-RTT.
fn client_of(takes: bool, change: impl Fn(&mut TransportParameters)) -> HostilePair {
    let (rng, tickets) = (Rng::from_seed(1).split("victim"), Tickets::default());
    let promised = client_parameters(ConnectionId::EMPTY);
    // The server does not hold itself to what it has promised.
    let mut kept = promised.clone();
    change(&mut kept);
    tickets.issue(5, &encode(&promised), &encode(&kept));
    if !takes {
        tickets.forget();
    }
    let factory = DeterministicFactory::new(Side::Client, rng.split("session")).with_tickets(&tickets);
    let mut victim = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = victim.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    victim.add(connection.expect("sessions start"));
    let client = victim.connection(0);
    let id = client.open_early(Dir::Bi).expect("0-RTT is possible");
    client.write(id, Bytes::from_static(b"a request")).expect("the send buffer has space");
    victim.flush(Instant::ZERO);
    let first = std::mem::take(&mut victim.outbox);
    let mut hostile = Hostile::server_with_tickets(7, &first[0].1, &tickets, change);
    first.iter().for_each(|(_, datagram)| hostile.receive(datagram));
    let mut pair = HostilePair { now: Instant::ZERO, victim, hostile, victim_bytes: Default::default() };
    pair.run_session();
    pair
}

#[test]
fn a_server_that_takes_0_rtt_and_reduces_its_limits_is_refused() {
    let pair = client_of(true, |_| {});
    pair.assert_alive("the same limits");
    // The limit of connection IDs is at its least already.
    type Reduction = fn(&mut TransportParameters);
    let reductions: [(&str, Reduction); 7] = [
        ("initial_max_data", |own| own.initial_max_data -= 1),
        ("initial_max_stream_data_bidi_local", |own| own.initial_max_stream_data_bidi_local -= 1),
        ("initial_max_stream_data_bidi_remote", |own| own.initial_max_stream_data_bidi_remote -= 1),
        ("initial_max_stream_data_uni", |own| own.initial_max_stream_data_uni -= 1),
        ("initial_max_streams_bidi", |own| own.initial_max_streams_bidi -= 1),
        ("initial_max_streams_uni", |own| own.initial_max_streams_uni -= 1),
        ("max_datagram_frame_size", |own| own.max_datagram_frame_size -= 1),
    ];
    for (what, reduce) in reductions {
        let pair = client_of(true, reduce);
        assert!(!pair.victim_is_alive(), "{what}: the victim has not closed");
        assert_eq!(pair.hostile.close(), Some((ErrorCode::PROTOCOL_VIOLATION, false)), "{what}");
        // If it takes none, it may do so.
        let mut pair = client_of(false, reduce);
        pair.assert_alive(what);
        assert_eq!(pair.victim.connection(0).early_state(), EarlyState::Rejected);
    }
}

#[test]
fn a_server_that_takes_no_0_rtt_must_not_acknowledge_it() {
    // Packet 0 was a 0-RTT packet in both cases.
    let ack = || vec![0x02, 0, 0, 0, 0];
    let mut pair = client_of(true, |_| {});
    pair.send(&[ack(), ping()].concat());
    pair.assert_alive("it was accepted");
    let mut pair = client_of(false, |_| {});
    pair.assert_alive("it was rejected");
    pair.send(&[ack(), ping()].concat());
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9001, section 4.6.2");
}
