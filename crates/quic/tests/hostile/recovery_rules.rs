//! Round-trip samples, probe timeouts and the congestion window (RFC 9002), seen by a peer that
//! chooses what it acknowledges and when. `docs/spec/requirements` names the clauses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use quic::session::deterministic::DeterministicFactory;
use quic::{Addresses, Dir, PathStats, Side, StreamId, TransportConfig};
use units::{Duration, Instant, Rng};
use wire::quic::{Frame, Space, emit_ack};

use super::{in_the_middle_of_the_handshake, ping, server_for};
use crate::support::Node;
use crate::support::hostile::{HOSTILE, HostilePair, OpenedPacket, payload};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The probe timeout before the first sample (RFC 9002, section 6.2.2).
const FIRST_TIMEOUT: Duration = ms(999);

/// The default of max_ack_delay.
const MAX_ACK_DELAY: Duration = ms(25);

/// Another address of the peer.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 66)), HOSTILE.port());

/// The connection under test is the newest one.
fn stats(pair: &mut HostilePair) -> quic::Stats {
    let index = pair.victim.connections.len() - 1;
    pair.victim.connection(index).stats()
}

fn path(pair: &mut HostilePair) -> PathStats {
    stats(pair).paths.remove(0)
}

fn write(pair: &mut HostilePair, len: usize) -> StreamId {
    let connection = pair.victim.connection(0);
    let id = connection.open(Dir::Uni).expect("the peer allows streams");
    connection.write(id, Bytes::from(vec![7; len])).expect("the send buffer has space");
    pair.settle();
    id
}

/// The 1-RTT packets received so far, by number; only those that elicit acknowledgements.
fn eliciting(pair: &HostilePair) -> Vec<u64> {
    let packets = pair.hostile.opened.iter().filter(|packet| packet.space == Space::Data);
    packets.filter(|packet| is_eliciting(packet)).map(|packet| packet.number).collect()
}

fn is_eliciting(packet: &OpenedPacket) -> bool {
    packet.frames().iter().any(Frame::is_ack_eliciting)
}

/// Acknowledges some 1-RTT packets, after a delay as this peer reports it.
fn acknowledge(pair: &mut HostilePair, numbers: std::ops::RangeInclusive<u64>, delay: Duration) {
    let mut ack = Vec::new();
    emit_ack(None, delay.as_nanos() / 8_000, std::iter::once(numbers), None, &mut ack);
    pair.send(&ack);
}

/// A server whose handshake is confirmed, with nothing in flight and without a round-trip sample.
fn without_sample() -> HostilePair {
    let mut pair = HostilePair::against_server();
    let ack = pair.hostile.ack(Space::Data);
    pair.send(&ack);
    // The acknowledgement came at once, as a sample of zero: a new address knows none.
    let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 1_100 }]));
    pair.deliver_unpadded(&packet, ELSEWHERE);
    let challenges = pair.hostile.challenges_to(ELSEWHERE);
    let data = challenges.first().expect("the address is validated");
    let response = payload(&[Frame::PathResponse(*data)]);
    let packet = pair.hostile.packet(Space::Data, &response);
    pair.deliver_unpadded(&packet, ELSEWHERE);
    pair
}

/// A client that has completed the handshake and does not know whether the server has.
fn unconfirmed() -> HostilePair {
    HostilePair::established(HostilePair::with_client(TransportConfig::default(), server_for))
}

/// Acknowledges what the victim has sent in Handshake packets.
fn acknowledge_handshake(pair: &mut HostilePair) {
    let ack = pair.hostile.ack(Space::Handshake);
    let packet = pair.hostile.packet(Space::Handshake, &ack);
    pair.deliver(&packet);
}

/// When probe timeouts fire within `span`, from now.
fn probe_times(pair: &mut HostilePair, span: Duration) -> Vec<Duration> {
    let (from, mut known, mut times) = (pair.now, stats(pair).send.probe_timeouts, Vec::new());
    while pair.now < from + span {
        pair.wait(ms(1));
        let count = stats(pair).send.probe_timeouts;
        if count > known {
            (known, times) = (count, [times, vec![pair.now - from]].concat());
        }
    }
    times
}

// ── Round trips ──────────────────────────────────────────────────────────────────────────────────

#[test]
fn only_a_newly_acknowledged_largest_number_gives_a_sample() {
    // RFC 9002, section 5.1.
    let mut pair = unconfirmed();
    write(&mut pair, 5_000);
    let sent = eliciting(&pair);
    let [first, .., last] = sent[..] else { panic!("{sent:?}") };
    pair.wait(ms(50));
    acknowledge(&mut pair, last..=last, Duration::ZERO);
    assert_eq!((path(&mut pair).round_trip, path(&mut pair).round_trip_min), (ms(50), ms(50)));
    pair.wait(ms(3));
    acknowledge(&mut pair, last - 1..=last, Duration::ZERO);
    assert!(path(&mut pair).packets_acked >= 2, "the second acknowledgement was processed");
    assert_eq!(path(&mut pair).round_trip, ms(50), "from packet {first} to {last}");
}

#[test]
fn an_acknowledgement_of_packets_that_elicit_none_gives_no_sample() {
    // RFC 9002, section 5.1. The padding of a client's Initial packet makes it count as in flight.
    let mut pair = before_the_answer();
    let before = path(&mut pair).round_trip;
    let packet = pair.hostile.packet(Space::Initial, &ping());
    pair.deliver(&packet);
    let newest = pair.hostile.opened.last().expect("an acknowledgement");
    assert!(newest.space == Space::Initial && newest.number > 0 && !is_eliciting(newest));
    let newest = newest.number;
    pair.wait(ms(70));
    let acked = path(&mut pair).packets_acked;
    for (numbers, expected) in [(newest..=newest, before), (0..=newest, before), (0..=0, before)] {
        let mut ack = Vec::new();
        emit_ack(None, 0, std::iter::once(numbers), None, &mut ack);
        let packet = pair.hostile.packet(Space::Initial, &ack);
        pair.deliver(&packet);
        assert_eq!(path(&mut pair).round_trip, expected);
    }
    assert_eq!(path(&mut pair).packets_acked, acked + 2, "both packets are acknowledged");
}

#[test]
fn the_largest_number_gives_a_sample_although_it_elicits_no_acknowledgement() {
    // RFC 9002, section 5.1: another packet of the same acknowledgement is ack-eliciting. A peer that
    // sends much is answered by more packets with acknowledgements than with data.
    let mut pair = unconfirmed();
    write(&mut pair, 500);
    let data = *eliciting(&pair).last().expect("data");
    pair.wait(ms(30));
    for _ in 0..40 {
        pair.send(&ping());
    }
    let newest = pair.hostile.opened.last().expect("an acknowledgement");
    assert!(newest.space == Space::Data && newest.number > data && !is_eliciting(newest));
    let newest = newest.number;
    pair.wait(ms(50));
    acknowledge(&mut pair, data..=newest, Duration::ZERO);
    assert_eq!((path(&mut pair).round_trip, path(&mut pair).round_trip_min), (ms(50), ms(50)));
    pair.wait(ms(3));
    acknowledge(&mut pair, data..=newest, Duration::ZERO);
    assert_eq!(path(&mut pair).round_trip, ms(50), "nothing is newly acknowledged");
}

/// The smoothed round trip after a sample of 40 ms and one of 140 ms, of which the peer says that it
/// has waited for 100 ms.
fn with_reported_delay(pair: &mut HostilePair) -> Duration {
    for (round_trip, delay) in [(40, 0), (140, 100)] {
        write(pair, 500);
        let last = *eliciting(pair).last().expect("data");
        pair.wait(ms(round_trip));
        // A probe may have left meanwhile, and is not acknowledged.
        acknowledge(pair, last..=last, ms(delay));
    }
    path(pair).round_trip
}

#[test]
fn a_reported_delay_counts_up_to_max_ack_delay_once_the_handshake_is_confirmed() {
    // RFC 9002, section 5.3: 7/8 of 40 ms and 1/8 of the second sample.
    let whole = with_reported_delay(&mut unconfirmed());
    assert_eq!(whole, ms(40), "all of it is subtracted");
    let mut confirmed = unconfirmed();
    confirmed.send(&payload(&[Frame::HandshakeDone]));
    assert_eq!(with_reported_delay(&mut confirmed), ms(35) + (ms(140) - MAX_ACK_DELAY) / 8);
}

#[test]
fn the_time_of_a_path_validation_is_no_sample() {
    // RFC 9002, section 6.2.2.
    let mut pair = without_sample();
    let before = path(&mut pair).round_trip;
    let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 1_100 }]));
    pair.deliver_unpadded(&packet, SocketAddr::new(ELSEWHERE.ip(), 7777));
    let responses: Vec<Frame<'_>> = pair.hostile.challenges().into_iter().map(Frame::PathResponse).collect();
    let responses = payload(&responses);
    pair.wait(ms(70));
    let packet = pair.hostile.packet(Space::Data, &responses);
    pair.deliver_unpadded(&packet, SocketAddr::new(ELSEWHERE.ip(), 7777));
    assert_eq!(path(&mut pair).round_trip, before);
}

// ── Probe timeouts ───────────────────────────────────────────────────────────────────────────────

#[test]
fn probes_are_lost_packets_of_nobody_and_leave_although_the_window_is_full() {
    let mut pair = HostilePair::against_server();
    write(&mut pair, 100_000);
    // The pacer spreads the first window over half a second at most.
    pair.wait(ms(500));
    let before = path(&mut pair);
    assert!(before.in_flight_bytes + 1_200 > before.congestion.window, "the window is full");
    let sent = pair.hostile.opened.len();
    while stats(&mut pair).send.probe_timeouts == 0 {
        pair.wait(ms(1));
    }
    let after = path(&mut pair);
    assert!(pair.hostile.opened.len() > sent, "RFC 9002, section 7.5");
    assert_eq!(after.packets_lost, 0, "RFC 9002, section 6.2");
    let probes: u64 = pair.hostile.opened[sent..].iter().map(|packet| packet.datagram_len as u64).sum();
    assert_eq!(after.in_flight_bytes, before.in_flight_bytes + probes, "RFC 9002, section 7.5");
}

#[test]
fn bytes_in_flight_stay_within_the_window_but_for_probes() {
    // RFC 9002, section 7.
    let mut pair = HostilePair::against_server();
    let id = write(&mut pair, 200_000);
    let mut filled = 0;
    for round in 0..60_u64 {
        let _may_be_blocked = pair.victim.connection(0).write(id, Bytes::from(vec![7; 50_000]));
        // Every seventh acknowledgement misses some packets, so that the window shrinks at times.
        let last = *eliciting(&pair).last().expect("data");
        let from = if round % 7 == 6 { last - 1 } else { 0 };
        acknowledge(&mut pair, from..=last, Duration::ZERO);
        let before = eliciting(&pair).len();
        for _ in 0..20 {
            pair.wait(ms(1));
            let path = path(&mut pair);
            // What exceeds a window that shrinks was sent before.
            let is_within = path.in_flight_bytes <= path.congestion.window;
            assert!(is_within || eliciting(&pair).len() == before, "round {round}: {path:?}");
            filled += u64::from(path.in_flight_bytes + 1_200 > path.congestion.window);
        }
    }
    assert_eq!(stats(&mut pair).send.probe_timeouts, 0);
    assert!(filled > 30, "the window is what limits: {filled}");
}

#[test]
fn a_client_restarts_its_timer_when_it_discards_keys() {
    // RFC 9002, sections 6.2.2 and 6.2.1: the handshake takes longer than the first timeout.
    let mut pair = unconfirmed_after(ms(1_500));
    // Its Initial packets are no longer in flight, and its Handshake packets are.
    let first = probe_times(&mut pair, ms(2_500));
    assert_eq!(first[0], FIRST_TIMEOUT, "without the exponent of the timeout before");
    let bytes = path(&mut pair).in_flight_bytes;
    assert!(bytes > 0, "Handshake packets and 1-RTT packets");
    acknowledge_handshake(&mut pair);
    let ack = pair.hostile.ack(Space::Data);
    pair.send(&ack);
    let left = path(&mut pair).in_flight_bytes;
    assert_eq!(left, 0, "RFC 9002, section 6.4: nothing of the Initial packets is in flight");
}

/// A client whose server answers after `delay`.
fn unconfirmed_after(delay: Duration) -> HostilePair {
    let mut pair = before_the_answer();
    pair.wait(delay);
    pair.run_session();
    HostilePair::established(pair)
}

/// A client whose server has received its first flight, and sent nothing.
fn before_the_answer() -> HostilePair {
    let rng = Rng::from_seed(1).split("victim");
    let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
    let mut victim = Node::new(Side::Client, TransportConfig::default(), &rng, None);
    let connection = victim.endpoint.connect(Instant::ZERO, &factory, "", Addresses::of(HOSTILE));
    victim.add(connection.expect("sessions start"));
    victim.flush(Instant::ZERO);
    let first = std::mem::take(&mut victim.outbox);
    let hostile = server_for(&first[0].1);
    let mut pair = HostilePair { now: Instant::ZERO, victim, hostile, victim_bytes: BTreeMap::new() };
    first.iter().for_each(|(_, datagram)| pair.hostile.receive(datagram));
    pair
}

#[test]
fn handshake_packets_that_were_never_acknowledged_leave_the_flight_with_their_keys() {
    // RFC 9002, section 6.4.
    let mut pair = unconfirmed();
    assert!(path(&mut pair).in_flight_bytes > 0, "Handshake packets");
    pair.send(&payload(&[Frame::HandshakeDone]));
    let ack = pair.hostile.ack(Space::Data);
    if !eliciting(&pair).is_empty() {
        pair.send(&ack);
    }
    assert_eq!(path(&mut pair).in_flight_bytes, 0);
    assert_eq!(probe_times(&mut pair, ms(5_000)), [], "and no timer is left of them");
}

#[test]
fn application_data_are_not_probed_for_before_the_handshake_is_confirmed() {
    // RFC 9002, section 6.2.1.
    for is_confirmed in [false, true] {
        let mut pair = unconfirmed();
        acknowledge_handshake(&mut pair);
        if is_confirmed {
            pair.send(&payload(&[Frame::HandshakeDone]));
        }
        write(&mut pair, 500);
        assert!(path(&mut pair).in_flight_bytes > 0);
        assert_eq!(probe_times(&mut pair, ms(5_000)).is_empty(), !is_confirmed);
    }
}

#[test]
fn the_earlier_of_the_initial_and_the_handshake_timeout_fires() {
    // RFC 9002, section 6.2.1. Both flights of the server left at the same time, and both are lost.
    let mut pair = in_the_middle_of_the_handshake();
    // The limit of section 8.1 of RFC 9000 allows several probes.
    let packet = pair.hostile.packet(Space::Initial, &ping());
    pair.deliver(&packet);
    let count = |pair: &HostilePair, space| {
        pair.hostile.opened.iter().filter(|packet| packet.space == space && is_eliciting(packet)).count()
    };
    let sent = [Space::Initial, Space::Handshake].map(|space| count(&pair, space));
    assert!(sent[0] > 0 && sent[1] > 0, "{sent:?}");
    let spaces = |pair: &HostilePair| [Space::Initial, Space::Handshake].map(|space| count(pair, space));
    pair.wait(FIRST_TIMEOUT);
    let first = spaces(&pair);
    assert_eq!((first[0] > sent[0], first[1] > sent[1]), (true, false), "a probe of Initial: {first:?}");
    // The probe has moved the timeout of Initial; that of Handshake has doubled.
    pair.wait(FIRST_TIMEOUT);
    let second = spaces(&pair);
    assert_eq!((second[0] > first[0], second[1] > first[1]), (false, true), "one of Handshake: {second:?}");
}

// ── Losses ───────────────────────────────────────────────────────────────────────────────────────

#[test]
fn losses_before_the_handshake_is_confirmed_count_after_the_first_acknowledgement() {
    // RFC 9002, section 7.4.
    let mut pair = unconfirmed();
    acknowledge_handshake(&mut pair);
    write(&mut pair, 50_000);
    let sent = eliciting(&pair);
    assert!(sent.len() >= 8, "{sent:?}");
    pair.wait(ms(40));
    acknowledge(&mut pair, sent[0]..=sent[0], Duration::ZERO);
    let before = path(&mut pair);
    let last = *sent.last().expect("some");
    acknowledge(&mut pair, last..=last, Duration::ZERO);
    let after = path(&mut pair);
    assert!(after.packets_lost > before.packets_lost);
    assert!(after.congestion.window < before.congestion.window, "{before:?} {after:?}");
}

/// The window after a packet of the first moment and one of a second later are lost.
fn window_after_losses(first_elicits: bool) -> u64 {
    let mut pair = HostilePair::against_server();
    let acknowledge_newest = |pair: &mut HostilePair| {
        let last = *eliciting(pair).last().expect("data");
        acknowledge(pair, last..=last, Duration::ZERO);
    };
    write(&mut pair, 500);
    pair.wait(ms(40));
    acknowledge_newest(&mut pair);
    pair.wait(ms(100));
    // Lost: data, or an acknowledgement alone.
    match first_elicits {
        true => drop(write(&mut pair, 500)),
        false => (0..2).for_each(|_| pair.send(&ping())),
    }
    let lost = pair.hostile.opened.last().expect("a packet");
    assert_eq!(is_eliciting(lost), first_elicits);
    // Without a probe in between, which the timer would send for data.
    pair.victim.full.push(0);
    pair.wait(ms(5_000));
    pair.victim.full.clear();
    write(&mut pair, 8_000);
    pair.wait(ms(40));
    acknowledge_newest(&mut pair);
    assert!(path(&mut pair).packets_lost > 1, "{:?}", path(&mut pair));
    path(&mut pair).congestion.window
}

#[test]
fn persistent_congestion_begins_and_ends_with_packets_that_elicit_acknowledgements() {
    // RFC 9002, section 7.6.2: the minimum of the window, and one packet that was acknowledged.
    assert_eq!(window_after_losses(true), 2_400 + 1_200, "five seconds without an acknowledgement");
    assert!(window_after_losses(false) > 2_400 + 1_200, "the first of the lost packets says nothing");
}

// ── A new path ───────────────────────────────────────────────────────────────────────────────────

#[test]
fn packets_of_the_old_path_do_not_count_for_a_new_one() {
    // RFC 9000, section 9.4.
    let mut pair = HostilePair::against_server();
    write(&mut pair, 500);
    pair.wait(ms(40));
    let last = *eliciting(&pair).last().expect("data");
    acknowledge(&mut pair, last..=last, Duration::ZERO);
    write(&mut pair, 9_000);
    let sent = eliciting(&pair);
    let (old, newest) = (sent.len(), *sent.last().expect("data"));
    // The client moves, and acknowledges from there what it received before.
    let body = payload(&[Frame::Ping, Frame::Padding { len: 1_100 }]);
    let packet = pair.hostile.packet(Space::Data, &body);
    pair.deliver_unpadded(&packet, ELSEWHERE);
    let fresh = path(&mut pair);
    assert_eq!(fresh.addresses.remote, ELSEWHERE);
    pair.wait(ms(30));
    let mut ack = Vec::new();
    emit_ack(None, 0, std::iter::once(newest..=newest), None, &mut ack);
    let packet = pair.hostile.packet(Space::Data, &ack);
    pair.deliver_unpadded(&packet, ELSEWHERE);
    let after = path(&mut pair);
    assert_eq!(after.round_trip, fresh.round_trip, "{old} packets were sent on the old path");
    assert_eq!(after.congestion.window, fresh.congestion.window);
    assert_eq!(after.packets_lost, fresh.packets_lost);
}
