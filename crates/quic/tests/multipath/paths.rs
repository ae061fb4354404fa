//! How paths begin, live and end.

use quic::{
    Addresses, ErrorCode, Event, OpenPathError, PLAN_DATAGRAMS_MAX, PathId, PathState, Plan, Side, TransportConfig,
};
use recovery::Algorithm;
use units::{Duration, Instant};
use wire::quic::Frame;

use crate::flow::{Flow, node};
use crate::links::{connected, connected_as, link};
use crate::support::hostile::{Duel, hostile_on, payload};
use crate::support::{Pair, Setup, apps, server_on};
use netem::LineState;

/// APPLICATION_ABANDON_PATH (section 4.2.1).
const BY_THE_APPLICATION: u64 = 0x3e;

fn state(pair: &mut Pair, side: Side, path: u32) -> Option<PathState> {
    let stats = node(pair, side).connection(0).path_stats();
    stats.iter().find(|stats| stats.id == PathId(path)).map(|stats| stats.state)
}

fn open_on(pair: &mut Pair, socket: u16, is_backup: bool) {
    let addresses = Addresses { socket, ..Addresses::of(server_on(socket)) };
    let opened = pair.client.connection(0).open_path(pair.now, addresses, is_backup);
    assert_eq!(opened, Ok(()), "socket {socket}");
}

// ── Validation ───────────────────────────────────────────────────────────────────────────────────────────────────────

/// A server with path 1 that has been given an ID for it.
fn server_with_path() -> Duel {
    let mut duel = Duel::against_multipath_server(2, 1);
    let issued = [duel.hostile.issue(1, 0)];
    duel.say_and_ack(&payload(&issued));
    duel
}

fn heard_on<'a>(
    duel: &'a Duel,
    path: u32,
    wanted: impl Fn(&Frame<'_>) -> bool + 'a,
) -> impl Iterator<Item = usize> + 'a {
    let packets = duel.hostile.heard.iter().filter(move |heard| heard.path == PathId(path));
    packets.filter(move |heard| heard.frames().iter().any(&wanted)).map(|heard| heard.datagram_len)
}

#[test]
fn challenges_and_answers_travel_in_full_datagrams_on_their_path() {
    let is_challenge = |frame: &Frame<'_>| matches!(frame, Frame::PathChallenge(_));
    let is_answer = |frame: &Frame<'_>| *frame == Frame::PathResponse([5; 8]);
    // A server is asked.
    let mut duel = server_with_path();
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    assert_eq!(heard_on(&duel, 1, is_answer).collect::<Vec<_>>(), [1200]);
    assert_eq!(heard_on(&duel, 0, is_answer).count(), 0, "the answer goes where the question came from");
    assert!(heard_on(&duel, 1, is_challenge).all(|len| len >= 1200) && heard_on(&duel, 1, is_challenge).count() > 0);
    assert_eq!(heard_on(&duel, 0, is_challenge).count(), 0);
    // And a client.
    let mut duel = Duel::against_multipath_client(2, 1);
    let (now, addresses) = (duel.now, Addresses { socket: 1, ..Addresses::of(hostile_on(1)) });
    duel.victim.connection(0).open_path(now, addresses, false).expect("two are agreed on");
    let issued = [duel.hostile.issue(1, 0)];
    duel.say_and_ack(&payload(&issued));
    assert!(heard_on(&duel, 1, is_challenge).all(|len| len >= 1200) && heard_on(&duel, 1, is_challenge).count() == 1);
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8])]));
    assert_eq!(heard_on(&duel, 1, is_answer).collect::<Vec<_>>(), [1200]);
    assert_eq!(heard_on(&duel, 0, is_answer).count(), 0);
    // On the first path, too.
    duel.say(&payload(&[Frame::PathChallenge([5; 8])]));
    assert_eq!(heard_on(&duel, 0, is_answer).collect::<Vec<_>>(), [1200]);
}

#[test]
fn a_server_sends_three_times_what_it_got_until_the_client_has_answered() {
    for size in [30, 200, 600, 1100] {
        let mut duel = server_with_path();
        let id = duel.victim.connection(0).open(quic::Dir::Uni).expect("allowed");
        duel.victim.connection(0).write(id, vec![1; 100_000].into()).expect("room");
        let packet = duel.hostile.packet_on(1, &payload(&[Frame::Ping, Frame::Padding { len: size }]));
        duel.deliver_on(1, &packet);
        let mut got = packet.len() as u64;
        for _ in 0..30 {
            duel.wait(Duration::from_millis(300));
            let answered = duel.answered_bytes.get(&hostile_on(1)).copied().unwrap_or(0);
            assert!(answered <= 3 * got, "{size}: {answered} for {got} bytes");
            let data = heard_on(&duel, 1, |frame| matches!(frame, Frame::Stream(_))).count();
            assert_eq!(data, 0, "{size}: data for an address that has not answered");
            let ack = duel.hostile.ack(wire::quic::Space::Data);
            duel.say(&ack);
        }
        // A packet with a fault in it counts, too: it came from there.
        let mut broken = duel.hostile.packet_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        *broken.last_mut().expect("it has bytes") ^= 1;
        duel.deliver_on(1, &broken);
        got += broken.len() as u64;
        duel.wait(Duration::from_secs(3));
        let answered = duel.answered_bytes.get(&hostile_on(1)).copied().unwrap_or(0);
        assert!(answered <= 3 * got, "{size}: {answered} for {got} bytes");
        // It answers at last.
        for _ in 0..3 {
            duel.say_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        }
        duel.wait(Duration::from_secs(2));
        let questions: Vec<[u8; 8]> = duel
            .hostile
            .heard
            .iter()
            .flat_map(|heard| heard.frames())
            .filter_map(|frame| if let Frame::PathChallenge(data) = frame { Some(data) } else { None })
            .collect();
        let last = *questions.last().expect("it was asked");
        duel.say_on(1, &payload(&[Frame::PathResponse(last)]));
        let stats = duel.victim.connection(0).path_stats();
        assert_eq!(stats[1].state, PathState::Active, "{size}");
        assert!(
            questions.iter().enumerate().all(|(at, data)| !questions[..at].contains(data)),
            "each has bytes of its own"
        );
        duel.assert_alive("an address that answers late");
    }
}

#[test]
fn a_wrong_answer_validates_nothing() {
    let mut duel = server_with_path();
    duel.say_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
    for data in [[0; 8], [5; 8]] {
        duel.say_on(1, &payload(&[Frame::PathResponse(data)]));
        duel.say(&payload(&[Frame::PathResponse(data)]));
    }
    // An acknowledgement does not either: it proves that the client lives, not where.
    let ack = duel.hostile.path_ack(1);
    duel.say(&ack);
    assert_eq!(duel.victim.connection(0).path_stats()[1].state, PathState::Validating);
    duel.assert_alive("wrong answers");
}

#[test]
fn a_client_too_waits_for_the_answer_itself() {
    let mut duel = Duel::against_multipath_client(2, 1);
    let (now, addresses) = (duel.now, Addresses { socket: 1, ..Addresses::of(hostile_on(1)) });
    duel.victim.connection(0).open_path(now, addresses, false).expect("two are agreed on");
    let issued = [duel.hostile.issue(1, 0)];
    duel.say_and_ack(&payload(&issued));
    let state = |duel: &mut Duel| duel.victim.connection(0).path_stats()[1].state;
    // By another path, an acknowledgement says that packets get there, and nothing about the way back (RFC 9000, 8.2.3).
    let ack = duel.hostile.path_ack(1);
    duel.say(&ack);
    assert_eq!(state(&mut duel), PathState::Validating);
    let questions: Vec<[u8; 8]> = duel
        .hostile
        .heard
        .iter()
        .flat_map(|heard| heard.frames())
        .filter_map(|frame| if let Frame::PathChallenge(data) = frame { Some(data) } else { None })
        .collect();
    duel.say_on(1, &payload(&[Frame::PathResponse(questions[0])]));
    assert_eq!(state(&mut duel), PathState::Active);
}

#[test]
fn an_address_that_has_not_answered_is_asked_in_small_datagrams_whatever_size_is_configured() {
    let config = quic::TransportConfig { max_paths: 2, datagram_size: 3000, ..quic::TransportConfig::default() };
    let hostile = crate::support::hostile::Hostile::multipath_client(7, 1);
    let mut duel = Duel::established(Duel::with_server(config, hostile));
    let issued = [duel.hostile.issue(1, 0)];
    duel.say_and_ack(&payload(&issued));
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1170 }]));
    duel.wait(Duration::from_secs(3));
    // Three times what came are three questions.
    let questions = heard_on(&duel, 1, |frame| matches!(frame, Frame::PathChallenge(_))).collect::<Vec<_>>();
    assert_eq!(questions, [1200; 3]);
}

#[test]
fn a_path_that_never_answers_is_asked_every_second_and_used_once_it_does() {
    let mut dead = link(100, 10);
    dead.state = LineState::Silent;
    // The questions alone do not keep the connection alive.
    let keep_alive = Some(Duration::from_secs(5));
    let mut pair =
        Setup::new(31).over(&[link(100, 10), dead]).with_config(|config| config.keep_alive = keep_alive).build();
    pair.connect();
    open_on(&mut pair, 1, false);
    let mut offered = 0;
    for second in 0..30 {
        pair.run_for(Duration::from_secs(1));
        let now_offered = pair.more_links[0][0].stats().offered;
        assert!(now_offered > offered, "nothing was asked in second {second}");
        // First soon, then once a second: not more, since the packets may cost somebody something.
        assert!(second < 2 || now_offered <= offered + 2, "{} in second {second}", now_offered - offered);
        offered = now_offered;
    }
    assert_eq!(state(&mut pair, Side::Client, 1), Some(PathState::Validating));
    assert_eq!(state(&mut pair, Side::Server, 1), None);
    assert!(pair.more_links[0][0].stats().vanished >= 30);
    for direction in 0..2 {
        let config = netem::LinkConfig { state: LineState::Up, ..pair.more_links[0][direction].config().clone() };
        let now = pair.now;
        pair.more_links[0][direction].set_config(now, config);
    }
    pair.run_for(Duration::from_millis(1100));
    for side in [Side::Client, Side::Server] {
        assert_eq!(state(&mut pair, side, 1), Some(PathState::Active), "{side:?}");
    }
    let event = |event: &Event| *event == Event::PathState(PathId(1), PathState::Active);
    assert!(pair.client.take_event(0, event).is_some() && pair.server.take_event(0, event).is_some());
    let mut flow = Flow::new(&mut pair, Side::Client);
    flow.run(&mut pair, Duration::from_secs(2));
    assert!(pair.more_links[0][0].stats().delivered_bytes > 5_000_000, "{:?}", pair.more_links[0][0].stats());
}

#[test]
fn thirty_two_paths_work_at_once() {
    let links: Vec<_> = (0..32).map(|index| link(2, 2 + index % 7 * 3)).collect();
    let mut pair = connected(32, &links);
    let took = apps::transfer(&mut pair, 6_000_000, Duration::from_secs(10));
    for at in 0..32 {
        let [forward, backward] = pair.link_pair(at);
        let (there, back) = (forward.stats().delivered_bytes, backward.stats().delivered);
        assert!(there > 60_000 && back > 0, "link {at}: {there} bytes in {took}, {back} packets back");
    }
}

// ── The end of a path ────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_path_ends_when_either_side_gives_it_up_even_the_first() {
    for (seed, by) in [(41, Side::Client), (42, Side::Server)] {
        for path in 0..3 {
            let what = format!("{by:?} gives up path {path}");
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
                assert!(node(&mut pair, side).take_event(0, event).is_none(), "{what}: {side:?} says it once");
            }
            // Nothing is sent there any more.
            let offered = |pair: &mut Pair| pair.link_pair(path as usize).each_ref().map(|link| link.stats().offered);
            let before = offered(&mut pair);
            flow.run(&mut pair, Duration::from_secs(2));
            assert_eq!(offered(&mut pair), before, "{what}");
            // And the rest carries on.
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
fn the_last_path_cannot_be_given_up_and_takes_the_connection_with_it_if_the_peer_does() {
    let mut pair = connected(43, &[link(50, 5), link(50, 5)]);
    let now = pair.now;
    assert!(pair.client.connection(0).abandon_path(now, PathId(0), 0));
    assert!(!pair.client.connection(0).abandon_path(now, PathId(1), 0), "it is the last one");
    assert!(!pair.client.connection(0).abandon_path(now, PathId(7), 0), "there is no such path");
    pair.run_for(Duration::from_secs(1));
    apps::transfer(&mut pair, 100_000, Duration::from_secs(2));
    // With a single path and no agreement, there is nothing to give up.
    let mut single = Setup::new(44).build();
    single.connect();
    let now = single.now;
    assert!(!single.client.connection(0).abandon_path(now, PathId(0), 0));

    let mut duel = server_with_path();
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    duel.say(&payload(&[Frame::PathAbandon { path: PathId(0), code: 0 }]));
    duel.assert_alive("one path is left");
    duel.say_on(1, &payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    duel.assert_closed(ErrorCode::NO_ERROR, "the last path was given up");
}

#[test]
fn paths_are_forgotten_and_others_opened_two_hundred_times_in_a_row() {
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
    let most = |side: usize| routes.iter().map(|counts| counts[side]).max().expect("there were rounds");
    assert!(most(0) <= 12 && most(1) <= 12, "connection IDs are kept: {:?}", &routes[190..]);
    let last = pair.client.connection(0).path_stats().last().expect("paths").id;
    assert!(last.0 > 200, "{last}");
}

#[test]
fn plans_asked_for_in_vain_change_nothing_of_what_leaves_later_over_old_paths_and_new_ones() {
    // Bits are greased and BBR draws when it probes: both by the seed alone, not by how often somebody asked before.
    let sent = |questions: usize| {
        let bbr = |config: &mut TransportConfig| config.congestion = Algorithm::Bbr;
        let mut pair = Setup::new(49).over(&[link(50, 5), link(20, 9)]).with_config(bbr).build();
        pair.record = Some(Vec::new());
        pair.connect();
        let (mut flow, mut plan) = (Flow::new(&mut pair, Side::Client), Plan::new());
        for _ in 0..100 {
            flow.run(&mut pair, Duration::from_millis(3));
            pair.flush();
            let now = pair.now;
            // All that may leave has left; the rest waits for its turn or for room in the window.
            for node in [&mut pair.client, &mut pair.server] {
                for _ in 0..questions {
                    assert!(!node.connection(0).poll_plan(now, PLAN_DATAGRAMS_MAX, &mut plan), "something was due");
                }
            }
        }
        pair.open_paths();
        flow.run(&mut pair, Duration::from_secs(4));
        pair.record.take().expect("it is recorded")
    };
    let (quiet, asked) = (sent(0), sent(5));
    assert!(quiet.len() > 10_000, "{} datagrams", quiet.len());
    assert!(quiet == asked, "{} datagrams, and {}", quiet.len(), asked.len());
}

#[test]
fn the_first_path_makes_room_for_another_when_it_is_given_up() {
    // Whether it is forgotten by then or not.
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
fn an_unused_path_that_the_server_gives_up_is_passed_over() {
    let mut duel = Duel::against_multipath_client(4, 3);
    let ids: Vec<Frame<'_>> = (1..=3).map(|path| duel.hostile.issue(path, 0)).collect();
    duel.say_and_ack(&payload(&ids));
    duel.say_and_ack(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    let addresses = Addresses { socket: 1, ..Addresses::of(hostile_on(1)) };
    let now = duel.now;
    assert_eq!(duel.victim.connection(0).open_path(now, addresses, false), Ok(()));
    duel.say_and_ack(&payload(&[Frame::Ping]));
    assert!(!duel.hostile.heard.iter().any(|heard| heard.path == PathId(1)), "path 1 is over");
    assert!(duel.hostile.heard.iter().any(|heard| heard.path == PathId(2)), "path 2 is next");
    // Long after, too.
    let mut duel = Duel::against_multipath_client(4, 3);
    let ids: Vec<Frame<'_>> = (1..=3).map(|path| duel.hostile.issue(path, 0)).collect();
    duel.say_and_ack(&payload(&ids));
    duel.say_and_ack(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    duel.wait(Duration::from_secs(5));
    let now = duel.now;
    assert_eq!(duel.victim.connection(0).open_path(now, addresses, false), Ok(()));
    duel.say_and_ack(&payload(&[Frame::Ping]));
    assert!(duel.hostile.heard.iter().any(|heard| heard.path == PathId(2)), "path 2 is next");
    duel.assert_alive("a hole in the path IDs");
}

#[test]
fn late_packets_of_a_path_that_was_given_up_are_received_and_acknowledged() {
    // The first path carries the word that it is over long before what was sent on it arrives.
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
    assert!(late > 50, "{late} packets were on their way");
    assert_eq!(after.datagrams_stray + after.packets_unauthentic + after.packets_dropped, 0, "{before:?} {after:?}");
    flow.run(&mut pair, Duration::from_secs(2));
    let (gap, at) = flow.longest_gap(now, pair.now);
    assert!(gap < Duration::from_millis(160), "a gap of {gap} at {at:?}");
}

// ── Backup ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_backup_path_is_used_while_no_other_works_whichever_side_asked_for_it() {
    for (seed, asks, sends) in [
        (51, Side::Client, Side::Client),
        (52, Side::Client, Side::Server),
        (53, Side::Server, Side::Client),
        (54, Side::Server, Side::Server),
    ] {
        let what = format!("{asks:?} asks, {sends:?} sends");
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
        set_state(&mut pair, 0, LineState::Silent);
        let (before, cut_at) = (carried(&pair), pair.now);
        flow.run(&mut pair, Duration::from_secs(1));
        assert!(carried(&pair) - before > 500_000, "{what}: the backup carries {}", carried(&pair) - before);
        let (gap, at) = flow.longest_gap(cut_at, pair.now);
        assert!(gap <= Duration::from_millis(160), "{what}: a gap of {gap} at {at:?}");
        set_state(&mut pair, 0, LineState::Up);
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

fn set_state(pair: &mut Pair, at: usize, state: LineState) {
    let now = pair.now;
    for link in pair.link_pair(at) {
        let config = netem::LinkConfig { state, ..link.config().clone() };
        link.set_config(now, config);
    }
}

#[test]
fn a_path_opened_as_backup_is_one_on_both_sides_however_slow_it_is() {
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
fn a_word_about_a_path_that_was_overtaken_by_a_later_one_says_nothing() {
    let mut duel = server_with_path();
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    for path in [0, 1] {
        let is_backup = |duel: &mut Duel| duel.victim.connection(0).path_stats()[path as usize].is_backup;
        let status = |sequence, available| payload(&[Frame::PathStatus { path: PathId(path), sequence, available }]);
        duel.say(&status(5, false));
        assert!(is_backup(&mut duel), "path {path}");
        for sequence in [0, 4, 5] {
            duel.say(&status(sequence, true));
            assert!(is_backup(&mut duel), "path {path}: {sequence} after 5");
        }
        duel.say(&status(6, true));
        assert!(!is_backup(&mut duel), "path {path}");
        duel.say(&status(5, false));
        assert!(!is_backup(&mut duel), "path {path}: 5 after 6");
    }
    // Before the path is there, too (section 4.3).
    let mut duel = server_with_path();
    duel.say(&payload(&[Frame::PathStatus { path: PathId(1), sequence: 3, available: false }]));
    duel.say(&payload(&[Frame::PathStatus { path: PathId(1), sequence: 2, available: true }]));
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    assert!(duel.victim.connection(0).path_stats()[1].is_backup);
}

// ── Connection IDs, keys, the end ────────────────────────────────────────────────────────────────────────────────────

#[test]
fn connection_ids_are_retired_path_by_path() {
    let mut duel = server_with_path();
    duel.say_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    // The peer retires its own ID: the victim moves to the next and says so, for that path alone.
    let Frame::NewConnectionId { path, sequence, id, reset_token, .. } = duel.hostile.issue(1, 1) else {
        panic!("an ID is issued")
    };
    let frame = Frame::NewConnectionId { path, sequence, retire_prior_to: 1, id, reset_token };
    duel.say_and_ack(&payload(&[frame]));
    let retired = |path, sequence| move |frame: &Frame<'_>| *frame == Frame::RetireConnectionId { path, sequence };
    assert!(duel.hostile.has_heard(retired(Some(PathId(1)), 0)));
    assert!(!duel.hostile.has_heard(retired(Some(PathId(0)), 0)) && !duel.hostile.has_heard(retired(None, 0)));
    let before = duel.hostile.heard.len();
    duel.say_on(1, &payload(&[Frame::PathChallenge([6; 8]), Frame::Padding { len: 1150 }]));
    let answer = |frame: &Frame<'_>| *frame == Frame::PathResponse([6; 8]);
    let on_path =
        duel.hostile.heard[before..].iter().any(|heard| heard.dcid == id && heard.frames().iter().any(answer));
    assert!(on_path, "the new ID is in use");
    // The victim's IDs, retired by the peer: new ones follow, for the same path, and the old one is no longer routed.
    let old = duel.hostile.packet_on_oldest(1, &payload(&[Frame::Ping]));
    let count = duel.hostile.ids_of(1);
    duel.say_and_ack(&payload(&[Frame::RetireConnectionId { path: Some(PathId(1)), sequence: 0 }]));
    assert_eq!(duel.hostile.ids_of(1), count + 1, "another ID is issued");
    let received = duel.victim.connection(0).stats().receive.datagrams_received;
    duel.deliver_on(1, &old);
    assert_eq!(
        duel.victim.connection(0).stats().receive.datagrams_received,
        received,
        "nobody answers to a retired ID"
    );
    duel.say_on(1, &payload(&[Frame::Ping]));
    assert_eq!(duel.victim.connection(0).stats().receive.datagrams_received, received + 1);
    duel.assert_alive("retirement");
}

#[test]
fn keys_are_updated_again_and_again_while_unlike_paths_carry_data() {
    let setup = Setup::new(61).over(&[link(16, 2), link(16, 60), link(8, 150)]).with_config(|config| {
        config.key_update_interval = 120;
        config.datagram_size = 1452;
    });
    let mut pair = connected_as(setup);
    let (mut up, mut down) = (Flow::new(&mut pair, Side::Client), Flow::new(&mut pair, Side::Server));
    crate::flow::run_all(&mut pair, &mut [&mut up, &mut down], Duration::from_secs(6));
    for side in [Side::Client, Side::Server] {
        let stats = node(&mut pair, side).connection(0).stats();
        assert!(stats.send.key_updates >= 4, "{side:?}: {} updates", stats.send.key_updates);
        assert_eq!(stats.receive.packets_unauthentic, 0, "{side:?}: {:?}", stats.receive);
        assert_eq!(stats.receive.packets_dropped, 0, "{side:?}: {:?}", stats.receive);
    }
    assert!(up.read() > 5_000_000 && down.read() > 5_000_000, "{} {}", up.read(), down.read());
}

#[test]
fn keys_are_updated_while_a_path_comes_and_goes() {
    let setup = Setup::new(62).over(&[link(16, 2), link(16, 40)]).with_config(|config| {
        config.key_update_interval = 100;
        config.datagram_size = 1452;
    });
    let mut pair = connected_as(setup);
    let mut flow = Flow::new(&mut pair, Side::Client);
    for round in 0..6 {
        set_state(&mut pair, round % 2, LineState::Silent);
        flow.run(&mut pair, Duration::from_millis(700));
        set_state(&mut pair, round % 2, LineState::Up);
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
            // Long enough ago that both know.
            set_state(&mut pair, cut, LineState::Silent);
            flow.run(&mut pair, Duration::from_millis(500));
        }
        let now = pair.now;
        node(&mut pair, by).connection(0).close(now, 9, "done");
        pair.run_for(Duration::from_millis(100));
        let other = crate::flow::other(by);
        let closed =
            |event: &Event| matches!(event, Event::Closed(quic::ConnectionError::ClosedByPeer { code: 9, .. }));
        assert!(
            node(&mut pair, other).take_event(0, closed).is_some(),
            "seed {seed}: {:?}",
            node(&mut pair, other).events
        );
        pair.run_for(Duration::from_secs(11));
        for node in [&mut pair.client, &mut pair.server] {
            assert!(node.connections[0].is_none(), "seed {seed}: it is forgotten");
            assert_eq!(node.endpoint.route_count(), 0, "seed {seed}: and so are its IDs");
        }
    }
}
