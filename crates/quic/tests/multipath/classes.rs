//! Streams that may take certain paths only.

use netem::LineState;
use quic::{Chunk, Dir, PathId, PathSet, Policy, RateLimit, ReadError, Side, Strategy, StreamId};
use units::{Duration, Instant, Rate, Ratio};

use super::flow::{Flow, run_all};
use super::links::{BOTH, connected, connected_as, link, set_delay, set_state};
use crate::support::{Pair, Setup};

fn only(paths: &[u32]) -> PathSet {
    let paths: Vec<PathId> = paths.iter().copied().map(PathId).collect();
    PathSet::only(&paths).expect("a valid number of paths")
}

fn delivered(pair: &mut Pair) -> Vec<u64> {
    (0..=pair.more_links.len()).map(|at| pair.link_pair(at)[0].stats().delivered_bytes).collect()
}

fn three_links(seed: u64, change: impl Fn(&mut Setup)) -> Pair {
    let mut setup = Setup::new(seed).over(&[link(20, 5), link(20, 20), link(20, 40)]).with_config(|config| {
        config.datagram_size = 1452;
    });
    change(&mut setup);
    connected_as(setup)
}

/// Bytes that challenges, probes and acknowledgements of the peer's few packets take on a link
/// within some seconds, at most. One full packet of the stream per second would exceed it.
const CONTROL_BYTES_MAX: u64 = 4_000;

#[test]
fn a_stream_takes_its_paths_and_no_other_under_every_strategy_and_policy_and_with_losses() {
    let strategies =
        [Strategy::EarliestDelivery, Strategy::RoundRobin, Strategy::LowestRtt, Strategy::Redundant { copies: 3 }];
    for (seed, strategy) in (20..).zip(strategies) {
        for policy in Policy::ALL {
            let mut pair = three_links(seed, |setup| {
                for config in [&mut setup.client, &mut setup.server] {
                    (config.scheduler, config.policy) = (strategy, policy);
                }
            });
            pair.set_links(|link| link.loss = Ratio::new(2, 100));
            pair.run_for(Duration::from_secs(1));
            let mut flow = Flow::new(&mut pair, Side::Client);
            pair.client
                .connection(0)
                .set_stream_paths(StreamId::new(Side::Client, Dir::Uni, 0), only(&[1]))
                .expect("open");
            let before = delivered(&mut pair);
            flow.run(&mut pair, Duration::from_secs(3));
            let lost = pair.link_pair(1)[0].stats().lost;
            let carried: Vec<u64> =
                delivered(&mut pair).iter().zip(before).map(|(after, before)| after - before).collect();
            let text = format!("{strategy} {policy}: {carried:?}, {lost} lost");
            // The controller takes losses for congestion and slows down.
            assert!(lost > 4 && flow.read() > 300_000, "{text}, {} read", flow.read());
            assert!(carried[0] < CONTROL_BYTES_MAX && carried[2] < CONTROL_BYTES_MAX, "{text}");
        }
    }
}

#[test]
fn a_stream_confined_during_a_transfer_uses_only_its_paths_from_then_on() {
    for policy in Policy::ALL {
        let mut pair = three_links(24, |setup| {
            for config in [&mut setup.client, &mut setup.server] {
                config.policy = policy;
            }
        });
        pair.set_links(|link| link.loss = Ratio::new(2, 100));
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(2));
        let spread = delivered(&mut pair);
        assert!(spread.iter().all(|bytes| *bytes > 500_000), "the stream took all paths: {spread:?}");
        pair.client
            .connection(0)
            .set_stream_paths(StreamId::new(Side::Client, Dir::Uni, 0), only(&[0, 2]))
            .expect("open");
        // Data already sent stay in flight for a while.
        flow.run(&mut pair, Duration::from_millis(60));
        let before = delivered(&mut pair);
        let read = flow.read();
        flow.run(&mut pair, Duration::from_secs(3));
        let carried: Vec<u64> = delivered(&mut pair).iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(carried[1] < CONTROL_BYTES_MAX, "{policy}: {carried:?}");
        assert!(carried[0] > 1_000_000 && carried[2] > 500_000, "{policy}: {carried:?}");
        assert!(flow.read() > read + 2_000_000, "data lost there arrive on the others: {policy}: {carried:?}");
        // Permit all paths again.
        pair.client
            .connection(0)
            .set_stream_paths(StreamId::new(Side::Client, Dir::Uni, 0), PathSet::ALL)
            .expect("open");
        let before = delivered(&mut pair);
        flow.run(&mut pair, Duration::from_secs(2));
        assert!(delivered(&mut pair)[1] - before[1] > 300_000, "{policy}");
    }
}

#[test]
fn streams_of_different_paths_fill_them_side_by_side_and_none_waits_for_another() {
    let mut pair = three_links(25, |_| {});
    let mut flows: Vec<Flow> = (0..3).map(|_| Flow::new(&mut pair, Side::Client)).collect();
    for (index, paths) in [(0, only(&[0])), (1, only(&[1, 2])), (2, PathSet::ALL)] {
        let id = StreamId::new(Side::Client, Dir::Uni, index);
        pair.client.connection(0).set_stream_paths(id, paths).expect("open");
        // The confined streams are more urgent than the free one, and their windows are often full.
        pair.client.connection(0).set_priority(id, 2 - index as i32).expect("open");
    }
    let mut all: Vec<&mut Flow> = flows.iter_mut().collect();
    run_all(&mut pair, &mut all, Duration::from_secs(2));
    let from = pair.now;
    run_all(&mut pair, &mut all, Duration::from_secs(3));
    let mbps: Vec<f64> = flows.iter().map(|flow| flow.mbps(from, pair.now)).collect();
    assert!(mbps[0] > 16.0 && mbps[1] > 30.0, "{mbps:?}");

    // The path of the most urgent stream is cut: the others continue, and it continues when its
    // path returns.
    set_state(&mut pair, 0, BOTH, LineState::Silent);
    let mut all: Vec<&mut Flow> = flows.iter_mut().collect();
    run_all(&mut pair, &mut all, Duration::from_secs(1));
    let (from, read) = (pair.now, all[0].read());
    run_all(&mut pair, &mut all, Duration::from_secs(3));
    assert_eq!(all[0].read(), read, "its path is cut");
    assert!(all[1].mbps(from, pair.now) > 30.0, "{}", all[1].mbps(from, pair.now));
    set_state(&mut pair, 0, BOTH, LineState::Up);
    run_all(&mut pair, &mut all, Duration::from_secs(2));
    let from = pair.now;
    run_all(&mut pair, &mut all, Duration::from_secs(2));
    assert!(all[0].mbps(from, pair.now) > 16.0, "{}", all[0].mbps(from, pair.now));
}

/// Durations of bursts of which some packets leave on a path that has become slow since it was last
/// used.
fn bursts(is_beside_one_that_waits: bool) -> Duration {
    let (usual, slow) = (Duration::from_millis(30), Duration::from_millis(200));
    let mut pair = connected(30, &[link(20, 5), link(20, 30)]);
    if is_beside_one_that_waits {
        let client = pair.client.connection(0);
        let id = client.open(Dir::Bi).expect("a stream is allowed");
        client.set_stream_paths(id, only(&[9])).expect("open");
        client.write(id, vec![7; 10_000].into()).expect("the send buffer has space");
    }
    let mut took = Duration::ZERO;
    for _ in 0..10 {
        let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
        set_delay(&mut pair, 1, slow);
        let begun = pair.now;
        pair.client.connection(0).write(id, vec![7; 100_000].into()).expect("the send buffer has space");
        pair.client.connection(0).finish(id).expect("open");
        let mut ended = false;
        let done = pair.run_until(Duration::from_secs(5), |pair| {
            let now = pair.now;
            let server = pair.server.connection(0);
            while server.accept(Dir::Uni).is_some() {}
            while !ended {
                match server.read(now, id, 1 << 20) {
                    Ok(Chunk::Bytes(_)) => {}
                    Ok(Chunk::End) => ended = true,
                    Err(_) => break,
                }
            }
            ended
        });
        assert!(done, "it arrives");
        took += pair.now - begun;
        set_delay(&mut pair, 1, usual);
        // Long enough for the path to be tried again.
        pair.run_for(Duration::from_secs(8));
    }
    took
}

#[test]
fn late_data_are_reinjected_although_a_confined_stream_waits() {
    let [plain, with_waiting] = [false, true].map(bursts);
    assert!(with_waiting < plain + plain / 20, "{with_waiting}, {plain} without a waiting stream");
}

#[test]
fn a_stream_whose_paths_are_abandoned_waits_until_it_gets_others() {
    let mut pair = three_links(26, |_| {});
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    pair.client.connection(0).set_stream_paths(id, only(&[1])).expect("open");
    let now = pair.now;
    assert!(pair.client.connection(0).abandon_path(now, PathId(1), 0));
    pair.run_for(Duration::from_secs(1));
    pair.client.connection(0).write(id, vec![7; 200_000].into()).expect("the send buffer has space");
    pair.client.connection(0).finish(id).expect("open");
    let (mut read, mut ended) = (0, false);
    let mut read_on = |pair: &mut Pair, span: Duration| {
        pair.run_until(span, |pair| {
            let now = pair.now;
            let server = pair.server.connection(0);
            while server.accept(Dir::Uni).is_some() {}
            while !ended {
                match server.read(now, id, 1 << 20) {
                    Ok(Chunk::Bytes(bytes)) => read += bytes.len(),
                    Ok(Chunk::End) => ended = true,
                    Err(ReadError::Blocked | ReadError::Closed) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            ended
        });
        (read, ended)
    };
    assert_eq!(read_on(&mut pair, Duration::from_secs(3)), (0, false), "no other path carries it");
    // Waiting costs no processor time: no timer fires again and again.
    let rest = pair.client.connection(0).poll_timeout().expect("an idle timer") - pair.now;
    assert!(rest > Duration::from_millis(100), "{rest}");
    pair.client.connection(0).set_stream_paths(id, only(&[2])).expect("open");
    assert_eq!(read_on(&mut pair, Duration::from_secs(3)), (200_000, true));
}

#[test]
fn a_connection_with_one_path_sends_only_streams_that_may_take_it() {
    let mut pair = Setup::new(27).build();
    pair.connect();
    let ids: Vec<StreamId> = (0..2).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    for (id, path) in ids.iter().zip([3, 0]) {
        let client = pair.client.connection(0);
        client.set_stream_paths(*id, only(&[path])).expect("open");
        client.set_priority(*id, path as i32).expect("open");
        client.write(*id, vec![7; 50_000].into()).expect("the send buffer has space");
    }
    let until = Instant::ZERO + Duration::from_secs(3);
    let mut read = [0, 0];
    pair.run_until(until - pair.now, |pair| {
        let now = pair.now;
        while pair.server.connection(0).accept(Dir::Uni).is_some() {}
        for (id, read) in ids.iter().zip(&mut read) {
            while let Ok(Chunk::Bytes(bytes)) = pair.server.connection(0).read(now, *id, 1 << 20) {
                *read += bytes.len();
            }
        }
        false
    });
    assert_eq!(read, [0, 50_000]);
}

#[test]
fn the_rate_of_a_connection_holds_over_all_its_paths_together() {
    let mut pair = three_links(28, |_| {});
    pair.client.connection(0).set_rate(Some(RateLimit::at(Rate::from_mbps(30)).expect("a rate")));
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    let (from, before) = (pair.now, delivered(&mut pair));
    flow.run(&mut pair, Duration::from_secs(3));
    let mbps = flow.mbps(from, pair.now);
    // While the scheduler waits for a better path, the burst does not fill the whole interval.
    assert!((28.5..30.3).contains(&mbps), "{mbps} Mb/s");
    let used = delivered(&mut pair).iter().zip(before).filter(|(after, before)| **after > before + 500_000).count();
    assert!(used >= 2, "one link has 20 Mb/s, so others help");
}

#[test]
fn background_streams_fill_several_links_and_yield_on_each() {
    // Queues of 30 ms, as long as the round trips of the first two together.
    let mut pair = three_links(29, |_| {});
    let mut flow = Flow::new(&mut pair, Side::Client);
    pair.client.connection(0).set_background(StreamId::new(Side::Client, Dir::Uni, 0), true).expect("open");
    flow.run(&mut pair, Duration::from_secs(2));
    let from = pair.now;
    flow.run(&mut pair, Duration::from_secs(3));
    let alone = flow.mbps(from, pair.now);
    assert!(alone > 0.75 * 57.0, "{alone} Mb/s");
    let mut urgent = Flow::new(&mut pair, Side::Client);
    let mut all = [&mut flow, &mut urgent];
    run_all(&mut pair, &mut all, Duration::from_secs(2));
    let from = pair.now;
    run_all(&mut pair, &mut all, Duration::from_secs(3));
    let (background, ordinary) = (flow.mbps(from, pair.now), urgent.mbps(from, pair.now));
    assert!(
        ordinary > 2.0 * background && ordinary + background > 0.8 * 57.0,
        "background {background}, ordinary {ordinary} Mb/s"
    );
}
