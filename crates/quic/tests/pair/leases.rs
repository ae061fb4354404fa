//! Leases: the holder of the socket opens arriving packets with leased keys and packet numbers, and
//! learns of changes only when a plan is made. No authentic packet may fail because of that, and
//! the wire bytes must not change.

use netem::LinkConfig;
use quic::PathState;
use units::{Duration, Instant, Rate, Ratio, Rng};

use crate::support::stages::{By, Done, Staging};
use crate::support::{Pair, Setup, apps};

fn leases() -> Staging {
    Staging { by: By::Leases, gathers: true, turn: Duration::from_micros(200), ..Staging::default() }
}

fn done(pair: &Pair) -> Done {
    pair.client.stages.done.plus(&pair.server.stages.done)
}

/// No packet of either side failed to authenticate.
fn check_authentic(pair: &mut Pair) {
    let seed = pair.seed;
    for node in [&mut pair.client, &mut pair.server] {
        let receive = node.connection(0).stats().receive;
        assert_eq!((receive.packets_unauthentic, receive.packets_dropped), (0, 0), "seed {seed}: {receive:?}");
    }
}

/// Two different paths with loss and reordering, and key updates during the transfer.
fn setup(seed: u64) -> Setup {
    let mut rng = Rng::from_seed(seed).split("leases");
    let link = |delay_ms: u64, mbps: u64| LinkConfig {
        delay: Duration::from_millis(delay_ms),
        rate: Some(Rate::from_mbps(mbps)),
        reorder: Ratio::new(10, 100),
        reorder_by: Duration::from_millis(3),
        loss: Ratio::new(1, 100),
        ..LinkConfig::default()
    };
    let links = [link(5, 40), link(rng.between(2, 40), rng.between(10, 40))];
    Setup::new(seed).over(&links).with_config(|config| config.key_update_interval = 80)
}

#[test]
fn all_authentic_packets_open_with_leases_over_key_updates_loss_and_reordering() {
    let mut ended = 0;
    for seed in 0..12 {
        let mut setup = setup(seed);
        // Opened at once, absorbed later: a lease runs ahead of its connection.
        setup.staging = Staging { hold: Duration::from_micros(700 * (seed % 4)), ..leases() };
        let mut pair = setup.build();
        pair.connect();
        pair.open_paths();
        apps::transfer(&mut pair, 3_000_000, Duration::from_secs(300));
        check_authentic(&mut pair);
        let updates = pair.client.connection(0).stats().send.key_updates;
        let done = done(&pair);
        assert!(updates >= 1 && done.opened > 500, "seed {seed}: {updates} {done:?}");
        ended += done.leases_ended;
    }
    assert!(ended >= 24, "{ended} leases ended by a change of terms");
}

/// The datagrams that both sides sent, with times.
fn record(seed: u64, staging: Staging) -> (Vec<(Instant, usize, Vec<u8>)>, Done) {
    let mut setup = setup(seed);
    setup.staging = staging;
    let mut pair = setup.build();
    pair.record = Some(Vec::new());
    pair.connect();
    pair.open_paths();
    apps::transfer(&mut pair, 1_000_000, Duration::from_secs(300));
    (pair.record.take().expect("recording"), done(&pair))
}

#[test]
fn leases_do_not_change_the_wire_bytes() {
    for seed in 0..12 {
        let (plain, _) = record(seed, Staging { by: By::Caller, ..leases() });
        let (leased, done) = record(seed, leases());
        let common = plain.iter().zip(&leased).take_while(|(one, other)| one == other).count();
        assert!(common == plain.len() && plain.len() == leased.len(), "seed {seed}: differs from datagram {common} on");
        assert!(done.opened > 100, "seed {seed}: {done:?}");
    }
}

#[test]
fn no_lease_is_granted_before_the_handshake_is_confirmed_or_after_closing_begins() {
    let mut pair = Setup::new(5).build();
    assert_eq!(pair.server.connections.len(), 0);
    pair.connect();
    let now = pair.now;
    let client = pair.client.connection(0);
    assert!(client.lease_terms().is_some() && client.grant_lease(&[0x40; 40]).is_some());
    client.close(now, 0, "");
    assert!(client.lease_terms().is_none() && client.grant_lease(&[0x40; 40]).is_none());
}

#[test]
fn leases_serve_a_path_that_opens_and_closes() {
    let mut setup = setup(3);
    setup.staging = leases();
    let mut pair = setup.build();
    pair.connect();
    pair.open_paths();
    apps::transfer(&mut pair, 500_000, Duration::from_secs(300));
    let now = pair.now;
    let last = pair.client.connection(0).path_stats().last().expect("there are two paths").id;
    assert!(pair.client.connection(0).abandon_path(now, last, 0));
    apps::transfer(&mut pair, 500_000, Duration::from_secs(300));
    check_authentic(&mut pair);
    let paths = pair.client.connection(0).path_stats();
    assert_eq!(paths.iter().filter(|path| path.state == PathState::Active).count(), 1, "{paths:?}");
}
