//! What a peer that watches every packet sees: limits, answers, packet numbers, and packets that do
//! not count. `docs/spec/requirements` names the clauses.

use std::collections::BTreeMap;

use bytes::Bytes;
use quic::{Addresses, Dir, Side, StreamId, TransportConfig};
use units::{Duration, Ecn, Instant};
use wire::quic::{Frame, MIN_INITIAL_SIZE, Space, Stream, emit_version_negotiation};

use super::{frames, in_the_middle_of_the_handshake, is_acknowledged, ping};
use crate::support::Setup;
use crate::support::hostile::{HOSTILE, Hostile, HostilePair, OpenedPacket, SealOverrides, payload};

/// The peer's limits (`client_parameters`).
const STREAM_LIMIT: u64 = 1 << 18;
const CONNECTION_LIMIT: u64 = 1 << 20;
const UNI_STREAMS: u64 = 100;

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

#[test]
fn a_reset_of_the_peers_direction_leaves_ours_with_its_credit() {
    let mut pair = HostilePair::against_server();
    let id = StreamId::new(Side::Client, Dir::Bi, 0);
    let hello = Frame::Stream(Stream { id, offset: 0, fin: false, data: b"hello" });
    pair.send_and_ack(&payload(&[hello, Frame::ResetStream { id, code: 1, final_size: 5 }]));
    assert_eq!(pair.victim.connection(0).accept(Dir::Bi), Some(id));
    let now = pair.now;
    assert_eq!(pair.victim.connection(0).read(now, id, 10), Err(quic::ReadError::Reset(1)));
    write_for_a_while(&mut pair, &[id]);
    assert_eq!(ends(&pair)[&id], STREAM_LIMIT);
    let more = STREAM_LIMIT + 10_000;
    pair.send_and_ack(&payload(&[Frame::MaxStreamData { id, max: more }]));
    write_for_a_while(&mut pair, &[id]);
    assert_eq!(ends(&pair)[&id], more, "RFC 9000, section 4.4");
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
        let acks = frames(&pair).filter_map(|frame| if let Frame::Ack(ack) = frame { Some(ack.largest) } else { None });
        assert_eq!(acks.last(), Some(number), "the largest number is named");
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
    server.flush(Instant::ZERO);
    assert_eq!((server.outbox.len(), server.connections.len()), (0, 0), "RFC 9000, section 6.1");
}

#[test]
fn the_acknowledgement_of_a_late_packet_names_the_largest_number() {
    let mut pair = HostilePair::against_server();
    let late = pair.hostile.packet(Space::Data, &ping());
    for _ in 0..2 {
        pair.hostile.next_number[Space::Data.index()] += 3;
        pair.send(&ping());
    }
    let largest = pair.hostile.next_number[Space::Data.index()] - 1;
    pair.wait(Duration::from_millis(25));
    let before = pair.hostile.opened.len();
    pair.deliver(&late);
    pair.wait(Duration::from_millis(25));
    let frames = pair.hostile.opened[before..].iter().flat_map(|packet| packet.frames());
    let named = frames.filter_map(|frame| if let Frame::Ack(ack) = frame { Some(ack.largest) } else { None });
    let named: Vec<u64> = named.collect();
    assert!(!named.is_empty() && named.iter().all(|named| *named == largest), "{named:?} {largest}");
}
