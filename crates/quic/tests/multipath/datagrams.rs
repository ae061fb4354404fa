//! Datagrams for certain paths.

use std::collections::BTreeMap;

use bytes::Bytes;
use netem::LineState;
use quic::{DatagramPaths, PathId, PathState, SendDatagramError};
use units::Duration;

use super::links::{BOTH, connected, connected_as, link, set_state};
use crate::support::{Pair, Setup};

/// The datagrams that have arrived at the server, by their first byte, with the paths of each.
fn arrived(pair: &mut Pair) -> BTreeMap<u8, Vec<u32>> {
    pair.run_for(Duration::from_millis(500));
    let mut all: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
    while let Some(datagram) = pair.server.connection(0).recv_datagram_with_path() {
        all.entry(datagram.data[0]).or_default().push(datagram.path.0);
    }
    all.values_mut().for_each(|paths| paths.sort_unstable());
    all
}

fn send(pair: &mut Pair, number: u8, paths: DatagramPaths) {
    let data = Bytes::from(vec![number; 200]);
    assert_eq!(pair.client.connection(0).send_datagram_on(data, paths), Ok(()));
}

#[test]
fn copies_take_the_paths_with_the_shortest_round_trips() {
    let mut pair = connected(1, &[link(50, 40), link(50, 5), link(50, 10)]);
    for (number, copies) in [(0, 1), (1, 2), (2, 3), (3, 200)] {
        send(&mut pair, number, DatagramPaths::Copies(copies));
    }
    let expected = BTreeMap::from([(0, vec![1]), (1, vec![1, 2]), (2, vec![0, 1, 2]), (3, vec![0, 1, 2])]);
    assert_eq!(arrived(&mut pair), expected);
}

#[test]
fn a_datagram_takes_the_path_that_it_is_for_and_another_one_if_that_does_not_work() {
    let mut pair = connected(2, &[link(50, 5), link(50, 10)]);
    send(&mut pair, 0, DatagramPaths::Only(PathId(1)));
    send(&mut pair, 1, DatagramPaths::Only(PathId(7)));
    let arrivals = arrived(&mut pair);
    assert_eq!(arrivals[&0], [1]);
    assert_eq!(arrivals[&1].len(), 1, "there is no such path");
    set_state(&mut pair, 1, BOTH, LineState::Silent);
    send(&mut pair, 2, DatagramPaths::Only(PathId(1)));
    let is_silent = |pair: &mut Pair| pair.client.connection(0).path_stats()[1].state == PathState::Silent;
    assert!(pair.run_until(Duration::from_secs(10), is_silent), "it was noticed");
    send(&mut pair, 3, DatagramPaths::Only(PathId(1)));
    assert_eq!(arrived(&mut pair), BTreeMap::from([(3, vec![0])]), "the path lost one");
}

#[test]
fn a_copy_on_two_paths_survives_the_failure_of_one_and_passes_those_that_wait() {
    let mut pair = connected(3, &[link(2, 5), link(2, 10)]);
    let mut queued = 0;
    while pair.client.connection(0).send_datagram(Bytes::from(vec![9; 1000])).is_ok() {
        queued += 1;
    }
    assert!(queued > 60, "{queued} wait for half a second");
    set_state(&mut pair, 0, &[0], LineState::Silent);
    send(&mut pair, 1, DatagramPaths::Copies(2));
    let received =
        |pair: &mut Pair| std::iter::from_fn(|| pair.server.connection(0).recv_datagram()).any(|data| data[0] == 1);
    assert!(pair.run_until(Duration::from_millis(100), received), "{:?}", pair.client.connection(0).path_stats());
}

#[test]
fn with_one_path_it_is_an_ordinary_datagram_and_too_large_ones_are_refused() {
    let mut one = connected(4, &[link(50, 5)]);
    send(&mut one, 0, DatagramPaths::Copies(2));
    assert_eq!(arrived(&mut one), BTreeMap::from([(0, vec![0])]));
    let mut two = connected(5, &[link(50, 5), link(50, 10)]);
    let max = two.client.connection(0).datagram_len_max().expect("datagrams");
    let large = Bytes::from(vec![0; max + 1]);
    let sent = two.client.connection(0).send_datagram_on(large, DatagramPaths::Copies(2));
    assert_eq!(sent, Err(SendDatagramError::TooLarge(max)));
    let full = Bytes::from(vec![3; max]);
    assert_eq!(two.client.connection(0).send_datagram_on(full, DatagramPaths::Copies(2)), Ok(()));
    assert_eq!(arrived(&mut two), BTreeMap::from([(3, vec![0, 1])]));
}

#[test]
fn what_waits_for_a_path_is_bounded_and_the_newest_is_kept() {
    let mut pair = connected(6, &[link(2, 50), link(2, 50)]);
    let before = pair.client.connection(0).stats().send.datagrams_lost;
    for number in 0..200 {
        let data = Bytes::from(vec![number; 1000]);
        assert_eq!(pair.client.connection(0).send_datagram_on(data, DatagramPaths::Only(PathId(1))), Ok(()));
    }
    assert_eq!(pair.client.connection(0).send_datagram(Bytes::from_static(b"any path")), Ok(()));
    let stats = pair.client.connection(0).stats().send;
    assert_eq!((stats.datagrams_lost - before, stats.datagram_bytes_waiting), (200 - 64, 64_000 + 8));
    let mut newest = 0;
    for _ in 0..10 {
        newest = arrived(&mut pair).into_keys().fold(newest, u8::max);
    }
    assert_eq!(newest, 199);
    assert_eq!(pair.client.connection(0).stats().send.datagram_bytes_waiting, 0);
}

/// Sends datagrams pinned to a path while the queue takes them.
fn fill_pinned(pair: &mut Pair, path: u32, sent: &mut u32) {
    let pinned = DatagramPaths::Pinned(PathId(path));
    while pair.client.connection(0).has_datagram_space(1000, Some(PathId(path))) {
        let mut data = vec![path as u8; 1000];
        data[1..5].copy_from_slice(&sent.to_be_bytes());
        assert_eq!(pair.client.connection(0).send_datagram_on(data.into(), pinned), Ok(()));
        *sent += 1;
    }
}

/// The numbers and paths of those that have arrived, by the path to which they were pinned.
fn arrived_pinned(pair: &mut Pair) -> [Vec<(u32, u32)>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    while let Some(datagram) = pair.server.connection(0).recv_datagram_with_path() {
        let number = u32::from_be_bytes(*datagram.data[1..].first_chunk().expect("a number"));
        all[usize::from(datagram.data[0])].push((number, datagram.path.0));
    }
    all
}

#[test]
fn pinned_datagrams_keep_to_their_paths_in_order_and_fill_both() {
    let links = [link(20, 5), link(10, 20)];
    let mut pair = connected(7, &links);
    let (mut sent, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
    let from = pair.now;
    let end = from + Duration::from_secs(4);
    while pair.now < end {
        (0..2).for_each(|path| fill_pinned(&mut pair, path as u32, &mut sent[path]));
        pair.run_for(Duration::from_millis(1));
        for (all, new) in got.iter_mut().zip(arrived_pinned(&mut pair)) {
            all.extend(new);
        }
    }
    for (path, arrivals) in got.iter().enumerate() {
        assert!(arrivals.iter().all(|(_, on)| *on == path as u32), "path {path}");
        assert!(arrivals.is_sorted(), "path {path} keeps the order");
        let mbps = arrivals.len() as f64 * 8000.0 / 4e6;
        let rate = links[path].rate.expect("a rate").as_mbps_f64();
        assert!(mbps > 0.75 * rate && mbps < rate, "path {path}: {mbps} of {rate} Mb/s");
    }
}

#[test]
fn datagrams_pinned_to_a_path_that_fails_take_another_one() {
    let mut pair = connected(8, &[link(20, 5), link(2, 5)]);
    // More than the window of the path holds.
    for sent in 0..60u32 {
        let data = [&[1], &sent.to_be_bytes()[..], &[0; 995]].concat();
        let pinned = DatagramPaths::Pinned(PathId(1));
        assert_eq!(pair.client.connection(0).send_datagram_on(data.into(), pinned), Ok(()));
    }
    set_state(&mut pair, 1, BOTH, LineState::Silent);
    let is_silent = |pair: &mut Pair| pair.client.connection(0).path_stats()[1].state == PathState::Silent;
    assert!(pair.run_until(Duration::from_secs(10), is_silent), "it was noticed");
    assert_eq!(pair.client.connection(0).datagrams_waiting(Some(PathId(1))), 0);
    let mut sent = 60;
    fill_pinned(&mut pair, 1, &mut sent);
    pair.run_for(Duration::from_millis(500));
    let [_, arrivals] = arrived_pinned(&mut pair);
    assert!(arrivals.iter().all(|(_, on)| *on == 0), "nothing arrives on the link that is down");
    let (waited, later): (Vec<u32>, Vec<u32>) =
        arrivals.iter().map(|(number, _)| number).partition(|number| **number < 60);
    assert!((20..60).contains(&waited.len()), "{} of 60, and the rest was lost in flight", waited.len());
    assert_eq!(later, (60..sent).collect::<Vec<_>>(), "those sent later arrive, too");
}

#[test]
fn the_queue_of_a_path_is_bounded_and_leaves_that_of_others_alone() {
    let mut pair = connected(9, &[link(2, 50), link(2, 50)]);
    let pinned = DatagramPaths::Pinned(PathId(1));
    let mut count = 0;
    let refusal = loop {
        match pair.client.connection(0).send_datagram_on(Bytes::from(vec![1; 1000]), pinned) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, SendDatagramError::QueueFull);
    assert!(count > 60, "{count}");
    assert!(pair.client.connection(0).has_datagram_space(1000, None));
    assert!(!pair.client.connection(0).has_datagram_space(1000, Some(PathId(1))));
    // A path that does not exist has the queue of all.
    assert!(pair.client.connection(0).has_datagram_space(1000, Some(PathId(9))));
    send(&mut pair, 3, DatagramPaths::Pinned(PathId(9)));
    assert_eq!(pair.client.connection(0).datagrams_waiting(None), 1);
    assert!(pair.client.connection(0).abandon_path(pair.now, PathId(1), 0));
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.client.connection(0).datagrams_waiting(Some(PathId(1))), 0);
}

#[test]
fn a_path_that_carries_few_data_does_not_keep_the_datagrams_of_all_paths_small() {
    let setup = Setup::new(7).over(&[link(50, 5), link(50, 80)]);
    let mut pair = connected_as(setup.with_config(|config| config.datagram_size_max = 1472));
    let len_max = |pair: &mut Pair| pair.client.connection(0).datagram_len_max().expect("datagrams");
    assert!(len_max(&mut pair) < 1200);
    let grown = pair.run_until(Duration::from_secs(5), |pair| {
        let (waiting, len) = (pair.client.connection(0).stats().send.datagram_bytes_waiting, len_max(pair));
        // As much as the first path carries before the second one delivers.
        if waiting == 0 && pair.client.connection(0).path_stats()[0].in_flight_bytes < 20_000 {
            let sent = pair.client.connection(0).send_datagram(Bytes::from(vec![1; len]));
            assert_eq!(sent, Ok(()));
        }
        while pair.server.connection(0).recv_datagram().is_some() {}
        len > 1400
    });
    let paths = pair.client.connection(0).path_stats();
    assert!(grown, "{paths:?}");
    assert!(paths[1].bytes_sent < 20_000 && paths[0].bytes_sent > paths[1].bytes_sent, "{paths:?}");
}

#[test]
fn a_path_that_is_too_small_for_probes_stays_in_use() {
    let setup = Setup::new(8).over(&[link(50, 80), link(50, 5)]);
    let mut pair = connected_as(setup.with_config(|config| config.datagram_size_max = 1472));
    pair.tap(0, |_, datagram| datagram.len() <= 1200);
    let probed = pair.run_until(Duration::from_secs(20), |pair| {
        if pair.client.connection(0).path_stats()[1].in_flight_bytes < 20_000 {
            let sent = pair.client.connection(0).send_datagram(Bytes::from(vec![1; 1000]));
            assert_eq!(sent, Ok(()));
        }
        while pair.server.connection(0).recv_datagram().is_some() {}
        // Three of Ethernet's size are lost, and some of sizes below it.
        pair.client.connection(0).path_stats()[0].bytes_sent > 12_000
    });
    let path = &pair.client.connection(0).path_stats()[0];
    assert!(probed, "{path:?}");
    assert_eq!((path.state, path.datagram_size), (PathState::Active, 1200), "{path:?}");
    assert_eq!((path.silences, path.suspicions, path.packets_lost), (0, 0, 0), "{path:?}");
}
