//! Goodput over all links together.

use netem::LineState;
use quic::{Chunk, Dir, ReadError, Side, Strategy, StreamId};
use units::{Duration, Instant};

use super::flow::Flow;
use super::links::{capacity_mbps, connected, connected_as, link};
use crate::support::{Pair, Setup, apps};

fn goodput_share(seed: u64, links: &[netem::LinkConfig], bytes: u64) -> f64 {
    let mut pair = connected(seed, links);
    let took = apps::transfer(&mut pair, bytes, Duration::from_secs(60));
    let mbps = bytes as f64 * 8.0 / took.as_nanos() as f64 * 1000.0;
    mbps / capacity_mbps(links)
}

#[test]
fn two_equal_links_carry_twice_the_goodput_of_one() {
    let share = goodput_share(1, &[link(100, 10), link(100, 10)], 20_000_000);
    assert!(share > 0.9, "{share}");
}

#[test]
fn different_links_carry_the_sum_of_their_rates() {
    let links = [link(80, 5), link(40, 20), link(20, 40), link(10, 75)];
    let share = goodput_share(2, &links, 30_000_000);
    assert!(share > 0.85, "{share}");
}

#[test]
fn a_small_message_takes_the_shortest_path() {
    let mut pair = connected(3, &[link(100, 40), link(50, 5)]);
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    let mut writer = apps::Writer::new(id, 200);
    writer.pump(pair.client.connection(0));
    let sent_at = pair.now;
    let read = pair.run_until(Duration::from_secs(1), |pair| {
        let mut reader = apps::Reader::new(id);
        reader.pump_if_known(pair.now, pair.server.connection(0));
        reader.ended
    });
    assert!(read && pair.now - sent_at < Duration::from_millis(6), "{}", pair.now - sent_at);
}

#[test]
fn an_ordered_stream_fills_links_of_skewed_delays() {
    for (seed, links) in [
        (4, vec![link(20, 5), link(20, 80)]),
        (5, vec![link(20, 5), link(10, 40), link(10, 150)]),
        (6, vec![link(5, 2), link(30, 100)]),
    ] {
        for from in [Side::Client, Side::Server] {
            let mut pair = connected(seed, &links);
            let mut flow = Flow::new(&mut pair, from);
            flow.run(&mut pair, Duration::from_secs(6));
            let (rate, capacity) = (flow.mbps(Instant::ZERO + Duration::from_secs(3), pair.now), capacity_mbps(&links));
            assert!(rate > 0.85 * capacity, "seed {seed}, from {from:?}: {rate} of {capacity} Mb/s");
        }
    }
}

#[test]
fn many_small_streams_arrive_whole_in_both_directions() {
    let mut pair = connected(7, &[link(20, 5), link(10, 30), link(5, 60)]);
    const STREAMS: usize = 400;
    let total = |id: StreamId| 1 + id.index() * 97 % 9_000;
    let mut writers: [Vec<apps::Writer>; 2] = Default::default();
    let mut readers: [Vec<apps::Reader>; 2] = Default::default();
    let done = pair.run_until(Duration::from_secs(20), |pair| {
        let now = pair.now;
        let nodes = [&mut pair.client, &mut pair.server];
        for (side, node) in nodes.into_iter().enumerate() {
            let connection = node.connection(0);
            while writers[side].len() < STREAMS
                && let Some(id) = connection.open(Dir::Uni)
            {
                writers[side].push(apps::Writer::new(id, total(id)));
            }
            writers[side].iter_mut().filter(|writer| !writer.finished).for_each(|writer| writer.pump(connection));
            while let Some(id) = connection.accept(Dir::Uni) {
                readers[side].push(apps::Reader::new(id));
            }
            readers[side].iter_mut().filter(|reader| !reader.ended).for_each(|reader| reader.pump(now, connection));
        }
        readers.iter().all(|readers| readers.len() == STREAMS && readers.iter().all(|reader| reader.ended))
    });
    assert!(done, "{} and {} of {STREAMS} arrived", readers[0].len(), readers[1].len());
    assert!(readers.iter().flatten().all(|reader| reader.read == total(reader.id)), "whole");
}

/// A request of 200 bytes and a response of 2000, repeated for `span`; returns the duration of each
/// exchange, sorted.
fn exchanges(pair: &mut Pair, flow: &mut Flow, span: Duration) -> Vec<Duration> {
    let until = pair.now + span;
    let mut took = Vec::new();
    while pair.now < until {
        let began = pair.now;
        let id = pair.client.connection(0).open(Dir::Bi).expect("a stream is allowed");
        let client = pair.client.connection(0);
        client.write(id, vec![1; 200].into()).expect("the send buffer has space for a request");
        client.set_priority(id, 1).expect("the stream is open");
        client.finish(id).expect("the stream is open");
        let (mut asked, mut answered) = (0, 0);
        let done = pair.run_until(Duration::from_secs(5), |pair| {
            flow.pump(pair);
            let now = pair.now;
            let server = pair.server.connection(0);
            while server.accept(Dir::Bi).is_some() {}
            match server.read(now, id, 10_000) {
                Ok(Chunk::Bytes(bytes)) => asked += bytes.len(),
                Ok(Chunk::End) => {
                    assert_eq!(asked, 200);
                    server.write(id, vec![2; 2000].into()).expect("the send buffer has space for an answer");
                    server.finish(id).expect("the stream is open");
                }
                Err(ReadError::Blocked | ReadError::Closed) => {}
                Err(error) => panic!("{error}"),
            }
            match pair.client.connection(0).read(now, id, 10_000) {
                Ok(Chunk::Bytes(bytes)) => answered += bytes.len(),
                Ok(Chunk::End) => return true,
                Err(ReadError::Blocked) => {}
                Err(error) => panic!("{error}"),
            }
            false
        });
        assert!(
            done && answered == 2000,
            "an exchange that began at {began:?}: {asked} requested, {answered} answered"
        );
        took.push(pair.now - began);
    }
    took.sort();
    took
}

#[test]
fn requests_beside_bulk_are_answered_within_the_short_paths_delay() {
    let mut pair = connected(8, &[link(20, 5), link(20, 40)]);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    let from = pair.now;
    let took = exchanges(&mut pair, &mut flow, Duration::from_secs(4));
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    let rate = flow.mbps(from, pair.now);
    // The short path and its queue of 30 ms, in both directions.
    assert!(median < Duration::from_millis(60), "{median}");
    assert!(worst < Duration::from_millis(200), "{worst}");
    assert!(rate > 0.8 * capacity_mbps(&[link(20, 5), link(20, 40)]), "{rate} Mb/s of bulk data");
}

#[test]
fn each_scheduler_delivers_all_data() {
    let links = [link(20, 5), link(10, 20), link(5, 60)];
    let strategies = [
        // The least goodput each should reach, as a share of all links: the redundant schedulers
        // trade capacity for latency.
        (Strategy::EarliestDelivery, 0.85),
        (Strategy::RoundRobin, 0.7),
        (Strategy::LowestRtt, 0.7),
        (Strategy::Redundant { copies: 1 }, 0.7),
        (Strategy::Redundant { copies: 2 }, 0.3),
        (Strategy::Redundant { copies: 3 }, 0.12),
    ];
    for (scheduler, share) in strategies {
        let setup = Setup::new(9).over(&links).with_config(|config| {
            (config.scheduler, config.datagram_size) = (scheduler, 1452);
        });
        let mut pair = connected_as(setup);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(4));
        let (rate, capacity) = (flow.mbps(Instant::ZERO + Duration::from_secs(2), pair.now), capacity_mbps(&links));
        assert!(rate > share * capacity, "{scheduler}: {rate} of {capacity} Mb/s");
        let carried: Vec<u64> = (0..3).map(|at| pair.link_pair(at)[0].stats().delivered_bytes).collect();
        assert!(carried.iter().all(|bytes| *bytes > 200_000), "{scheduler}: {carried:?}");
        // The connection also closes in order.
        apps::transfer(&mut pair, 300_000, Duration::from_secs(20));
    }
}

#[test]
fn redundant_messages_arrive_despite_a_path_failure_without_a_timeout() {
    let setup = Setup::new(10).over(&[link(50, 5), link(50, 25)]).with_config(|config| {
        config.scheduler = Strategy::Redundant { copies: 2 };
    });
    let mut pair = connected_as(setup);
    let mut longest = [Duration::ZERO; 2];
    for message in 0..100 {
        if message == 50 {
            for direction in 0..2 {
                let (now, config) = (pair.now, pair.links[direction].config().clone());
                pair.links[direction].set_config(now, netem::LinkConfig { state: LineState::Silent, ..config });
            }
        }
        let took = apps::transfer(&mut pair, 200, Duration::from_secs(2));
        let is_cut = usize::from(message >= 50);
        longest[is_cut] = longest[is_cut].max(took);
        pair.run_for(Duration::from_millis(3));
    }
    assert!(pair.links[0].stats().vanished > 0, "the cut did nothing");
    assert!(longest[0] < Duration::from_millis(6), "{longest:?}");
    // The delay of the other path and no more: the copy was already in flight.
    assert!(longest[1] < Duration::from_millis(27), "{longest:?}");
}
