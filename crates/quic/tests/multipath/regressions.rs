//! Rare combinations of faults, each of which once broke a connection.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netem::{Distribution, Jitter, LineState, LinkConfig};
use quic::{
    Addresses, ConnectionError, Dir, Event, OpenPathError, PathId, PathSet, PathState, Side, StreamId, TraceSink,
};
use units::{Duration, Ratio};
use wire::quic::Frame;

use super::flow::{Flow, node};
use super::links::{BOTH, capacity_mbps, connected, connected_as, link, set_state};
use crate::support::hostile::{HostilePair, hostile_on, payload};
use crate::support::{Pair, Setup, apps};

fn path(pair: &mut Pair, side: Side, at: usize) -> quic::PathStats {
    node(pair, side).connection(0).path_stats()[at].clone()
}

#[test]
fn a_lost_close_is_repeated_whatever_path_the_peer_sends_on() {
    for seed in 0..5 {
        let mut pair = connected(seed, &[link(50, 10), link(50, 10)]);
        let mut flow = Flow::new(&mut pair, Side::Server);
        // The server sends on the second path only.
        let now = pair.now;
        assert!(pair.client.connection(0).set_path_backup(now, PathId(0), true));
        flow.run(&mut pair, Duration::from_millis(500));
        (0..2).for_each(|at| set_state(&mut pair, at, &[0], LineState::Silent));
        let now = pair.now;
        pair.client.connection(0).close(now, 9, "bye");
        pair.run_for(Duration::from_millis(1));
        set_state(&mut pair, 1, &[0], LineState::Up);
        set_state(&mut pair, 0, BOTH, LineState::Silent);
        let is_closed = pair.run_until(Duration::from_secs(1), |pair| {
            pair.server.events[0]
                .iter()
                .any(|event| matches!(event, Event::Closed(ConnectionError::ClosedByPeer { code: 9, .. })))
        });
        assert!(is_closed, "seed {seed}: the server received no repetition");
    }
}

#[test]
fn a_refused_path_does_not_block_the_others() {
    let links = [link(20, 10), link(20, 10)];
    let mut pair = connected(3, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    // First the second link is cut, then the interface of the first goes down: no path works for a
    // while.
    set_state(&mut pair, 1, BOTH, LineState::Silent);
    flow.run(&mut pair, Duration::from_secs(2));
    assert_eq!(path(&mut pair, Side::Client, 1).state, PathState::Silent);
    (pair.client.refuse, pair.client.refuse_only) = (Ratio::ONE, Some(0));
    flow.run(&mut pair, Duration::from_secs(3));
    assert!((1..200).contains(&pair.client.refused), "{} refused", pair.client.refused);
    set_state(&mut pair, 1, BOTH, LineState::Up);
    flow.run(&mut pair, Duration::from_secs(4));
    let (rate, least) = (flow.mbps_lately(&pair), 0.7 * capacity_mbps(&links[1..]));
    assert!(rate > least, "the second link is back: {rate} Mb/s\n{}", super::failover::show(&mut pair, Side::Client));
    pair.client.refuse = Ratio::ZERO;
    flow.run(&mut pair, Duration::from_secs(4));
    let rate = flow.mbps_lately(&pair);
    assert!(rate > 0.7 * capacity_mbps(&links), "and the first: {rate} Mb/s");
}

#[test]
fn no_path_is_opened_to_a_peer_that_disables_migration() {
    // Multipath draft-21, section 2.2.
    for forbids in [false, true] {
        let mut hostile_pair = HostilePair::against_multipath_client_with(3, 3, |parameters| {
            parameters.disable_active_migration = forbids;
        });
        let mut open = |socket: u16, remote| {
            let addresses = Addresses { socket, ..Addresses::of(remote) };
            hostile_pair.victim.connection(0).open_path(hostile_pair.now, addresses, false)
        };
        let wanted = if forbids { Err(OpenPathError::Forbidden) } else { Ok(()) };
        assert_eq!(open(1, hostile_on(0)), wanted);
        assert_eq!(open(1, hostile_on(1)), Ok(()), "another address is allowed");
    }
}

#[test]
fn a_client_without_connection_ids_sends_path_cids_blocked() {
    let mut hostile_pair = HostilePair::against_multipath_client(3, 3);
    let addresses = Addresses { socket: 1, ..Addresses::of(hostile_on(1)) };
    assert_eq!(hostile_pair.victim.connection(0).open_path(hostile_pair.now, addresses, false), Ok(()));
    hostile_pair.wait(Duration::from_millis(100));
    let missed = |frame: &Frame<'_>| *frame == Frame::PathCidsBlocked { path: PathId(1), next_sequence: 0 };
    assert!(hostile_pair.hostile.has_received(missed), "there is no ID for path 1");
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    assert_eq!(hostile_pair.victim.connection(0).path_stats().len(), 2);
}

/// Drops larger datagrams on the first link, in both directions.
fn shrink(pair: &mut Pair, bytes: usize) -> Rc<Cell<u64>> {
    let dropped = Rc::new(Cell::new(0));
    for direction in 0..2 {
        let counter = dropped.clone();
        pair.tap(direction, move |_, datagram| {
            let passes = datagram.len() <= bytes;
            counter.set(counter.get() + u64::from(!passes));
            passes
        });
    }
    dropped
}

#[test]
fn a_path_that_drops_large_datagrams_gets_small_ones() {
    let links = [link(20, 10), link(10, 10)];
    let mut pair = Setup::new(5).over(&links).with_config(|config| config.datagram_size = 1452).build();
    let dropped = shrink(&mut pair, 1300);
    pair.connect();
    pair.open_paths();
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(5));
    let sizes = [0, 1].map(|at| path(&mut pair, Side::Client, at).datagram_size);
    assert_eq!(sizes, [1200, 1452], "dropped {}", dropped.get());
    flow.run(&mut pair, Duration::from_secs(3));
    let rate = flow.mbps_lately(&pair);
    assert!(dropped.get() > 0 && rate > 0.7 * capacity_mbps(&links), "{rate} Mb/s");
}

#[test]
fn the_only_path_gets_small_datagrams_if_it_drops_large_ones() {
    let mut pair = Setup::new(6).with_config(|config| config.datagram_size = 1452).build();
    let dropped = shrink(&mut pair, 1300);
    pair.connect();
    let took = apps::transfer(&mut pair, 1_000_000, Duration::from_secs(60));
    assert!(dropped.get() > 0 && took < Duration::from_secs(10), "{took}, {} dropped", dropped.get());
    assert_eq!(path(&mut pair, Side::Client, 0).datagram_size, 1200);
}

#[test]
fn a_dead_link_does_not_reduce_the_datagram_size() {
    let links = [link(20, 10), link(20, 10)];
    let mut pair = connected(7, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    for _ in 0..3 {
        set_state(&mut pair, 0, BOTH, LineState::Silent);
        flow.run(&mut pair, Duration::from_secs(3));
        set_state(&mut pair, 0, BOTH, LineState::Up);
        flow.run(&mut pair, Duration::from_secs(3));
    }
    assert_eq!(path(&mut pair, Side::Client, 0).datagram_size, 1452);
    assert!(path(&mut pair, Side::Client, 0).silences >= 3);
}

#[test]
fn a_server_challenges_a_silent_address_for_a_minute_and_then_rarely() {
    let mut pair = connected(8, &[link(20, 10), link(20, 10)]);
    let mut flow = Flow::new(&mut pair, Side::Server);
    flow.run(&mut pair, Duration::from_secs(1));
    set_state(&mut pair, 1, BOTH, LineState::Silent);
    flow.run(&mut pair, Duration::from_secs(130));
    let sent = path(&mut pair, Side::Server, 1).packets_sent;
    flow.run(&mut pair, Duration::from_secs(120));
    let more = path(&mut pair, Side::Server, 1).packets_sent - sent;
    assert!((1..=4).contains(&more), "{more} challenges in two minutes");
    set_state(&mut pair, 1, BOTH, LineState::Up);
    flow.run(&mut pair, Duration::from_secs(2));
    for side in [Side::Client, Side::Server] {
        assert_eq!(path(&mut pair, side, 1).state, PathState::Active, "{side:?}");
    }
    assert!(path(&mut pair, Side::Server, 1).packets_sent > sent + 100, "it carries data again");
}

#[test]
fn a_late_path_becomes_suspect_before_it_becomes_silent() {
    let suspicions = Arc::new(AtomicU64::new(0));
    let counter = suspicions.clone();
    let sink = TraceSink(Arc::new(move || {
        let counter = counter.clone();
        Box::new(move |line: &str| {
            counter.fetch_add(u64::from(line.contains("| 0 s")), Ordering::Relaxed);
        })
    }));
    let setup = Setup::new(9).over(&[link(50, 10), link(50, 10)]);
    let mut pair = connected_as(setup.with_config(|config| config.scheduler_trace = Some(sink.clone())));
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    assert_eq!(suspicions.load(Ordering::Relaxed), 0, "no packet is late");
    // Longer than a probe timeout, and shorter than the time after which a path is silent.
    set_state(&mut pair, 0, BOTH, LineState::Held);
    flow.run(&mut pair, Duration::from_millis(70));
    set_state(&mut pair, 0, BOTH, LineState::Up);
    flow.run(&mut pair, Duration::from_secs(1));
    assert!(suspicions.load(Ordering::Relaxed) > 0, "the path was late");
    let late = path(&mut pair, Side::Client, 0);
    assert_eq!(late.silences, 0, "{}", super::failover::show(&mut pair, Side::Client));
    assert!(late.suspicions > 0 && late.false_suspicions == late.suspicions, "{late:?}");
    let before = suspicions.load(Ordering::Relaxed);
    flow.run(&mut pair, Duration::from_secs(1));
    assert_eq!(suspicions.load(Ordering::Relaxed), before, "the path is no longer suspect");
}

/// Writes `bytes` to a stream of the client.
fn write(pair: &mut Pair, id: StreamId, bytes: usize) {
    pair.client.connection(0).write(id, vec![0; bytes].into()).expect("the send buffer has space");
}

/// Lets the client send a small chunk of `id` every 5 ms for `span`.
fn send_slowly(pair: &mut Pair, id: StreamId, span: Duration) {
    let until = pair.now + span;
    while pair.now < until {
        write(pair, id, 100);
        pair.run_for(Duration::from_millis(5));
    }
}

#[test]
fn a_suspicion_ends_when_its_last_packet_is_declared_lost() {
    // A line of the trace that shows path 1 as suspect.
    let suspicions = Arc::new(AtomicU64::new(0));
    let counter = suspicions.clone();
    let sink = TraceSink(Arc::new(move || {
        let counter = counter.clone();
        Box::new(move |line: &str| {
            counter.fetch_add(u64::from(line.contains("| 1 s")), Ordering::Relaxed);
        })
    }));
    // An eighth of the long round trip, after which a packet behind an acknowledged one is lost, is
    // longer than the slack after which the path is suspect.
    let mut setup = Setup::new(11).over(&[link(50, 5), link(50, 200)]);
    setup.client.scheduler_trace = Some(sink);
    let mut pair = connected_as(setup);
    let [free, slow] = [(); 2].map(|()| pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed"));
    let only_slow = PathSet::only(&[PathId(1)]).expect("one path");
    pair.client.connection(0).set_stream_paths(slow, only_slow).expect("open");
    // The variation of the round-trip time, which is part of the slack, becomes small.
    for _ in 0..100 {
        write(&mut pair, slow, 2000);
        send_slowly(&mut pair, free, Duration::from_millis(100));
    }
    send_slowly(&mut pair, free, Duration::from_secs(1));
    let before = path(&mut pair, Side::Client, 1);
    suspicions.store(0, Ordering::Relaxed);

    // Two packets leave on the long path, and the first is lost. Nothing follows there: its data
    // may be sent again on the other path.
    set_state(&mut pair, 1, &[0], LineState::Silent);
    write(&mut pair, slow, 500);
    pair.run_for(Duration::from_millis(1));
    set_state(&mut pair, 1, &[0], LineState::Up);
    write(&mut pair, slow, 500);
    pair.run_for(Duration::from_millis(1));
    pair.client.connection(0).set_stream_paths(slow, PathSet::ALL).expect("open");
    send_slowly(&mut pair, free, Duration::from_secs(1));
    let after = path(&mut pair, Side::Client, 1);
    assert_eq!(after.packets_lost, before.packets_lost + 1, "{}", super::failover::show(&mut pair, Side::Client));
    assert_eq!((after.in_flight_bytes, after.silences, after.state), (0, 0, PathState::Active));
    assert_eq!((after.suspicions, after.false_suspicions), (before.suspicions + 1, before.false_suspicions));
    assert!(suspicions.swap(0, Ordering::Relaxed) > 0, "the packet was overdue before it was declared lost");

    send_slowly(&mut pair, free, Duration::from_secs(1));
    assert_eq!(suspicions.load(Ordering::Relaxed), 0, "nothing is overdue any more");
}

#[test]
fn links_that_reorder_packets_are_fully_used() {
    let shuffles = |mbps| {
        let jitter = Jitter { distribution: Distribution::Uniform { max: Duration::from_millis(4) }, reorders: true };
        LinkConfig { jitter: Some(jitter), ..link(mbps, 10) }
    };
    for links in [vec![shuffles(50)], vec![shuffles(50), shuffles(20)]] {
        let mut pair = connected(10, &links);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(4));
        let (rate, capacity) = (flow.mbps_lately(&pair), capacity_mbps(&links));
        assert!(rate > 0.8 * capacity, "{rate} of {capacity} Mb/s\n{}", super::failover::show(&mut pair, Side::Client));
        let send = node(&mut pair, Side::Client).connection(0).stats().send;
        let dropped: u64 = (0..links.len()).map(|at| pair.link_pair(at)[0].stats().overflowed).sum();
        assert!(send.packets_late > 0, "{send:?}");
        // The last few may still be in flight.
        assert!(send.packets_lost - send.packets_late <= dropped + 4, "{dropped} were dropped: {send:?}");
    }
}
