//! Clients whose address changes during a transfer: NAT rebindings, and attackers that forward
//! copies.

use std::net::SocketAddr;

use quic::{Addresses, PathState, Side};
use units::{Duration, Instant};

use super::failover::show;
use super::flow::{Flow, node};
use super::links::{capacity_mbps, connected, link};
use crate::support::{CLIENT, Pair, Setup, client_on};

fn elsewhere(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Another port of the same host, and another host.
fn moves(of: SocketAddr) -> [SocketAddr; 2] {
    [SocketAddr::new(of.ip(), 40_000), elsewhere("192.0.2.77:40000")]
}

fn server_path(pair: &mut Pair, at: usize) -> quic::PathStats {
    node(pair, Side::Server).connection(0).path_stats()[at].clone()
}

#[test]
fn the_only_path_follows_a_client_to_its_new_address() {
    for (from, to) in [Side::Client, Side::Server].into_iter().flat_map(|from| moves(CLIENT).map(|to| (from, to))) {
        let what = format!("from {from:?}, to {to}");
        let mut pair = Setup::new(1).over(&[link(20, 10)]).build();
        pair.connect();
        let mut flow = Flow::new(&mut pair, from);
        flow.run(&mut pair, Duration::from_secs(2));
        pair.remap(0, to);
        let moved_at = pair.now;
        flow.run(&mut pair, Duration::from_secs(4));
        let rate = flow.mbps_lately(&pair);
        assert_eq!(server_path(&mut pair, 0).addresses.remote, to, "{what}");
        assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "{what}: {rate} Mb/s");
        // A server that sends learns of the change from the client's next acknowledgement or probe.
        let (gap, at) = flow.longest_gap(moved_at, pair.now);
        assert!(gap < Duration::from_millis(1500), "{what}: {gap} at {at:?}");
    }
}

#[test]
fn one_of_several_paths_follows_too() {
    for to in moves(client_on(1)) {
        let links = [link(20, 10), link(20, 10)];
        for from in [Side::Client, Side::Server] {
            let mut pair = connected(2, &links);
            let mut flow = Flow::new(&mut pair, from);
            flow.run(&mut pair, Duration::from_secs(2));
            pair.remap(1, to);
            let moved_at = pair.now;
            flow.run(&mut pair, Duration::from_secs(5));
            let what = format!("from {from:?}, to {to}\n{}", show(&mut pair, from));
            let (rate, (gap, at)) = (flow.mbps_lately(&pair), flow.longest_gap(moved_at, pair.now));
            let moved = server_path(&mut pair, 1);
            assert_eq!((moved.addresses.remote, moved.state), (to, PathState::Active), "{what}");
            assert!(rate > 0.8 * capacity_mbps(&links), "{rate} Mb/s {what}");
            assert!(gap < Duration::from_millis(200), "{gap} at {at:?} {what}");
        }
    }
}

#[test]
fn a_path_that_was_silent_is_found_under_its_new_address() {
    let links = [link(20, 10), link(20, 10)];
    let mut pair = connected(3, &links);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    let set = |pair: &mut Pair, state| {
        let now = pair.now;
        for direction in pair.link_pair(1) {
            let config = netem::LinkConfig { state, ..direction.config().clone() };
            direction.set_config(now, config);
        }
    };
    set(&mut pair, netem::LineState::Silent);
    flow.run(&mut pair, Duration::from_secs(3));
    assert_eq!(server_path(&mut pair, 1).state, PathState::Silent);
    pair.remap(1, elsewhere("192.0.2.77:40000"));
    set(&mut pair, netem::LineState::Up);
    flow.run(&mut pair, Duration::from_secs(4));
    let (rate, least) = (flow.mbps_lately(&pair), 0.8 * capacity_mbps(&links));
    assert_eq!(server_path(&mut pair, 1).state, PathState::Active);
    assert!(rate > least, "{rate} Mb/s\n{}", show(&mut pair, Side::Client));
}

/// The client's packets arrive first from an attacker that copied them (RFC 9000, section 9.3.3).
#[test]
fn copies_sent_by_an_attacker_take_no_path_away() {
    let attacker = elsewhere("203.0.113.9:666");
    let mut pair = Setup::new(4).over(&[link(20, 10)]).build();
    pair.record = Some(Vec::new());
    pair.connect();
    let mut flow = Flow::new(&mut pair, Side::Server);
    flow.run(&mut pair, Duration::from_secs(1));
    let end = pair.now + Duration::from_secs(3);
    let mut copies = 0;
    while pair.now < end {
        flow.run(&mut pair, Duration::from_millis(5));
        let record = std::mem::take(pair.record.as_mut().expect("recording is on"));
        let Some((_, _, newest)) = record.into_iter().rfind(|(_, direction, _)| *direction == 0) else { continue };
        copies += 1;
        pair.server.receive_on(pair.now, &newest, None, Addresses::of(attacker));
    }
    pair.record = None;
    let from: Instant = pair.now;
    flow.run(&mut pair, Duration::from_secs(8));
    assert!(copies > 10, "{copies} copies");
    assert_eq!(server_path(&mut pair, 0).addresses.remote, CLIENT);
    let rate = flow.mbps(from + Duration::from_secs(4), pair.now);
    assert!(rate > 0.7 * capacity_mbps(&[link(20, 10)]), "afterwards {rate} Mb/s");
    let to_attacker: usize =
        pair.misaddressed.iter().filter(|(to, _)| *to == attacker).map(|(_, datagram)| datagram.len()).sum();
    assert!(to_attacker <= 3 * 1500 * copies, "{to_attacker} bytes to the attacker for {copies} copies");
}

/// A pair with two links and one path: the server allows more, so it does not forbid migration.
fn with_another_link(seed: u64) -> Pair {
    let mut setup = Setup::new(seed).over(&[link(20, 10), link(20, 10)]);
    setup.client.max_paths = 0;
    setup.server.max_paths = 2;
    let mut pair = setup.build();
    pair.connect();
    pair
}

fn other_network() -> Addresses {
    Addresses { socket: 1, ..Addresses::of(crate::support::server_on(1)) }
}

#[test]
fn a_client_leaves_a_dead_path() {
    for from in [Side::Client, Side::Server] {
        let mut pair = with_another_link(5);
        let mut flow = Flow::new(&mut pair, from);
        flow.run(&mut pair, Duration::from_secs(2));
        let now = pair.now;
        for direction in pair.link_pair(0) {
            let config = netem::LinkConfig { state: netem::LineState::Silent, ..direction.config().clone() };
            direction.set_config(now, config);
        }
        flow.run(&mut pair, Duration::from_millis(500));
        let now = pair.now;
        assert_eq!(pair.client.connection(0).migrate(now, other_network()), Ok(()));
        flow.run(&mut pair, Duration::from_secs(4));
        let (gap, at) = flow.longest_gap(now, pair.now);
        let client = pair.client.connection(0).path_stats()[0].addresses;
        assert_eq!((client, server_path(&mut pair, 0).addresses.socket), (other_network(), 1), "from {from:?}");
        let rate = flow.mbps_lately(&pair);
        assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "from {from:?}: {rate} Mb/s");
        assert!(gap < Duration::from_millis(500), "from {from:?}: {gap} at {at:?}");
    }
}

#[test]
fn a_path_stays_where_it_is_until_the_new_address_responds() {
    let mut pair = with_another_link(6);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    let now = pair.now;
    for direction in pair.link_pair(1) {
        let config = netem::LinkConfig { state: netem::LineState::Silent, ..direction.config().clone() };
        direction.set_config(now, config);
    }
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Ok(()));
    flow.run(&mut pair, Duration::from_secs(4));
    assert!(pair.link_pair(1)[0].stats().undelivered() > 3, "it is probed again and again");
    assert_eq!(pair.client.connection(0).addresses().socket, 0);
    let rate = flow.mbps_lately(&pair);
    assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "{rate} Mb/s");
    // It responds later.
    let now = pair.now;
    for direction in pair.link_pair(1) {
        let config = netem::LinkConfig { state: netem::LineState::Up, ..direction.config().clone() };
        direction.set_config(now, config);
    }
    flow.run(&mut pair, Duration::from_secs(3));
    assert_eq!(pair.client.connection(0).addresses().socket, 1);
    assert_eq!(server_path(&mut pair, 0).addresses.socket, 1);
    let rate = flow.mbps_lately(&pair);
    assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "{rate} Mb/s");
}

#[test]
fn a_client_migrates_to_and_fro() {
    let mut pair = with_another_link(7);
    let mut flow = Flow::new(&mut pair, Side::Client);
    for round in 0..10 {
        flow.run(&mut pair, Duration::from_secs(2));
        let (now, socket) = (pair.now, 1 - round % 2);
        let to = Addresses {
            socket,
            ..Addresses::of([crate::support::SERVER, crate::support::server_on(1)][usize::from(socket)])
        };
        assert_eq!(pair.client.connection(0).migrate(now, to), Ok(()), "round {round}");
        flow.run(&mut pair, Duration::from_secs(2));
        assert_eq!(pair.client.connection(0).addresses().socket, socket, "round {round}");
        assert_eq!(server_path(&mut pair, 0).addresses.socket, socket, "round {round}");
    }
    let rate = flow.mbps_lately(&pair);
    assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "{rate} Mb/s");
}

/// The probe of an attempt that is given up arrives after its connection ID was retired. The server
/// does not know the ID any more and answers with a reset, whose token is no longer valid (RFC 9000,
/// section 10.3.1).
#[test]
fn a_late_probe_of_a_replaced_attempt_does_not_reset_the_connection() {
    let mut setup = Setup { reset_key: Some([7; 32]), ..Setup::new(17) }.over(&[link(20, 10), link(20, 80)]);
    (setup.client.max_paths, setup.server.max_paths) = (0, 2);
    let mut pair = setup.build();
    pair.connect();
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(1));
    let now = pair.now;
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Ok(()));
    flow.run(&mut pair, Duration::from_millis(1));
    let now = pair.now;
    assert!(pair.client.connection(0).migrate(now, other_network()).is_err(), "the attempt is given up");
    flow.run(&mut pair, Duration::from_secs(2));
    assert_eq!(pair.link_pair(1).each_ref().map(|link| link.stats().carried), [1, 1], "a probe and a reset");
    let rate = flow.mbps_lately(&pair);
    assert!(rate > 0.8 * capacity_mbps(&[link(20, 10)]), "{rate} Mb/s");
}

#[test]
fn a_migration_that_is_not_allowed_is_refused() {
    use quic::MigrateError;
    let mut pair = with_another_link(8);
    let now = pair.now;
    assert_eq!(pair.server.connection(0).migrate(now, Addresses::of(CLIENT)), Err(MigrateError::NotClient));
    // A server of a single path forbids it.
    let mut pair = Setup::new(8).build();
    pair.connect();
    let now = pair.now;
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Err(MigrateError::Forbidden));
    // With several paths, another one is opened instead.
    let mut pair = connected(8, &[link(20, 10), link(20, 10)]);
    let now = pair.now;
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Err(MigrateError::SeveralPaths));
    // A second attempt needs another connection ID, which the server issues.
    let mut pair = with_another_link(8);
    let now = pair.now;
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Ok(()));
    assert_eq!(pair.client.connection(0).migrate(now, other_network()), Err(MigrateError::NoConnectionId));
    let migrates = |pair: &mut Pair| pair.client.connection(0).migrate(pair.now, other_network()).is_ok();
    assert!(pair.run_until(Duration::from_secs(1), migrates));
}
