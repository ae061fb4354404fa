//! Packets of the handshake that count, and those that do not. `docs/spec/requirements` names the
//! clauses.

use quic::session::deterministic::DeterministicFactory;
use quic::{Addresses, ConnectionId, Dir, ErrorCode, Side, StreamId, TransportConfig};
use units::{Duration, Instant, Rng};
use wire::quic::{Frame, MIN_INITIAL_SIZE, Parsed, Space, Stream, TransportParameters, Version, parse_packet};

use super::{id, in_the_middle_of_the_handshake, is_acknowledged, ping, received};
use crate::support::Node;
use crate::support::hostile::{
    HOSTILE, Hostile, HostilePair, OpenedPacket, SealOverrides, client_parameters, encode, payload,
};

/// A client that has sent its first datagrams.
fn client() -> (Node, Vec<Vec<u8>>) {
    let rng = Rng::from_seed(1).split("client");
    let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = client.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    client.add(connection.expect("sessions start"));
    let first = sent(&mut client, Instant::ZERO);
    (client, first)
}

fn sent(client: &mut Node, now: Instant) -> Vec<Vec<u8>> {
    client.flush(now);
    std::mem::take(&mut client.outbox).into_iter().map(|(_, datagram)| datagram.bytes).collect()
}

fn destination(datagram: &[u8]) -> ConnectionId {
    match parse_packet(datagram, 8) {
        Ok(Parsed::Protected(header)) => header.dcid,
        other => panic!("{other:?}"),
    }
}

/// A client in mid-handshake: it has received one of the server's datagrams. The others follow.
fn client_and_flight() -> (Node, Hostile, Vec<Vec<u8>>) {
    let (mut client, first) = client();
    let original = destination(&first[0]);
    let mut server = Hostile::server(7, &first[0], |id, _| {
        encode(&TransportParameters { original_destination_connection_id: Some(original), ..client_parameters(id) })
    });
    first.iter().for_each(|datagram| server.receive(datagram));
    let mut flight = server.flight();
    client.receive(Instant::ZERO, &flight.remove(0), HOSTILE);
    (client, server, flight)
}

fn client_with_hostile_server() -> (Node, Hostile) {
    let (client, server, _flight) = client_and_flight();
    (client, server)
}

fn received_by(client: &mut Node) -> u64 {
    client.connection(0).stats().receive.packets_received
}

#[test]
fn the_first_destination_stays_until_the_server_answers() {
    let (mut client, mut datagrams) = client();
    while datagrams.len() < 5 {
        let now = client.timeout().expect("probes are due");
        client.handle_timeouts(now);
        datagrams.extend(sent(&mut client, now));
    }
    let first = destination(&datagrams[0]);
    assert!(first.len() >= 8, "RFC 9000, section 7.2");
    assert!(datagrams.iter().all(|datagram| destination(datagram) == first));
}

#[test]
fn long_headers_with_another_source_are_dropped() {
    // At a client, which has received the server's first packet.
    let (mut client, mut server) = client_with_hostile_server();
    let (source, before) = (server.local_id, received_by(&mut client));
    for (from, count) in [(id(9), 0), (source, 1)] {
        server.local_id = from;
        let packet = server.packet(Space::Initial, &ping());
        client.receive(Instant::ZERO, &packet, HOSTILE);
        assert_eq!(received_by(&mut client), before + count, "from {from:?}");
    }
    let answers = sent(&mut client, Instant::ZERO);
    assert!(!answers.is_empty() && answers.iter().all(|answer| destination(answer) == source));
    // At a server.
    let mut pair = in_the_middle_of_the_handshake();
    let (source, before) = (pair.hostile.local_id, received(&mut pair));
    for (from, count) in [(id(9), 0), (source, 1)] {
        pair.hostile.local_id = from;
        let packet = pair.hostile.packet(Space::Initial, &ping());
        pair.deliver(&packet);
        assert_eq!(received(&mut pair), before + count, "from {from:?}");
    }
    assert!(pair.hostile.opened.iter().all(|packet| packet.dcid == source));
}

#[test]
fn a_client_drops_initial_packets_with_a_token() {
    let (mut client, mut server) = client_with_hostile_server();
    let before = received_by(&mut client);
    for (token, count) in [(&b"token"[..], 0), (b"", 1)] {
        let odd = SealOverrides { token, ..SealOverrides::default() };
        let packet = server.packet_with(Space::Initial, &ping(), odd);
        client.receive(Instant::ZERO, &packet, HOSTILE);
        assert_eq!(received_by(&mut client), before + count, "RFC 9000, section 17.2.2");
    }
}

#[test]
fn coalesced_packets_of_another_connection_id_are_ignored() {
    let mut pair = in_the_middle_of_the_handshake();
    let (ours, other) = (pair.hostile.remote_id, pair.hostile.first_destination);
    assert_ne!(ours, other, "the server answers to both");
    for (second, count) in [(other, 1), (ours, 2)] {
        let before = received(&mut pair);
        pair.hostile.remote_id = ours;
        let mut datagram = pair.hostile.packet(Space::Initial, &ping());
        pair.hostile.remote_id = second;
        datagram.extend(pair.hostile.packet(Space::Initial, &ping()));
        pair.deliver(&datagram);
        assert_eq!(received(&mut pair), before + count, "RFC 9000, section 12.2");
    }
}

#[test]
fn a_broken_packet_does_not_hide_the_next_one_in_its_datagram() {
    let mut pair = in_the_middle_of_the_handshake();
    pair.hostile.next_number[Space::Initial.index()] = 50;
    let mut datagram = pair.hostile.packet(Space::Initial, &ping());
    *datagram.last_mut().expect("a tag") ^= 1;
    datagram.extend(pair.hostile.packet(Space::Initial, &ping()));
    datagram.extend(pair.hostile.packet(Space::Initial, &ping()));
    pair.deliver(&datagram);
    let acknowledged = [50, 51, 52].map(|number| is_acknowledged(&pair, Space::Initial, number));
    assert_eq!(acknowledged, [false, true, true], "RFC 9000, section 12.2");
}

#[test]
fn reserved_bits_of_long_headers_are_a_violation() {
    let mut pair = in_the_middle_of_the_handshake();
    let odd = SealOverrides { reserved_bits: true, ..SealOverrides::default() };
    let packet = pair.hostile.packet_with(Space::Initial, &ping(), odd);
    pair.deliver(&packet);
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9000, section 17.2");
}

#[test]
fn a_source_id_of_more_than_twenty_bytes_begins_no_connection() {
    for (len, is_valid) in [(20, true), (21, false)] {
        let ids = [&[8][..], &[7; 8], &[len], &vec![9; usize::from(len)]].concat();
        let mut packet = [&[0xc3][..], &Version::V1.number().to_be_bytes(), &ids, &[0, 0x44, 0xb0]].concat();
        packet.resize(1300, 0);
        assert_eq!(parse_packet(&packet, 8).is_ok(), is_valid, "{len} bytes (RFC 9000, section 17.2)");
    }
}

#[test]
fn packets_before_their_keys_wait_for_them() {
    let mut pair = in_the_middle_of_the_handshake();
    let finished = pair.hostile.flight();
    let index = pair.victim.connections.len() - 1;
    let id = StreamId::new(Side::Client, Dir::Uni, 0);
    pair.send(&payload(&[Frame::Stream(Stream { id, offset: 0, fin: false, data: b"early" })]));
    let streams = |pair: &mut HostilePair| pair.victim.connection(index).stats().receive.streams_open;
    assert!(pair.victim.connection(index).is_handshaking());
    assert_eq!(streams(&mut pair), 0, "RFC 9001, section 5.7");
    finished.iter().for_each(|datagram| pair.deliver(datagram));
    assert!(pair.victim.connection(index).is_established());
    assert_eq!(streams(&mut pair), 1, "RFC 9001, section 4.1.4");
}

#[test]
fn initial_packets_after_the_handshake_are_dropped() {
    let mut pair = HostilePair::against_server();
    let before = received(&mut pair);
    let packet = pair.hostile.packet(Space::Initial, &ping());
    pair.deliver(&packet);
    assert_eq!(received(&mut pair), before, "RFC 9001, section 4.9.1");
}

#[test]
fn initial_packets_of_servers_travel_in_full_datagrams() {
    let mut pair = in_the_middle_of_the_handshake();
    // The server's first flight is lost, and sent again.
    pair.wait(Duration::from_secs(3));
    let is_eliciting =
        |packet: &&OpenedPacket| packet.space == Space::Initial && packet.frames().iter().any(Frame::is_ack_eliciting);
    let sizes: Vec<usize> = pair.hostile.opened.iter().filter(is_eliciting).map(|packet| packet.datagram_len).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size >= MIN_INITIAL_SIZE), "{sizes:?}");
}

#[test]
fn a_confirmed_handshake_is_announced() {
    let mut pair = in_the_middle_of_the_handshake();
    pair.wait(Duration::from_secs(1));
    let is_done = |frame: &Frame<'_>| *frame == Frame::HandshakeDone;
    assert!(!pair.hostile.has_received(is_done) && pair.hostile.unopened == 0, "RFC 9000, section 19.20");
    pair.run_session();
    assert!(pair.hostile.has_received(is_done), "RFC 9001, section 4.1.2");
}

#[test]
fn four_kibibytes_of_handshake_data_wait_for_their_turn() {
    let mut pair = HostilePair::against_server();
    for from in [3_097, 2_097, 1_097, 97, 1] {
        pair.send(&payload(&[Frame::Crypto { offset: from, data: &[4; 1_000] }]));
    }
    pair.assert_alive("RFC 9000, section 7.5");
}

#[test]
fn a_close_leaves_in_the_packets_that_the_peer_can_open() {
    let spaces = |pair: &HostilePair| {
        let is_close = |frame: &Frame<'_>| matches!(frame, Frame::Close(_));
        let packets = pair.hostile.opened.iter().filter(|packet| packet.frames().iter().any(is_close));
        packets.map(|packet| packet.space.index()).collect::<std::collections::BTreeSet<_>>()
    };
    let close = |mut pair: HostilePair| {
        let (now, index) = (pair.now, pair.victim.connections.len() - 1);
        pair.victim.connection(index).close(now, 1, "enough");
        pair
    };
    let mut pair = close(HostilePair::against_server());
    pair.send(&ping());
    assert_eq!(spaces(&pair), [2].into(), "the handshake is confirmed");
    // The client has not yet shown that it has Handshake keys.
    let mut pair = close(in_the_middle_of_the_handshake());
    let packet = pair.hostile.packet(Space::Initial, &ping());
    pair.deliver(&packet);
    assert!(spaces(&pair).is_superset(&[0, 1].into()), "{:?}", spaces(&pair));
    // The client has sent a Handshake packet and does not know that the handshake is confirmed.
    let unconfirmed = HostilePair::with_client(TransportConfig::default(), |first| {
        Hostile::server(7, first, |id, original| {
            let original_destination_connection_id = Some(original);
            encode(&TransportParameters { original_destination_connection_id, ..client_parameters(id) })
        })
    });
    let mut pair = close(HostilePair::established(unconfirmed));
    let packet = pair.hostile.packet(Space::Handshake, &ping());
    pair.deliver(&packet);
    assert_eq!(spaces(&pair), [1, 2].into());
}

#[test]
fn a_client_too_processes_no_data_before_the_end_of_the_handshake() {
    let (mut client, mut server, flight) = client_and_flight();
    let id = StreamId::new(Side::Server, Dir::Uni, 0);
    let early = payload(&[Frame::Stream(Stream { id, offset: 0, fin: false, data: b"early" })]);
    let packet = server.packet(Space::Data, &early);
    client.receive(Instant::ZERO, &packet, HOSTILE);
    assert!(client.connection(0).is_handshaking());
    assert_eq!(client.connection(0).stats().receive.streams_open, 0, "RFC 9001, section 5.7");
    flight.iter().for_each(|datagram| client.receive(Instant::ZERO, datagram, HOSTILE));
    assert!(client.connection(0).is_established());
    assert_eq!(client.connection(0).stats().receive.streams_open, 1);
}

#[test]
fn a_client_does_not_migrate_before_the_handshake_is_confirmed() {
    let (mut client, _server, flight) = client_and_flight();
    flight.iter().for_each(|datagram| client.receive(Instant::ZERO, datagram, HOSTILE));
    assert!(client.connection(0).is_established());
    let elsewhere = Addresses { socket: 1, ..Addresses::of(HOSTILE) };
    let answer = client.connection(0).migrate(Instant::ZERO, elsewhere);
    assert_eq!(answer, Err(quic::MigrateError::TooEarly), "RFC 9000, section 9");
}

#[test]
fn long_headers_without_the_fixed_bit_are_dropped_unless_greasing_was_announced() {
    for (grease, count) in [(false, 0), (true, 1)] {
        let config = TransportConfig::default().with_grease(grease);
        let mut pair = HostilePair::with_server(config, Hostile::ordinary_client(7));
        pair.hostile = Hostile::ordinary_client(8);
        let hello = pair.hostile.flight();
        hello.iter().for_each(|datagram| pair.deliver(datagram));
        let before = received(&mut pair);
        let odd = SealOverrides { clear_fixed_bit: true, ..SealOverrides::default() };
        let mut packet = pair.hostile.packet_with(Space::Initial, &ping(), odd);
        packet.resize(MIN_INITIAL_SIZE, 0);
        pair.deliver(&packet);
        assert_eq!(received(&mut pair), before + count, "RFC 9000, section 17.2");
    }
}

#[test]
fn packets_of_0_rtt_are_dropped() {
    let odd = SealOverrides { zero_rtt: true, ..SealOverrides::default() };
    for mut pair in [HostilePair::against_server(), HostilePair::against_client()] {
        let before = received(&mut pair);
        let packet = pair.hostile.packet_with(Space::Data, &ping(), odd);
        pair.deliver(&packet);
        assert_eq!(received(&mut pair), before, "RFC 9001, sections 4.6.2 and 5.6");
        pair.send(&ping());
        assert_eq!(received(&mut pair), before + 1);
    }
}

#[test]
fn a_hello_that_arrives_backwards_is_read() {
    let mut pair = HostilePair::with_server(TransportConfig::default(), Hostile::ordinary_client(7));
    pair.hostile = Hostile::client(8, |id| {
        let mut parameters = encode(&client_parameters(id));
        parameters.extend(crate::support::hostile::parameter(31 * 9 + 27, &[0; 5_000]));
        parameters
    });
    let hello = pair.hostile.flight();
    assert!(hello.len() > 5, "at least 4096 bytes wait for the first packet (RFC 9000, section 7.5)");
    hello.iter().rev().for_each(|datagram| pair.deliver(datagram));
    pair.run_session();
    assert!(pair.hostile.is_ready() && pair.victim_is_alive(), "{:?}", pair.victim.events);
}

#[test]
fn four_kibibytes_in_single_bytes_wait_for_the_first() {
    // RFC 9000, section 7.5: the minimum is in bytes, however they are cut.
    let mut pair = HostilePair::with_server(TransportConfig::default(), Hostile::ordinary_client(7));
    pair.hostile = Hostile::client(8, |id| {
        let mut parameters = encode(&client_parameters(id));
        parameters.extend(crate::support::hostile::parameter(31 * 9 + 27, &[0; 5_000]));
        parameters
    });
    let (_, hello) = pair.hostile.handshake_bytes().remove(0);
    let (waiting, rest) = hello[1..].split_at(4096);
    let piece = |(at, data)| Frame::Crypto { offset: at as u64 + 1, data };
    let pieces: Vec<Frame<'_>> = waiting.chunks(1).enumerate().map(piece).rev().collect();
    for frames in pieces.chunks(200) {
        let packet = pair.hostile.packet(Space::Initial, &payload(frames));
        pair.deliver(&packet);
    }
    pair.assert_alive("4096 bytes wait");
    assert!(pair.hostile.has_received(|frame| matches!(frame, Frame::Ack(_))), "they are acknowledged");
    for (offset, data) in [(0, &hello[..1]), (4097, rest)] {
        let packet = pair.hostile.packet(Space::Initial, &payload(&[Frame::Crypto { offset, data }]));
        pair.deliver(&packet);
    }
    pair.run_session();
    assert!(pair.hostile.is_ready() && pair.victim_is_alive(), "{:?}", pair.victim.events);
}

#[test]
fn a_packet_without_keys_does_not_hide_the_next_one_after_the_handshake() {
    for is_forged in [false, true] {
        let mut pair = HostilePair::against_server();
        // The server has discarded the keys of Handshake packets.
        let mut datagram = pair.hostile.packet(Space::Handshake, &ping());
        if is_forged {
            *datagram.last_mut().expect("a tag") ^= 1;
        }
        let number = pair.hostile.next_number[Space::Data.index()];
        datagram.extend(pair.hostile.packet(Space::Data, &ping()));
        pair.deliver(&datagram);
        pair.wait(Duration::from_millis(25));
        assert!(is_acknowledged(&pair, Space::Data, number), "RFC 9000, section 12.2");
    }
}

#[test]
fn without_an_answer_a_client_repeats_its_first_flight_after_three_initial_round_trips() {
    let (mut client, _) = client();
    let again = std::iter::repeat_with(|| {
        let now = client.timeout().expect("a timer runs");
        client.handle_timeouts(now);
        (now, sent(&mut client, now))
    })
    .find(|(_, datagrams)| !datagrams.is_empty());
    // 333 ms, and four times half of it as the deviation (RFC 9002, section 6.2.2).
    assert_eq!(again.expect("endless").0, Instant::ZERO + Duration::from_millis(999));
}
