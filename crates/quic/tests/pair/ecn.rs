//! ECN (RFC 9000, section 13.4): marks replace losses, and paths that mishandle the codepoint are
//! not marked.

use netem::{CoDel, Discipline};
use quic::{EcnState, PathState, PathStats, TransportConfig};
use units::{Duration, Ecn, Instant, Rate};

use crate::support::apps::transfer;
use crate::support::stages::{By, Staging, WorkerPool};
use crate::support::{CodepointChange, Pair, Setup, client_on, server_on};

const TOTAL: u64 = 4 << 20;
const LIMIT: Duration = Duration::from_secs(120);

/// The first path of the client and of the server.
fn paths(pair: &mut Pair) -> [PathStats; 2] {
    [&mut pair.client, &mut pair.server].map(|node| node.connection(0).path_stats().remove(0))
}

fn states(pair: &mut Pair) -> [EcnState; 2] {
    paths(pair).map(|path| path.ecn)
}

/// A pair over a link of 20 Mb/s whose queue is managed by CoDel, which marks or drops.
fn over_codel(seed: u64, ecn: bool) -> Setup {
    Setup::new(seed).with_links(|link| {
        link.rate = Some(Rate::from_mbps(20));
        link.queue_bytes = 1 << 20;
        link.discipline = Discipline::CoDel(CoDel { ecn, ..CoDel::default() });
    })
}

#[test]
fn marks_slow_a_transfer_without_a_loss() {
    for congestion in ["cubic", "newreno", "bbr"] {
        let run = |ecn: bool| {
            let algorithm = congestion.parse().expect("a congestion controller");
            let pair = over_codel(1, true).with_config(|config| {
                (config.ecn, config.congestion) = (ecn, algorithm);
            });
            let mut pair = pair.build();
            pair.connect();
            let took = transfer(&mut pair, TOTAL, LIMIT);
            (paths(&mut pair)[0].clone(), took, pair.link_stats()[0])
        };
        let (marked, took, link) = run(true);
        assert_eq!(marked.ecn, EcnState::Capable, "{congestion}");
        assert!(link.marked > 0 && marked.packets_marked == link.marked, "{congestion}: {link:?} {marked:?}");
        assert_eq!(marked.packets_lost, 0, "{congestion}");
        let (dropped, took_with_drops, link) = run(false);
        assert_eq!((dropped.ecn, dropped.packets_marked, link.marked), (EcnState::Off, 0, 0), "{congestion}");
        assert!(dropped.packets_lost > 0, "{congestion}");
        assert!(took <= took_with_drops + Duration::from_millis(200), "{congestion}: {took} {took_with_drops}");
    }
}

#[test]
fn a_scalable_sender_keeps_the_queue_short_and_the_link_busy() {
    let run = |congestion: &str, threshold: Duration| {
        let algorithm = congestion.parse().expect("a congestion controller");
        let setup = Setup::new(1).with_links(|link| {
            link.rate = Some(Rate::from_mbps(50));
            link.queue_bytes = 1 << 20;
            link.discipline = Discipline::Step(threshold);
        });
        let mut pair = setup.with_config(|config| config.congestion = algorithm).build();
        pair.connect();
        let took = transfer(&mut pair, 4 * TOTAL, LIMIT);
        (paths(&mut pair)[0].clone(), took, pair.link_stats()[0])
    };
    let (marked, took, link) = run("prague", Duration::from_millis(1));
    assert_eq!((marked.ecn, marked.packets_lost), (EcnState::Capable, 0));
    assert!(link.marked > 0 && marked.packets_marked == link.marked, "{link:?} {marked:?}");
    // The link takes 2.7 s for these bytes with their headers. Slow start ends at the first mark, early.
    assert!(took < Duration::from_millis(3600), "{took}");
    assert!(link.queue_delay_mean() < Duration::from_millis(2), "{link:?}");
    let (unmarked, took_by_cubic, cubic) = run("cubic", Duration::from_millis(1));
    assert_eq!((cubic.marked, unmarked.packets_marked), (0, 0), "ECT(0) is not for such marks");
    assert!(cubic.queue_delay_mean() > link.queue_delay_mean() * 10, "{cubic:?}");
    assert!(took < took_by_cubic + Duration::from_millis(500), "{took} {took_by_cubic}");
}

#[test]
fn every_placement_counts_the_same_codepoints() {
    let pool = WorkerPool::start(2);
    let stagings = [By::Caller, By::Steps, By::Workers(pool), By::Leases].map(|by| {
        let turn = Duration::from_micros(200);
        Staging { by, gathers: true, turn, ..Staging::default() }
    });
    for staging in stagings.into_iter().chain([Staging { detached: true, ..Staging::default() }]) {
        let mut setup = over_codel(2, true);
        setup.staging = staging;
        let mut pair = setup.build();
        pair.connect();
        transfer(&mut pair, TOTAL, LIMIT);
        let path = paths(&mut pair)[0].clone();
        assert_eq!((path.ecn, path.packets_lost), (EcnState::Capable, 0));
        assert!(path.packets_marked > 0 && path.packets_marked == pair.link_stats()[0].marked, "{path:?}");
    }
}

#[test]
fn loss_and_reordering_do_not_fail_validation() {
    for seed in 0..8 {
        let mut pair = over_codel(seed, true)
            .with_links(|link| {
                link.loss = units::Ratio::new(3, 100);
                link.duplicate = units::Ratio::new(3, 100);
                link.reorder = units::Ratio::new(10, 100);
                link.reorder_by = Duration::from_millis(5);
            })
            .build();
        pair.connect();
        transfer(&mut pair, TOTAL, LIMIT);
        assert_eq!(states(&mut pair), [EcnState::Capable; 2], "seed {seed}");
        assert!(paths(&mut pair)[0].packets_lost > 0);
    }
}

#[test]
fn a_path_that_changes_the_codepoint_is_not_marked() {
    let changes: [(&str, CodepointChange); 2] =
        [("cleared", |_| None), ("changed to ECT(1)", |ecn| ecn.map(|_| Ecn::Ect1))];
    for (name, change) in changes {
        let mut pair = Setup::new(3).build();
        pair.codepoint_changes[0] = Some(change);
        pair.connect();
        transfer(&mut pair, 1 << 20, LIMIT);
        assert_eq!(states(&mut pair), [EcnState::Failed, EcnState::Capable], "{name}");
        assert_eq!(paths(&mut pair)[0].packets_marked, 0, "{name}");
    }
    // Everything is marked CE: a sign of congestion, and no failure.
    let mut pair = Setup::new(3).build();
    pair.codepoint_changes[0] = Some(|ecn| ecn.map(|_| Ecn::Ce));
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Capable; 2]);
    assert!(paths(&mut pair)[0].packets_marked > 800);
}

#[test]
fn a_peer_whose_network_does_not_show_codepoints_is_not_marked() {
    let mut pair = Setup::new(4).build();
    pair.codepoint_changes = [Some(|_| None); 2];
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Failed; 2]);
}

#[test]
fn a_network_that_drops_marked_packets_is_used_without_marks() {
    let limits = |config: &mut TransportConfig| config.handshake_timeout = TransportConfig::default().handshake_timeout;
    let mut pair = Setup::new(5).with_config(limits).build();
    pair.drops_codepoints = |_| true;
    pair.connect();
    // Each side has waited for one probe timeout.
    assert!(pair.now - Instant::ZERO < Duration::from_secs(3), "{:?}", pair.now);
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair)[0], EcnState::Failed);
    assert!(pair.tapped[0] > 0);
}

/// A loss in the handshake does not mean that the network drops marked packets.
#[test]
fn a_path_is_validated_although_a_packet_of_the_handshake_was_lost() {
    let mut pair = Setup::new(6).build();
    let mut dropped = 0;
    pair.tap(0, move |_, _| {
        dropped += 1;
        dropped > 1
    });
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!((pair.tapped[0], states(&mut pair)), (1, [EcnState::Capable; 2]));
}

#[test]
fn a_second_path_whose_network_drops_marked_packets_carries_data_without_marks() {
    let link = Setup::new(7).links[0].clone();
    let mut pair = Setup::new(7).over(&[link.clone(), link]).build();
    pair.drops_codepoints = |link| link == 1;
    pair.connect();
    pair.open_paths();
    pair.run_for(Duration::from_secs(30));
    transfer(&mut pair, TOTAL, LIMIT);
    for node in [&mut pair.client, &mut pair.server] {
        let paths = node.connection(0).path_stats();
        let seen = paths.iter().map(|path| (path.state, path.ecn)).collect::<Vec<_>>();
        assert_eq!(seen, [(PathState::Active, EcnState::Capable), (PathState::Active, EcnState::Failed)]);
    }
    let second = pair.client.connection(0).path_stats().remove(1);
    assert!(second.bytes_acked > TOTAL / 10 && second.silences <= 2, "{second:?}");
}

#[test]
fn marks_survive_an_outage() {
    let mut pair = Setup::new(8).build();
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Capable; 2]);
    for direction in 0..2 {
        pair.tap(direction, |_, _| false);
    }
    pair.client.connection(0).send_datagram(vec![1; 1000].into()).expect("the queue has space");
    pair.run_for(Duration::from_secs(5));
    assert_eq!(states(&mut pair)[0], EcnState::Failed, "the marks may be the cause");
    for direction in 0..2 {
        pair.tap(direction, |_, _| true);
    }
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Capable; 2]);
}

#[test]
fn a_client_that_migrates_validates_the_new_route() {
    let mut setup = Setup::new(9);
    setup.more_links = vec![setup.links.clone()];
    // A server with one path forbids it.
    setup.server.max_paths = 2;
    let mut pair = setup.build();
    pair.codepoint_changes = [Some(|_| None); 2];
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Failed; 2]);
    pair.codepoint_changes = [None; 2];
    let addresses = quic::Addresses { socket: 1, ..quic::Addresses::of(server_on(1)) };
    let now = pair.now;
    pair.client.connection(0).migrate(now, addresses).expect("it may migrate");
    pair.run_for(Duration::from_secs(2));
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Capable; 2]);
}

#[test]
fn a_path_that_moves_is_validated_anew() {
    let mut pair = Setup::new(6).build();
    pair.codepoint_changes[0] = Some(|_| None);
    pair.codepoint_changes[1] = Some(|_| None);
    pair.connect();
    transfer(&mut pair, 1 << 20, LIMIT);
    assert_eq!(states(&mut pair), [EcnState::Failed; 2]);
    pair.codepoint_changes = [None; 2];
    let mut moved = client_on(0);
    moved.set_port(7777);
    pair.remap(0, moved);
    transfer(&mut pair, 1 << 20, LIMIT);
    // While the former address is challenged, nothing is concluded.
    pair.run_for(Duration::from_secs(20));
    transfer(&mut pair, 1 << 20, LIMIT);
    // Only the server saw another address.
    assert_eq!(states(&mut pair), [EcnState::Failed, EcnState::Capable]);
}
