//! Datagrams for certain paths.

use std::collections::BTreeMap;

use bytes::Bytes;
use netem::LineState;
use quic::{DatagramPaths, PathId, PathState, SendDatagramError};
use units::Duration;

use super::links::{connected, link};
use crate::support::Pair;

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
    for direction in 0..2 {
        let now = pair.now;
        let link = &mut pair.link_pair(1)[direction];
        let mut config = link.config().clone();
        config.state = LineState::Silent;
        link.set_config(now, config);
    }
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
    let now = pair.now;
    let link = &mut pair.link_pair(0)[0];
    let mut config = link.config().clone();
    config.state = LineState::Silent;
    link.set_config(now, config);
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
