//! Every frame type in invalid use.

use quic::{ConnectionId, Dir, ErrorCode, PathId, Side, StreamId};
use wire::quic::{Close, CloseOrigin, Frame, Space, Stream, emit_ack, put_varint};

use crate::support::hostile::{Hostile, HostilePair, SealOverrides, payload};

/// The windows of a stream and of the connection in the default configuration.
const STREAM_WINDOW: u64 = 1 << 20;
const CONNECTION_WINDOW: u64 = 8 << 20;

fn stream(index: u64, dir: Dir, offset: u64, fin: bool, data: &[u8]) -> Frame<'_> {
    Frame::Stream(Stream { id: StreamId::new(Side::Client, dir, index), offset, fin, data })
}

fn uni(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

fn bidi(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, index)
}

/// A stream on which only the server may send.
fn server_uni(index: u64) -> StreamId {
    StreamId::new(Side::Server, Dir::Uni, index)
}

fn server_bidi(index: u64) -> StreamId {
    StreamId::new(Side::Server, Dir::Bi, index)
}

fn new_id(sequence: u64, retire_prior_to: u64, byte: u8) -> Frame<'static> {
    let id = ConnectionId::new(&[byte; 8]).expect("eight bytes");
    Frame::NewConnectionId { path: None, sequence, retire_prior_to, id, reset_token: [byte; 16] }
}

#[track_caller]
fn server_closes(what: &str, code: ErrorCode, frames: &[Frame<'_>]) {
    let mut pair = HostilePair::against_server();
    pair.send(&payload(frames));
    pair.assert_closed(code, what);
}

#[track_caller]
fn client_closes(what: &str, code: ErrorCode, frames: &[Frame<'_>]) {
    let mut pair = HostilePair::against_client();
    pair.send(&payload(frames));
    pair.assert_closed(code, what);
}

#[test]
fn frames_for_streams_of_the_wrong_direction_are_refused() {
    let code = ErrorCode::STREAM_STATE_ERROR;
    for id in [server_uni(0), server_bidi(0)] {
        let what = format!("{id}");
        // RFC 9000, sections 19.4, 19.8 and 19.13.
        server_closes(&what, code, &[Frame::Stream(Stream { id, offset: 0, fin: false, data: b"x" })]);
        server_closes(&what, code, &[Frame::Stream(Stream { id, offset: 0, fin: true, data: b"" })]);
        server_closes(&what, code, &[Frame::ResetStream { id, code: 1, final_size: 0 }]);
        server_closes(&what, code, &[Frame::StreamDataBlocked { id, limit: 0 }]);
        // Never opened by the server: sections 19.5 and 19.10.
        server_closes(&what, code, &[Frame::StopSending { id, code: 1 }]);
        server_closes(&what, code, &[Frame::MaxStreamData { id, max: 9 }]);
    }
    // Receive-only streams of the server.
    server_closes("stop sending to a sender", code, &[Frame::StopSending { id: uni(0), code: 1 }]);
    server_closes("credit for a sender", code, &[Frame::MaxStreamData { id: uni(0), max: 9 }]);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let code = ErrorCode::STREAM_LIMIT_ERROR;
    // The default configuration allows 128 and 1024.
    for (dir, count) in [(Dir::Bi, 128), (Dir::Uni, 1024)] {
        let mut pair = HostilePair::against_server();
        pair.send(&payload(&[stream(count - 1, dir, 0, false, b"x")]));
        pair.assert_alive("the last stream allowed");
        assert_eq!(pair.victim.connection(0).stats().receive.streams_open, count as usize);
        let id = StreamId::new(Side::Client, dir, count);
        server_closes("data", code, &[stream(count, dir, 0, false, b"x")]);
        server_closes("reset", code, &[Frame::ResetStream { id, code: 0, final_size: 0 }]);
        server_closes("blocked", code, &[Frame::StreamDataBlocked { id, limit: 0 }]);
        server_closes("the largest", code, &[stream((1 << 60) - 1, dir, 0, false, b"x")]);
    }
    server_closes("stop", code, &[Frame::StopSending { id: bidi(128), code: 1 }]);
    server_closes("credit", code, &[Frame::MaxStreamData { id: bidi(128), max: 1 }]);
}

#[test]
fn data_beyond_the_limit_are_refused() {
    let code = ErrorCode::FLOW_CONTROL_ERROR;
    server_closes("a byte beyond", code, &[stream(0, Dir::Uni, STREAM_WINDOW, false, b"x")]);
    server_closes("the last offset", code, &[stream(0, Dir::Uni, (1 << 62) - 2, false, b"x")]);
    let reset = Frame::ResetStream { id: uni(0), code: 0, final_size: STREAM_WINDOW + 1 };
    server_closes("a reset beyond", code, &[reset]);
    let end = STREAM_WINDOW - 1;
    const FULL_STREAMS: u64 = CONNECTION_WINDOW / STREAM_WINDOW;
    let full = (0..FULL_STREAMS).map(|index| stream(index, Dir::Uni, end, false, b"x"));
    let all: Vec<_> = full.chain([stream(FULL_STREAMS, Dir::Uni, 0, false, b"x")]).collect();
    server_closes("the connection's window", code, &all);
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&all[..FULL_STREAMS as usize]));
    pair.assert_alive("exactly the connection's window");
    let reset = Frame::ResetStream { id: uni(FULL_STREAMS), code: 0, final_size: 1 };
    pair.send(&payload(&[reset]));
    pair.assert_closed(code, "a reset beyond the connection's window");
}

#[test]
fn a_changed_final_size_is_refused() {
    let code = ErrorCode::FINAL_SIZE_ERROR;
    let id = uni(0);
    let reset = |final_size| Frame::ResetStream { id, code: 0, final_size };
    let data = |offset, fin| stream(0, Dir::Uni, offset, fin, b"0123456789");
    server_closes("data beyond the end", code, &[data(0, true), data(1, false)]);
    server_closes("a later end", code, &[data(0, true), data(1, true)]);
    server_closes("an earlier end", code, &[data(10, false), data(0, true)]);
    server_closes("a reset before the data", code, &[data(0, false), reset(9)]);
    server_closes("a reset after the end", code, &[data(0, true), reset(11)]);
    server_closes("two resets", code, &[reset(5), reset(6)]);
    server_closes("data behind a reset", code, &[reset(5), data(0, false)]);
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[data(0, true), data(0, true), data(0, false), reset(10), reset(10)]));
    pair.assert_alive("consistent repetitions");
}

#[test]
fn contradictory_connection_ids_are_refused() {
    let violation = ErrorCode::PROTOCOL_VIOLATION;
    server_closes(
        "too many",
        ErrorCode::CONNECTION_ID_LIMIT_ERROR,
        &[new_id(1, 0, 1), new_id(2, 0, 2), new_id(3, 0, 3), new_id(4, 0, 4)],
    );
    server_closes("one number for two", violation, &[new_id(1, 0, 1), new_id(1, 0, 2)]);
    server_closes("one id for two numbers", violation, &[new_id(1, 0, 1), new_id(2, 0, 1)]);
    let other_token = Frame::NewConnectionId {
        path: None,
        sequence: 1,
        retire_prior_to: 0,
        id: ConnectionId::new(&[1; 8]).expect("eight bytes"),
        reset_token: [9; 16],
    };
    server_closes("another token", violation, &[new_id(1, 0, 1), other_token]);
    server_closes(
        "retires what was never issued",
        violation,
        &[Frame::RetireConnectionId { path: None, sequence: 99 }],
    );
    let retires_itself = new_id(1, 2, 1);
    server_closes("retires the id it issues", ErrorCode::FRAME_ENCODING_ERROR, &[retires_itself]);
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[new_id(1, 0, 1), new_id(1, 0, 1), new_id(2, 2, 2), new_id(1, 0, 1)]));
    pair.assert_alive("repetitions and retirement");
    assert!(pair.hostile.has_received(|frame| matches!(frame, Frame::RetireConnectionId { sequence: 0, .. })));
    assert!(pair.hostile.has_received(|frame| matches!(frame, Frame::RetireConnectionId { sequence: 1, .. })));
}

#[test]
fn acknowledgements_of_unsent_packets_are_refused() {
    let ack = |ranges: &[std::ops::RangeInclusive<u64>]| {
        let mut out = Vec::new();
        emit_ack(None, 0, ranges.iter().cloned(), None, &mut out);
        out
    };
    for (what, ranges) in [
        ("the next number", vec![1_000..=1_000]),
        ("the largest number", vec![(1 << 62) - 1..=(1 << 62) - 1]),
        ("everything", vec![0..=(1 << 62) - 1]),
    ] {
        let mut pair = HostilePair::against_server();
        pair.send(&ack(&ranges));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, what);
    }
    // `emit_ack` cannot write ranges below zero: largest 0, no delay, no more ranges, first range
    // of 5.
    let mut pair = HostilePair::against_server();
    pair.send(&[0x02, 0, 0, 0, 5]);
    pair.assert_closed(ErrorCode::FRAME_ENCODING_ERROR, "below zero");
}

#[test]
fn frames_of_the_other_role_are_refused() {
    let violation = ErrorCode::PROTOCOL_VIOLATION;
    // RFC 9000, sections 19.7 and 19.20.
    server_closes("HANDSHAKE_DONE", violation, &[Frame::HandshakeDone]);
    server_closes("NEW_TOKEN", violation, &[Frame::NewToken { token: b"t" }]);
    let mut pair = HostilePair::against_client();
    pair.send(&payload(&[Frame::HandshakeDone, Frame::NewToken { token: b"t" }]));
    pair.assert_alive("a server's frames");
    pair.send(&[0x07, 0]);
    pair.assert_closed(ErrorCode::FRAME_ENCODING_ERROR, "an empty token");
}

#[test]
fn an_ack_delay_below_min_ack_delay_is_refused() {
    let request = |delay_us| Frame::AckFrequency {
        sequence: 0,
        ack_eliciting_threshold: 1,
        requested_max_ack_delay: delay_us,
        reordering_threshold: 1,
    };
    server_closes("999 us", ErrorCode::PROTOCOL_VIOLATION, &[request(999)]);
    client_closes("0 us", ErrorCode::PROTOCOL_VIOLATION, &[request(0)]);
}

#[test]
fn frames_of_unnegotiated_extensions_are_refused() {
    let path = PathId(1);
    let code = ErrorCode::FRAME_ENCODING_ERROR;
    let id = ConnectionId::new(&[3; 8]).expect("eight bytes");
    let frames = [
        Frame::PathAbandon { path, code: 0 },
        Frame::PathStatus { path, sequence: 0, available: true },
        Frame::PathStatus { path, sequence: 0, available: false },
        Frame::NewConnectionId { path: Some(path), sequence: 0, retire_prior_to: 0, id, reset_token: [0; 16] },
        Frame::RetireConnectionId { path: Some(path), sequence: 0 },
        Frame::MaxPathId(path),
        Frame::PathsBlocked(path),
        Frame::PathCidsBlocked { path, next_sequence: 0 },
    ];
    for frame in frames {
        server_closes(&format!("{frame:?}"), code, &[frame]);
        client_closes(&format!("{frame:?}"), code, &[frame]);
    }
    let mut path_ack = Vec::new();
    emit_ack(Some(path), 0, std::iter::once(0..=0), None, &mut path_ack);
    let mut pair = HostilePair::against_server();
    pair.send(&path_ack);
    pair.assert_closed(code, "PATH_ACK");
}

#[test]
fn malformed_frames_are_refused() {
    let code = ErrorCode::FRAME_ENCODING_ERROR;
    let mut unknown = Vec::new();
    put_varint(&mut unknown, 0x1234_5678);
    let samples: [(&str, &[u8], ErrorCode); 8] = [
        ("an unknown type", &unknown, code),
        ("a type cut short", &[0xc0], code),
        ("a stream cut short", &[0x0e, 0x02], code),
        ("a length beyond the end of the packet", &[0x0a, 0x02, 63, 1, 2], code),
        ("a type longer than necessary", &[0x40, 0x01], ErrorCode::PROTOCOL_VIOLATION),
        ("a connection id of no bytes", &[0x18, 1, 0, 0], code),
        ("a connection id of 21 bytes", &[&[0x18, 1, 0, 21][..], &[1; 21 + 16]].concat(), code),
        ("2^60 + 1 streams", &[0x12, 0xd0, 0, 0, 0, 0, 0, 0, 1], code),
    ];
    for (what, bytes, code) in samples {
        let mut pair = HostilePair::against_server();
        pair.send(bytes);
        pair.assert_closed(code, what);
    }
}

/// The packets a client has received from a server before its last flight: Handshake keys are
/// installed, 1-RTT keys are not used.
fn in_the_middle_of_the_handshake() -> HostilePair {
    let mut pair = HostilePair::with_server(Default::default(), Hostile::ordinary_client(7));
    // Now the handshake is complete, so the victim has discarded its Handshake keys; another one is
    // stopped in mid-handshake.
    pair.hostile = Hostile::ordinary_client(8);
    let hello = pair.hostile.flight();
    hello.iter().for_each(|datagram| pair.deliver(datagram));
    pair
}

#[test]
fn one_rtt_frames_in_handshake_packets_are_refused() {
    let violation = ErrorCode::PROTOCOL_VIOLATION;
    let forbidden = [
        Frame::MaxData(1),
        Frame::HandshakeDone,
        Frame::PathChallenge([0; 8]),
        Frame::Datagram { data: b"x" },
        stream(0, Dir::Uni, 0, false, b"x"),
        Frame::ResetStream { id: uni(0), code: 0, final_size: 0 },
        Frame::Close(Close { code: 0, origin: CloseOrigin::Application, reason: b"" }),
        new_id(1, 0, 1),
    ];
    for frame in forbidden {
        for space in [Space::Initial, Space::Handshake] {
            let mut pair = in_the_middle_of_the_handshake();
            let _our_finished_stays_here = pair.hostile.flight();
            let mut body = payload(&[frame]);
            body.resize(body.len().max(1150), 0);
            let packet = pair.hostile.packet(space, &body);
            pair.deliver(&packet);
            pair.assert_closed(violation, &format!("{frame:?} in {space:?}"));
        }
    }
}

#[test]
fn handshake_bytes_at_a_wrong_level_or_offset_are_refused() {
    // New bytes at a level that TLS has left (RFC 9001, section 4.1.3).
    let mut pair = in_the_middle_of_the_handshake();
    let mut body = payload(&[Frame::Crypto { offset: 1_000, data: b"more of the hello" }]);
    body.resize(1150, 0);
    let packet = pair.hostile.packet(Space::Initial, &body);
    pair.deliver(&packet);
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an old level");

    // A message that does not exist in any handshake.
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[Frame::Crypto { offset: 0, data: &[20, 0, 0, 0] }]));
    pair.assert_closed(ErrorCode::crypto(40), "a second Finished");

    // Bytes far beyond what was read.
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[Frame::Crypto { offset: 1 << 17, data: b"x" }]));
    pair.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "far ahead");
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[Frame::Crypto { offset: (1 << 62) - 2, data: b"x" }]));
    pair.assert_closed(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "as far as there is");
}

#[test]
fn unnegotiated_datagrams_are_refused() {
    let config = quic::TransportConfig::default().with_datagram_receive_buffer(0);
    let mut pair = HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)));
    pair.send(&payload(&[Frame::Datagram { data: b"x" }]));
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9221, section 3");
}

#[test]
fn frames_without_effect_are_accepted() {
    let mut pair = HostilePair::against_server();
    pair.send(&payload(&[
        Frame::DataBlocked(0),
        Frame::StreamsBlocked { dir: Dir::Bi, limit: 7 },
        Frame::StreamsBlocked { dir: Dir::Uni, limit: 1 << 60 },
        Frame::PathResponse([9; 8]),
        Frame::MaxData(0),
        Frame::MaxData((1 << 62) - 1),
        Frame::MaxStreams { dir: Dir::Bi, max: 0 },
        Frame::MaxStreams { dir: Dir::Uni, max: 1 << 60 },
        Frame::Padding { len: 200 },
        Frame::Datagram { data: b"" },
    ]));
    pair.assert_alive("noise");
    assert_eq!(pair.victim.connection(0).stats().receive.streams_open, 0);
    assert_eq!(pair.victim.connection(0).recv_datagram().as_deref(), Some(&b""[..]));
}

#[test]
fn a_frame_in_a_packet_with_an_error_before_it_counts_and_one_after_it_does_not() {
    let mut pair = HostilePair::against_server();
    let mut body = payload(&[stream(0, Dir::Uni, 0, false, b"x")]);
    put_varint(&mut body, 0x1234_5678);
    body.extend(payload(&[stream(1, Dir::Uni, 0, false, b"x")]));
    let packet = pair.hostile.packet_with(Space::Data, &body, SealOverrides::default());
    pair.deliver(&packet);
    pair.assert_closed(ErrorCode::FRAME_ENCODING_ERROR, "an unknown frame between two streams");
}

#[test]
fn a_connection_closed_by_the_peer_drains_silently() {
    for origin in [CloseOrigin::Transport { frame_type: 0 }, CloseOrigin::Application] {
        let mut pair = HostilePair::against_server();
        let reason = [0xff; 300];
        pair.send(&payload(&[Frame::Close(Close { code: 77, origin, reason: &reason })]));
        let event = pair.victim.events[0].back().cloned();
        match origin {
            CloseOrigin::Application => assert!(
                matches!(&event, Some(quic::Event::Closed(quic::ConnectionError::ClosedByPeer { code: 77, reason: words }))
                    if words.as_ref() == reason),
                "{event:?}"
            ),
            CloseOrigin::Transport { .. } => assert!(
                matches!(&event, Some(quic::Event::Closed(quic::ConnectionError::ClosedByPeerTransport(error)))
                    if error.code == ErrorCode(77)),
                "{event:?}"
            ),
        }
        let before = pair.hostile.opened.len();
        for _ in 0..10 {
            pair.send(&[1]);
        }
        assert_eq!(pair.hostile.opened.len(), before, "draining sends nothing (RFC 9000, section 10.2.2)");
        pair.wait(units::Duration::from_secs(10));
        assert!(pair.victim.connections[0].is_none(), "drained");
        assert_eq!(pair.victim.endpoint.route_count(), 0);
    }
}

#[test]
fn nothing_follows_the_last_event() {
    let mut pair = HostilePair::against_server();
    let now = pair.now;
    pair.victim.connection(0).close(now, 1, "enough");
    pair.send(&payload(&[stream(0, Dir::Uni, 0, true, b"x"), Frame::MaxStreams { dir: Dir::Uni, max: 1 << 20 }]));
    let violation = Frame::HandshakeDone;
    pair.send(&payload(&[violation]));
    let events = &pair.victim.events[0];
    assert_eq!(events.back(), Some(&quic::Event::Closed(quic::ConnectionError::ClosedLocally)), "{events:?}");
    assert_eq!(pair.hostile.close(), Some((ErrorCode(1), true)));
}
