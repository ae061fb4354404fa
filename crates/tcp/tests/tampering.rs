//! Losses and delays of chosen segments, by rules.

use std::cell::RefCell;
use std::rc::Rc;

use netem::{LineState, LinkConfig};
use tcp::{CloseReason, SendStats, State, TcpConfig};
use units::{Duration, Ratio, Rng, Seq32};
use wire::tcp::Flags;

use crate::support::packet::IpPacket;
use crate::support::{Pair, link, pattern};

const MINUTE: Duration = Duration::from_secs(60);

/// Round trip of [`pair`].
const RTT: Duration = Duration::from_millis(40);

fn pair(config: &TcpConfig) -> Pair {
    Pair::with(1, [deep_link(), deep_link()], [config.clone(), config.clone()])
}

/// Returns a link with a queue that never overflows here.
fn deep_link() -> LinkConfig {
    LinkConfig { queue_bytes: 20_000_000, ..link(100, 20) }
}

/// Returns configurations that detect losses in different ways.
fn configs() -> [TcpConfig; 4] {
    [(true, true), (true, false), (false, true), (false, false)].map(|(sack, timestamps)| TcpConfig {
        sack,
        timestamps,
        ..TcpConfig::default()
    })
}

/// Drops the packets of `host` for which `is_lost` returns true, and counts them.
fn drop_if(pair: &mut Pair, host: usize, mut is_lost: impl FnMut(&IpPacket) -> bool + 'static) -> Rc<RefCell<u32>> {
    let count = Rc::new(RefCell::new(0));
    let counter = Rc::clone(&count);
    pair.tamper = Some(Box::new(move |from, packet| {
        if from == host && is_lost(packet) {
            *counter.borrow_mut() += 1;
            return Vec::new();
        }
        vec![packet.clone()]
    }));
    count
}

/// Returns a rule that is true for the first `count` packets with all of `flags` and none of
/// `others`.
fn first(count: u32, flags: Flags, others: Flags) -> impl FnMut(&IpPacket) -> bool + 'static {
    let mut left = count;
    move |packet| {
        let header = packet.header();
        let is_meant = left > 0 && header.flags.contains(flags) && !header.flags.intersects(others);
        left -= u32::from(is_meant);
        is_meant
    }
}

fn send_stats(pair: &Pair, host: usize) -> SendStats {
    pair.hosts[host].connection.as_ref().expect("there is a connection").stats().send
}

#[test]
fn a_lost_part_of_the_handshake_is_repaired() {
    let rules: [(usize, Flags, Flags); 3] =
        [(0, Flags::SYN, Flags::ACK), (1, Flags::SYN | Flags::ACK, Flags::empty()), (0, Flags::ACK, Flags::SYN)];
    for config in configs() {
        for (host, flags, others) in rules {
            for count in 1..=3 {
                let mut pair = pair(&config);
                let dropped = drop_if(&mut pair, host, first(count, flags, others));
                pair.open();
                pair.transfer(0, 1000, MINUTE);
                assert!(*dropped.borrow() >= 1, "{flags}");
                pair.transfer(1, 1000, MINUTE);
            }
        }
    }
}

#[test]
fn data_complete_a_handshake_whose_acknowledgement_was_lost() {
    let mut pair = pair(&TcpConfig::default());
    let dropped = drop_if(&mut pair, 0, first(1, Flags::ACK, Flags::SYN));
    pair.open();
    pair.run_for(RTT + RTT / 4);
    assert_eq!((*dropped.borrow(), pair.hosts[1].state()), (1, Some(State::SynReceived)));
    let spent = pair.transfer(0, 100, MINUTE);
    assert!(spent < RTT + RTT / 4, "{spent}");
}

#[test]
fn lost_ends_are_repeated_and_crossing_ones_meet() {
    for config in configs() {
        for lost in 0..8_u32 {
            let mut pair = pair(&config);
            pair.connect();
            // The first FIN of either side, and the first acknowledgement of the client's.
            let mut seen = [false; 3];
            pair.tamper = Some(Box::new(move |from, packet| {
                let has_fin = packet.header().flags.contains(Flags::FIN);
                let kind = if has_fin { from } else { 2 };
                let is_first = !std::mem::replace(&mut seen[kind], true);
                if is_first && lost & 1 << kind != 0 { Vec::new() } else { vec![packet.clone()] }
            }));
            pair.hosts.iter_mut().for_each(|host| host.send(Vec::new(), true));
            pair.run_for(MINUTE / 2);
            for host in &pair.hosts {
                let reason = host.connection.as_ref().and_then(tcp::Connection::close_reason);
                assert_eq!(reason, Some(CloseReason::Finished), "{lost:b} {:?}", host.state());
                assert!(host.has_ended);
            }
        }
    }
}

/// Transfers 100 KB, dropping the segments for which `is_lost` is true; returns the time and the
/// statistics.
fn transfer_with(config: &TcpConfig, is_lost: impl FnMut(&IpPacket) -> bool + 'static) -> (Duration, SendStats, u32) {
    let mut pair = pair(config);
    pair.connect();
    let dropped = drop_if(&mut pair, 0, is_lost);
    let spent = pair.transfer(0, 100_000, MINUTE);
    let dropped = *dropped.borrow();
    (spent, send_stats(&pair, 0), dropped)
}

/// Returns a rule that is true for the data segments with these numbers, counted from one.
fn numbers(lost: impl Fn(u32) -> bool + 'static) -> impl FnMut(&IpPacket) -> bool + 'static {
    let mut count = 0;
    move |packet| {
        count += u32::from(packet.data_len() > 0);
        packet.data_len() > 0 && lost(count)
    }
}

#[test]
fn a_lost_segment_is_sent_again_a_round_trip_later() {
    for config in configs() {
        let (ideal, ..) = transfer_with(&config, |_| false);
        for lost in 1..40 {
            let (spent, stats, dropped) = transfer_with(&config, numbers(move |number| number == lost));
            assert_eq!((dropped, stats.timeouts), (1, 0), "{lost} {config:?}: {stats:?}");
            // One for the repair, and some because the window is smaller from then on.
            assert!(spent < ideal + RTT * 7, "{lost}: {spent}, not {ideal}");
            let len = stats.bytes_sent / 69;
            assert!(stats.bytes_resent <= 2 * len, "{lost}: {stats:?}");
        }
    }
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    // RACK needs SACK and data sent later.
    let config = TcpConfig::default();
    let mut seqs = Vec::new();
    let lost = move |packet: &IpPacket| {
        if packet.data_len() == 0 {
            return false;
        }
        let seq = packet.header().seq.get();
        seqs.push(seq);
        // The fifth segment, three times.
        seqs.get(4).is_some_and(|fifth| *fifth == seq) && seqs.iter().filter(|other| **other == seq).count() <= 3
    };
    let (_, stats, dropped) = transfer_with(&config, lost);
    assert_eq!((dropped, stats.timeouts), (3, 0), "{stats:?}");
}

#[test]
fn losses_above_the_recovery_point_are_found() {
    for config in configs() {
        // One in the first window, and some of the segments sent during its recovery.
        let (_, stats, dropped) =
            transfer_with(&config, numbers(|number| number == 3 || (14..18).contains(&number) || number == 30));
        assert_eq!(dropped, 6);
        assert!(!config.sack || stats.timeouts == 0, "{stats:?}");
    }
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    for (config, tail) in [(1, 1), (1, 2), (1, 3), (0, 1)]
        .map(|(sack, tail)| (TcpConfig { timestamps: sack == 0, ..TcpConfig::default() }, tail))
    {
        let (ideal, ..) = transfer_with(&config, |_| false);
        let mut pair = pair(&config);
        pair.connect();
        let mut left = tail;
        // The first transmissions of the last segments.
        let last = Rc::new(RefCell::new(0_u32));
        let newest = Rc::clone(&last);
        let mut count = 0;
        let dropped = drop_if(&mut pair, 0, move |packet| {
            let end = packet.header().seq.get().wrapping_add(packet.data_len() as u32);
            let is_new = packet.data_len() > 0 && end.wrapping_sub(*newest.borrow()) as i32 > 0;
            if is_new {
                (*newest.borrow_mut(), count) = (end, count + 1);
            }
            let is_tail = is_new && count + tail > 70 && left > 0;
            left -= u32::from(is_tail);
            is_tail
        });
        let spent = pair.transfer(0, 70 * 1448, MINUTE);
        let stats = send_stats(&pair, 0);
        assert!(*dropped.borrow() >= 1, "nothing was dropped");
        assert_eq!(stats.timeouts, 0, "{tail}: {stats:?}");
        // Two round trips until the probe (and a delay of the acknowledgement, if the segment is
        // alone), one for its answer, and two for the losses that it reveals, because the second
        // lost segment leaves when the first has arrived (RFC 9937, section 6). Before the losses,
        // the last acknowledgement may have been delayed.
        let delay = if tail == 1 { Duration::from_millis(200) } else { Duration::from_millis(40) };
        assert!(spent < ideal + RTT * 6 + delay, "{tail}: {spent}, not {ideal}");
        assert!(stats.probes >= 1 && stats.probes <= 2);
    }
}

#[test]
fn a_probe_that_repeats_what_has_arrived_is_no_loss() {
    // The acknowledgements of the tail are late, longer than a probe waits, and not lost.
    let config = TcpConfig::default();
    let mut pair = pair(&config);
    pair.connect();
    pair.transfer_part(0, 50_000);
    let before = send_stats(&pair, 0);
    let slow = LinkConfig { delay: Duration::from_millis(130), ..deep_link() };
    let now = pair.now;
    pair.links[1].set_config(now, slow);
    pair.transfer_part(0, 5_000);
    pair.run_for(Duration::from_secs(2));
    let stats = send_stats(&pair, 0);
    assert!(stats.probes > before.probes, "{stats:?}");
    assert_eq!((stats.timeouts, stats.bytes_lost), (0, 0), "{stats:?}");
}

#[test]
fn a_lost_window_update_is_asked_for() {
    for config in configs() {
        let mut pair = pair(&TcpConfig { receive_buffer: 50_000, ..config });
        pair.connect();
        pair.hosts[1].reads = false;
        let bytes = pattern(100_000, 3);
        pair.hosts[0].send(bytes.clone(), true);
        pair.run_for(MINUTE);
        // Everything that the reader sends now is lost.
        let dropped = drop_if(&mut pair, 1, |_| true);
        pair.hosts[1].reads = true;
        pair.run_for(Duration::from_millis(10));
        assert!(*dropped.borrow() > 0);
        pair.tamper = None;
        let is_done = pair.run_until(MINUTE * 2, |pair| pair.hosts[1].has_ended);
        assert!(is_done && pair.hosts[1].received == bytes);
    }
}

#[test]
fn half_of_the_acknowledgements_may_be_lost() {
    for config in configs() {
        let mut ideal = None;
        for share in [0, 50] {
            let mut pair = pair(&config);
            pair.connect();
            let mut rng = Rng::from_seed(7);
            let dropped = drop_if(&mut pair, 1, move |_| rng.chance(Ratio::new(share, 100)));
            let spent = pair.transfer(0, 2_000_000, MINUTE);
            let stats = send_stats(&pair, 0);
            let ideal = *ideal.get_or_insert(spent);
            assert_eq!(*dropped.borrow() > 0, share > 0);
            assert!(stats.timeouts == 0 && spent < ideal * 2, "{share} {spent} {ideal} {stats:?}");
            assert_eq!((stats.bytes_resent, stats.bytes_lost), (0, 0), "{share} {config:?}: {stats:?}");
        }
    }
}

#[test]
fn losses_in_both_directions_cause_no_belief_in_reordering() {
    // An acknowledgement with several new blocks, the latest first, is no sign of reordering.
    let mut pair = pair(&TcpConfig::default());
    pair.connect();
    let mut rng = Rng::from_seed(9);
    let mut count = 0;
    pair.tamper = Some(Box::new(move |from, packet| {
        count += usize::from(from == 0 && packet.data_len() > 0);
        let is_lost = if from == 0 { count % 20 == 7 && packet.data_len() > 0 } else { rng.chance(Ratio::new(1, 2)) };
        if is_lost { Vec::new() } else { vec![packet.clone()] }
    }));
    let spent = pair.transfer(0, 500_000, MINUTE);
    assert!(spent < MINUTE / 2, "{spent}");
    assert!(!pair.hosts[0].connection().has_seen_reordering(), "{:?}", send_stats(&pair, 0));
}

#[test]
fn reordering_that_was_seen_causes_no_more_retransmissions() {
    let links =
        [LinkConfig { reorder: Ratio::new(1, 20), reorder_by: Duration::from_millis(4), ..deep_link() }, deep_link()];
    // The window leaves the queue empty: a round trip that shrinks by more than the reordering window makes
    // an earlier segment look lost (RFC 8985, section 6.2, step 5).
    let config = TcpConfig { receive_buffer: 400_000, ..TcpConfig::default() };
    let mut pair = Pair::with(4, links, [config.clone(), config]);
    pair.connect();
    pair.transfer_part(0, 1_000_000);
    let before = send_stats(&pair, 0);
    assert!(pair.hosts[0].connection().has_seen_reordering());
    pair.transfer_part(0, 5_000_000);
    let stats = send_stats(&pair, 0);
    assert!(pair.links[0].stats().reordered > 100);
    assert_eq!(pair.links[0].stats().overflowed, 0);
    assert_eq!(stats.bytes_resent, before.bytes_resent, "{stats:?}");
}

#[test]
fn a_timeout_because_of_a_delay_is_undone() {
    for config in configs() {
        let mut pair = pair(&config);
        pair.connect();
        pair.transfer_part(0, 1_000_000);
        let (window, _) = pair.hosts[0].connection().congestion();
        let before = send_stats(&pair, 0);
        // All packets wait for a second, and none is lost.
        pair.hosts[0].send(pattern(3_000_000, 5), false);
        pair.run_for(RTT / 2);
        let now = pair.now;
        pair.links[0].set_config(now, LinkConfig { state: LineState::Held, ..deep_link() });
        pair.run_for(Duration::from_secs(1));
        let now = pair.now;
        pair.links[0].set_config(now, deep_link());
        pair.run_for(Duration::from_millis(500));
        let stats = send_stats(&pair, 0);
        assert!(stats.timeouts > before.timeouts, "there was no delay");
        pair.run_for(MINUTE);
        let stats = send_stats(&pair, 0);
        assert_eq!(pair.hosts[1].received.len(), 4_000_000);
        let (after, _) = pair.hosts[0].connection().congestion();
        let resent = stats.bytes_resent - before.bytes_resent;
        if config.timestamps || config.sack {
            assert!(after >= window, "{after} after {window}: {stats:?}");
            // The retransmissions before the first acknowledgement came, and little more.
            assert!(resent < 20_000, "{resent} {config:?}: {stats:?}");
        }
    }
}

#[test]
fn every_pattern_of_losses_in_a_short_flight_is_repaired() {
    // Ten segments, each lost or not at its first transmission: all combinations.
    for config in configs() {
        for lost in 0..1024_u32 {
            let mut pair = pair(&config);
            pair.connect();
            let _dropped = drop_if(&mut pair, 0, numbers(move |number| number <= 10 && lost & 1 << (number - 1) != 0));
            pair.transfer(0, 10 * 1448, MINUTE);
            let stats = send_stats(&pair, 0);
            assert!(stats.timeouts <= 4, "{lost:010b}: {stats:?}");
        }
    }
}

#[test]
fn the_states_after_the_end_are_those_of_the_rfc() {
    let mut pair = pair(&TcpConfig::default());
    pair.connect();
    // Both ends cross.
    pair.hosts.iter_mut().for_each(|host| host.send(Vec::new(), true));
    pair.run_for(RTT / 4);
    assert!(pair.hosts.iter().all(|host| host.state() == Some(State::FinWait1)));
    assert!(pair.run_until(RTT, |pair| pair.hosts.iter().all(|host| host.state() == Some(State::Closing))));
    pair.run_for(RTT);
    assert!(pair.hosts.iter().all(|host| host.state() == Some(State::TimeWait)));
}

/// Returns the same for the first transmissions of data alone.
fn new_numbers(lost: impl Fn(u32) -> bool + 'static) -> impl FnMut(&IpPacket) -> bool + 'static {
    let (mut count, mut newest) = (0, None::<Seq32>);
    move |packet| {
        let (seq, len) = (packet.header().seq, packet.data_len());
        let is_new = len > 0 && newest.is_none_or(|newest| seq.is_after(newest));
        if is_new {
            (newest, count) = (Some(seq), count + 1);
        }
        is_new && lost(count)
    }
}

#[test]
fn only_what_is_lost_is_sent_again() {
    for config in configs() {
        let mut pair = pair(&config);
        pair.connect();
        // Many in one window.
        let dropped = drop_if(&mut pair, 0, new_numbers(|number| (100..300).contains(&number) && number % 8 == 0));
        pair.transfer(0, 2_000_000, MINUTE);
        let (stats, dropped) = (send_stats(&pair, 0), u64::from(*dropped.borrow()));
        assert_eq!((dropped, stats.timeouts, stats.bytes_lost_spuriously), (25, 0, 0), "{config:?}: {stats:?}");
        assert!(stats.bytes_resent <= dropped * 1460, "{config:?}: {stats:?}");
    }
}
