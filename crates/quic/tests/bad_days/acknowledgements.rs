//! A peer that acknowledges what was never sent, and one that acknowledges next to nothing.

use bytes::Bytes;
use quic::{Dir, ErrorCode, StreamId};
use units::Duration;
use wire::quic::{Frame, Space, emit_ack};

use crate::held::Meter;
use crate::support::hostile::{Duel, payload};

/// Between two words of the peer.
const ROUND: Duration = Duration::from_millis(20);

const MIB: usize = 1 << 20;

/// The peer acknowledges these numbers.
fn ack(numbers: impl Iterator<Item = std::ops::RangeInclusive<u64>> + Clone) -> Vec<u8> {
    let mut out = Vec::new();
    emit_ack(None, 0, numbers, None, &mut out);
    out
}

/// A victim with a stream to the peer, and credit without end.
fn writing(mut duel: Duel) -> (Duel, StreamId) {
    let stream = duel.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    duel.say_and_ack(&payload(&[Frame::MaxData(1 << 50), Frame::MaxStreamData { id: stream, max: 1 << 50 }]));
    (duel, stream)
}

/// The victim writes as much as it may, and again as soon as there is room.
fn write_all(duel: &mut Duel, stream: StreamId) {
    for _ in 0..10 {
        duel.wait(ROUND.mul_ratio(1, 10));
        fill(duel, stream);
    }
}

fn fill(duel: &mut Duel, stream: StreamId) {
    while duel.victim.connection(0).write(stream, Bytes::from_static(&[5; 64 << 10])).is_ok() {}
}

/// The largest number of the victim's packets that the peer has received, if any since it last forgot.
fn largest(duel: &Duel) -> Option<u64> {
    duel.hostile.heard.iter().filter(|heard| heard.space == Space::Data).map(|heard| heard.number).max()
}

/// The peer acknowledges everything it has received, and then forgets it.
fn acknowledge_all(duel: &mut Duel) {
    let mut body = duel.hostile.ack(Space::Data);
    body.extend(payload(&[Frame::Ping]));
    // Before it speaks: what is said in answer counts for the next time.
    duel.hostile.forget();
    duel.say(&body);
}

/// Acknowledges everything until the victim has used this many numbers; returns the largest.
fn grow(duel: &mut Duel, stream: StreamId, numbers: u64) -> u64 {
    let mut reached = 0;
    while reached < numbers {
        write_all(duel, stream);
        reached = reached.max(largest(duel).unwrap_or(0));
        acknowledge_all(duel);
        assert!(duel.victim_lives());
    }
    reached
}

#[test]
fn the_number_after_the_last_one_may_not_be_acknowledged() {
    for make in [Duel::against_server as fn() -> Duel, Duel::against_client] {
        let (mut duel, stream) = writing(make());
        grow(&mut duel, stream, 100);
        write_all(&mut duel, stream);
        duel.say(&payload(&[Frame::Ping]));
        duel.wait(ROUND * 5);
        let last = largest(&duel).expect("it sent more");
        duel.say(&ack(std::iter::once(last..=last)));
        duel.assert_alive("the last number");
        // What the victim says in answer has a number too.
        let last = largest(&duel).expect("it was there before");
        duel.say(&ack(std::iter::once(last + 1..=last + 1)));
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "the number after the last one");
    }
}

/// A peer that wants to be sent to faster than its link carries acknowledges packets before they arrive (RFC 9000, section
/// 21.4). It cannot know which numbers were never used.
#[test]
fn an_optimist_is_caught_by_a_number_that_was_left_out() {
    let (mut duel, stream) = writing(Duel::against_server());
    let mut acknowledged = 0;
    while duel.victim_lives() && acknowledged < 30_000 {
        write_all(&mut duel, stream);
        if let Some(last) = largest(&duel) {
            acknowledged = last;
            duel.say(&ack(std::iter::once(0..=last)));
        }
        duel.hostile.heard.retain(|heard| heard.space != Space::Data || heard.number > acknowledged);
    }
    // One number in some 4096 is left out.
    assert!((1_000..20_000).contains(&acknowledged), "caught after {acknowledged} packets");
    duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an optimist");
}

/// What a run of silence by design leaves behind.
struct Outcome {
    /// Bytes of the window that the peer had earned before.
    window: u64,
    sent: u64,
    acknowledged: u64,
    lost: u64,
    memory_most: usize,
    in_flight_most: u64,
}

/// The peer lets the window grow, then acknowledges one packet with data in a thousand for `rounds`; `together` repeats all
/// of them each time, as one who remembers would.
fn one_in_a_thousand(duel: &mut Duel, stream: StreamId, rounds: u32, together: bool) -> Outcome {
    grow(duel, stream, 30_000);
    let before = duel.victim.connection(0).stats();
    duel.hostile.forget();
    let mut meter = Meter::start();
    let (mut chosen, mut counted, mut in_flight_most) = (Vec::new(), 0, 0);
    for _ in 0..rounds {
        write_all(duel, stream);
        for heard in &duel.hostile.heard {
            if heard.frames().iter().any(|frame| matches!(frame, Frame::Stream(_))) {
                counted += 1;
                chosen.extend((counted % 1_000 == 0).then_some(heard.number));
            }
        }
        let mut body = payload(&[Frame::Ping]);
        let told = if together { chosen.len().min(200) } else { chosen.len().min(1) };
        if told > 0 {
            body.extend(ack(chosen.iter().rev().take(told).map(|number| *number..=*number)));
        }
        duel.hostile.forget();
        // Now all that is held is the victim's.
        meter.look();
        duel.say(&body);
        assert!(duel.victim_lives(), "{:?}", duel.victim.events);
        duel.victim.events.iter_mut().for_each(|events| events.clear());
        in_flight_most = in_flight_most.max(duel.victim.connection(0).stats().in_flight_bytes);
    }
    let after = duel.victim.connection(0).stats();
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
fn a_peer_that_acknowledges_one_packet_in_a_thousand_costs_little_and_harms_only_itself() {
    for together in [false, true] {
        let (mut duel, stream) = writing(Duel::against_server());
        // Ten minutes.
        let outcome = one_in_a_thousand(&mut duel, stream, 30_000, together);
        let Outcome { window, sent, acknowledged, lost, memory_most, in_flight_most } = outcome;
        // It did what it is accused of, and saw its window close for it.
        assert!(acknowledged > 0 && acknowledged * 200 < sent, "{acknowledged} of {sent} were acknowledged");
        assert!(lost > 1_000, "{lost}");
        // Half the window each time, so twice the window in all; and answers to a PING each round.
        let most = 4 * window / 1_200 + 30_000;
        assert!(sent < most, "{sent} packets in ten minutes for a window of {window} bytes");
        assert!(in_flight_most <= window + MIB as u64, "{in_flight_most} bytes in flight, {window} in the window");
        assert!(memory_most < 4 * MIB, "{memory_most} bytes");

        // Once it behaves, the next probe finds out, a minute later at most, and all is well.
        let before = duel.victim.connection(0).stats().send.packets_acked;
        let mut served = 0;
        for _ in 0..4_000 {
            write_all(&mut duel, stream);
            acknowledge_all(&mut duel);
            served = duel.victim.connection(0).stats().send.packets_acked - before;
            if served > 5_000 {
                break;
            }
        }
        duel.assert_alive("a peer that has changed its ways");
        assert!(served > 5_000, "{served} packets in 80 seconds");
    }
}

/// Small packets are remembered one by one, and a window of 49 MB holds more of them than anybody wants to remember.
#[test]
fn small_packets_that_nobody_acknowledges_are_remembered_up_to_a_bound() {
    /// The sent log's bound (`send/sent_log.rs`).
    const RUNS_MAX: u64 = 16_384;
    const WRITES: u64 = 20_000;
    let (mut duel, stream) = writing(Duel::against_server());
    grow(&mut duel, stream, 30_000);
    // Everything comes to rest; then each packet carries one byte.
    for _ in 0..10 {
        acknowledge_all(&mut duel);
        duel.wait(ROUND * 5);
    }
    acknowledge_all(&mut duel);
    let small = duel.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    duel.say(&payload(&[Frame::MaxStreamData { id: small, max: 1 << 50 }]));
    assert!(duel.victim.connection(0).stats().congestion.window > 30 * WRITES * 2);
    let mut meter = Meter::start();
    for _ in 0..WRITES {
        duel.victim.connection(0).write(small, Bytes::from_static(b"x")).expect("room");
        duel.say(&payload(&[Frame::Ping]));
    }
    let carried = |duel: &Duel| -> (u64, u64) {
        let frames = duel.hostile.heard.iter().flat_map(|heard| heard.frames());
        let lens = frames.filter_map(|frame| match frame {
            Frame::Stream(frame) if frame.id == small => Some(frame.data.len() as u64),
            _ => None,
        });
        lens.fold((0, 0), |(count, sum), len| (count + 1, sum + len))
    };
    let (packets, _) = carried(&duel);
    assert!((RUNS_MAX - 100..=RUNS_MAX).contains(&packets), "{packets} packets wait for an answer");
    // The peer, which is in the same process, remembers every packet too.
    let held = meter.look();
    assert!(held < 16 * MIB, "{held} bytes for {packets} packets");
    // Every one of them is there after all.
    for _ in 0..10 {
        duel.say_and_ack(&payload(&[Frame::Ping]));
        duel.wait(ROUND);
    }
    assert_eq!(carried(&duel).1, WRITES, "each byte came once");
    duel.assert_alive("an answer that came late");
}
