//! What a peer that watches every packet sees: limits, answers, packet numbers, and packets that do
//! not count. `docs/spec/requirements` names the clauses.

use std::collections::BTreeMap;

use bytes::Bytes;
use quic::session::deterministic::DeterministicFactory;
use quic::{Addresses, ConnectionId, Dir, ErrorCode, PathId, Side, StreamId, TransportConfig};
use units::{Duration, Ecn, Instant, Rng};
use wire::quic::{
    Frame, MIN_INITIAL_SIZE, Parsed, Space, Stream, TransportParameters, VERSION_1, emit_version_negotiation,
    parse_packet,
};

use crate::support::hostile::{
    HOSTILE, Hostile, HostilePair, OpenedPacket, SealOverrides, client_parameters, encode, payload,
};
use crate::support::{Node, Setup};

/// The peer's limits (`client_parameters`).
const STREAM_LIMIT: u64 = 1 << 18;
const CONNECTION_LIMIT: u64 = 1 << 20;
const UNI_STREAMS: u64 = 100;

fn id(byte: u8) -> ConnectionId {
    ConnectionId::new(&[byte; 8]).expect("eight bytes")
}

fn frames(pair: &HostilePair) -> impl Iterator<Item = Frame<'_>> {
    pair.hostile.opened.iter().flat_map(OpenedPacket::frames)
}

/// The end of what has arrived of each stream.
fn ends(pair: &HostilePair) -> BTreeMap<StreamId, u64> {
    let mut ends = BTreeMap::new();
    for frame in frames(pair) {
        if let Frame::Stream(Stream { id, offset, data, .. }) = frame {
            let end: &mut u64 = ends.entry(id).or_default();
            *end = (*end).max(offset + data.len() as u64);
        }
    }
    ends
}

/// The victim writes to these streams whenever it can, and everything is acknowledged.
fn write_for_a_while(pair: &mut HostilePair, streams: &[StreamId]) {
    for _ in 0..60 {
        for stream in streams {
            let _may_be_blocked = pair.victim.connection(0).write(*stream, Bytes::from_static(&[7; 10_000]));
        }
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_millis(20));
    }
}

fn open(pair: &mut HostilePair) -> StreamId {
    pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams")
}

/// A server between a client's first and second flight; the client is still to send the latter.
fn in_the_middle_of_the_handshake() -> HostilePair {
    let mut pair = HostilePair::with_server(TransportConfig::default(), Hostile::ordinary_client(7));
    pair.hostile = Hostile::ordinary_client(8);
    let hello = pair.hostile.flight();
    hello.iter().for_each(|datagram| pair.deliver(datagram));
    pair
}

/// Packets that the victim's newest connection has received.
fn received(pair: &mut HostilePair) -> u64 {
    let index = pair.victim.connections.len() - 1;
    pair.victim.connection(index).stats().receive.packets_received
}

fn ping() -> Vec<u8> {
    payload(&[Frame::Ping, Frame::Padding { len: 20 }])
}

/// Whether an acknowledgement of this number has arrived in a packet of this space.
fn is_acknowledged(pair: &HostilePair, space: Space, number: u64) -> bool {
    let packets = pair.hostile.opened.iter().filter(|packet| packet.space == space);
    packets.flat_map(OpenedPacket::frames).any(|frame| match frame {
        Frame::Ack(ack) => ack.ranges().any(|range| range.contains(&number)),
        _ => false,
    })
}

// ── Streams and credit ───────────────────────────────────────────────────────────────────────────

#[test]
fn data_stays_within_the_peers_limits_and_blocked_frames_name_them() {
    let mut pair = HostilePair::against_server();
    let stream = open(&mut pair);
    write_for_a_while(&mut pair, &[stream]);
    assert_eq!(ends(&pair), BTreeMap::from([(stream, STREAM_LIMIT)]));
    let blocked = Frame::StreamDataBlocked { id: stream, limit: STREAM_LIMIT };
    assert!(frames(&pair).any(|frame| frame == blocked));

    let mut pair = HostilePair::against_server();
    let streams: Vec<StreamId> = (0..8).map(|_| open(&mut pair)).collect();
    write_for_a_while(&mut pair, &streams);
    assert_eq!(ends(&pair).values().sum::<u64>(), CONNECTION_LIMIT);
    assert!(frames(&pair).any(|frame| frame == Frame::DataBlocked(CONNECTION_LIMIT)));
}

#[test]
fn streams_beyond_the_limit_are_not_opened_and_the_limit_is_reported() {
    let mut pair = HostilePair::against_server();
    let streams: Vec<StreamId> = std::iter::from_fn(|| pair.victim.connection(0).open(Dir::Uni)).collect();
    assert_eq!(streams.len() as u64, UNI_STREAMS);
    for stream in streams {
        pair.victim.connection(0).write(stream, Bytes::from_static(b"x")).expect("the send buffer has space");
    }
    pair.send_and_ack(&payload(&[Frame::Ping]));
    pair.wait(Duration::from_millis(100));
    assert_eq!(ends(&pair).keys().map(|id| id.index()).max(), Some(UNI_STREAMS - 1));
    assert!(frames(&pair).any(|frame| frame == Frame::StreamsBlocked { dir: Dir::Uni, limit: UNI_STREAMS }));
}

#[test]
fn credit_that_does_not_grow_is_ignored() {
    let mut pair = HostilePair::against_server();
    let stream = open(&mut pair);
    pair.send_and_ack(&payload(&[
        Frame::MaxData(1_000),
        Frame::MaxStreamData { id: stream, max: 1_000 },
        Frame::MaxStreams { dir: Dir::Uni, max: 1 },
    ]));
    write_for_a_while(&mut pair, &[stream]);
    assert_eq!(ends(&pair)[&stream], STREAM_LIMIT);
    let more = std::iter::from_fn(|| pair.victim.connection(0).open(Dir::Uni)).count() as u64;
    assert_eq!(more, UNI_STREAMS - 1);
}

#[test]
fn a_stop_is_answered_with_a_reset_of_the_same_code_and_no_more_data() {
    let mut pair = HostilePair::against_server();
    let stream = open(&mut pair);
    pair.victim.connection(0).write(stream, Bytes::from_static(&[7; 100_000])).expect("the send buffer has space");
    pair.send(&payload(&[Frame::Ping]));
    let sent = *ends(&pair).get(&stream).expect("some of it has left");
    assert!(sent < 100_000, "the window is smaller");
    let before = pair.hostile.opened.len();
    pair.send(&payload(&[Frame::StopSending { id: stream, code: 77 }]));
    // Everything before was lost. The window is full, so a probe carries the reset, and nothing of
    // the stream is sent again.
    pair.wait(Duration::from_secs(5));
    let after = pair.hostile.opened[before..].iter().flat_map(OpenedPacket::frames).collect::<Vec<_>>();
    let is_reset = |frame: &Frame<'_>| match *frame {
        Frame::ResetStream { id, code: 77, final_size } => id == stream && final_size >= sent,
        _ => false,
    };
    assert!(after.iter().any(is_reset), "{after:?}");
    let is_of_stream = |frame: &Frame<'_>| matches!(frame, Frame::Stream(Stream { id, .. }) | Frame::StreamDataBlocked { id, .. } if *id == stream);
    assert!(!after.iter().any(is_of_stream), "{after:?}");
}

// ── Acknowledgements and probes ──────────────────────────────────────────────────────────────────

#[test]
fn acknowledgements_name_every_packet_that_elicits_them() {
    let mut pair = HostilePair::against_server();
    for gap in [0, 0, 3, 0, 1, 0, 0, 7] {
        // A number that is never sent, and a packet that does not open, are not acknowledged.
        pair.hostile.next_number[Space::Data.index()] += gap;
        let mut broken = pair.hostile.packet(Space::Data, &ping());
        *broken.last_mut().expect("a tag") ^= 1;
        pair.deliver(&broken);
        let number = pair.hostile.next_number[Space::Data.index()];
        pair.send(&ping());
        // max_ack_delay.
        pair.wait(Duration::from_millis(25));
        assert!(is_acknowledged(&pair, Space::Data, number), "{number}");
        assert!(!is_acknowledged(&pair, Space::Data, number - 1), "{}", number - 1);
    }
}

#[test]
fn packets_that_elicit_nothing_get_no_answer() {
    let mut pair = HostilePair::against_server();
    for _ in 0..3 {
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_secs(1));
    }
    let before = pair.hostile.opened.len();
    for gap in 0..20 {
        pair.hostile.next_number[Space::Data.index()] += gap % 2;
        let ack = pair.hostile.ack(Space::Data);
        pair.send(&ack);
        pair.send(&payload(&[Frame::Padding { len: 50 }]));
        pair.wait(Duration::from_millis(100));
    }
    assert_eq!(pair.hostile.opened.len(), before);
    pair.assert_alive("a peer that elicits nothing");
}

#[test]
fn handshake_packets_are_acknowledged_in_their_own_space() {
    let mut pair = in_the_middle_of_the_handshake();
    pair.hostile.next_number = [100, 200, 300];
    let packet = pair.hostile.packet(Space::Initial, &ping());
    pair.deliver(&packet);
    pair.run_session();
    pair.send(&ping());
    pair.send(&ping());
    assert!(is_acknowledged(&pair, Space::Initial, 100));
    assert!(is_acknowledged(&pair, Space::Data, 300));
    for (index, space) in Space::ALL.into_iter().enumerate() {
        for other in [0, 1, 2].into_iter().filter(|other| *other != index) {
            let others = (other as u64 + 1) * 100;
            assert!((others..others + 50).all(|number| !is_acknowledged(&pair, space, number)), "{space:?}");
        }
    }
}

#[test]
fn received_marks_are_reported() {
    let config = TransportConfig::default().with_ecn(false);
    let mut pair = HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)));
    for mark in [Ecn::Ce, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        let packet = pair.hostile.packet(Space::Data, &ping());
        pair.victim.receive_on(pair.now, &packet, Some(mark), Addresses::of(HOSTILE));
    }
    pair.send(&ping());
    pair.send(&ping());
    let counts = frames(&pair).filter_map(|frame| if let Frame::Ack(ack) = frame { ack.ecn } else { None });
    let last = counts.last().expect("the acknowledgement has counts");
    assert_eq!((last.ect0, last.ect1, last.ce), (1, 1, 2));
}

#[test]
fn packet_numbers_rise_in_every_space() {
    let mut pair = HostilePair::against_server();
    let stream = open(&mut pair);
    pair.victim.connection(0).write(stream, Bytes::from_static(&[7; 100_000])).expect("the send buffer has space");
    for round in 0..40 {
        // Half of the time everything counts as lost.
        if round % 2 == 0 {
            pair.send_and_ack(&payload(&[Frame::Ping]));
        }
        pair.wait(Duration::from_millis(300));
    }
    for space in Space::ALL {
        let packets = pair.hostile.opened.iter().filter(|packet| packet.space == space);
        let numbers: Vec<u64> = packets.map(|packet| packet.number).collect();
        assert!(!numbers.is_empty() && numbers.is_sorted_by(|one, next| one < next), "{space:?}: {numbers:?}");
    }
}

#[test]
fn a_probe_timeout_sends_packets_that_elicit_an_answer() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    pair.wait(Duration::from_secs(1));
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let stream = open(&mut pair);
    pair.victim.connection(0).write(stream, Bytes::from_static(b"lost")).expect("the send buffer has space");
    pair.send(&payload(&[Frame::Ping]));
    let before = pair.hostile.opened.len();
    pair.wait(Duration::from_secs(3));
    let probes = &pair.hostile.opened[before..];
    assert!(probes.len() >= 2, "{} probes", probes.len());
    assert!(probes.iter().all(|probe| probe.frames().iter().any(Frame::is_ack_eliciting)));
}

#[test]
fn a_lost_response_is_not_repeated() {
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    pair.wait(Duration::from_secs(10));
    let count = frames(&pair).filter(|frame| *frame == Frame::PathResponse([5; 8])).count();
    assert_eq!(count, 1);
    pair.assert_alive("a peer that acknowledges nothing");
}

// ── Connection IDs and paths ─────────────────────────────────────────────────────────────────────

#[test]
fn no_more_ids_are_issued_than_the_peer_keeps() {
    for limit in [2, 3, 4] {
        let hostile = Hostile::client(11, |id| {
            encode(&TransportParameters { active_connection_id_limit: limit, ..client_parameters(id) })
        });
        let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), hostile));
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_secs(1));
        // One comes with the handshake.
        let issued = frames(&pair).filter(|frame| matches!(frame, Frame::NewConnectionId { .. })).count() as u64;
        assert!((1..limit).contains(&issued), "{issued} IDs for a limit of {limit}");
    }
}

#[test]
fn an_id_is_retired_in_packets_to_another_one() {
    let mut pair = HostilePair::against_server();
    let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 1, id: id(1), reset_token: [1; 16] };
    pair.send_and_ack(&payload(&[frame]));
    // It is lost, and sent again.
    pair.wait(Duration::from_secs(3));
    let retires = |packet: &&OpenedPacket| {
        packet.frames().iter().any(|frame| matches!(frame, Frame::RetireConnectionId { sequence: 0, .. }))
    };
    let packets: Vec<_> = pair.hostile.opened.iter().filter(retires).collect();
    assert!(packets.len() > 1, "{}", packets.len());
    assert!(packets.iter().all(|packet| packet.dcid == id(1)), "RFC 9000, section 19.16");
}

#[test]
fn a_peer_without_connection_ids_may_issue_none() {
    let nameless = Hostile::client_without_id(7, |id| encode(&client_parameters(id)));
    let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), nameless));
    let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 0, id: id(1), reset_token: [1; 16] };
    let packet = pair.hostile.packet(Space::Data, &payload(&[frame]));
    pair.deliver(&packet);
    assert!(!pair.victim_is_alive());
    let event = pair.victim.events[0].back();
    assert!(
        matches!(event, Some(quic::Event::Closed(quic::ConnectionError::PeerMisbehaved(error)))
            if error.code == ErrorCode::PROTOCOL_VIOLATION),
        "{event:?}"
    );
}

#[test]
fn states_of_a_path_have_rising_sequence_numbers() {
    let mut pair = HostilePair::against_multipath_server(2, 1);
    for round in 0..6 {
        let now = pair.now;
        assert!(pair.victim.connection(0).set_path_backup(now, PathId::ZERO, round % 2 == 0));
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_millis(50));
    }
    let mut numbers: Vec<u64> = frames(&pair)
        .filter_map(|frame| match frame {
            Frame::PathStatus { path: PathId::ZERO, sequence, .. } => Some(sequence),
            _ => None,
        })
        .collect();
    // A frame that was lost is sent again as it was.
    numbers.dedup();
    assert!(numbers.len() >= 6 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

// ── The handshake ────────────────────────────────────────────────────────────────────────────────

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

/// A client in mid-handshake: it has received one of the server's datagrams.
fn client_with_hostile_server() -> (Node, Hostile) {
    let (mut client, first) = client();
    let original = destination(&first[0]);
    let mut server = Hostile::server(7, &first[0], |id, _| {
        encode(&TransportParameters { original_destination_connection_id: Some(original), ..client_parameters(id) })
    });
    first.iter().for_each(|datagram| server.receive(datagram));
    let flight = server.flight();
    client.receive(Instant::ZERO, &flight[0], HOSTILE);
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
        let mut packet = [&[0xc3][..], &VERSION_1.to_be_bytes(), &ids, &[0, 0x44, 0xb0]].concat();
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
    let pair = HostilePair::against_server();
    assert!(pair.hostile.has_received(|frame| *frame == Frame::HandshakeDone), "RFC 9001, section 4.1.2");
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

// ── Keys, resets, versions ───────────────────────────────────────────────────────────────────────

#[test]
fn old_keys_open_no_later_packet() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let number = Some(pair.hostile.next_number[Space::Data.index()] + 100);
    let old = pair.hostile.packet_with(Space::Data, &ping(), SealOverrides { number, ..SealOverrides::default() });
    pair.hostile.update_keys();
    pair.send(&ping());
    let before = pair.victim.connection(0).stats().receive;
    pair.deliver(&old);
    let after = pair.victim.connection(0).stats().receive;
    assert_eq!(after.packets_unauthentic, before.packets_unauthentic + 1, "RFC 9001, section 5.5");
    assert_eq!(after.packets_received, before.packets_received);
}

#[test]
fn a_reset_of_a_short_packet_is_one_byte_shorter() {
    let mut server = Setup { reset_key: Some([7; 32]), ..Setup::new(1) }.build().server;
    for len in 22..=43 {
        let mut reset = Vec::new();
        assert!(server.endpoint.stateless_reset(Instant::ZERO, &vec![0x45; len], &mut reset));
        assert_eq!(reset.len(), len - 1, "RFC 9000, section 10.3");
    }
}

#[test]
fn version_negotiation_is_not_answered() {
    let mut packet = Vec::new();
    emit_version_negotiation(&[1; 8], &[2; 8], &[0x0a0a_0a0a; 400], 0, &mut packet);
    assert!(packet.len() >= MIN_INITIAL_SIZE);
    let mut server = Setup::new(1).build().server;
    server.receive(Instant::ZERO, &packet, HOSTILE);
    assert_eq!((sent(&mut server, Instant::ZERO).len(), server.connections.len()), (0, 0), "RFC 9000, section 6.1");
}
