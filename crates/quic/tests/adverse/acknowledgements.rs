//! A peer that acknowledges packets that were never sent, and a peer that acknowledges almost none.

use bytes::Bytes;
use quic::{Dir, ErrorCode, StreamId};
use units::Duration;
use wire::quic::{Frame, Space, emit_ack};

use super::heap_meter::Meter;
use crate::support::hostile::{HostilePair, payload};

/// The interval between two packets of the peer.
const ROUND: Duration = Duration::from_millis(20);

const MIB: usize = 1 << 20;

/// An ACK frame for these packet numbers.
fn ack(numbers: impl Iterator<Item = std::ops::RangeInclusive<u64>> + Clone) -> Vec<u8> {
    let mut out = Vec::new();
    emit_ack(None, 0, numbers, None, &mut out);
    out
}

/// A victim with a stream to the peer, and unlimited credit.
fn writing(mut pair: HostilePair) -> (HostilePair, StreamId) {
    let stream = pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.send_and_ack(&payload(&[Frame::MaxData(1 << 50), Frame::MaxStreamData { id: stream, max: 1 << 50 }]));
    (pair, stream)
}

/// The victim writes until it is blocked, and again as soon as it is writable.
fn write_all(pair: &mut HostilePair, stream: StreamId) {
    for _ in 0..10 {
        pair.wait(ROUND.mul_ratio(1, 10));
        fill(pair, stream);
    }
}

fn fill(pair: &mut HostilePair, stream: StreamId) {
    while pair.victim.connection(0).write(stream, Bytes::from_static(&[5; 64 << 10])).is_ok() {}
}

/// The largest packet number of the victim's that the peer has received, if any since `forget`.
fn largest(pair: &HostilePair) -> Option<u64> {
    pair.hostile.opened.iter().filter(|packet| packet.space == Space::Data).map(|packet| packet.number).max()
}

/// The peer acknowledges everything it has received, and then forgets it.
fn acknowledge_all(pair: &mut HostilePair) {
    let mut body = pair.hostile.ack(Space::Data);
    body.extend(payload(&[Frame::Ping]));
    // Forgotten before sending: packets received in response belong to the next round.
    pair.hostile.forget();
    pair.send(&body);
}

/// Acknowledges everything until the victim has used this many packet numbers; returns the largest.
fn grow(pair: &mut HostilePair, stream: StreamId, numbers: u64) -> u64 {
    let mut reached = 0;
    while reached < numbers {
        write_all(pair, stream);
        reached = reached.max(largest(pair).unwrap_or(0));
        acknowledge_all(pair);
        assert!(pair.victim_is_alive());
    }
    reached
}

#[test]
fn acknowledging_the_next_unused_number_closes_the_connection() {
    for make in [HostilePair::against_server as fn() -> HostilePair, HostilePair::against_client] {
        let (mut pair, stream) = writing(make());
        grow(&mut pair, stream, 100);
        write_all(&mut pair, stream);
        pair.send(&payload(&[Frame::Ping]));
        pair.wait(ROUND * 5);
        let last = largest(&pair).expect("the victim sent more");
        pair.send(&ack(std::iter::once(last..=last)));
        pair.assert_alive("the last number");
        // The victim's response uses a packet number too.
        let last = largest(&pair).expect("the number was in use before");
        pair.send(&ack(std::iter::once(last + 1..=last + 1)));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "the number after the last one");
    }
}

/// A peer that acknowledges packets before they arrive, to make the victim send faster than the
/// link carries (RFC 9000, section 21.4: optimistic ACK). It does not know which packet numbers the
/// victim skipped.
#[test]
fn an_optimistic_acknowledgement_of_a_skipped_number_closes_the_connection() {
    let (mut pair, stream) = writing(HostilePair::against_server());
    let mut acknowledged = 0;
    while pair.victim_is_alive() && acknowledged < 30_000 {
        write_all(&mut pair, stream);
        if let Some(last) = largest(&pair) {
            acknowledged = last;
            pair.send(&ack(std::iter::once(0..=last)));
        }
        pair.hostile.opened.retain(|packet| packet.space != Space::Data || packet.number > acknowledged);
    }
    // The victim skips about one number in 4096.
    assert!((1_000..20_000).contains(&acknowledged), "caught after {acknowledged} packets");
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an optimistic receiver");
}

/// The result of a run with a peer that withholds acknowledgements.
struct Outcome {
    /// The congestion window, in bytes, reached before.
    window: u64,
    sent: u64,
    acknowledged: u64,
    lost: u64,
    memory_most: usize,
    in_flight_most: u64,
}

/// The peer lets the window grow, then acknowledges one data packet in a thousand for `rounds`
/// rounds. With `together`, each acknowledgement repeats all earlier ranges.
fn one_in_a_thousand(pair: &mut HostilePair, stream: StreamId, rounds: u32, together: bool) -> Outcome {
    grow(pair, stream, 30_000);
    let before = pair.victim.connection(0).stats();
    pair.hostile.forget();
    let mut meter = Meter::start();
    let (mut chosen, mut counted, mut in_flight_most) = (Vec::new(), 0, 0);
    for _ in 0..rounds {
        write_all(pair, stream);
        for packet in &pair.hostile.opened {
            if packet.frames().iter().any(|frame| matches!(frame, Frame::Stream(_))) {
                counted += 1;
                chosen.extend((counted % 1_000 == 0).then_some(packet.number));
            }
        }
        let mut body = payload(&[Frame::Ping]);
        let count = if together { chosen.len().min(200) } else { chosen.len().min(1) };
        if count > 0 {
            body.extend(ack(chosen.iter().rev().take(count).map(|number| *number..=*number)));
        }
        pair.hostile.forget();
        // From here on all memory held is the victim's.
        meter.look();
        pair.send(&body);
        assert!(pair.victim_is_alive(), "{:?}", pair.victim.events);
        pair.victim.events.iter_mut().for_each(|events| events.clear());
        in_flight_most = in_flight_most.max(pair.victim.connection(0).stats().in_flight_bytes);
    }
    let after = pair.victim.connection(0).stats();
    Outcome {
        window: before.congestion.window,
        sent: after.send.packets_sent - before.send.packets_sent,
        acknowledged: after.send.packets_acked - before.send.packets_acked,
        lost: after.send.packets_lost - before.send.packets_lost,
        memory_most: meter.most(),
        in_flight_most,
    }
}

#[test]
fn a_peer_that_acknowledges_one_packet_in_a_thousand_slows_only_itself() {
    for together in [false, true] {
        let (mut pair, stream) = writing(HostilePair::against_server());
        // Ten minutes.
        let outcome = one_in_a_thousand(&mut pair, stream, 30_000, together);
        let Outcome { window, sent, acknowledged, lost, memory_most, in_flight_most } = outcome;
        // The peer behaved as described, and the window closed as a result.
        assert!(acknowledged > 0 && acknowledged * 200 < sent, "{acknowledged} of {sent} were acknowledged");
        assert!(lost > 1_000, "{lost}");
        // The window halves each time, so two windows in total, and acknowledgements of a PING in
        // each round.
        let most = 4 * window / 1_200 + 30_000;
        assert!(sent < most, "{sent} packets in ten minutes for a window of {window} bytes");
        assert!(in_flight_most <= window + MIB as u64, "{in_flight_most} bytes in flight, {window} in the window");
        assert!(memory_most < 4 * MIB, "{memory_most} bytes");

        // Once the peer acknowledges normally, the next probe, at most a minute later, restores the
        // connection.
        let before = pair.victim.connection(0).stats().send.packets_acked;
        let mut served = 0;
        for _ in 0..4_000 {
            write_all(&mut pair, stream);
            acknowledge_all(&mut pair);
            served = pair.victim.connection(0).stats().send.packets_acked - before;
            if served > 5_000 {
                break;
            }
        }
        pair.assert_alive("a peer that acknowledges normally again");
        assert!(served > 5_000, "{served} packets in 80 seconds");
    }
}

/// Small packets are logged one by one, and a window of 49 MB holds more of them than the log may
/// hold.
#[test]
fn unacknowledged_small_packets_are_logged_up_to_a_bound() {
    /// The bound of the sent log (`send/sent_log.rs`).
    const RUNS_MAX: u64 = 16_384;
    const WRITES: u64 = 20_000;
    let (mut pair, stream) = writing(HostilePair::against_server());
    grow(&mut pair, stream, 30_000);
    // Wait until nothing is in flight; then each packet carries one byte.
    for _ in 0..10 {
        acknowledge_all(&mut pair);
        pair.wait(ROUND * 5);
    }
    acknowledge_all(&mut pair);
    let small = pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.send(&payload(&[Frame::MaxStreamData { id: small, max: 1 << 50 }]));
    assert!(pair.victim.connection(0).stats().congestion.window > 30 * WRITES * 2);
    let mut meter = Meter::start();
    for _ in 0..WRITES {
        pair.victim.connection(0).write(small, Bytes::from_static(b"x")).expect("the send buffer has space");
        pair.send(&payload(&[Frame::Ping]));
    }
    let carried = |pair: &HostilePair| -> (u64, u64) {
        let frames = pair.hostile.opened.iter().flat_map(|packet| packet.frames());
        let lens = frames.filter_map(|frame| match frame {
            Frame::Stream(frame) if frame.id == small => Some(frame.data.len() as u64),
            _ => None,
        });
        lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len))
    };
    let (packets, _) = carried(&pair);
    assert!((RUNS_MAX - 100..=RUNS_MAX).contains(&packets), "{packets} packets wait for an acknowledgement");
    // The peer runs in the same process and holds every packet too.
    let held = meter.look();
    assert!(held < 16 * MIB, "{held} bytes for {packets} packets");
    // All bytes arrive in the end.
    for _ in 0..10 {
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(ROUND);
    }
    assert_eq!(carried(&pair).1, WRITES, "each byte arrived once");
    pair.assert_alive("late acknowledgements");
}
