//! Path MTU discovery (RFC 8899; RFC 9000, section 14.3).

use quic::{Dir, StreamId};
use units::Duration;

use crate::support::apps::{Reader, Writer, transfer};
use crate::support::{Pair, Setup};

const SIZE_MAX: usize = 8972;

/// A pair that searches up to 8972 bytes, over a link that drops larger datagrams than `mtu`.
fn pair(seed: u64, mtu: usize) -> Pair {
    let mut pair = Setup::new(seed).with_config(|config| config.datagram_size_max = SIZE_MAX).build();
    limit(&mut pair, mtu);
    pair
}

fn limit(pair: &mut Pair, mtu: usize) {
    for direction in 0..2 {
        pair.tap(direction, move |_, datagram| datagram.len() <= mtu);
    }
}

fn datagram_size(pair: &mut Pair) -> usize {
    pair.client.connection(0).stats().datagram_size
}

#[test]
fn a_transfer_finds_the_size_that_its_path_carries() {
    for (mtu, at_least) in [(1200, 1200), (1372, 1356), (1452, 1452), (1472, 1472), (8972, 8972), (20_000, 8972)] {
        let mut pair = pair(1, mtu);
        pair.connect();
        transfer(&mut pair, 4 << 20, Duration::from_secs(60));
        let found = datagram_size(&mut pair);
        assert!(found <= mtu && found >= at_least, "{mtu}: {found}");
    }
}

#[test]
fn lost_probes_are_no_sign_of_congestion() {
    let time = |search: bool| {
        let config = |config: &mut quic::TransportConfig| {
            if search {
                config.datagram_size_max = 1472;
            }
        };
        // A queue that takes the whole transfer, so that nothing else is lost.
        let mut pair = Setup::new(2).with_config(config).with_links(|link| link.queue_bytes = 64 << 20).build();
        limit(&mut pair, 1200);
        pair.connect();
        transfer(&mut pair, 4 << 20, Duration::from_secs(60));
        let stats = pair.client.connection(0).stats();
        (stats.send.packets_lost, stats.congestion.window, pair.now)
    };
    let (lost, window, plain) = time(false);
    let (lost_with_probes, window_with_probes, searched) = time(true);
    assert_eq!((lost, lost_with_probes), (0, 0));
    // One reaction would cost three tenths of the window.
    assert!(window_with_probes * 10 >= window * 9, "{window_with_probes} against {window}");
    assert!(searched <= plain + Duration::from_millis(20), "{searched:?} against {plain:?}");
}

#[test]
fn a_path_that_shrinks_falls_back_and_is_searched_again() {
    let mut pair = pair(3, SIZE_MAX);
    pair.connect();
    let id: StreamId = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    let (mut writer, mut reader) = (Writer::new(id, 64 << 20), None::<Reader>);
    let mut shrunk = false;
    let done = pair.run_until(Duration::from_secs(120), |pair| {
        writer.pump(pair.client.connection(0));
        if reader.is_none() {
            reader = pair.server.connection(0).accept(Dir::Uni).map(Reader::new);
        }
        if !shrunk && pair.client.connection(0).stats().datagram_size == SIZE_MAX {
            shrunk = true;
            limit(pair, 1472);
        }
        let Some(reader) = &mut reader else { return false };
        reader.pump(pair.now, pair.server.connection(0));
        reader.ended
    });
    assert!(shrunk && done);
    assert_eq!(datagram_size(&mut pair), 1472);
}

#[test]
fn a_message_arrives_on_a_path_that_shrinks_although_small_packets_are_acknowledged() {
    let mut pair = pair(5, SIZE_MAX);
    pair.connect();
    transfer(&mut pair, 8 << 20, Duration::from_secs(60));
    assert_eq!(datagram_size(&mut pair), SIZE_MAX);
    limit(&mut pair, 1472);
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    // It fits into one packet, which is lost again and again.
    let (mut writer, mut reader) = (Writer::new(id, 5000), None::<Reader>);
    let (mut next, started) = (pair.now, pair.now);
    let done = pair.run_until(Duration::from_secs(10), |pair| {
        writer.pump(pair.client.connection(0));
        if pair.now >= next {
            // So often that no probe timeout passes without an acknowledgement.
            next = pair.now + Duration::from_millis(5);
            pair.client.connection(0).send_datagram(vec![1; 10].into()).expect("the queue has space");
        }
        while pair.server.connection(0).recv_datagram().is_some() {}
        if reader.is_none() {
            reader = pair.server.connection(0).accept(Dir::Uni).map(Reader::new);
        }
        let Some(reader) = &mut reader else { return false };
        reader.pump(pair.now, pair.server.connection(0));
        reader.ended
    });
    assert!(done, "not within {}", pair.now - started);
}

#[test]
fn a_configured_size_is_found_again_after_a_fall() {
    let config = |config: &mut quic::TransportConfig| (config.datagram_size, config.datagram_size_max) = (1472, 1472);
    let mut pair = Setup::new(6).with_config(config).build();
    pair.connect();
    transfer(&mut pair, 1 << 20, Duration::from_secs(60));
    assert!(pair.client.connection(0).handle_too_large(pair.now, quic::PathId::ZERO));
    assert_eq!(datagram_size(&mut pair), 1200);
    transfer(&mut pair, 4 << 20, Duration::from_secs(60));
    assert_eq!(datagram_size(&mut pair), 1472);
}

#[test]
fn an_idle_connection_sends_no_probes() {
    let mut pair = pair(4, SIZE_MAX);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let before = pair.link_stats()[0].carried;
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.link_stats()[0].carried, before);
    assert_eq!(datagram_size(&mut pair), 1200);
}

#[test]
fn the_search_survives_loss() {
    for seed in 0..10 {
        let config = |config: &mut quic::TransportConfig| config.datagram_size_max = SIZE_MAX;
        let mut pair = Setup::new(seed).with_loss(10).with_config(config).build();
        limit(&mut pair, 1472);
        pair.connect();
        transfer(&mut pair, 2 << 20, Duration::from_secs(300));
        let found = datagram_size(&mut pair);
        assert!((1200..=1472).contains(&found), "seed {seed}: {found}");
    }
}
