//! Valid frames in excessive numbers: the memory they cost is bounded.

use quic::{ConnectionId, Dir, ErrorCode, Side, StreamId};
use units::Duration;
use wire::quic::{Frame, Space, Stream, emit_ack};

use crate::support::hostile::{HostilePair, payload};

/// Most frames fit into a packet this many times.
const PER_PACKET: usize = 60;

fn repeat(frame: &Frame<'_>) -> Vec<u8> {
    payload(&[*frame; PER_PACKET])
}

#[test]
fn pings_are_acknowledged_in_bulk() {
    let mut pair = HostilePair::against_server();
    let before = pair.hostile.opened.len();
    for _ in 0..5000 {
        pair.send(&repeat(&Frame::Ping));
    }
    pair.assert_alive("pings");
    let responses = pair.hostile.opened.len() - before;
    assert!((2400..2700).contains(&responses), "{responses} responses to 5000 packets");
    let stats = pair.victim.connection(0).stats();
    assert!(stats.in_flight_bytes < 100_000, "{stats:?}");
}

#[test]
fn challenges_get_responses_within_the_window_and_then_only_the_latest() {
    let mut pair = HostilePair::against_server();
    for round in 0..2000_u64 {
        pair.send(&repeat(&Frame::PathChallenge(round.to_be_bytes())));
    }
    // The peer acknowledges nothing, so responses wait for the window; their number is limited.
    let responses = |pair: &HostilePair| {
        let frames = pair.hostile.opened.iter().flat_map(|packet| packet.frames());
        frames.filter(|frame| matches!(frame, Frame::PathResponse(_))).count()
    };
    let before = responses(&pair);
    assert!(before < 4_000, "{before} responses within one window");
    pair.send_and_ack(&payload(&[Frame::Ping]));
    pair.wait(Duration::from_secs(1));
    assert!(responses(&pair) <= before + 64, "{} responses have waited", responses(&pair) - before);
    assert!(pair.hostile.has_received(|frame| *frame == Frame::PathResponse(1999_u64.to_be_bytes())));
    pair.assert_alive("challenges whose responses are not acknowledged");

    let mut pair = HostilePair::against_server();
    for round in 0..300_u64 {
        let mut body = pair.hostile.ack(Space::Data);
        body.extend(payload(&[Frame::PathChallenge(round.to_be_bytes()); 20]));
        pair.send(&body);
        pair.wait(Duration::from_millis(20));
    }
    pair.assert_alive("challenges from a peer that acknowledges");
    assert!(pair.hostile.has_received(|frame| *frame == Frame::PathResponse(299_u64.to_be_bytes())));
}

#[test]
fn retiring_every_issued_id_costs_bounded_memory() {
    let mut pair = HostilePair::against_server();
    let mut sequence = 0;
    for _ in 0..500 {
        let mut body = pair.hostile.ack(Space::Data);
        body.extend(payload(&[Frame::RetireConnectionId { path: None, sequence }]));
        // The victim issues the next ID in its response; the packet itself goes to an ID that is
        // still valid.
        let next = pair.hostile.opened.iter().flat_map(|packet| packet.frames()).find_map(|frame| match frame {
            Frame::NewConnectionId { sequence: issued, id, .. } if issued == sequence + 1 => Some(id),
            _ => None,
        });
        let Some(next) = next else { break };
        pair.hostile.remote_id = next;
        pair.send(&body);
        pair.wait(Duration::from_millis(10));
        sequence += 1;
    }
    pair.assert_alive("retirement");
    assert!(sequence > 100, "{sequence}");
    // One entry for the client's first destination, the others for IDs of ours.
    assert!(pair.victim.endpoint.route_count() <= 5, "{} routes", pair.victim.endpoint.route_count());
}

#[test]
fn a_flood_of_new_ids_is_held_to_the_limit() {
    let mut pair = HostilePair::against_server();
    for sequence in 1..5000_u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&sequence.to_be_bytes());
        let id = ConnectionId::new(&bytes).expect("eight bytes");
        let frame =
            Frame::NewConnectionId { path: None, sequence, retire_prior_to: sequence, id, reset_token: [0; 16] };
        pair.send(&payload(&[frame]));
        if !pair.victim_is_alive() {
            break;
        }
    }
    // Each frame retires the previous ID, and the peer acknowledges nothing: RETIRE_CONNECTION_ID
    // frames accumulate up to the limit (RFC 9000, section 5.1.2).
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "retirements that are not acknowledged");
}

#[test]
fn handshake_bytes_out_of_order_are_held_to_the_limit() {
    let mut pair = HostilePair::against_server();
    for index in 0..70_u64 {
        pair.send(&payload(&[Frame::Crypto { offset: 1 + index * 1000, data: &[0; 1000] }]));
        if !pair.victim_is_alive() {
            break;
        }
    }
    pair.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "more than the limit");

    let mut pair = HostilePair::against_server();
    for index in 0..4097_u64 {
        pair.send(&payload(&[Frame::Crypto { offset: 1 + index * 2, data: b"x" }, Frame::Padding { len: 3 }]));
        if !pair.victim_is_alive() {
            break;
        }
    }
    pair.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "crumbs");
}

#[test]
fn too_many_stream_fragments_out_of_order_are_refused() {
    let mut pair = HostilePair::against_server();
    let id = StreamId::new(Side::Client, Dir::Uni, 0);
    let mut sent = 0_u64;
    'all: for round in 0..2000_u64 {
        let frames: Vec<Frame<'_>> = (0..PER_PACKET as u64)
            .map(|index| {
                let offset = 1 + (round * PER_PACKET as u64 + index) * 2;
                Frame::Stream(Stream { id, offset, fin: false, data: b"x" })
            })
            .collect();
        pair.send(&payload(&frames));
        sent += PER_PACKET as u64;
        if !pair.victim_is_alive() {
            break 'all;
        }
    }
    assert!((1024..2048).contains(&sent), "{sent} fragments were kept");
    pair.assert_closed(ErrorCode::INTERNAL_ERROR, "crumbs");
}

#[test]
fn empty_stream_frames_cost_nothing() {
    let mut pair = HostilePair::against_server();
    for index in 0..3000_u64 {
        let id = StreamId::new(Side::Client, Dir::Uni, index % 8);
        pair.send(&repeat(&Frame::Stream(Stream { id, offset: 0, fin: false, data: b"" })));
    }
    pair.assert_alive("empty frames");
    assert_eq!(pair.victim.connection(0).stats().receive.streams_open, 8);
    let opened = pair.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Opened(_))).count();
    let readable = pair.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Readable(_))).count();
    assert_eq!((opened, readable), (8, 0), "each is reported once");
}

#[test]
fn empty_datagrams_do_not_accumulate() {
    let mut pair = HostilePair::against_server();
    for _ in 0..2000 {
        pair.send(&payload(&[Frame::Datagram { data: b"" }; 400]));
    }
    pair.assert_alive("empty datagrams");
    let connection = pair.victim.connection(0);
    let mut held = 0;
    while connection.recv_datagram().is_some() {
        held += 1;
    }
    assert!(held > 0 && held <= 20_000, "{held} empty datagrams are held");
    assert!(connection.stats().receive.datagrams_dropped > 700_000);
}

#[test]
fn credit_in_tiny_steps_costs_no_memory() {
    let mut pair = HostilePair::against_server();
    let stream = pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.victim.connection(0).write(stream, bytes::Bytes::from(vec![5; 400_000])).expect("the send buffer has space");
    for step in 0..3000_u64 {
        let mut body = if step % 10 == 0 { pair.hostile.ack(Space::Data) } else { Vec::new() };
        body.extend(payload(&[
            Frame::MaxStreamData { id: stream, max: (1 << 18) + step },
            Frame::MaxData((1 << 20) + step),
            Frame::MaxStreams { dir: Dir::Uni, max: 100 + step },
        ]));
        pair.send(&body);
        pair.wait(Duration::from_millis(2));
    }
    pair.assert_alive("credit in small steps");
    let stats = pair.victim.connection(0).stats();
    assert!(stats.send.held_bytes <= 400_000, "{stats:?}");
    assert!(stats.send.packets_sent < 20_000, "{stats:?}");
}

#[test]
fn floods_of_acknowledgements_and_of_ranges_are_accepted() {
    let mut pair = HostilePair::against_server();
    let stream = pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.victim.connection(0).write(stream, bytes::Bytes::from(vec![5; 200_000])).expect("the send buffer has space");
    pair.send_and_ack(&payload(&[Frame::Ping]));
    for round in 0..2000_u64 {
        let largest =
            pair.hostile.opened.iter().filter(|packet| packet.space == Space::Data).map(|packet| packet.number).max();
        let largest = largest.expect("packets were sent");
        // Every other packet number only, without end.
        let mut body = Vec::new();
        let numbers = (0..=largest).rev().step_by(2).take(100).map(|number| number..=number);
        emit_ack(None, round, numbers, None, &mut body);
        pair.send(&body);
        pair.wait(Duration::from_millis(5));
    }
    pair.assert_alive("acknowledgements");
}

#[test]
fn reset_streams_return_their_stream_credit_only_when_read() {
    let mut pair = HostilePair::against_server();
    let mut opened = 0_u64;
    for index in 0..1024 {
        let id = StreamId::new(Side::Client, Dir::Uni, index);
        pair.send(&payload(&[Frame::ResetStream { id, code: 1, final_size: 0 }]));
        opened += 1;
    }
    pair.assert_alive("resets");
    assert_eq!((opened, pair.victim.connection(0).stats().receive.streams_open), (1024, 1024));
    let id = StreamId::new(Side::Client, Dir::Uni, 1024);
    pair.send(&payload(&[Frame::ResetStream { id, code: 1, final_size: 0 }]));
    pair.assert_closed(ErrorCode::STREAM_LIMIT_ERROR, "rapid reset");
}

#[test]
fn stopping_and_reopening_does_not_accumulate_streams() {
    let mut pair = HostilePair::against_server();
    for index in 0..128 {
        let id = StreamId::new(Side::Client, Dir::Bi, index);
        pair.send(&payload(&[
            Frame::Stream(Stream { id, offset: 0, fin: true, data: b"" }),
            Frame::StopSending { id, code: 3 },
        ]));
    }
    pair.assert_alive("stops");
    let stats = pair.victim.connection(0).stats();
    assert_eq!((stats.send.streams_open, stats.receive.streams_open), (128, 128));
    let stopped = pair.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Stopped { .. })).count();
    assert_eq!(stopped, 128);
    // Once the application has read the ends of the streams and the peer has acknowledged the
    // resets, no state is left.
    while let Some(id) = pair.victim.connection(0).accept(Dir::Bi) {
        let now = pair.now;
        assert_eq!(pair.victim.connection(0).read(now, id, 10), Ok(quic::Chunk::End));
    }
    pair.send_and_ack(&payload(&[Frame::Ping]));
    pair.wait(Duration::from_millis(100));
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let stats = pair.victim.connection(0).stats();
    assert_eq!((stats.send.streams_open, stats.receive.streams_open), (0, 0));
}
