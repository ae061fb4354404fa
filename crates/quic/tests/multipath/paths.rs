//! The life of a path after its validation: use, closing, backup paths, connection IDs and keys.

use quic::{
    Addresses, ErrorCode, Event, OpenPathError, PLAN_DATAGRAMS_MAX, PathId, PathState, Plan, Side, TransportConfig,
};
use recovery::Algorithm;
use units::{Duration, Instant};
use wire::quic::Frame;

use super::flow::{Flow, node};
use super::links::{BOTH, connected, connected_as, link, set_state};
use super::{open_on, server_with_path, state};
use crate::support::hostile::{HostilePair, hostile_on, payload};
use crate::support::{Pair, Setup, apps, server_on};
use netem::LineState;

/// APPLICATION_ABANDON_PATH (section 4.2.1).
const BY_THE_APPLICATION: u64 = 0x3e;

// ── The end of a path ────────────────────────────────────────────────────────────────────────────

#[test]
fn a_path_closes_when_either_side_abandons_it_even_the_first() {
    for (seed, by) in [(41, Side::Client), (42, Side::Server)] {
        for path in 0..3 {
            let what = format!("{by:?} abandons path {path}");
            let mut pair = connected(seed, &[link(15, 5), link(15, 20), link(15, 40)]);
            let mut flow = Flow::new(&mut pair, Side::Client);
            flow.run(&mut pair, Duration::from_millis(500));
            let now = pair.now;
            assert!(node(&mut pair, by).connection(0).abandon_path(now, PathId(path), BY_THE_APPLICATION), "{what}");
            assert!(!node(&mut pair, by).connection(0).abandon_path(now, PathId(path), 0), "{what}: again");
            flow.run(&mut pair, Duration::from_millis(200));
            for side in [Side::Client, Side::Server] {
                assert_eq!(state(&mut pair, side, path), Some(PathState::Abandoned), "{what}: {side:?}");
                let event = |event: &Event| *event == Event::PathState(PathId(path), PathState::Abandoned);
                assert!(node(&mut pair, side).take_event(0, event).is_some(), "{what}: {side:?}");
                assert!(node(&mut pair, side).take_event(0, event).is_none(), "{what}: {side:?} reports it once");
            }
            // Nothing is sent there any more.
            let offered = |pair: &mut Pair| pair.link_pair(path as usize).each_ref().map(|link| link.stats().offered);
            let before = offered(&mut pair);
            flow.run(&mut pair, Duration::from_secs(2));
            assert_eq!(offered(&mut pair), before, "{what}");
            // The remaining paths carry the data.
            let (gap, at) = flow.longest_gap(now, pair.now);
            assert!(gap < Duration::from_millis(160), "{what}: a gap of {gap} at {at:?}");
            let rate = flow.mbps_lately(&pair);
            assert!(rate > 24.0, "{what}: {rate} Mb/s");
            for node in [&mut pair.client, &mut pair.server] {
                let stats = node.connection(0).stats();
                assert_eq!(stats.receive.packets_unauthentic + stats.receive.datagrams_stray, 0, "{what}");
            }
        }
    }
}

#[test]
fn the_last_path_cannot_be_abandoned_and_closes_the_connection_if_the_peer_does_so() {
    let mut pair = connected(43, &[link(50, 5), link(50, 5)]);
    let now = pair.now;
    assert!(pair.client.connection(0).abandon_path(now, PathId(0), 0));
    assert!(!pair.client.connection(0).abandon_path(now, PathId(1), 0), "it is the last path");
    assert!(!pair.client.connection(0).abandon_path(now, PathId(7), 0), "there is no such path");
    pair.run_for(Duration::from_secs(1));
    apps::transfer(&mut pair, 100_000, Duration::from_secs(2));
    // With a single path and without negotiation, no path can be abandoned.
    let mut single = Setup::new(44).build();
    single.connect();
    let now = single.now;
    assert!(!single.client.connection(0).abandon_path(now, PathId(0), 0));

    let mut hostile_pair = server_with_path();
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    hostile_pair.send(&payload(&[Frame::PathAbandon { path: PathId(0), code: 0 }]));
    hostile_pair.assert_alive("one path is left");
    hostile_pair.send_on(1, &payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    hostile_pair.assert_closed(ErrorCode::NO_ERROR, "the last path was abandoned");
}

#[test]
fn paths_can_be_closed_and_opened_two_hundred_times() {
    let mut pair = connected(45, &[link(3, 2), link(3, 4), link(3, 6)]);
    let mut flow = Flow::new(&mut pair, Side::Client);
    let mut routes = Vec::new();
    for round in 0..200_u32 {
        flow.run(&mut pair, Duration::from_millis(30));
        let by = [Side::Client, Side::Server][round as usize % 2];
        let now = pair.now;
        let stats = pair.client.connection(0).path_stats();
        let oldest = stats.iter().find(|path| path.id.0 > 0 && path.state == PathState::Active).expect("one is open");
        let (oldest, socket) = (oldest.id, oldest.addresses.socket);
        assert!(node(&mut pair, by).connection(0).abandon_path(now, oldest, 0), "round {round}: {oldest}");
        let mut opened = false;
        let addresses = Addresses { socket, ..Addresses::of(server_on(socket)) };
        for _ in 0..200 {
            flow.run(&mut pair, Duration::from_millis(10));
            let now = pair.now;
            opened = opened || pair.client.connection(0).open_path(now, addresses, false).is_ok();
            let count = |node: &mut crate::support::Node| {
                let stats = node.connection(0).path_stats();
                stats.iter().filter(|path| path.state == PathState::Active).count()
            };
            if opened && [&mut pair.client, &mut pair.server].map(count) == [3, 3] {
                break;
            }
        }
        for side in [Side::Client, Side::Server] {
            let stats = node(&mut pair, side).connection(0).path_stats();
            let active = stats.iter().filter(|path| path.state == PathState::Active).count();
            assert_eq!(active, 3, "round {round}: {side:?}: {stats:?}");
            assert!(stats.len() <= 5, "round {round}: {side:?}: {}", stats.len());
        }
        routes.push([pair.client.endpoint.route_count(), pair.server.endpoint.route_count()]);
    }
    let most = |side: usize| routes.iter().map(|counts| counts[side]).max().expect("some rounds were run");
    assert!(most(0) <= 12 && most(1) <= 12, "connection IDs are kept: {:?}", &routes[190..]);
    let last = pair.client.connection(0).path_stats().last().expect("paths").id;
    assert!(last.0 > 200, "{last}");
}

#[test]
fn empty_plans_do_not_change_later_datagrams_on_old_and_new_paths() {
    // Greased bits, and BBR's random probe times, depend on the seed alone, not on how often a plan
    // was requested before.
    let sent = |sent_challenges: usize| {
        let bbr = |config: &mut TransportConfig| config.congestion = Algorithm::Bbr;
        let mut pair = Setup::new(49).over(&[link(50, 5), link(20, 9)]).with_config(bbr).build();
        pair.record = Some(Vec::new());
        pair.connect();
        let (mut flow, mut plan) = (Flow::new(&mut pair, Side::Client), Plan::new());
        for _ in 0..100 {
            flow.run(&mut pair, Duration::from_millis(3));
            pair.flush();
            let now = pair.now;
            // Everything that may leave has left; the rest waits for the pacer or the window.
            for node in [&mut pair.client, &mut pair.server] {
                for _ in 0..sent_challenges {
                    assert!(!node.connection(0).poll_plan(now, PLAN_DATAGRAMS_MAX, &mut plan), "something was due");
                }
            }
        }
        pair.open_paths();
        flow.run(&mut pair, Duration::from_secs(4));
        pair.record.take().expect("recording is on")
    };
    let (quiet, asked) = (sent(0), sent(5));
    assert!(quiet.len() > 10_000, "{} datagrams", quiet.len());
    assert!(quiet == asked, "{} datagrams, and {}", quiet.len(), asked.len());
}

#[test]
fn abandoning_the_first_path_allows_another_one() {
    // Whether or not its state has been discarded by then.
    for wait in [Duration::from_secs(2), Duration::ZERO] {
        let mut pair = connected(46, &[link(50, 5), link(50, 5)]);
        let now = pair.now;
        assert!(pair.client.connection(0).abandon_path(now, PathId(0), 0));
        pair.run_for(wait);
        // A link for the first path's successor: the same one, whose sockets are the first.
        let addresses = Addresses::of(crate::support::SERVER);
        assert_eq!(pair.client.connection(0).open_path(pair.now, addresses, false), Ok(()));
        assert_eq!(pair.client.connection(0).open_path(pair.now, addresses, false), Err(OpenPathError::TooMany));
        pair.run_for(Duration::from_secs(1));
        for side in [Side::Client, Side::Server] {
            assert_eq!(state(&mut pair, side, 2), Some(PathState::Active), "{side:?}");
        }
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_secs(2));
        let rate = flow.mbps_lately(&pair);
        assert!(rate > 80.0, "{rate} Mb/s");
    }
}

#[test]
fn an_unused_path_id_that_the_server_abandons_is_skipped() {
    let mut hostile_pair = HostilePair::against_multipath_client(4, 3);
    let ids: Vec<Frame<'_>> = (1..=3).map(|path| hostile_pair.hostile.issue(path, 0)).collect();
    hostile_pair.send_and_ack(&payload(&ids));
    hostile_pair.send_and_ack(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    let addresses = Addresses { socket: 1, ..Addresses::of(hostile_on(1)) };
    let now = hostile_pair.now;
    assert_eq!(hostile_pair.victim.connection(0).open_path(now, addresses, false), Ok(()));
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    assert!(!hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(1)), "path 1 is closed");
    assert!(hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(2)), "path 2 is next");
    // Also much later.
    let mut hostile_pair = HostilePair::against_multipath_client(4, 3);
    let ids: Vec<Frame<'_>> = (1..=3).map(|path| hostile_pair.hostile.issue(path, 0)).collect();
    hostile_pair.send_and_ack(&payload(&ids));
    hostile_pair.send_and_ack(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    hostile_pair.wait(Duration::from_secs(5));
    let now = hostile_pair.now;
    assert_eq!(hostile_pair.victim.connection(0).open_path(now, addresses, false), Ok(()));
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    assert!(hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(2)), "path 2 is next");
    hostile_pair.assert_alive("a gap in the path IDs");
}

#[test]
fn late_packets_of_an_abandoned_path_are_received_and_acknowledged() {
    // The first path carries PATH_ABANDON long before the packets sent on the abandoned path
    // arrive.
    let mut pair = connected(47, &[link(50, 2), link(50, 80)]);
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    let now = pair.now;
    assert!(pair.client.connection(0).abandon_path(now, PathId(1), 0));
    let before = pair.server.connection(0).stats().receive;
    let delivered = pair.more_links[0][0].stats().delivered;
    flow.run(&mut pair, Duration::from_millis(400));
    let (after, late) =
        (pair.server.connection(0).stats().receive, pair.more_links[0][0].stats().delivered - delivered);
    assert!(late > 50, "{late} packets were in flight");
    assert_eq!(after.datagrams_stray + after.packets_unauthentic + after.packets_dropped, 0, "{before:?} {after:?}");
    flow.run(&mut pair, Duration::from_secs(2));
    let (gap, at) = flow.longest_gap(now, pair.now);
    assert!(gap < Duration::from_millis(160), "a gap of {gap} at {at:?}");
}

// ── Backup ───────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_backup_path_is_used_only_while_no_other_works_whichever_side_requested_it() {
    for (seed, asks, sends) in [
        (51, Side::Client, Side::Client),
        (52, Side::Client, Side::Server),
        (53, Side::Server, Side::Client),
        (54, Side::Server, Side::Server),
    ] {
        let what = format!("{asks:?} requests, {sends:?} sends");
        let mut pair = connected(seed, &[link(16, 10), link(16, 5)]);
        let now = pair.now;
        assert!(node(&mut pair, asks).connection(0).set_path_backup(now, PathId(1), true), "{what}");
        pair.run_for(Duration::from_millis(200));
        for side in [Side::Client, Side::Server] {
            assert!(node(&mut pair, side).connection(0).path_stats()[1].is_backup, "{what}: {side:?} knows");
        }
        let direction = usize::from(sends == Side::Server);
        let mut flow = Flow::new(&mut pair, sends);
        let carried = |pair: &Pair| pair.more_links[0][direction].stats().offered_bytes;
        let before = carried(&pair);
        flow.run(&mut pair, Duration::from_secs(1));
        assert!(carried(&pair) - before < 20_000, "{what}: {} bytes on the backup", carried(&pair) - before);
        set_state(&mut pair, 0, BOTH, LineState::Silent);
        let (before, cut_at) = (carried(&pair), pair.now);
        flow.run(&mut pair, Duration::from_secs(1));
        assert!(carried(&pair) - before > 500_000, "{what}: the backup carries {}", carried(&pair) - before);
        let (gap, at) = flow.longest_gap(cut_at, pair.now);
        assert!(gap <= Duration::from_millis(160), "{what}: a gap of {gap} at {at:?}");
        set_state(&mut pair, 0, BOTH, LineState::Up);
        flow.run(&mut pair, Duration::from_millis(1500));
        let before = carried(&pair);
        flow.run(&mut pair, Duration::from_secs(1));
        assert!(carried(&pair) - before < 100_000, "{what}: again {} bytes on the backup", carried(&pair) - before);
        // No longer a backup.
        let now = pair.now;
        assert!(node(&mut pair, asks).connection(0).set_path_backup(now, PathId(1), false));
        flow.run(&mut pair, Duration::from_millis(500));
        let before = carried(&pair);
        flow.run(&mut pair, Duration::from_secs(1));
        assert!(carried(&pair) - before > 1_000_000, "{what}: {} bytes", carried(&pair) - before);
    }
}

#[test]
fn a_path_opened_as_backup_is_a_backup_on_both_sides_however_slow_it_is() {
    for slow_ms in [5, 300] {
        let setup = Setup::new(55).over(&[link(50, 10), link(50, slow_ms)]);
        let mut pair = setup.build();
        pair.connect();
        open_on(&mut pair, 1, true);
        pair.run_for(Duration::from_secs(3));
        for side in [Side::Client, Side::Server] {
            let stats = node(&mut pair, side).connection(0).path_stats();
            assert!(stats.len() == 2 && stats[1].is_backup, "{slow_ms} ms: {side:?} {stats:?}");
        }
    }
}

#[test]
fn a_reordered_status_frame_has_no_effect() {
    let mut hostile_pair = server_with_path();
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    for path in [0, 1] {
        let is_backup =
            |hostile_pair: &mut HostilePair| hostile_pair.victim.connection(0).path_stats()[path as usize].is_backup;
        let status = |sequence, available| payload(&[Frame::PathStatus { path: PathId(path), sequence, available }]);
        hostile_pair.send(&status(5, false));
        assert!(is_backup(&mut hostile_pair), "path {path}");
        for sequence in [0, 4, 5] {
            hostile_pair.send(&status(sequence, true));
            assert!(is_backup(&mut hostile_pair), "path {path}: {sequence} after 5");
        }
        hostile_pair.send(&status(6, true));
        assert!(!is_backup(&mut hostile_pair), "path {path}");
        hostile_pair.send(&status(5, false));
        assert!(!is_backup(&mut hostile_pair), "path {path}: 5 after 6");
    }
    // Also before the path is open (section 4.3).
    let mut hostile_pair = server_with_path();
    hostile_pair.send(&payload(&[Frame::PathStatus { path: PathId(1), sequence: 3, available: false }]));
    hostile_pair.send(&payload(&[Frame::PathStatus { path: PathId(1), sequence: 2, available: true }]));
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    assert!(hostile_pair.victim.connection(0).path_stats()[1].is_backup);
}

// ── Connection IDs, keys, the end ────────────────────────────────────────────────────────────────

#[test]
fn connection_ids_are_retired_path_by_path() {
    let mut hostile_pair = server_with_path();
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    // The peer retires its own ID: the victim moves to the next and reports it, for that path
    // alone.
    let Frame::NewConnectionId { path, sequence, id, reset_token, .. } = hostile_pair.hostile.issue(1, 1) else {
        panic!("an ID is issued")
    };
    let frame = Frame::NewConnectionId { path, sequence, retire_prior_to: 1, id, reset_token };
    hostile_pair.send_and_ack(&payload(&[frame]));
    let retired = |path, sequence| move |frame: &Frame<'_>| *frame == Frame::RetireConnectionId { path, sequence };
    assert!(hostile_pair.hostile.has_received(retired(Some(PathId(1)), 0)));
    assert!(
        !hostile_pair.hostile.has_received(retired(Some(PathId(0)), 0))
            && !hostile_pair.hostile.has_received(retired(None, 0))
    );
    let before = hostile_pair.hostile.opened.len();
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([6; 8]), Frame::Padding { len: 1150 }]));
    let answer = |frame: &Frame<'_>| *frame == Frame::PathResponse([6; 8]);
    let on_path = hostile_pair.hostile.opened[before..]
        .iter()
        .any(|packet| packet.dcid == id && packet.frames().iter().any(answer));
    assert!(on_path, "the new ID is in use");
    // The victim's IDs, retired by the peer: new ones follow for the same path, and the old one is
    // no longer routed.
    let old = hostile_pair.hostile.packet_on_oldest(1, &payload(&[Frame::Ping]));
    let count = hostile_pair.hostile.ids_of(1);
    hostile_pair.send_and_ack(&payload(&[Frame::RetireConnectionId { path: Some(PathId(1)), sequence: 0 }]));
    assert_eq!(hostile_pair.hostile.ids_of(1), count + 1, "another ID is issued");
    let received = hostile_pair.victim.connection(0).stats().receive.datagrams_received;
    hostile_pair.deliver_on(1, &old);
    assert_eq!(
        hostile_pair.victim.connection(0).stats().receive.datagrams_received,
        received,
        "a retired ID is not routed"
    );
    hostile_pair.send_on(1, &payload(&[Frame::Ping]));
    assert_eq!(hostile_pair.victim.connection(0).stats().receive.datagrams_received, received + 1);
    hostile_pair.assert_alive("retirement");
}

#[test]
fn keys_are_updated_repeatedly_while_different_paths_carry_data() {
    let setup = Setup::new(61).over(&[link(16, 2), link(16, 60), link(8, 150)]).with_config(|config| {
        config.key_update_interval = 120;
        config.datagram_size = 1452;
    });
    let mut pair = connected_as(setup);
    let (mut up, mut down) = (Flow::new(&mut pair, Side::Client), Flow::new(&mut pair, Side::Server));
    super::flow::run_all(&mut pair, &mut [&mut up, &mut down], Duration::from_secs(6));
    for side in [Side::Client, Side::Server] {
        let stats = node(&mut pair, side).connection(0).stats();
        assert!(stats.send.key_updates >= 4, "{side:?}: {} updates", stats.send.key_updates);
        assert_eq!(stats.receive.packets_unauthentic, 0, "{side:?}: {:?}", stats.receive);
        assert_eq!(stats.receive.packets_dropped, 0, "{side:?}: {:?}", stats.receive);
    }
    assert!(up.read() > 5_000_000 && down.read() > 5_000_000, "{} {}", up.read(), down.read());
}

#[test]
fn keys_are_updated_while_a_path_opens_and_closes() {
    let setup = Setup::new(62).over(&[link(16, 2), link(16, 40)]).with_config(|config| {
        config.key_update_interval = 100;
        config.datagram_size = 1452;
    });
    let mut pair = connected_as(setup);
    let mut flow = Flow::new(&mut pair, Side::Client);
    for round in 0..6 {
        set_state(&mut pair, round % 2, BOTH, LineState::Silent);
        flow.run(&mut pair, Duration::from_millis(700));
        set_state(&mut pair, round % 2, BOTH, LineState::Up);
        flow.run(&mut pair, Duration::from_millis(1300));
    }
    let now = pair.now;
    let (gap, at) = flow.longest_gap(Instant::ZERO + Duration::from_secs(1), now);
    assert!(gap < Duration::from_millis(400), "a gap of {gap} at {at:?}");
    let stats = pair.client.connection(0).stats();
    assert!(stats.send.key_updates >= 6, "{} updates", stats.send.key_updates);
    assert_eq!(pair.server.connection(0).stats().receive.packets_unauthentic, 0);
}

#[test]
fn a_connection_of_several_paths_ends_on_both_sides_at_once() {
    for (seed, by, cut) in
        [(63, Side::Client, None), (64, Side::Server, None), (65, Side::Client, Some(0)), (66, Side::Server, Some(1))]
    {
        let mut pair = connected(seed, &[link(50, 5), link(50, 30), link(50, 60)]);
        let mut flow = Flow::new(&mut pair, Side::Client);
        flow.run(&mut pair, Duration::from_millis(500));
        if let Some(cut) = cut {
            // Long enough ago that both sides know.
            set_state(&mut pair, cut, BOTH, LineState::Silent);
            flow.run(&mut pair, Duration::from_millis(500));
        }
        let now = pair.now;
        node(&mut pair, by).connection(0).close(now, 9, "done");
        pair.run_for(Duration::from_millis(100));
        let other = super::flow::other(by);
        let closed =
            |event: &Event| matches!(event, Event::Closed(quic::ConnectionError::ClosedByPeer { code: 9, .. }));
        assert!(
            node(&mut pair, other).take_event(0, closed).is_some(),
            "seed {seed}: {:?}",
            node(&mut pair, other).events
        );
        pair.run_for(Duration::from_secs(11));
        for node in [&mut pair.client, &mut pair.server] {
            assert!(node.connections[0].is_none(), "seed {seed}: its state is discarded");
            assert_eq!(node.endpoint.route_count(), 0, "seed {seed}: and so are its IDs");
        }
    }
}
