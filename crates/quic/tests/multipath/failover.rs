//! Links that fail: silently, in one direction, for a while, repeatedly; and the effect on the
//! application.

use netem::{LineState, LinkConfig};
use quic::Side;
use units::{Duration, Ratio};

use super::flow::{Flow, node};
use super::links::{BOTH, capacity_mbps, change, connected, link_of, set_state};
use crate::support::Pair;

/// Long enough for every path to reach its rate.
const WARM_UP: Duration = Duration::from_secs(2);

/// The share of its former rate that a link carries again, a second and ten round trips after its
/// failure. A window that lost everything is reduced to 0.7 (RFC 9438), and grows slowly over long
/// round trips.
const SHARE_AGAIN: f64 = 0.65;

/// Four links with the same round trip; the first has the highest rate.
fn four(round_trip_ms: u64) -> Vec<LinkConfig> {
    [24, 12, 8, 6].map(|mbps| link_of(mbps, Duration::from_micros(round_trip_ms * 500))).to_vec()
}

fn vanished(pair: &mut Pair, link: usize) -> u64 {
    pair.link_pair(link).iter().map(|direction| direction.stats().vanished).sum()
}

pub(crate) fn show(pair: &mut Pair, side: Side) -> String {
    let stats = node(pair, side).connection(0).path_stats();
    let line = |path: &quic::PathStats| {
        format!(
            "path {} {} rtt {} window {} in flight {} sent {} acked {} lost {} silences {}\n",
            path.id,
            path.state.name(),
            path.round_trip,
            path.congestion.window,
            path.in_flight_bytes,
            path.packets_sent,
            path.packets_acked,
            path.packets_lost,
            path.silences
        )
    };
    stats.iter().map(line).collect()
}

/// The best of four links is cut in `directions`; the data flow from `from`.
fn best_is_cut(seed: u64, round_trip_ms: u64, from: Side, directions: &[usize]) {
    let links = four(round_trip_ms);
    let round_trip = Duration::from_millis(round_trip_ms);
    let mut pair = connected(seed, &links);
    let mut flow = Flow::new(&mut pair, from);
    let carried = |pair: &Pair| pair.links[data_direction(from)].stats().delivered_bytes;
    flow.run(&mut pair, WARM_UP - Duration::from_secs(1));
    let carried_at_first = carried(&pair);
    flow.run(&mut pair, Duration::from_secs(1));
    let before = flow.mbps_lately(&pair);
    let cut_at = pair.now;
    let carried_at_once = carried(&pair) - carried_at_first;
    set_state(&mut pair, 0, directions, LineState::Silent);
    flow.run(&mut pair, Duration::from_secs(3));
    let what = format!("seed {seed}, {round_trip_ms} ms, from {from:?}, cut {directions:?}, {before} Mb/s before\n");
    let shown = show(&mut pair, from);
    assert!(vanished(&mut pair, 0) > 0, "{what}: the cut did nothing");
    let (gap, at) = flow.longest_gap(cut_at, pair.now);
    let rate = flow.mbps(cut_at + Duration::from_secs(1), pair.now);
    let capacity = capacity_mbps(&links[1..]);
    assert!(gap <= Duration::from_millis(100) + round_trip * 3, "{what}: a gap of {gap} at {at:?}\n{shown}");
    assert!(rate >= 0.8 * capacity, "{what}: {rate} of {capacity} Mb/s\n{shown}");

    // The link is restored.
    let up_at = pair.now;
    set_state(&mut pair, 0, directions, LineState::Up);
    let settled = Duration::from_secs(1) + round_trip * 10;
    flow.run(&mut pair, settled);
    let carried_before = carried(&pair);
    flow.run(&mut pair, Duration::from_secs(1));
    let share = (carried(&pair) - carried_before) as f64 / carried_at_once as f64;
    let rate = flow.mbps_lately(&pair);
    let (gap, at) = flow.longest_gap(up_at, pair.now);
    let shown = show(&mut pair, from);
    assert!(share > SHARE_AGAIN && rate > 0.8 * before, "{what}: back: {share} {rate} Mb/s\n{shown}");
    assert!(gap <= Duration::from_millis(100) + round_trip, "{what}: back: a gap of {gap} at {at:?}\n{shown}");
}

fn data_direction(from: Side) -> usize {
    usize::from(from == Side::Server)
}

#[test]
fn the_best_of_four_is_cut_at_5_ms() {
    best_is_cut(1, 5, Side::Client, BOTH);
}

#[test]
fn the_best_of_four_is_cut_at_20_ms() {
    best_is_cut(2, 20, Side::Client, BOTH);
}

#[test]
fn the_best_of_four_is_cut_at_100_ms() {
    best_is_cut(3, 100, Side::Client, BOTH);
}

#[test]
fn the_best_of_four_is_cut_under_a_sending_server() {
    best_is_cut(4, 20, Side::Server, BOTH);
}

#[test]
fn the_best_of_four_is_cut_in_the_direction_of_the_data() {
    best_is_cut(5, 20, Side::Client, &[0]);
}

#[test]
fn all_paths_are_cut_for_two_seconds() {
    for (seed, round_trip_ms) in [(7, 5), (8, 20), (9, 100)] {
        let links = four(round_trip_ms);
        let mut pair = connected(seed, &links);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, WARM_UP);
        let before = flow.mbps_lately(&pair);
        (0..4).for_each(|link| set_state(&mut pair, link, BOTH, LineState::Silent));
        flow.run(&mut pair, Duration::from_secs(2));
        let up_at = pair.now;
        (0..4).for_each(|link| set_state(&mut pair, link, BOTH, LineState::Up));
        flow.run(&mut pair, Duration::from_secs(5));
        let shown = show(&mut pair, Side::Client);
        let (gap, at) = flow.longest_gap(up_at, pair.now);
        let rate = flow.mbps(up_at + Duration::from_secs(3), pair.now);
        assert!(
            gap < Duration::from_millis(1100 + round_trip_ms),
            "seed {seed}: a gap of {gap} at {at:?}, up at {up_at:?}\n{shown}"
        );
        assert!(rate > 0.8 * before, "seed {seed}: {rate} after {before}\n{shown}");
        (0..4).for_each(|link| assert!(vanished(&mut pair, link) > 0, "seed {seed}: the cut of {link} did nothing"));
    }
}

#[test]
fn the_best_of_four_is_cut_in_the_direction_of_the_acknowledgements() {
    best_is_cut(6, 20, Side::Client, &[1]);
}

#[test]
fn a_server_that_sends_has_its_best_path_cut_in_one_direction() {
    best_is_cut(10, 20, Side::Server, &[1]);
    best_is_cut(11, 20, Side::Server, &[0]);
}

#[test]
fn a_flapping_link_does_not_reduce_the_goodput_of_the_others() {
    let links = four(20);
    let mut pair = connected(12, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, WARM_UP);
    let from_at = pair.now;
    for _ in 0..8 {
        set_state(&mut pair, 0, BOTH, LineState::Silent);
        flow.run(&mut pair, Duration::from_millis(300));
        set_state(&mut pair, 0, BOTH, LineState::Up);
        flow.run(&mut pair, Duration::from_millis(200));
    }
    let (gap, at) = flow.longest_gap(from_at, pair.now);
    let (rate, rest) = (flow.mbps(from_at, pair.now), capacity_mbps(&links[1..]));
    let shown = show(&mut pair, Side::Client);
    assert!(vanished(&mut pair, 0) > 0, "the cuts did nothing");
    assert!(gap <= Duration::from_millis(160), "{gap} at {at:?}\n{shown}");
    assert!(rate >= 0.8 * rest, "{rate} of {rest} Mb/s\n{shown}");
}

#[test]
fn a_path_that_loses_a_third_does_not_slow_down_a_good_one() {
    let links = [link_of(15, Duration::from_millis(10)), link_of(15, Duration::from_millis(10))];
    let mut pair = connected(13, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    let from_at = pair.now;
    change(&mut pair, 1, BOTH, |config| config.loss = Ratio::new(30, 100));
    flow.run(&mut pair, Duration::from_secs(4));
    let (gap, at) = flow.longest_gap(from_at, pair.now);
    let (rate, good) = (flow.mbps(from_at + Duration::from_secs(1), pair.now), capacity_mbps(&links[..1]));
    let shown = show(&mut pair, Side::Client);
    assert!(pair.link_pair(1)[0].stats().lost > 0);
    assert!(gap <= Duration::from_millis(160), "{gap} at {at:?}\n{shown}");
    assert!(rate >= 0.9 * good, "{rate} of {good} Mb/s\n{shown}");
}

#[test]
fn a_full_socket_stops_no_other_path() {
    let links = four(20);
    let mut pair = connected(14, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, WARM_UP);
    let from_at = pair.now;
    let offered = pair.links[0].stats().offered;
    pair.client.full.push(0);
    flow.run(&mut pair, Duration::from_secs(2));
    assert_eq!(pair.links[0].stats().offered, offered, "a full socket accepts nothing");
    let (gap, at) = flow.longest_gap(from_at, pair.now);
    let (rate, rest) = (flow.mbps(from_at + Duration::from_millis(500), pair.now), capacity_mbps(&links[1..]));
    let shown = show(&mut pair, Side::Client);
    assert!(gap <= Duration::from_millis(160), "{gap} at {at:?}\n{shown}");
    assert!(rate >= 0.8 * rest, "{rate} of {rest} Mb/s\n{shown}");
    pair.client.full.clear();
    flow.run(&mut pair, Duration::from_secs(1));
    let from_at = pair.now;
    flow.run(&mut pair, Duration::from_secs(1));
    let rate = flow.mbps(from_at, pair.now);
    assert!(rate >= 0.8 * capacity_mbps(&links), "with space again: {rate}\n{}", show(&mut pair, Side::Client));
}

#[test]
fn a_message_does_not_wait_for_a_full_socket() {
    let mut pair = connected(15, &[link_of(50, Duration::from_millis(5)), link_of(50, Duration::from_millis(30))]);
    pair.client.full.push(0);
    let took = crate::support::apps::transfer(&mut pair, 200, Duration::from_secs(20));
    assert!(took < Duration::from_millis(200), "{took}");
}

#[test]
fn plans_refused_on_one_path_go_elsewhere() {
    let links = four(20);
    for share in [Ratio::new(1, 2), Ratio::ONE] {
        let mut pair = connected(16, &links);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, WARM_UP);
        let from_at = pair.now;
        flow.run(&mut pair, Duration::from_millis(100));
        let lost = pair.client.connection(0).path_stats()[0].packets_lost;
        (pair.client.refuse, pair.client.refuse_only) = (share, Some(0));
        flow.run(&mut pair, Duration::from_secs(2));
        assert!(pair.client.refused > 0, "nothing was refused");
        let (gap, at) = flow.longest_gap(from_at, pair.now);
        let (rate, rest) = (flow.mbps(from_at + Duration::from_millis(500), pair.now), capacity_mbps(&links[1..]));
        let shown = show(&mut pair, Side::Client);
        assert!(gap <= Duration::from_millis(160), "{gap} at {at:?}\n{shown}");
        assert!(rate >= 0.8 * rest, "{rate} of {rest} Mb/s\n{shown}");
        let lost = pair.client.connection(0).path_stats()[0].packets_lost - lost;
        assert!(share != Ratio::ONE || lost == 0, "unsent packets are not lost: {lost}");
        pair.client.refuse = Ratio::ZERO;
        flow.run(&mut pair, Duration::from_millis(1500));
        let from_at = pair.now;
        flow.run(&mut pair, Duration::from_secs(1));
        let rate = flow.mbps(from_at, pair.now);
        assert!(rate >= 0.8 * capacity_mbps(&links), "accepted again: {rate}\n{}", show(&mut pair, Side::Client));
    }
}

#[test]
fn a_path_refused_from_the_start_costs_one_challenge_per_second() {
    for (seed, side) in [(17, Side::Client), (18, Side::Server)] {
        let link = || link_of(15, Duration::from_millis(10));
        let mut pair = crate::support::Setup::new(seed).over(&[link(), link(), link()]).build();
        let refusing = node(&mut pair, side);
        (refusing.refuse, refusing.refuse_only) = (Ratio::ONE, Some(1));
        pair.connect();
        pair.open_paths();
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(3));
        let refused = node(&mut pair, side).refused;
        assert!((1..100).contains(&refused), "{side:?}: {refused} refused");
        let rate = flow.mbps_lately(&pair);
        assert!(rate > 0.8 * capacity_mbps(&[link(), link()]), "{side:?}: {rate} Mb/s\n{}", show(&mut pair, side));
        node(&mut pair, side).refuse = Ratio::ZERO;
        flow.run(&mut pair, Duration::from_secs(3));
        let rate = flow.mbps_lately(&pair);
        let all = capacity_mbps(&[link(), link(), link()]);
        assert!(rate > 0.8 * all, "{side:?}: {rate} Mb/s in the end\n{}", show(&mut pair, side));
    }
}

#[test]
fn a_link_that_stalls_and_resumes_is_used_again() {
    for (seed, held_ms) in [(19, 300), (20, 1000), (21, 4000)] {
        let links = four(20);
        let mut pair = connected(seed, &links);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, WARM_UP);
        let before = flow.mbps_lately(&pair);
        let held_at = pair.now;
        // Packets held on the link arrive later, so RTT samples are taken that do not describe the
        // link.
        set_state(&mut pair, 0, BOTH, LineState::Held);
        flow.run(&mut pair, Duration::from_millis(held_ms));
        set_state(&mut pair, 0, BOTH, LineState::Up);
        flow.run(&mut pair, Duration::from_millis(1200));
        let carried = pair.links[0].stats().delivered_bytes;
        flow.run(&mut pair, Duration::from_secs(1));
        let share = (pair.links[0].stats().delivered_bytes - carried) as f64 * 8.0 / 24e6;
        let (gap, at) = flow.longest_gap(held_at, pair.now);
        let rate = flow.mbps_lately(&pair);
        let shown = show(&mut pair, Side::Client);
        assert!(gap <= Duration::from_millis(160), "held for {held_ms} ms: a gap of {gap} at {at:?}\n{shown}");
        assert!(
            share > SHARE_AGAIN && rate > 0.8 * before,
            "held for {held_ms} ms: {share}, {rate} of {before}\n{shown}"
        );
    }
}

#[test]
fn a_socket_that_is_full_for_an_hour_causes_no_busy_loop() {
    for count in 1..=2 {
        let links = vec![link_of(15, Duration::from_millis(10)); count];
        let setup =
            crate::support::Setup::new(22).over(&links).with_config(|config| config.idle_timeout = Duration::ZERO);
        let mut pair = setup.build();
        pair.connect();
        pair.open_paths();
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_millis(500));
        pair.client.full.extend(0..count as u16);
        // The harness fails if something is due without end.
        flow.run(&mut pair, Duration::from_secs(3600));
        pair.client.full.clear();
        let read = flow.read();
        flow.run(&mut pair, Duration::from_secs(2));
        assert!(
            flow.read() > read + 1_000_000,
            "{count} paths: {} more\n{}",
            flow.read() - read,
            show(&mut pair, Side::Client)
        );
    }
}
