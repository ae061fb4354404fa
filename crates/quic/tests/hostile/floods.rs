//! Legal frames in illegal numbers: what they make us remember is bounded.

use quic::{ConnectionId, Dir, ErrorCode, Side, StreamId};
use units::Duration;
use wire::quic::{Frame, Space, Stream, emit_ack};

use crate::support::hostile::{Duel, payload};

/// Most frames fit into a packet this many times.
const PER_PACKET: usize = 60;

fn repeat(frame: &Frame<'_>) -> Vec<u8> {
    payload(&[*frame; PER_PACKET])
}

#[test]
fn pings_are_acknowledged_in_bulk() {
    let mut duel = Duel::against_server();
    let before = duel.hostile.heard.len();
    for _ in 0..5000 {
        duel.say(&repeat(&Frame::Ping));
    }
    duel.assert_alive("pings");
    let answers = duel.hostile.heard.len() - before;
    assert!((2400..2700).contains(&answers), "{answers} answers to 5000 packets");
    let stats = duel.victim.connection(0).stats();
    assert!(stats.in_flight_bytes < 100_000, "{stats:?}");
}

#[test]
fn challenges_are_answered_while_the_window_lasts_and_then_the_last_ones_are() {
    let mut duel = Duel::against_server();
    for round in 0..2000_u64 {
        duel.say(&repeat(&Frame::PathChallenge(round.to_be_bytes())));
    }
    // The peer reads nothing (never acknowledges), so answers wait for the window; there is a limit to how many.
    let answers = |duel: &Duel| {
        let frames = duel.hostile.heard.iter().flat_map(|heard| heard.frames());
        frames.filter(|frame| matches!(frame, Frame::PathResponse(_))).count()
    };
    let before = answers(&duel);
    assert!(before < 4_000, "{before} answers within one window");
    duel.say_and_ack(&payload(&[Frame::Ping]));
    duel.wait(Duration::from_secs(1));
    assert!(answers(&duel) <= before + 64, "{} answers have waited", answers(&duel) - before);
    assert!(duel.hostile.has_heard(|frame| *frame == Frame::PathResponse(1999_u64.to_be_bytes())));
    duel.assert_alive("challenges nobody reads the answers of");

    let mut duel = Duel::against_server();
    for round in 0..300_u64 {
        let mut body = duel.hostile.ack(Space::Data);
        body.extend(payload(&[Frame::PathChallenge(round.to_be_bytes()); 20]));
        duel.say(&body);
        duel.wait(Duration::from_millis(20));
    }
    duel.assert_alive("challenges from a peer that reads");
    assert!(duel.hostile.has_heard(|frame| *frame == Frame::PathResponse(299_u64.to_be_bytes())));
}

#[test]
fn retiring_all_we_issue_costs_bounded_memory() {
    let mut duel = Duel::against_server();
    let mut sequence = 0;
    for _ in 0..500 {
        let mut body = duel.hostile.ack(Space::Data);
        body.extend(payload(&[Frame::RetireConnectionId { path: None, sequence }]));
        // The victim issues the next one in its answer; the packet itself goes to an ID that is still good.
        let next = duel.hostile.heard.iter().flat_map(|heard| heard.frames()).find_map(|frame| match frame {
            Frame::NewConnectionId { sequence: issued, id, .. } if issued == sequence + 1 => Some(id),
            _ => None,
        });
        let Some(next) = next else { break };
        duel.hostile.remote_id = next;
        duel.say(&body);
        duel.wait(Duration::from_millis(10));
        sequence += 1;
    }
    duel.assert_alive("retirement");
    assert!(sequence > 100, "{sequence}");
    // One entry for the client's first destination, the others for IDs of ours.
    assert!(duel.victim.endpoint.route_count() <= 5, "{} routes", duel.victim.endpoint.route_count());
}

#[test]
fn a_flood_of_new_ids_is_held_to_the_limit() {
    let mut duel = Duel::against_server();
    for sequence in 1..5000_u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&sequence.to_be_bytes());
        let id = ConnectionId::new(&bytes).expect("eight bytes");
        let frame =
            Frame::NewConnectionId { path: None, sequence, retire_prior_to: sequence, id, reset_token: [0; 16] };
        duel.say(&payload(&[frame]));
        if !duel.victim_lives() {
            break;
        }
    }
    // Each retires the one before, and the peer acknowledges nothing: RETIRE_CONNECTION_ID frames pile up until they may
    // not any more (RFC 9000, section 5.1.2).
    duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "retirements nobody reads");
}

#[test]
fn handshake_bytes_out_of_order_are_held_to_the_limit() {
    let mut duel = Duel::against_server();
    for index in 0..70_u64 {
        duel.say(&payload(&[Frame::Crypto { offset: 1 + index * 1000, data: &[0; 1000] }]));
        if !duel.victim_lives() {
            break;
        }
    }
    duel.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "more than we keep");

    let mut duel = Duel::against_server();
    for index in 0..4000_u64 {
        duel.say(&payload(&[Frame::Crypto { offset: 1 + index * 2, data: b"x" }, Frame::Padding { len: 3 }]));
        if !duel.victim_lives() {
            break;
        }
    }
    duel.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "crumbs");
}

#[test]
fn stream_crumbs_out_of_order_are_refused() {
    let mut duel = Duel::against_server();
    let id = StreamId::new(Side::Client, Dir::Uni, 0);
    let mut sent = 0_u64;
    'all: for round in 0..2000_u64 {
        let frames: Vec<Frame<'_>> = (0..PER_PACKET as u64)
            .map(|index| {
                let offset = 1 + (round * PER_PACKET as u64 + index) * 2;
                Frame::Stream(Stream { id, offset, fin: false, data: b"x" })
            })
            .collect();
        duel.say(&payload(&frames));
        sent += PER_PACKET as u64;
        if !duel.victim_lives() {
            break 'all;
        }
    }
    assert!((1024..2048).contains(&sent), "{sent} crumbs were kept");
    duel.assert_closed(ErrorCode::INTERNAL_ERROR, "crumbs");
}

#[test]
fn empty_stream_frames_cost_nothing() {
    let mut duel = Duel::against_server();
    for index in 0..3000_u64 {
        let id = StreamId::new(Side::Client, Dir::Uni, index % 8);
        duel.say(&repeat(&Frame::Stream(Stream { id, offset: 0, fin: false, data: b"" })));
    }
    duel.assert_alive("empty frames");
    assert_eq!(duel.victim.connection(0).stats().receive.streams_open, 8);
    let opened = duel.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Opened(_))).count();
    let readable = duel.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Readable(_))).count();
    assert_eq!((opened, readable), (8, 0), "each is said once");
}

#[test]
fn datagrams_without_bytes_do_not_pile_up() {
    let mut duel = Duel::against_server();
    for _ in 0..2000 {
        duel.say(&payload(&[Frame::Datagram { data: b"" }; 400]));
    }
    duel.assert_alive("empty datagrams");
    let connection = duel.victim.connection(0);
    let mut held = 0;
    while connection.recv_datagram().is_some() {
        held += 1;
    }
    assert!(held > 0 && held <= 20_000, "{held} empty datagrams are held");
    assert!(connection.stats().receive.datagrams_dropped > 700_000);
}

#[test]
fn credit_in_tiny_steps_is_followed_without_memory() {
    let mut duel = Duel::against_server();
    let stream = duel.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    duel.victim.connection(0).write(stream, bytes::Bytes::from(vec![5; 400_000])).expect("room");
    for step in 0..3000_u64 {
        let mut body = if step % 10 == 0 { duel.hostile.ack(Space::Data) } else { Vec::new() };
        body.extend(payload(&[
            Frame::MaxStreamData { id: stream, max: (1 << 18) + step },
            Frame::MaxData((1 << 20) + step),
            Frame::MaxStreams { dir: Dir::Uni, max: 100 + step },
        ]));
        duel.say(&body);
        duel.wait(Duration::from_millis(2));
    }
    duel.assert_alive("small change");
    let stats = duel.victim.connection(0).stats();
    assert!(stats.send.held_bytes <= 400_000, "{stats:?}");
    assert!(stats.send.packets_sent < 20_000, "{stats:?}");
}

#[test]
fn acknowledgements_in_floods_and_in_pieces_are_taken() {
    let mut duel = Duel::against_server();
    let stream = duel.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    duel.victim.connection(0).write(stream, bytes::Bytes::from(vec![5; 200_000])).expect("room");
    duel.say_and_ack(&payload(&[Frame::Ping]));
    for round in 0..2000_u64 {
        let largest =
            duel.hostile.heard.iter().filter(|heard| heard.space == Space::Data).map(|heard| heard.number).max();
        let largest = largest.expect("something was sent");
        // Every other number only, ever again.
        let mut body = Vec::new();
        let numbers = (0..=largest).rev().step_by(2).take(100).map(|number| number..=number);
        emit_ack(None, round, numbers, None, &mut body);
        duel.say(&body);
        duel.wait(Duration::from_millis(5));
    }
    duel.assert_alive("acknowledgements");
}

#[test]
fn streams_opened_and_reset_at_once_give_their_place_back_only_when_read() {
    let mut duel = Duel::against_server();
    let mut opened = 0_u64;
    for index in 0..1024 {
        let id = StreamId::new(Side::Client, Dir::Uni, index);
        duel.say(&payload(&[Frame::ResetStream { id, code: 1, final_size: 0 }]));
        opened += 1;
    }
    duel.assert_alive("resets");
    assert_eq!((opened, duel.victim.connection(0).stats().receive.streams_open), (1024, 1024));
    let id = StreamId::new(Side::Client, Dir::Uni, 1024);
    duel.say(&payload(&[Frame::ResetStream { id, code: 1, final_size: 0 }]));
    duel.assert_closed(ErrorCode::STREAM_LIMIT_ERROR, "rapid reset");
}

#[test]
fn stopping_and_reopening_does_not_let_streams_pile_up() {
    let mut duel = Duel::against_server();
    for index in 0..128 {
        let id = StreamId::new(Side::Client, Dir::Bi, index);
        duel.say(&payload(&[
            Frame::Stream(Stream { id, offset: 0, fin: true, data: b"" }),
            Frame::StopSending { id, code: 3 },
        ]));
    }
    duel.assert_alive("stops");
    let stats = duel.victim.connection(0).stats();
    assert_eq!((stats.send.streams_open, stats.receive.streams_open), (128, 128));
    let stopped = duel.victim.events[0].iter().filter(|event| matches!(event, quic::Event::Stopped { .. })).count();
    assert_eq!(stopped, 128);
    // Once the application has read the ends and the peer has acknowledged the resets, nothing is left.
    while let Some(id) = duel.victim.connection(0).accept(Dir::Bi) {
        let now = duel.now;
        assert_eq!(duel.victim.connection(0).read(now, id, 10), Ok(quic::Chunk::End));
    }
    duel.say_and_ack(&payload(&[Frame::Ping]));
    duel.wait(Duration::from_millis(100));
    duel.say_and_ack(&payload(&[Frame::Ping]));
    let stats = duel.victim.connection(0).stats();
    assert_eq!((stats.send.streams_open, stats.receive.streams_open), (0, 0));
}
