//! What a peer sees of streams at their end, and of acknowledgements. `docs/spec/requirements` names
//! the clauses.

use bytes::Bytes;
use quic::{Addresses, Chunk, Dir, ReadError, Side, StreamId, TransportConfig};
use units::{Duration, Ecn};
use wire::quic::{Frame, Space, Stream, emit_ack};

use super::{frames, is_acknowledged, ping};
use crate::support::hostile::{HOSTILE, Hostile, HostilePair, OpenedPacket, SealOverrides, payload};

fn against_server(config: TransportConfig) -> HostilePair {
    HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)))
}

fn open(pair: &mut HostilePair) -> StreamId {
    pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams")
}

fn write(pair: &mut HostilePair, id: StreamId, len: usize) {
    pair.victim.connection(0).write(id, Bytes::from(vec![7; len])).expect("the send buffer has space");
    pair.settle();
}

/// Everything is acknowledged until nothing is in flight.
fn acknowledge_all(pair: &mut HostilePair) {
    for _ in 0..20 {
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_millis(30));
    }
    let ack = pair.hostile.ack(Space::Data);
    pair.send(&ack);
    assert_eq!(pair.victim.connection(0).stats().in_flight_bytes, 0);
}

/// The frames that have arrived since `from` packets had, and that name a stream.
fn of_stream(pair: &HostilePair, from: usize, id: StreamId) -> Vec<String> {
    let frames = pair.hostile.opened[from..].iter().flat_map(OpenedPacket::frames);
    let names = |frame: &Frame<'_>| match *frame {
        Frame::Stream(Stream { id: named, .. })
        | Frame::ResetStream { id: named, .. }
        | Frame::StreamDataBlocked { id: named, .. }
        | Frame::MaxStreamData { id: named, .. }
        | Frame::StopSending { id: named, .. } => named == id,
        _ => false,
    };
    frames.filter(names).map(|frame| format!("{frame:?}")).collect()
}

/// Reads what is there; whether the stream has ended.
fn read_all(pair: &mut HostilePair, id: StreamId) -> Result<usize, ReadError> {
    let (now, mut count) = (pair.now, 0);
    loop {
        match pair.victim.connection(0).read(now, id, 1 << 20) {
            Ok(Chunk::Bytes(bytes)) => count += bytes.len(),
            Ok(Chunk::End) | Err(ReadError::Blocked) => break,
            Err(error) => return Err(error),
        }
    }
    pair.settle();
    Ok(count)
}

// ── Streams ──────────────────────────────────────────────────────────────────────────────────────

#[test]
fn nothing_is_sent_for_a_stream_whose_end_was_acknowledged() {
    // RFC 9000, section 3.3: the stream is in the state Data Recvd, or Reset Recvd.
    for is_reset in [false, true] {
        let mut pair = HostilePair::against_server();
        let id = open(&mut pair);
        write(&mut pair, id, 2_000);
        match is_reset {
            true => pair.victim.connection(0).reset(id, 5).expect("the stream is open"),
            false => pair.victim.connection(0).finish(id).expect("the stream is open"),
        }
        acknowledge_all(&mut pair);
        assert!(!of_stream(&pair, 0, id).is_empty());
        let before = pair.hostile.opened.len();
        pair.send(&payload(&[Frame::MaxStreamData { id, max: 1 << 30 }, Frame::MaxData(1 << 30)]));
        pair.send(&payload(&[Frame::StopSending { id, code: 9 }]));
        let _refused = pair.victim.connection(0).write(id, Bytes::from_static(b"more"));
        let _refused = pair.victim.connection(0).reset(id, 6);
        pair.wait(Duration::from_secs(5));
        pair.assert_alive("frames for a stream that has ended");
        assert_eq!(of_stream(&pair, before, id), [""; 0], "reset: {is_reset}");
    }
}

#[test]
fn no_data_follow_the_final_size() {
    // RFC 9000, section 4.5.
    let mut pair = HostilePair::against_server();
    let id = open(&mut pair);
    write(&mut pair, id, 2_000);
    pair.victim.connection(0).finish(id).expect("the stream is open");
    assert!(pair.victim.connection(0).write(id, Bytes::from_static(b"more")).is_err());
    // All of it is lost, and sent again.
    pair.wait(Duration::from_secs(5));
    let ends = frames(&pair).filter_map(|frame| match frame {
        Frame::Stream(Stream { offset, data, fin, .. }) => Some((offset + data.len() as u64, fin)),
        _ => None,
    });
    let ends: Vec<(u64, bool)> = ends.collect();
    assert!(ends.len() > 1 && ends.iter().all(|(end, fin)| *end == 2_000 || !fin && *end < 2_000), "{ends:?}");
}

/// Whatever the victim sends is lost, but for packets of another stream.
fn lose(pair: &mut HostilePair, other: StreamId) {
    let is_received = |packet: &&OpenedPacket| {
        let frames = packet.frames();
        let has_reset = frames.iter().any(|frame| matches!(frame, Frame::ResetStream { .. }));
        !has_reset && frames.iter().any(Frame::is_ack_eliciting)
    };
    for _ in 0..12 {
        write(pair, other, 100);
        pair.wait(Duration::from_millis(50));
        let newest = pair.hostile.opened.iter().rev().find(is_received).expect("data").number;
        let mut ack = Vec::new();
        emit_ack(None, 0, std::iter::once(newest..=newest), None, &mut ack);
        pair.send(&ack);
    }
}

#[test]
fn a_lost_reset_is_repeated_as_it_was() {
    // RFC 9000, section 13.3.
    let mut pair = HostilePair::against_server();
    let [id, other] = [open(&mut pair), open(&mut pair)];
    write(&mut pair, id, 100_000);
    pair.victim.connection(0).reset(id, 5).expect("the stream is open");
    pair.settle();
    lose(&mut pair, other);
    // What could change it: credit, another code of the application, and a request of the peer.
    pair.send(&payload(&[Frame::MaxStreamData { id, max: 1 << 30 }, Frame::MaxData(1 << 30)]));
    let _refused = pair.victim.connection(0).reset(id, 6);
    lose(&mut pair, other);
    pair.send(&payload(&[Frame::StopSending { id, code: 9 }]));
    lose(&mut pair, other);
    let resets = frames(&pair).filter_map(|frame| match frame {
        Frame::ResetStream { id: named, code, final_size } if named == id => Some((code, final_size)),
        _ => None,
    });
    let resets: Vec<(u64, u64)> = resets.collect();
    assert!(resets.len() > 2 && resets.iter().all(|reset| *reset == resets[0]), "{resets:?}");
    assert_eq!(resets[0].0, 5);
}

#[test]
fn only_the_application_resets_a_stream() {
    // RFC 9000, section 11.2.
    let mut pair = HostilePair::against_server();
    let ours = open(&mut pair);
    write(&mut pair, ours, 5_000);
    let theirs = [0, 1].map(|index| StreamId::new(Side::Client, Dir::Bi, index));
    for id in theirs {
        pair.send(&payload(&[Frame::Stream(Stream { id, offset: 0, fin: false, data: b"hello" })]));
        assert_eq!(pair.victim.connection(0).accept(Dir::Bi), Some(id));
        write(&mut pair, id, 5_000);
    }
    // One direction of the first ends by the peer's reset, of the second by the application's stop.
    pair.send(&payload(&[Frame::ResetStream { id: theirs[0], code: 1, final_size: 5 }]));
    assert_eq!(read_all(&mut pair, theirs[0]), Err(ReadError::Reset(1)));
    let now = pair.now;
    pair.victim.connection(0).stop(now, theirs[1], 2).expect("the stream is open");
    pair.settle();
    // All that was sent so far is lost.
    pair.wait(Duration::from_secs(5));
    acknowledge_all(&mut pair);
    assert!(!pair.hostile.has_received(|frame| matches!(frame, Frame::ResetStream { .. })));
    pair.victim.connection(0).reset(ours, 3).expect("the stream is open");
    pair.settle();
    let is_reset = |frame: &Frame<'_>| matches!(frame, Frame::ResetStream { id, code: 3, .. } if *id == ours);
    assert!(pair.hostile.has_received(is_reset));
}

#[test]
fn more_streams_are_allowed_without_being_asked_for() {
    // RFC 9000, section 4.6.
    let config = TransportConfig::default();
    let limit = config.max_concurrent_uni_streams;
    let mut pair = against_server(config);
    for index in 0..limit {
        let id = StreamId::new(Side::Client, Dir::Uni, index);
        pair.send_and_ack(&payload(&[Frame::Stream(Stream { id, offset: 0, fin: true, data: b"x" })]));
        assert_eq!(pair.victim.connection(0).accept(Dir::Uni), Some(id));
        assert_eq!(read_all(&mut pair, id), Ok(1));
    }
    pair.wait(Duration::from_secs(1));
    let is_more = |frame: &Frame<'_>| matches!(frame, Frame::MaxStreams { dir: Dir::Uni, max } if *max > limit);
    assert!(pair.hostile.has_received(is_more));
}

#[test]
fn a_stream_whose_size_is_known_gets_no_credit_and_a_reset_one_no_stop() {
    // RFC 9000, sections 13.3 and 3.5. The window is full with each 10_000 bytes.
    for fin in [false, true] {
        let mut pair = against_server(TransportConfig::default().with_stream_window(10_000));
        let id = StreamId::new(Side::Client, Dir::Uni, 0);
        for offset in (0..10_000).step_by(1_000) {
            let stream = Stream { id, offset, fin: fin && offset == 9_000, data: &[7; 1_000] };
            pair.send_and_ack(&payload(&[Frame::Stream(stream)]));
        }
        assert_eq!(pair.victim.connection(0).accept(Dir::Uni), Some(id));
        assert_eq!(read_all(&mut pair, id), Ok(10_000));
        pair.wait(Duration::from_secs(3));
        let is_credit = |frame: &Frame<'_>| matches!(frame, Frame::MaxStreamData { .. });
        assert_eq!(pair.hostile.has_received(is_credit), !fin);
    }
    for is_reset in [false, true] {
        let mut pair = HostilePair::against_server();
        let id = StreamId::new(Side::Client, Dir::Uni, 0);
        pair.send(&payload(&[Frame::Stream(Stream { id, offset: 0, fin: false, data: b"hello" })]));
        assert_eq!(pair.victim.connection(0).accept(Dir::Uni), Some(id));
        if is_reset {
            pair.send(&payload(&[Frame::ResetStream { id, code: 1, final_size: 5 }]));
        }
        let now = pair.now;
        let _may_be_over = pair.victim.connection(0).stop(now, id, 2);
        pair.wait(Duration::from_secs(3));
        let is_stop = |frame: &Frame<'_>| matches!(frame, Frame::StopSending { .. });
        assert_eq!(pair.hostile.has_received(is_stop), !is_reset);
    }
}

// ── Acknowledgements ─────────────────────────────────────────────────────────────────────────────

#[test]
fn an_acknowledgement_leaves_with_data() {
    // RFC 9000, sections 13.2 and 13.2.1.
    let mut pair = HostilePair::against_server();
    acknowledge_all(&mut pair);
    let number = pair.hostile.next_number[Space::Data.index()];
    pair.send(&ping());
    assert!(!is_acknowledged(&pair, Space::Data, number), "it waits for max_ack_delay");
    let id = open(&mut pair);
    write(&mut pair, id, 500);
    assert!(is_acknowledged(&pair, Space::Data, number), "the data leave at once, and take it along");
}

#[test]
fn a_packet_that_met_congestion_is_acknowledged_at_once() {
    // RFC 9000, section 13.2.1.
    for (mark, at_once) in [(Ecn::Ect0, false), (Ecn::Ce, true)] {
        let mut pair = HostilePair::against_server();
        acknowledge_all(&mut pair);
        let number = pair.hostile.next_number[Space::Data.index()];
        let packet = pair.hostile.packet(Space::Data, &ping());
        pair.victim.receive_on(pair.now, &packet, Some(mark), Addresses::of(HOSTILE));
        pair.settle();
        assert_eq!(is_acknowledged(&pair, Space::Data, number), at_once, "{mark:?}");
    }
}

/// The delay of the newest acknowledgement. The exponent is the default one.
fn reported_delay(pair: &HostilePair) -> Duration {
    let delays = frames(pair).filter_map(|frame| if let Frame::Ack(ack) = frame { Some(ack.delay) } else { None });
    Duration::from_micros(delays.last().expect("an acknowledgement") << 3)
}

#[test]
fn the_reported_delay_is_the_time_that_the_acknowledgement_has_waited() {
    // RFC 9000, section 13.2.5: no more than that, and if it is longer than max_ack_delay, no less.
    let mut pair = HostilePair::against_server();
    acknowledge_all(&mut pair);
    let wait = |pair: &mut HostilePair, millis| pair.wait(Duration::from_millis(millis));
    wait(&mut pair, 500);
    pair.send(&ping());
    wait(&mut pair, 7);
    pair.send(&ping());
    pair.send(&ping());
    assert_eq!(reported_delay(&pair), Duration::ZERO, "of the largest number");
    wait(&mut pair, 500);
    pair.send(&ping());
    wait(&mut pair, 25);
    assert_eq!(reported_delay(&pair), Duration::from_millis(25), "max_ack_delay");
    // The socket is full for longer than that.
    wait(&mut pair, 500);
    pair.send(&ping());
    pair.victim.full.push(0);
    wait(&mut pair, 80);
    pair.victim.full.clear();
    pair.settle();
    assert_eq!(reported_delay(&pair), Duration::from_millis(80));
}

#[test]
fn the_largest_number_outlives_its_range() {
    // RFC 9000, section 13.2.3: the ranges are dropped once their acknowledgement is acknowledged.
    let mut pair = HostilePair::against_server();
    let id = open(&mut pair);
    let send = |pair: &mut HostilePair, number: u64, body: &[u8]| {
        let odd = SealOverrides { number: Some(number), ..SealOverrides::default() };
        let packet = pair.hostile.packet_with(Space::Data, body, odd);
        let before = pair.victim.connection(0).stats().receive.packets_received;
        pair.deliver(&packet);
        pair.victim.connection(0).stats().receive.packets_received - before
    };
    // Four bytes of a number say less than these: the receiver must know the largest so far.
    for number in [1_u64 << 31, (1 << 32) - 5, (1 << 32) + 70, (1 << 32) + 80] {
        assert_eq!(send(&mut pair, number, &ping()), 1, "{number}");
        write(&mut pair, id, 100);
        assert!(is_acknowledged(&pair, Space::Data, number), "the acknowledgement leaves with data: {number}");
        // A late packet acknowledges the data, so that no range is left.
        let ack = pair.hostile.ack(Space::Data);
        assert_eq!(send(&mut pair, number - 1, &ack), 1, "{number}");
        assert_eq!(send(&mut pair, number, &ping()), 0, "too old to be known: {number}");
    }
}
