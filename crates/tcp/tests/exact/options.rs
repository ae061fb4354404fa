//! Timestamps (RFC 7323), selective acknowledgements (RFC 2018, RFC 2883), congestion marks (RFC 3168).

use tcp::TcpConfig;
use units::{Duration, Ecn};
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Segment, Sent, offer};

fn stamped() -> Peer {
    Peer::opens(&TcpConfig::default(), Options { timestamps: Some(Timestamps::default()), ..offer() })
}

/// Advances the peer's clock.
fn tick(peer: &mut Peer) {
    peer.now += Duration::from_millis(7);
}

fn echo_of(sent: &[Sent]) -> u32 {
    sent.last().and_then(|sent| sent.options.timestamps).expect("a timestamp").echo
}

#[test]
fn a_reset_has_the_timestamp_of_its_time() {
    let mut peer = stamped();
    peer.send_data(100);
    let before = peer.pass(Duration::from_millis(100)).last().and_then(|sent| sent.options.timestamps);
    peer.pass(Duration::from_secs(1));
    peer.connection.abort();
    let sent = peer.sent();
    assert!(sent.len() == 1 && sent[0].has(Flags::RST | Flags::ACK), "{sent:?}");
    let (before, stamps) = (before.expect("a timestamp"), sent[0].options.timestamps.expect("RFC 7323, section 3.2"));
    assert_eq!(stamps.echo, before.echo);
    assert!((1000..1200).contains(&stamps.value.wrapping_sub(before.value)), "{before:?} {stamps:?}");
}

/// Returns the blocks of a segment, counted from the peer's initial number.
fn blocks_of(sent: &[Sent]) -> Vec<(u32, u32)> {
    let from = |number: units::Seq32| number.get().wrapping_sub(PEER_INITIAL);
    sent.last().expect("a segment").options.sack.iter().map(|(start, end)| (from(start), from(end))).collect()
}

#[test]
fn a_delayed_acknowledgement_echoes_the_first_segment() {
    let mut peer = stamped();
    let first = peer.clock();
    peer.send_data(100);
    tick(&mut peer);
    peer.send_data(100);
    tick(&mut peer);
    let sent = peer.pass(Duration::from_millis(100));
    assert_eq!(echo_of(&sent), first, "RFC 7323, section 4.3, case A");
}

#[test]
fn a_hole_echoes_what_came_before_it_and_its_filling_itself() {
    let mut peer = stamped();
    let first = peer.clock();
    peer.send_data(1000);
    peer.pass(Duration::from_millis(100));
    peer.send(peer.segment().seq(2001).len(1000));
    assert_eq!(echo_of(&peer.sent()), first, "case B");
    tick(&mut peer);
    let filling = peer.clock();
    peer.send(peer.segment().len(1000));
    assert_eq!(echo_of(&peer.sent()), filling, "case C");
}

#[test]
fn old_timestamps_are_answered_and_dropped_also_when_the_clock_wraps() {
    let mut peer = stamped();
    let now = peer.clock();
    // Step by step over the wrap.
    let mut value = now;
    for _ in 0..5 {
        value = value.wrapping_add(1 << 30);
        peer.send(peer.segment().stamp(value, 0).len(10));
        peer.nxt += 10;
        assert_eq!(peer.read().len(), 10, "{value}");
        peer.pass(Duration::from_millis(50));
    }
    peer.send(peer.segment().stamp(value.wrapping_sub(2), 0).len(10));
    let answer = peer.sent();
    assert!(answer.len() == 1 && answer[0].ack == peer.nxt, "RFC 7323, section 5.3, R1: {answer:?}");
    assert_eq!((peer.read().len(), peer.connection.stats().receive.dropped_by_paws), (0, 1));
    // A segment without data needs no answer, but is counted, too.
    peer.send(peer.segment().stamp(value.wrapping_sub(2), 0));
    assert_eq!(peer.connection.stats().receive.dropped_by_paws, 2);
    peer.sent();
    // The same timestamp is not old, nor that of the tick before. Nor is any after 24 days of
    // silence.
    for value in [value, value.wrapping_sub(1)] {
        peer.send(peer.segment().stamp(value, 0).len(10));
        peer.nxt += 10;
        assert_eq!(peer.read().len(), 10);
        peer.sent();
    }
    peer.now += Duration::from_secs(25 * 24 * 3600);
    peer.send(peer.segment().stamp(value.wrapping_sub(1000), 0).len(10));
    assert_eq!(peer.read().len(), 10, "section 5.5");
    assert_eq!(peer.connection.stats().receive.dropped_by_paws, 2, "no other segment was dropped");
}

/// RFC 7323, section 3.2, says that they should be dropped. Linux accepts them, and a path that
/// removes options must not stop a connection without a message.
#[test]
fn segments_without_timestamps_are_taken_in_all_states() {
    let mut peer = stamped();
    peer.echo = None;
    peer.write(3000);
    peer.receive();
    peer.send(peer.segment().len(10));
    peer.nxt += 10;
    assert_eq!((peer.read().len(), peer.connection.buffered()), (10, 0));
    peer.assert_works();
    peer.send(peer.segment().flags(Flags::RST));
    assert_eq!(peer.connection.close_reason(), Some(tcp::CloseReason::Reset));
    // The last segment of a handshake, and all of the connection.
    let options = Options { timestamps: Some(Timestamps::default()), ..offer() };
    let mut peer = Peer::sends_syn(&TcpConfig::default(), options, Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.echo = None;
    peer.send_ack();
    assert_eq!(peer.connection.state(), tcp::State::Established);
    peer.assert_works();
}

/// Some hosts send a timestamp of zero in their SYN, and start their clock anywhere after that.
#[test]
fn a_timestamp_of_zero_in_a_syn_makes_nothing_look_old() {
    for value in [1, 1 << 31, u32::MAX - 5] {
        let options = Options { timestamps: Some(Timestamps::default()), ..offer() };
        let mut peer = Peer::awaits(&TcpConfig::default());
        let ours = peer.receive()[0].options.timestamps.expect("timestamps").value;
        let answer = Segment { options, ..peer.segment().flags(Flags::SYN | Flags::ACK).ack(1) };
        peer.send(answer);
        peer.nxt = 1;
        peer.expected = 1;
        peer.sent();
        for step in 0..3 {
            peer.send(peer.segment().stamp(value.wrapping_add(step), ours).len(10));
            peer.nxt += 10;
            assert_eq!(peer.read().len(), 10, "{value}");
            peer.pass(Duration::from_millis(50));
        }
        // Then it is a clock like any other.
        peer.send(peer.segment().stamp(value.wrapping_sub(9), ours).len(10));
        assert_eq!(peer.read().len(), 0, "{value}");
    }
}

#[test]
fn every_segment_has_a_timestamp_that_grows_each_millisecond() {
    let mut peer = stamped();
    peer.write(1000);
    let first = peer.receive()[0].options.timestamps.expect("a timestamp").value;
    peer.now += Duration::from_millis(123);
    peer.send_ack();
    peer.connection.finish();
    let end = peer.receive()[0].options.timestamps.expect("a timestamp").value;
    assert_eq!(end.wrapping_sub(first), 123);
}

#[test]
fn the_latest_block_comes_first_and_the_others_follow() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    let mut sent = Vec::new();
    for at in [101, 301, 501, 701, 901] {
        peer.send(peer.segment().seq(at).len(100));
        sent = peer.sent();
    }
    assert_eq!(blocks_of(&sent), [(901, 1001), (701, 801), (501, 601), (301, 401)], "RFC 2018, section 4");
    peer.send(peer.segment().seq(401).len(100));
    assert_eq!(blocks_of(&peer.sent())[..2], [(301, 601), (901, 1001)]);
    // Three beside timestamps.
    let mut peer = stamped();
    for at in [101, 301, 501, 701, 901] {
        peer.send(peer.segment().seq(at).len(100));
        sent = peer.sent();
    }
    assert_eq!(blocks_of(&sent), [(901, 1001), (701, 801), (501, 601)]);
}

#[test]
fn what_came_twice_is_reported_once() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.send_data(1000);
    peer.pass(Duration::from_millis(100));
    // Below the acknowledgement; with new data; and within a block.
    peer.send(peer.segment().seq(501).len(500));
    assert_eq!(blocks_of(&peer.sent()), [(501, 1001)], "RFC 2883, section 4.1.1");
    peer.send(peer.segment().seq(801).len(300));
    assert_eq!(blocks_of(&peer.sent()), [(801, 1001)]);
    peer.send(peer.segment().seq(2001).len(1000));
    peer.sent();
    peer.send(peer.segment().seq(2201).len(300));
    assert_eq!(blocks_of(&peer.sent()), [(2201, 2501), (2001, 3001)], "section 4.2.1");
    peer.send(peer.segment().seq(3001).len(1000));
    assert_eq!(blocks_of(&peer.sent()), [(2001, 4001)]);
}

/// Sends segments of all places and lengths over two blocks: the first part that was present is
/// reported, wherever the segment begins and ends.
#[test]
fn a_part_of_a_segment_that_came_twice_is_reported() {
    // Received: 1 to 1000 in order, 2001 to 3000 and 4001 to 5000 beyond.
    let known = |at: u32| at < 1001 || (2001..3001).contains(&at) || (4001..5001).contains(&at);
    let (mut count, step) = (0, 250);
    for start in (1..5500).step_by(step) {
        for len in (step as u32..4000).step_by(step) {
            let mut peer = Peer::opens(&TcpConfig::default(), offer());
            peer.send_data(1000);
            for seq in [2001, 4001] {
                peer.send(peer.segment().seq(seq).len(1000));
            }
            peer.sent();
            peer.send(peer.segment().seq(start).len(len as usize));
            let blocks = blocks_of(&peer.sent());
            let first = (start..start + len).find(|at| known(*at));
            let part = first.map(|first| (first, (first..=start + len).find(|at| !known(*at)).unwrap_or(start + len)));
            let part = part.map(|(first, end)| (first, end.min(start + len)));
            match part {
                Some(part) => assert_eq!(blocks.first(), Some(&part), "{start}+{len}: RFC 2883, section 4.2"),
                None if start == 1001 => assert_eq!(blocks[0], (4001, 5001), "{len} in order"),
                None => assert!(blocks[0].0 <= start && start + len <= blocks[0].1, "{start}+{len}: {blocks:?}"),
            }
            count += u32::from(part.is_some_and(|part| part.0 > 1001 && start <= 1001));
        }
    }
    assert!(count > 0, "none began at the next number and overlapped a block");
}

/// Returns a connection with marks in both directions.
fn marked(config: &TcpConfig) -> Peer {
    Peer::opens_with(config, offer(), Flags::SYN | Flags::ECE | Flags::CWR, (INITIAL, PEER_INITIAL))
}

#[test]
fn a_mark_is_echoed_until_the_peer_has_reacted() {
    let mut peer = marked(&TcpConfig::default());
    peer.send(peer.segment().len(100).ecn(Ecn::Ce));
    peer.nxt += 100;
    assert!(peer.pass(Duration::from_millis(50)).iter().all(|sent| sent.has(Flags::ECE)), "RFC 3168, section 6.1.3");
    peer.send_data(100);
    assert!(peer.pass(Duration::from_millis(50))[0].has(Flags::ECE));
    peer.send(peer.segment().len(100).flags(Flags::ACK | Flags::CWR));
    peer.nxt += 100;
    assert!(!peer.pass(Duration::from_millis(50))[0].has(Flags::ECE));
    // A mark together with the reaction to the last one is new.
    peer.send(peer.segment().len(100).flags(Flags::ACK | Flags::CWR).ecn(Ecn::Ce));
    peer.nxt += 100;
    assert!(peer.pass(Duration::from_millis(50))[0].has(Flags::ECE));
    assert_eq!(peer.connection.stats().receive.marked, 2);
}

#[test]
fn marks_reduce_the_window_once_a_round_trip() {
    let mut peer = marked(&TcpConfig::default());
    peer.write(14_600);
    let first = peer.receive();
    assert!(first.len() == 10 && first.iter().all(|sent| sent.ecn == Some(Ecn::Ect0)));
    let (window, _) = peer.connection.congestion();
    peer.now += Duration::from_millis(20);
    for segment in 1..=10 {
        peer.send(peer.segment().ack(1 + 1460 * segment).flags(Flags::ACK | Flags::ECE));
    }
    let (reduced, _) = peer.connection.congestion();
    assert!(reduced < window && reduced > window / 2, "{window} {reduced}");
    assert_eq!(peer.connection.stats().send.marks, 1, "RFC 3168, section 6.1.2");
    // The first new data report it, once.
    peer.write(14_600);
    let second = peer.pass(Duration::from_millis(30));
    peer.note(&second);
    let signs: Vec<_> = second.iter().map(|sent| sent.has(Flags::CWR)).collect();
    assert!(signs[0] && signs[1..].iter().all(|sign| !sign), "{signs:?}");
    peer.send(peer.segment().flags(Flags::ACK | Flags::ECE));
    assert_eq!(peer.connection.stats().send.marks, 2, "the next round trip");
}

#[test]
fn only_new_data_may_be_marked() {
    let mut peer = marked(&TcpConfig::default());
    peer.write(1460);
    assert!(peer.sent()[0].ecn.is_some());
    let again = peer.pass_until_sent(Duration::from_secs(5)).expect("a timeout");
    assert!(again[0].data.len() == 1460 && again[0].ecn.is_none(), "RFC 3168, section 6.1.5");
    peer.send_data(1460);
    peer.send_data(1460);
    assert!(peer.sent().iter().all(|sent| sent.ecn.is_none()), "nor acknowledgements");
}
