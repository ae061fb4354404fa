use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::*;
use crate::quic::error::ErrorCode;
use crate::quic::id::Side;
use crate::quic::reader::Reader;
use crate::quic::varint::{VARINT_MAX, put_varint};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every frame type, numbered as in the specifications.
const TYPES: [u64; 45] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12,
    0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x30, 0x31, 0x3e, 0x3f, 0xaf, 0x3e75,
    0x3e76, 0x3e77, 0x3e78, 0x3e79, 0x3e7a, 0x3e7b, 0x3e7c,
];

fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let mut reader = Reader::new(bytes);
    let frame = Frame::parse(&mut reader)?;
    assert_eq!(reader.remaining(), 0, "{frame:?} leaves bytes unread");
    Ok(frame)
}

fn code_of(bytes: &[u8]) -> ErrorCode {
    parse(bytes).expect_err("the frame must be rejected").code
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

/// Bytes written by hand from the figures of the specifications, with the frames they encode. A
/// round-trip test alone would not detect two fields swapped in both the parser and the encoder.
fn figures() -> Vec<(Vec<u8>, Frame<'static>)> {
    let token = [0xab; 16];
    let id = StreamId::from_raw(4);
    let new_id = |path| Frame::NewConnectionId {
        path,
        sequence: 3,
        retire_prior_to: 2,
        id: cid(&[0x11, 0x22]),
        reset_token: token,
    };
    let transport = CloseOrigin::Transport { frame_type: 0x3e75 };
    vec![
        (vec![0, 0, 0], Frame::Padding { len: 3 }),
        (vec![0x01], Frame::Ping),
        (vec![0x04, 4, 5, 0x40, 0x80], Frame::ResetStream { id, code: 5, final_size: 128 }),
        (vec![0x05, 4, 5], Frame::StopSending { id, code: 5 }),
        (vec![0x06, 7, 2, 8, 9], Frame::Crypto { offset: 7, data: &[8, 9] }),
        (vec![0x07, 1, 9], Frame::NewToken { token: &[9] }),
        (vec![0x0a, 4, 1, 9], Frame::Stream(Stream { id, offset: 0, fin: false, data: &[9] })),
        (vec![0x0f, 4, 6, 1, 9], Frame::Stream(Stream { id, offset: 6, fin: true, data: &[9] })),
        (vec![0x10, 33], Frame::MaxData(33)),
        (vec![0x11, 4, 33], Frame::MaxStreamData { id, max: 33 }),
        (vec![0x12, 33], Frame::MaxStreams { dir: Dir::Bi, max: 33 }),
        (vec![0x13, 33], Frame::MaxStreams { dir: Dir::Uni, max: 33 }),
        (vec![0x14, 33], Frame::DataBlocked(33)),
        (vec![0x15, 4, 33], Frame::StreamDataBlocked { id, limit: 33 }),
        (vec![0x16, 33], Frame::StreamsBlocked { dir: Dir::Bi, limit: 33 }),
        (vec![0x17, 33], Frame::StreamsBlocked { dir: Dir::Uni, limit: 33 }),
        ([&[0x18, 3, 2, 2, 0x11, 0x22][..], &token].concat(), new_id(None)),
        (vec![0x19, 3], Frame::RetireConnectionId { path: None, sequence: 3 }),
        (vec![0x1a, 1, 2, 3, 4, 5, 6, 7, 8], Frame::PathChallenge([1, 2, 3, 4, 5, 6, 7, 8])),
        (vec![0x1b, 1, 2, 3, 4, 5, 6, 7, 8], Frame::PathResponse([1, 2, 3, 4, 5, 6, 7, 8])),
        (vec![0x1c, 10, 0x7e, 0x75, 2, b'n', b'o'], Frame::Close(Close { code: 10, origin: transport, reason: b"no" })),
        (vec![0x1d, 10, 0], Frame::Close(Close { code: 10, origin: CloseOrigin::Application, reason: b"" })),
        (vec![0x1e], Frame::HandshakeDone),
        (vec![0x1f], Frame::ImmediateAck),
        (vec![0x31, 2, 8, 9], Frame::Datagram { data: &[8, 9] }),
        (
            vec![0x40, 0xaf, 1, 2, 0x80, 0, 0x61, 0xa8, 4],
            Frame::AckFrequency {
                sequence: 1,
                ack_eliciting_threshold: 2,
                requested_max_ack_delay: 25_000,
                reordering_threshold: 4,
            },
        ),
        (vec![0x7e, 0x75, 1, 0x3e], Frame::PathAbandon { path: PathId(1), code: 0x3e }),
        (vec![0x7e, 0x76, 1, 2], Frame::PathStatus { path: PathId(1), sequence: 2, available: false }),
        (vec![0x7e, 0x77, 1, 2], Frame::PathStatus { path: PathId(1), sequence: 2, available: true }),
        ([&[0x7e, 0x78, 1, 3, 2, 2, 0x11, 0x22][..], &token].concat(), new_id(Some(PathId(1)))),
        (vec![0x7e, 0x79, 1, 3], Frame::RetireConnectionId { path: Some(PathId(1)), sequence: 3 }),
        (vec![0x7e, 0x7a, 0xc0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], Frame::MaxPathId(PathId(u32::MAX))),
        (vec![0x7e, 0x7b, 1], Frame::PathsBlocked(PathId(1))),
        (vec![0x7e, 0x7c, 1, 2], Frame::PathCidsBlocked { path: PathId(1), next_sequence: 2 }),
    ]
}

#[test]
fn frames_match_the_figures_of_the_specifications() {
    for (bytes, frame) in figures() {
        assert_eq!(parse(&bytes), Ok(frame));
        assert_eq!(emitted(&frame), bytes, "{frame:?}");
    }
}

#[test]
fn acknowledgements_match_the_figures_of_the_specifications() {
    // 95..=100 and 90..=92: two missing numbers are a gap of 1.
    let ranges = [95..=100, 90..=92];
    let ecn = EcnCounts { ect0: 1, ect1: 2, ce: 3 };
    let body = [0x40, 100, 7, 1, 5, 1, 2];
    for (path, ecn, head, tail) in [
        (None, None, &[0x02][..], &[][..]),
        (None, Some(ecn), &[0x03], &[1, 2, 3]),
        (Some(PathId(9)), None, &[0x3e, 9], &[]),
        (Some(PathId(9)), Some(ecn), &[0x3f, 9], &[1, 2, 3]),
    ] {
        let bytes = [head, &body, tail].concat();
        let mut out = Vec::new();
        emit_ack(path, 7, ranges.iter().cloned(), ecn, &mut out);
        assert_eq!(out, bytes);
        assert_eq!(ack_len(path, 7, ranges.iter().cloned(), ecn), bytes.len());
        let Ok(Frame::Ack(ack)) = parse(&bytes) else { panic!("not an acknowledgement") };
        assert_eq!((ack.path, ack.largest, ack.delay, ack.ecn), (path, 100, 7, ecn));
        assert_eq!(ack.ranges().len(), 2);
        assert_eq!(ack.ranges().collect::<Vec<_>>(), ranges);
        assert_eq!(emitted(&Frame::Ack(ack)), bytes);
        assert_eq!(Frame::Ack(ack).frame_type(), u64::from(head[0]));
    }
}

#[test]
fn data_without_a_length_extends_to_the_end_of_the_packet() {
    let id = StreamId::from_raw(8);
    let data: &[u8] = &[1, 2, 3];
    for (offset, fin) in [(0, false), (0, true), (77, false), (77, true)] {
        let mut out = Vec::new();
        emit_stream_header(id, offset, data.len(), fin, true, &mut out);
        assert_eq!(out.len(), stream_header_len(id, offset, data.len(), true));
        out.extend_from_slice(data);
        assert_eq!(parse(&out), Ok(Frame::Stream(Stream { id, offset, fin, data })));
    }
    let mut out = Vec::new();
    emit_datagram_header(data.len(), true, &mut out);
    assert_eq!(out.len(), datagram_header_len(data.len(), true));
    out.extend_from_slice(data);
    assert_eq!(parse(&out), Ok(Frame::Datagram { data }));
}

#[test]
fn a_run_of_padding_is_one_frame() {
    let mut reader = Reader::new(&[0, 0, 0, 0, 1]);
    assert_eq!(Frame::parse(&mut reader), Ok(Frame::Padding { len: 4 }));
    assert_eq!(Frame::parse(&mut reader), Ok(Frame::Ping));
    assert!(reader.is_empty());
}

#[test]
fn values_outside_their_range_are_rejected() {
    let max = [0xff; 8];
    let over_2_60 = [0xd0, 0, 0, 0, 0, 0, 0, 1];
    let over_u32 = [0xc0, 0, 0, 1, 0, 0, 0, 0];
    let token = [0; 16];
    let malformed: Vec<(&str, Vec<u8>)> = vec![
        ("STREAM data past 2^62-1", [&[0x0e, 0][..], &max, &[1, 9]].concat()),
        ("STREAM without length past 2^62-1", [&[0x0c, 0][..], &max, &[9]].concat()),
        ("CRYPTO data past 2^62-1", [&[0x06][..], &max, &[1, 9]].concat()),
        ("an empty NEW_TOKEN", vec![0x07, 0]),
        ("2^60+1 streams in MAX_STREAMS", [&[0x12][..], &over_2_60].concat()),
        ("2^60+1 streams in MAX_STREAMS", [&[0x13][..], &over_2_60].concat()),
        ("2^60+1 streams in STREAMS_BLOCKED", [&[0x16][..], &over_2_60].concat()),
        ("2^60+1 streams in STREAMS_BLOCKED", [&[0x17][..], &over_2_60].concat()),
        ("retiring the ID itself", [&[0x18, 3, 4, 1, 9][..], &token].concat()),
        ("an ID of 0 bytes", [&[0x18, 3, 2, 0][..], &token].concat()),
        ("an ID of 21 bytes", [&[0x18, 3, 2, 21][..], &[7; 21], &token].concat()),
        ("a path's ID of 0 bytes", [&[0x7e, 0x78, 1, 3, 2, 0][..], &token].concat()),
        ("a first range below zero", vec![0x02, 5, 0, 0, 6]),
        ("a gap below zero", vec![0x02, 5, 0, 1, 2, 2, 0]),
        ("a later range below zero", vec![0x02, 5, 0, 1, 2, 0, 2]),
        ("more ranges than bytes", [&[0x02, 5, 0][..], &max, &[0, 0, 0]].concat()),
        ("an unknown type", vec![0x20]),
        ("an unknown type of two bytes", vec![0x7f, 0xff]),
        ("the largest type", vec![0xff; 8]),
        ("no type", vec![]),
        ("half a type", vec![0x7e]),
    ];
    for (what, bytes) in malformed {
        assert_eq!(code_of(&bytes), ErrorCode::FRAME_ENCODING_ERROR, "{what}");
    }
    let violations: Vec<(&str, Vec<u8>)> = vec![
        ("PING in two bytes", vec![0x40, 0x01]),
        ("ACK_FREQUENCY in four bytes", vec![0x80, 0, 0, 0xaf, 0, 0, 0, 0]),
        ("a delay of 2^14 ms", vec![0x40, 0xaf, 0, 0, 0x80, 0xfa, 0, 0, 0]),
        ("a path above 2^32-1", [&[0x7e, 0x7a][..], &over_u32].concat()),
        ("a path above 2^32-1", [&[0x3e][..], &over_u32, &[0, 0, 0, 0]].concat()),
    ];
    for (what, bytes) in violations {
        assert_eq!(code_of(&bytes), ErrorCode::PROTOCOL_VIOLATION, "{what}");
    }
}

#[test]
fn values_at_the_end_of_their_range_are_accepted() {
    let top = [&[0x0e, 0][..], &((VARINT_MAX - 1) | (0xc0 << 56)).to_be_bytes(), &[1, 9]].concat();
    assert!(parse(&top).is_ok());
    assert!(parse(&[0x12, 0xd0, 0, 0, 0, 0, 0, 0, 0]).is_ok());
    assert!(parse(&[0x02, 5, 0, 1, 2, 0, 1]).is_ok());
    assert!(parse(&[0x40, 0xaf, 0, 0, 0x80, 0xf9, 0xff, 0xff, 0]).is_ok());
    assert!(parse(&[&[0x18, 3, 3, 20][..], &[7; 36]].concat()).is_ok());
}

#[test]
fn errors_name_the_frame() {
    let error = parse(&[0x07, 0]).unwrap_err();
    assert_eq!(error.frame_type, 0x07);
    assert_eq!(error.to_string(), "FRAME_ENCODING_ERROR: frame 0x7: empty token");
    assert_eq!(parse(&[0x7f, 0xff]).unwrap_err().frame_type, 0x3fff);
}

#[test]
fn longer_integer_encodings_parse_to_the_same_frame() {
    let short = parse(&[0x02, 9, 0, 1, 2, 1, 2]).unwrap();
    let long = parse(&[0x02, 9, 0, 0x40, 1, 0x40, 2, 0x40, 1, 0x80, 0, 0, 2]).unwrap();
    assert_eq!(short, long);
    assert_ne!(short, parse(&[0x02, 9, 0, 1, 2, 1, 3]).unwrap());
    assert_eq!(parse(&[0x10, 0x40, 9]), parse(&[0x10, 9]));
}

/// Rows of RFC 9000 table 3, RFC 9221 §4, multipath §4 and acknowledgement frequency §3, in the
/// order of [`figures`].
#[test]
fn frames_are_permitted_where_table_3_permits_them() {
    let rows: Vec<(u64, &str)> = vec![
        (0x00, "IH01"),
        (0x01, "IH01"),
        (0x04, "__01"),
        (0x05, "__01"),
        (0x06, "IH_1"),
        (0x07, "___1"),
        (0x0a, "__01"),
        (0x0f, "__01"),
        (0x10, "__01"),
        (0x11, "__01"),
        (0x12, "__01"),
        (0x13, "__01"),
        (0x14, "__01"),
        (0x15, "__01"),
        (0x16, "__01"),
        (0x17, "__01"),
        (0x18, "__01"),
        (0x19, "___1"),
        (0x1a, "__01"),
        (0x1b, "___1"),
        (0x1c, "IH01"),
        (0x1d, "__01"),
        (0x1e, "___1"),
        (0x1f, "___1"),
        (0x31, "__01"),
        (0xaf, "___1"),
        (0x3e75, "___1"),
        (0x3e76, "___1"),
        (0x3e77, "___1"),
        (0x3e78, "___1"),
        (0x3e79, "___1"),
        (0x3e7a, "___1"),
        (0x3e7b, "___1"),
        (0x3e7c, "___1"),
    ];
    let acks =
        [(&[0x02, 0, 0, 0, 0][..], "IH_1"), (&[0x03, 0, 0, 0, 0, 1, 1, 1], "IH_1"), (&[0x3e, 0, 0, 0, 0, 0], "___1")];
    let figures = figures();
    assert_eq!(figures.len(), rows.len());
    let drawn = figures.iter().zip(rows).map(|((_, frame), (ty, row))| {
        assert_eq!(frame.frame_type(), ty, "{frame:?}");
        (*frame, row)
    });
    for (frame, row) in drawn.chain(acks.map(|(bytes, row)| (parse(bytes).unwrap(), row))) {
        let packets = [PacketType::Initial, PacketType::Handshake, PacketType::ZeroRtt, PacketType::OneRtt];
        for (packet, mark) in packets.into_iter().zip(row.chars()) {
            assert_eq!(frame.permitted_in(packet), mark != '_', "{frame:?} in {packet:?}");
        }
    }
}

#[test]
fn all_frames_but_ack_padding_and_close_are_ack_eliciting() {
    for (_, frame) in figures() {
        let silent = matches!(frame.frame_type(), 0x00 | 0x1c | 0x1d);
        assert_eq!(frame.is_ack_eliciting(), !silent, "{frame:?}");
    }
    for bytes in [&[0x02, 0, 0, 0, 0][..], &[0x3e, 0, 0, 0, 0, 0]] {
        assert!(!parse(bytes).unwrap().is_ack_eliciting());
    }
}

#[test]
fn a_close_reason_is_truncated_to_the_maximum_length() {
    let origin = CloseOrigin::Transport { frame_type: 0x3e75 };
    let reason = "größer als erlaubt, 許可されたよりも大きい, and then some more to pass sixty-three bytes";
    assert!(reason.len() > 64);
    let least = close_len_min(0x100, origin);
    for max_len in least..least + reason.len() + 5 {
        let mut out = Vec::new();
        emit_close(0x100, origin, reason, max_len, &mut out);
        assert!(out.len() <= max_len, "max_len of {max_len}");
        let Ok(Frame::Close(close)) = parse(&out) else { panic!("not a close: {out:?}") };
        assert_eq!((close.code, close.origin), (0x100, origin));
        let kept = str::from_utf8(close.reason).expect("cut between characters");
        assert!(reason.starts_with(kept));
        // One more character would not have fitted.
        if let Some(next) = reason[kept.len()..].chars().next() {
            let longer = &reason.as_bytes()[..kept.len() + next.len_utf8()];
            assert!(Frame::Close(Close { reason: longer, ..close }).encoded_len() > max_len, "max_len of {max_len}");
        }
    }
}

#[test]
#[should_panic(expected = "too small for the length")]
fn a_close_frame_below_its_minimum_length_panics() {
    let origin = CloseOrigin::Application;
    emit_close(1, origin, "", close_len_min(1, origin) - 1, &mut Vec::new());
}

#[test]
#[should_panic(expected = "must descend")]
fn adjacent_ranges_panic() {
    emit_ack(None, 0, [5..=9, 3..=4].into_iter(), None, &mut Vec::new());
}

#[test]
#[should_panic(expected = "at least one range")]
fn an_acknowledgement_without_ranges_panics() {
    emit_ack(None, 0, std::iter::empty(), None, &mut Vec::new());
}

#[test]
fn ack_len_max_is_an_upper_bound() {
    // The largest numbers: three ranges at the top of the number space, and everything else at its
    // maximum.
    let ecn = EcnCounts { ect0: VARINT_MAX, ect1: VARINT_MAX, ce: VARINT_MAX };
    let wide = 1 << 31;
    let mut ranges = Vec::new();
    let mut top = VARINT_MAX;
    for count in 1..=3 {
        ranges.push(top - wide..=top);
        top -= 3 * wide;
        let len = ack_len(Some(PathId(u32::MAX)), VARINT_MAX, ranges.iter().cloned(), Some(ecn));
        assert!(len <= ack_len_max(count), "{len} bytes for {count} ranges");
    }
}

/// Values from which the tests below build frames.
#[derive(Debug, Clone)]
struct Parts {
    numbers: [u64; 4],
    path: u32,
    bytes: Vec<u8>,
    id: Vec<u8>,
    token: [u8; 16],
    ranges: Vec<RangeInclusive<u64>>,
    ecn: EcnCounts,
}

/// Numbers of every encoded length, with equal probability.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 2_u32..64).prop_map(|(raw, shift)| raw >> shift)
}

/// Ranges as an acknowledgement has them: descending and not adjacent.
fn ack_ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    (number(), vec((number(), number()), 1..20)).prop_map(|(largest, steps)| {
        let mut ranges = Vec::new();
        let mut end = largest;
        for (gap, len) in steps {
            let start = end.saturating_sub(len);
            ranges.push(start..=end);
            match start.checked_sub(gap + 2) {
                Some(next) => end = next,
                None => break,
            }
        }
        ranges
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let counts = [number(), number(), number()].prop_map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce });
    let numbers = [number(), number(), number(), number()];
    (numbers, any::<u32>(), vec(any::<u8>(), 0..80), vec(any::<u8>(), 1..=20), any::<[u8; 16]>(), ack_ranges(), counts)
        .prop_map(|(numbers, path, bytes, id, token, ranges, ecn)| Parts {
            numbers,
            path,
            bytes,
            id,
            token,
            ranges,
            ecn,
        })
}

/// Returns the four kinds of acknowledgement built from the parts, encoded.
fn acks(parts: &Parts) -> Vec<Vec<u8>> {
    let path = Some(PathId(parts.path));
    let ecn = Some(parts.ecn);
    let mut all = Vec::new();
    for (path, ecn) in [(None, None), (None, ecn), (path, None), (path, ecn)] {
        let mut out = Vec::new();
        emit_ack(path, parts.numbers[0], parts.ranges.iter().cloned(), ecn, &mut out);
        assert_eq!(out.len(), ack_len(path, parts.numbers[0], parts.ranges.iter().cloned(), ecn));
        assert!(out.len() <= ack_len_max(parts.ranges.len()));
        all.push(out);
    }
    all
}

/// Returns a frame of every type that [`Frame::emit`] writes, built from the parts.
fn frames<'a>(parts: &'a Parts, acks: &'a [Vec<u8>]) -> Vec<Frame<'a>> {
    let [a, b, c, d] = parts.numbers;
    let data = &parts.bytes[..];
    let id = StreamId::new(if a % 2 == 0 { Side::Client } else { Side::Server }, Dir::Uni, a >> 2);
    let end = VARINT_MAX - data.len() as u64;
    let path = PathId(parts.path);
    let eight = parts.token[..8].try_into().unwrap();
    let mut all = vec![
        Frame::Padding { len: 1 + data.len() },
        Frame::Ping,
        Frame::ResetStream { id, code: b, final_size: c },
        Frame::StopSending { id, code: b },
        Frame::Crypto { offset: b.min(end), data },
        Frame::NewToken { token: &parts.id },
        Frame::MaxData(a),
        Frame::MaxStreamData { id, max: b },
        Frame::DataBlocked(a),
        Frame::StreamDataBlocked { id, limit: b },
        Frame::PathChallenge(eight),
        Frame::PathResponse(eight),
        Frame::Close(Close { code: a, origin: CloseOrigin::Transport { frame_type: b }, reason: data }),
        Frame::Close(Close { code: a, origin: CloseOrigin::Application, reason: data }),
        Frame::HandshakeDone,
        Frame::Datagram { data },
        Frame::AckFrequency {
            sequence: a,
            ack_eliciting_threshold: b,
            requested_max_ack_delay: c % 16_384_000,
            reordering_threshold: d,
        },
        Frame::ImmediateAck,
        Frame::PathAbandon { path, code: a },
        Frame::MaxPathId(path),
        Frame::PathsBlocked(path),
        Frame::PathCidsBlocked { path, next_sequence: a },
    ];
    for offset in [0, b.min(end).max(1)] {
        all.extend([false, true].map(|fin| Frame::Stream(Stream { id, offset, fin, data })));
    }
    for dir in Dir::ALL {
        let count = c.min(StreamId::COUNT_MAX);
        all.extend([Frame::MaxStreams { dir, max: count }, Frame::StreamsBlocked { dir, limit: count }]);
    }
    for path in [None, Some(path)] {
        let (id, reset_token) = (cid(&parts.id), parts.token);
        all.push(Frame::NewConnectionId { path, sequence: a.max(b), retire_prior_to: a.min(b), id, reset_token });
        all.push(Frame::RetireConnectionId { path, sequence: a });
    }
    all.extend([true, false].map(|available| Frame::PathStatus { path, sequence: a, available }));
    all.extend(acks.iter().map(|bytes| parse(bytes).unwrap()));
    all
}

/// Parses all of `bytes` as frames, asserts that each parse consumes bytes, and returns the number
/// of frames before the end or an error.
fn read_all(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut count = 0;
    while !reader.is_empty() {
        let before = reader.position();
        let Ok(frame) = Frame::parse(&mut reader) else { break };
        assert!(reader.position() > before);
        if let Frame::Ack(ack) = frame {
            let ranges: Vec<_> = ack.ranges().collect();
            assert_eq!(ranges[0].end(), &ack.largest);
            assert!(ranges.iter().all(|range| range.start() <= range.end()));
            assert!(ranges.windows(2).all(|pair| pair[1].end() + 1 < *pair[0].start()));
        }
        // A parsed frame can be encoded, and parses to the same frame.
        let out = emitted(&frame);
        assert_eq!(out.len(), frame.encoded_len());
        assert_eq!(parse(&out), Ok(frame));
        count += 1;
    }
    count
}

#[test]
fn the_property_tests_cover_every_frame_type() {
    let parts = Parts {
        numbers: [1, 2, 3, 4],
        path: 1,
        bytes: vec![1],
        id: vec![1],
        token: [0; 16],
        ranges: vec![3..=4],
        ecn: EcnCounts::default(),
    };
    let acks = acks(&parts);
    let seen: BTreeSet<u64> = frames(&parts, &acks).iter().map(Frame::frame_type).collect();
    // `Frame::emit` always writes a length field; the types without one are only parsed.
    let written: BTreeSet<u64> = TYPES.into_iter().filter(|ty| ![0x08, 0x09, 0x0c, 0x0d, 0x30].contains(ty)).collect();
    assert_eq!(seen, written);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_frame_round_trips(parts in parts()) {
        let acks = acks(&parts);
        let all = frames(&parts, &acks);
        let mut packet = Vec::new();
        for frame in &all {
            let len = frame.encoded_len();
            let mut out = Vec::with_capacity(len);
            let place = out.as_ptr();
            frame.emit(&mut out);
            prop_assert_eq!(out.len(), len, "{:?}", frame);
            // The reserved capacity was sufficient: no reallocation.
            prop_assert_eq!(out.as_ptr(), place);
            prop_assert_eq!(Reader::new(&out).varint(), Ok(frame.frame_type()));
            prop_assert_eq!(parse(&out), Ok(*frame));
            packet.append(&mut out);
        }
        prop_assert_eq!(read_all(&packet), all.len());
    }

    #[test]
    fn a_truncated_frame_is_rejected(parts in parts()) {
        let acks = acks(&parts);
        for frame in frames(&parts, &acks) {
            let out = emitted(&frame);
            for cut in 0..out.len() {
                match parse(&out[..cut]) {
                    Err(error) => prop_assert_eq!(error.code, ErrorCode::FRAME_ENCODING_ERROR),
                    // A truncated run of padding is still a run of padding.
                    Ok(shorter) => prop_assert_eq!(shorter, Frame::Padding { len: cut }),
                }
            }
        }
    }

    #[test]
    fn acknowledged_ranges_round_trip(ranges in ack_ranges(), delay in number()) {
        let mut out = Vec::new();
        emit_ack(None, delay, ranges.iter().cloned(), None, &mut out);
        let Ok(Frame::Ack(ack)) = parse(&out) else { panic!("not an acknowledgement") };
        prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), ranges);
        prop_assert_eq!(ack.delay, delay);
    }

    #[test]
    fn hostile_payloads_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    /// An existing type followed by random bytes. This reaches far more fields than random bytes
    /// alone.
    #[test]
    fn hostile_frames_never_panic(ty in prop::sample::select(&TYPES[..]), bytes in vec(any::<u8>(), 0..100)) {
        let mut out = Vec::new();
        put_varint(&mut out, ty);
        out.extend_from_slice(&bytes);
        read_all(&out);
    }

    #[test]
    fn damaged_frames_never_panic(parts in parts(), at in any::<usize>(), mask in 1_u8..) {
        let acks = acks(&parts);
        for frame in frames(&parts, &acks) {
            let mut out = emitted(&frame);
            let at = at % out.len();
            out[at] ^= mask;
            read_all(&out);
        }
    }
}
