//! Idle timers, keep-alive, and timers that must not fire.

use quic::{ConnectionError, Event};
use units::{Duration, Instant, Ratio};

use crate::support::{Pair, Setup, apps};

/// When each side reported a timeout.
fn silence(pair: &mut Pair) -> [Option<Instant>; 2] {
    pair.set_links(|link| link.loss = Ratio::ONE);
    let mut at = [None; 2];
    pair.run_until(Duration::from_secs(300), |pair| {
        for (index, node) in [&mut pair.client, &mut pair.server].into_iter().enumerate() {
            if node.take_event(0, |event| *event == Event::Closed(ConnectionError::TimedOut)).is_some() {
                at[index] = Some(pair.now);
            }
        }
        at.iter().all(Option::is_some)
    });
    at
}

#[test]
fn the_smaller_idle_timeout_applies_on_both_sides() {
    // Zero means none, so the other value applies.
    for (client, server, expected) in [(10, 20, 10), (20, 10, 10), (0, 7, 7), (7, 0, 7), (30, 30, 30)] {
        let mut setup = Setup::new(1);
        setup.client.idle_timeout = Duration::from_secs(client);
        setup.server.idle_timeout = Duration::from_secs(server);
        let mut pair = setup.build();
        pair.connect();
        // Idle first, so that nothing is in flight when the link fails.
        pair.run_for(Duration::from_secs(1));
        let quiet_since = pair.now.saturating_sub(Duration::from_secs(1));
        for at in silence(&mut pair) {
            let took = at.expect("both time out").saturating_since(quiet_since);
            let least = Duration::from_secs(expected).saturating_sub(Duration::from_millis(200));
            let most = Duration::from_secs(expected) + Duration::from_secs(1);
            assert!((least..most).contains(&took), "{client} s and {server} s: timed out after {took}");
        }
        assert!(pair.client.connections[0].is_none() && pair.server.connections[0].is_none());
    }
}

#[test]
fn a_connection_without_idle_timeouts_never_times_out() {
    let mut pair = Setup::new(1).with_config(|config| config.idle_timeout = Duration::ZERO).build();
    pair.connect();
    pair.run_for(Duration::from_secs(24 * 3600));
    assert!(pair.client.connection(0).is_established() && pair.server.connection(0).is_established());
    apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
    // A day on a dead link: probes become rare and never stop.
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("streams are allowed");
    apps::Writer::new(id, 1000).pump(pair.client.connection(0));
    pair.set_links(|link| link.loss = Ratio::ONE);
    pair.run_for(Duration::from_secs(24 * 3600));
    let probes = pair.client.connection(0).stats().send.probe_timeouts;
    assert!((1000..2000).contains(&probes), "{probes} probes in a day, one a minute at most");
}

#[test]
fn keep_alive_keeps_an_idle_connection_up() {
    for by_server in [false, true] {
        let mut setup = Setup::new(1).with_config(|config| config.idle_timeout = Duration::from_secs(10)).with_loss(20);
        let keeper = if by_server { &mut setup.server } else { &mut setup.client };
        keeper.keep_alive = Some(Duration::from_secs(3));
        let mut pair = setup.build();
        pair.connect();
        let before = pair.link_stats()[0].offered;
        pair.run_for(Duration::from_secs(600));
        assert!(pair.client.connection(0).is_established() && pair.server.connection(0).is_established());
        let packets = pair.link_stats()[0].offered - before;
        assert!((150..900).contains(&packets), "{packets} packets in 600 s");
        assert!(pair.link_stats()[0].lost > 0);
    }
}

#[test]
fn an_unanswered_first_packet_is_repeated_until_the_timeout() {
    let mut pair = Setup::new(1).build();
    pair.set_links(|link| link.loss = Ratio::ONE);
    pair.start();
    pair.run_for(Duration::from_secs(120));
    let offered = pair.link_stats()[0].offered;
    assert!((5..30).contains(&offered), "{offered} attempts in 30 s");
    assert_eq!(pair.client.events[0].back(), Some(&Event::Closed(ConnectionError::TimedOut)));
    assert_eq!(pair.client.endpoint.route_count(), 0);
}

#[test]
fn an_idle_connection_sends_nothing() {
    let mut pair = Setup::new(1).with_config(|config| config.idle_timeout = Duration::from_secs(1000)).build();
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    let before = pair.link_stats();
    pair.run_for(Duration::from_secs(900));
    assert_eq!(pair.link_stats(), before);
}

#[test]
fn spurious_timeouts_do_nothing() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    pair.record = Some(Vec::new());
    for step in 0..1000 {
        let now = pair.now + Duration::from_micros(step);
        for node in [&mut pair.client, &mut pair.server] {
            let connection = node.connection(0);
            if connection.poll_timeout().is_none_or(|at| at > now) {
                connection.handle_timeout(now);
            }
        }
    }
    pair.client.flush(pair.now);
    assert!(pair.client.outbox.is_empty());
}
