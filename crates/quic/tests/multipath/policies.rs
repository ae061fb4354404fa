//! The four policies side by side: where lost data are retransmitted, and on which paths
//! acknowledgements leave.

use bytes::Bytes;
use netem::{LineState, LinkConfig};
use quic::{Dir, PathState, PathStats, Policy, Side, Strategy};
use units::{Duration, Ratio};

use super::failover::show;
use super::flow::{Flow, node};
use super::links::{capacity_mbps, connected_as, link, set_state};
use crate::support::apps::{Reader, Writer};
use crate::support::{Pair, Setup};

/// Three links with different rates and delays.
fn different_links() -> [LinkConfig; 3] {
    [link(30, 5), link(15, 20), link(8, 40)]
}

/// The same links with random losses in both directions: CUBIC's windows stay small.
fn lossy_links(percent: u64) -> [LinkConfig; 3] {
    different_links().map(|link| LinkConfig { loss: Ratio::new(percent, 100), ..link })
}

fn connected(seed: u64, links: &[LinkConfig], policy: Policy) -> Pair {
    connected_as(Setup::new(seed).over(links).with_config(|config| {
        config.datagram_size = 1452;
        config.policy = policy;
    }))
}

fn cut(pair: &mut Pair, link: usize, directions: &[usize]) {
    set_state(pair, link, directions, LineState::Silent);
}

fn vanished(pair: &mut Pair, link: usize) -> u64 {
    pair.link_pair(link).iter().map(|direction| direction.stats().vanished).sum()
}

fn paths(pair: &mut Pair, side: Side) -> Vec<PathStats> {
    node(pair, side).connection(0).path_stats()
}

/// Bytes lost on one path and retransmitted there.
fn resent(pair: &mut Pair) -> Vec<u64> {
    paths(pair, Side::Client).iter().map(|path| path.bytes_resent).collect()
}

/// Moves streams of `total` bytes in each direction, which the readers check byte by byte, and
/// calls `meanwhile` once a fifth has arrived.
fn exchange(pair: &mut Pair, total: u64, limit: Duration, mut meanwhile: impl FnMut(&mut Pair)) -> Duration {
    let (started, mut is_disturbed) = (pair.now, false);
    let sides = [Side::Client, Side::Server];
    let mut writers = sides.map(|side| {
        let id = node(pair, side).connection(0).open(Dir::Uni).expect("a stream is allowed");
        Writer::new(id, total)
    });
    let mut readers: [Option<Reader>; 2] = [None, None];
    let done = pair.run_until(limit, |pair| {
        let now = pair.now;
        for (at, side) in sides.into_iter().enumerate() {
            writers[at].pump(node(pair, side).connection(0));
            let connection = node(pair, sides[1 - at]).connection(0);
            if readers[at].is_none() {
                readers[at] = connection.accept(Dir::Uni).map(Reader::new);
            }
            if let Some(reader) = &mut readers[at] {
                reader.pump(now, connection);
            }
        }
        if !is_disturbed && readers.iter().flatten().any(|reader| reader.read > total / 5) {
            is_disturbed = true;
            meanwhile(pair);
        }
        readers.iter().flatten().filter(|reader| reader.ended).count() == 2
    });
    let read = readers.each_ref().map(|reader| reader.as_ref().map_or(0, |reader| reader.read));
    let shown = [show(pair, Side::Client), show(pair, Side::Server)].concat();
    assert!(done && is_disturbed, "seed {}: {read:?} of {total} bytes after {limit}\n{shown}", pair.seed);
    assert_eq!(read, [total; 2], "seed {}", pair.seed);
    pair.now - started
}

#[test]
fn everything_arrives_in_order_over_three_different_lossy_links() {
    for (seed, policy) in (100..).zip(Policy::ALL) {
        let mut pair = connected(seed, &lossy_links(3), policy);
        let took = exchange(&mut pair, 4_000_000, Duration::from_secs(60), |_| {});
        let lost: u64 = (0..3).map(|at| pair.link_pair(at)[0].stats().lost).sum();
        assert!(lost > 50, "{policy}: only {lost} packets were lost");
        // Between 2.3 and 3.0 s.
        assert!(took < Duration::from_secs(4), "{policy}: {took}\n{}", show(&mut pair, Side::Client));
    }
}

#[test]
fn everything_arrives_in_order_when_any_path_fails_during_a_transfer() {
    for policy in Policy::ALL {
        for (failing, directions) in [(0, &[0, 1][..]), (0, &[0]), (0, &[1]), (1, &[0, 1]), (2, &[0, 1]), (2, &[1])] {
            let seed = 200 + failing as u64 * 10 + directions.len() as u64;
            let mut pair = connected(seed, &lossy_links(1), policy);
            let took = exchange(&mut pair, 3_000_000, Duration::from_secs(60), |pair| cut(pair, failing, directions));
            let what = format!("{policy}, link {failing} cut in {directions:?}: {took}");
            let shown = [show(&mut pair, Side::Client), show(&mut pair, Side::Server)].concat();
            assert!(vanished(&mut pair, failing) > 0, "{what}: the cut did nothing");
            // Between 1.0 and 3.6 s, most of them for the best path.
            assert!(took < Duration::from_secs(5), "{what}\n{shown}");
            for direction in directions {
                let of_sender = paths(&mut pair, [Side::Client, Side::Server][*direction]);
                let failed = of_sender.iter().find(|path| usize::from(path.addresses.socket) == failing);
                assert_eq!(failed.map(|path| path.state), Some(PathState::Silent), "{what}\n{shown}");
            }
        }
    }
}

#[test]
fn losses_are_repaired_on_their_own_path_if_the_policy_says_so() {
    for (seed, policy) in (300..).zip(Policy::ALL) {
        let mut links = different_links();
        links[1].loss = Ratio::new(4, 100);
        let mut pair = connected(seed, &links, policy);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(4));
        let lost_bytes = |path: &PathStats| path.packets_lost * 1452;
        let (resent, stats) = (resent(&mut pair), paths(&mut pair, Side::Client));
        let lost = lost_bytes(&stats[1]);
        let what = format!("{policy}: resent {resent:?}\n{}", show(&mut pair, Side::Client));
        assert!(lost > 20 * 1452, "too little was lost: {what}");
        if policy == Policy::DRDA || policy == Policy::DRCA {
            for (path, resent) in stats.iter().zip(&resent) {
                // Data just declared lost may still wait to be sent, and late packets need no
                // retransmission.
                assert!(*resent <= lost_bytes(path) && *resent >= lost_bytes(path) / 2, "path {}: {what}", path.id);
            }
        } else {
            assert_eq!(resent, [0; 3], "{what}");
        }
    }
}

#[test]
fn a_lossy_path_that_fails_does_not_stall_data_waiting_for_it() {
    for (seed, policy) in [(400, Policy::DRDA), (401, Policy::DRCA)] {
        let mut links = [link(10, 10), link(10, 10)];
        links[1].loss = Ratio::new(10, 100);
        let mut pair = connected(seed, &links, policy);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(2));
        let before = resent(&mut pair)[1];
        assert!(before > 0, "{policy}: nothing was resent");
        let cut_at = pair.now;
        cut(&mut pair, 1, &[0, 1]);
        flow.run(&mut pair, Duration::from_secs(2));
        let (gap, at) = flow.longest_gap(cut_at, pair.now);
        let rate = flow.mbps(cut_at + Duration::from_millis(500), pair.now);
        let shown = show(&mut pair, Side::Client);
        assert!(vanished(&mut pair, 1) > 0, "{policy}: the cut did nothing");
        assert!(gap < Duration::from_millis(250), "{policy}: a gap of {gap} at {at:?}\n{shown}");
        assert!(rate > 0.8 * capacity_mbps(&links[..1]), "{policy}: {rate} Mb/s\n{shown}");
    }
}

/// About how many bytes of packets were lost on the second path and not retransmitted there.
fn waiting(pair: &mut Pair) -> u64 {
    let path = &paths(pair, Side::Client)[1];
    (path.packets_lost * 1400).saturating_sub(path.bytes_resent)
}

/// A stream over two equal links. The second stalls for a moment when all but `left` bytes have
/// been read, so that data lost there wait for its window when `then` runs. Returns the time that
/// the remainder took.
fn rest_after_a_gap(seed: u64, policy: Policy, left: u64, then: impl Fn(&mut Pair)) -> Duration {
    const TOTAL: u64 = 3_000_000;
    let mut pair = connected(seed, &[link(20, 10), link(20, 10)], policy);
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    let (mut writer, mut reader) = (Writer::new(id, TOTAL), Reader::new(id));
    let mut read_to = |pair: &mut Pair, enough: u64, span: Duration| {
        pair.run_until(span, |pair| {
            writer.pump(pair.client.connection(0));
            let now = pair.now;
            reader.pump_if_known(now, pair.server.connection(0));
            reader.ended || reader.read >= enough
        })
    };
    assert!(read_to(&mut pair, TOTAL - left, Duration::from_secs(10)), "{policy}");
    cut(&mut pair, 1, &[0]);
    read_to(&mut pair, u64::MAX, Duration::from_millis(12));
    set_state(&mut pair, 1, &[0], LineState::Up);
    let mut waited = 0;
    while waiting(&mut pair) < 10 * 1400 && waited < 100 {
        read_to(&mut pair, u64::MAX, Duration::from_millis(1));
        waited += 1;
    }
    assert!(waited < 100, "{policy}: nothing waits\n{}", show(&mut pair, Side::Client));
    let from = pair.now;
    then(&mut pair);
    let is_done = read_to(&mut pair, u64::MAX, Duration::from_secs(20));
    assert!(is_done, "{policy}: not all of it arrives\n{}", show(&mut pair, Side::Client));
    pair.now - from
}

#[test]
fn data_waiting_for_a_sound_path_are_not_late() {
    for policy in [Policy::DRDA, Policy::DRCA] {
        for left in [100_000, 150_000, 200_000, 300_000, 400_000] {
            let took = rest_after_a_gap(400, policy, left, |_| {});
            assert!(took < Duration::from_millis(100), "{policy}, {left} bytes left: {took}");
        }
    }
}

#[test]
fn data_waiting_for_a_path_that_fails_move_to_others() {
    for policy in [Policy::DRDA, Policy::DRCA] {
        for (left, most_ms) in [(100_000, 100), (200_000, 160), (1_000_000, 700)] {
            let took = rest_after_a_gap(401, policy, left, |pair| cut(pair, 1, &[0, 1]));
            assert!(took < Duration::from_millis(most_ms), "{policy}, {left} bytes left: {took}");
        }
    }
}

#[test]
fn data_waiting_for_a_socket_that_stays_full_move_to_others() {
    for policy in [Policy::DRDA, Policy::DRCA] {
        for (left, most_ms) in [(100_000, 100), (200_000, 160), (1_000_000, 700)] {
            let took = rest_after_a_gap(402, policy, left, |pair| pair.client.full.push(1));
            assert!(took < Duration::from_millis(most_ms), "{policy}, {left} bytes left: {took}");
        }
    }
}

/// Packets the server sent while the client sent nothing but a stream: acknowledgements, by path.
/// Also the rate.
fn acknowledgements(seed: u64, policy: Policy) -> (Vec<u64>, f64) {
    let mut pair = connected(seed, &different_links(), policy);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    let sent = |pair: &mut Pair| paths(pair, Side::Server).iter().map(|path| path.packets_sent).collect::<Vec<_>>();
    let (before, from) = (sent(&mut pair), pair.now);
    flow.run(&mut pair, Duration::from_secs(3));
    let counts = sent(&mut pair).iter().zip(before).map(|(after, before)| after - before).collect();
    (counts, flow.mbps(from, pair.now))
}

#[test]
fn central_acknowledgements_are_fewer_and_leave_on_the_best_path() {
    for (seed, central, own) in [(500, Policy::CRCA, Policy::CRDA), (501, Policy::DRCA, Policy::DRDA)] {
        let ((central_counts, central_rate), (own_counts, own_rate)) =
            (acknowledgements(seed, central), acknowledgements(seed, own));
        let what =
            format!("{central}: {central_counts:?}, {central_rate} Mb/s; {own}: {own_counts:?}, {own_rate} Mb/s");
        let (all_central, all_own) = (central_counts.iter().sum::<u64>(), own_counts.iter().sum::<u64>());
        assert!(all_central > 0 && all_central * 4 < all_own * 3, "{what}");
        assert!(central_counts[0] * 20 > all_central * 19, "nearly all of them on the first path: {what}");
        assert!(own_counts.iter().all(|count| *count * 20 > all_own), "on every path: {what}");
        assert!(central_rate > 0.9 * own_rate, "{what}");
    }
}

#[test]
fn central_round_trips_combine_one_path_and_the_best_return_path() {
    let mut pair = connected_as(Setup::new(510).over(&different_links()).with_config(|config| {
        config.policy = Policy::CRCA;
        config.scheduler = Strategy::RoundRobin;
    }));
    let id = pair.client.connection(0).open(Dir::Bi).expect("a stream is allowed");
    // Small writes, on each path in turn: queues stay empty.
    for _ in 0..300 {
        pair.client.connection(0).write(id, Bytes::from_static(&[7; 3000])).expect("the send buffer has space");
        pair.run_for(Duration::from_millis(20));
    }
    for (path, there_and_back) in paths(&mut pair, Side::Client).iter().zip([5 + 5, 20 + 5, 40 + 5]) {
        let expected = Duration::from_millis(there_and_back);
        let what = format!("path {}: {} at least {}, not {expected}", path.id, path.round_trip, path.round_trip_min);
        assert!(path.packets_acked > 100, "{what}: {} acknowledged", path.packets_acked);
        let most = expected + Duration::from_millis(8);
        assert!(path.round_trip_min >= expected && path.round_trip_min < most, "{what}");
        assert!(path.round_trip >= expected && path.round_trip < most, "{what}");
    }
}

#[test]
fn the_minimum_round_trip_is_measured_anew_when_acknowledgements_change_path() {
    let links = [link(20, 5), link(20, 30)];
    let mut pair = connected_as(Setup::new(520).over(&links).with_config(|config| {
        config.policy = Policy::CRCA;
        config.scheduler = Strategy::RoundRobin;
    }));
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    let min_of = |pair: &mut Pair| paths(pair, Side::Client)[1].round_trip_min;
    let before = min_of(&mut pair);
    assert!(before < Duration::from_millis(45), "back on the first path: {before}");
    cut(&mut pair, 0, &[0, 1]);
    flow.run(&mut pair, Duration::from_secs(3));
    let after = min_of(&mut pair);
    assert!(vanished(&mut pair, 0) > 0, "the cut did nothing");
    assert!(after >= Duration::from_millis(60), "back on its own path: {after} after {before}");
}

#[test]
fn a_transfer_continues_after_a_cut_of_the_return_path_of_all_acknowledgements() {
    for (seed, directions) in [(530, &[1][..]), (531, &[0, 1])] {
        let links = different_links();
        let mut pair = connected(seed, &links, Policy::CRCA);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(2));
        let cut_at = pair.now;
        cut(&mut pair, 0, directions);
        flow.run(&mut pair, Duration::from_secs(4));
        let (gap, at) = flow.longest_gap(cut_at, pair.now);
        let rate = flow.mbps(cut_at + Duration::from_secs(2), pair.now);
        let shown = [show(&mut pair, Side::Client), show(&mut pair, Side::Server)].concat();
        let what = format!("cut in {directions:?}: a gap of {gap} at {at:?}, {rate} Mb/s\n{shown}");
        assert!(vanished(&mut pair, 0) > 0, "the cut did nothing");
        assert!(gap < Duration::from_millis(1000), "{what}");
        assert!(rate > 0.8 * capacity_mbps(&links[1..]), "{what}");
    }
}

#[test]
fn with_one_path_all_policies_send_the_same_bytes() {
    let record = |policy| {
        let setup = Setup::new(540).with_loss(3).with_config(|config| config.policy = policy);
        let mut pair = setup.build();
        pair.record = Some(Vec::new());
        pair.connect();
        exchange(&mut pair, 500_000, Duration::from_secs(60), |_| {});
        pair.record.take().expect("recording is on")
    };
    let expected = record(Policy::default());
    assert!(expected.len() > 500);
    for policy in Policy::ALL {
        assert!(record(policy) == expected, "{policy} sends different bytes");
    }
}
