//! Path validation (RFC 9000, section 8.2).

use quic::{Addresses, Event, PathId, PathState, Side};
use units::Duration;
use wire::quic::Frame;

use super::flow::Flow;
use super::links::{BOTH, connected, link, set_state};
use super::{open_on, server_with_path, state};
use crate::support::hostile::{HostilePair, hostile_on, payload};
use crate::support::{Setup, apps};
use netem::LineState;

fn received_on<'a>(
    hostile_pair: &'a HostilePair,
    path: u32,
    wanted: impl Fn(&Frame<'_>) -> bool + 'a,
) -> impl Iterator<Item = usize> + 'a {
    let packets = hostile_pair.hostile.opened.iter().filter(move |packet| packet.path == PathId(path));
    packets.filter(move |packet| packet.frames().iter().any(&wanted)).map(|packet| packet.datagram_len)
}

#[test]
fn challenges_and_responses_travel_in_full_datagrams_on_their_path() {
    let is_challenge = |frame: &Frame<'_>| matches!(frame, Frame::PathChallenge(_));
    let is_response = |frame: &Frame<'_>| *frame == Frame::PathResponse([5; 8]);
    // A server is challenged.
    let mut hostile_pair = server_with_path();
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    assert_eq!(received_on(&hostile_pair, 1, is_response).collect::<Vec<_>>(), [1200]);
    assert_eq!(
        received_on(&hostile_pair, 0, is_response).count(),
        0,
        "the response leaves on the path of the challenge"
    );
    assert!(
        received_on(&hostile_pair, 1, is_challenge).all(|len| len >= 1200)
            && received_on(&hostile_pair, 1, is_challenge).count() > 0
    );
    assert_eq!(received_on(&hostile_pair, 0, is_challenge).count(), 0);
    // And a client.
    let mut hostile_pair = HostilePair::against_multipath_client(2, 1);
    let (now, addresses) = (hostile_pair.now, Addresses { socket: 1, ..Addresses::of(hostile_on(1)) });
    hostile_pair.victim.connection(0).open_path(now, addresses, false).expect("two paths are negotiated");
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    assert!(
        received_on(&hostile_pair, 1, is_challenge).all(|len| len >= 1200)
            && received_on(&hostile_pair, 1, is_challenge).count() == 1
    );
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8])]));
    assert_eq!(received_on(&hostile_pair, 1, is_response).collect::<Vec<_>>(), [1200]);
    assert_eq!(received_on(&hostile_pair, 0, is_response).count(), 0);
    // On the first path, too.
    hostile_pair.send(&payload(&[Frame::PathChallenge([5; 8])]));
    assert_eq!(received_on(&hostile_pair, 0, is_response).collect::<Vec<_>>(), [1200]);
}

#[test]
fn a_server_sends_at_most_three_times_the_bytes_received_until_the_path_is_validated() {
    for size in [30, 200, 600, 1100] {
        let mut hostile_pair = server_with_path();
        let id = hostile_pair.victim.connection(0).open(quic::Dir::Uni).expect("allowed");
        hostile_pair.victim.connection(0).write(id, vec![1; 100_000].into()).expect("the send buffer has space");
        let packet = hostile_pair.hostile.packet_on(1, &payload(&[Frame::Ping, Frame::Padding { len: size }]));
        hostile_pair.deliver_on(1, &packet);
        let mut got = packet.len() as u64;
        for _ in 0..30 {
            hostile_pair.wait(Duration::from_millis(300));
            let answered = hostile_pair.victim_bytes.get(&hostile_on(1)).copied().unwrap_or(0);
            assert!(answered <= 3 * got, "{size}: {answered} for {got} bytes");
            let data = received_on(&hostile_pair, 1, |frame| matches!(frame, Frame::Stream(_))).count();
            assert_eq!(data, 0, "{size}: data for an unvalidated address");
            let ack = hostile_pair.hostile.ack(wire::quic::Space::Data);
            hostile_pair.send(&ack);
        }
        // A packet with an error in it counts, too: it came from that address.
        let mut broken = hostile_pair.hostile.packet_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        *broken.last_mut().expect("the datagram is not empty") ^= 1;
        hostile_pair.deliver_on(1, &broken);
        got += broken.len() as u64;
        hostile_pair.wait(Duration::from_secs(3));
        let answered = hostile_pair.victim_bytes.get(&hostile_on(1)).copied().unwrap_or(0);
        assert!(answered <= 3 * got, "{size}: {answered} for {got} bytes");
        // The client responds at last.
        for _ in 0..3 {
            hostile_pair.send_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        }
        hostile_pair.wait(Duration::from_secs(2));
        let sent_challenges = hostile_pair.hostile.challenges();
        let last = *sent_challenges.last().expect("it was challenged");
        hostile_pair.send_on(1, &payload(&[Frame::PathResponse(last)]));
        let stats = hostile_pair.victim.connection(0).path_stats();
        assert_eq!(stats[1].state, PathState::Active, "{size}");
        assert!(
            sent_challenges.iter().enumerate().all(|(at, data)| !sent_challenges[..at].contains(data)),
            "each challenge has data of its own"
        );
        hostile_pair.assert_alive("an address that responds late");
    }
}

#[test]
fn a_wrong_response_validates_nothing() {
    let mut hostile_pair = server_with_path();
    hostile_pair.send_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
    for data in [[0; 8], [5; 8]] {
        hostile_pair.send_on(1, &payload(&[Frame::PathResponse(data)]));
        hostile_pair.send(&payload(&[Frame::PathResponse(data)]));
    }
    // An acknowledgement validates nothing either: it proves that the client is alive, not which
    // address it has.
    let ack = hostile_pair.hostile.path_ack(1);
    hostile_pair.send(&ack);
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[1].state, PathState::Validating);
    hostile_pair.assert_alive("wrong responses");
}

#[test]
fn a_client_too_validates_a_path_only_by_a_response() {
    let mut hostile_pair = HostilePair::against_multipath_client(2, 1);
    let (now, addresses) = (hostile_pair.now, Addresses { socket: 1, ..Addresses::of(hostile_on(1)) });
    hostile_pair.victim.connection(0).open_path(now, addresses, false).expect("two paths are negotiated");
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    let state = |hostile_pair: &mut HostilePair| hostile_pair.victim.connection(0).path_stats()[1].state;
    // An acknowledgement on another path shows that packets arrive there, and nothing about the
    // return direction (RFC 9000, section 8.2.3).
    let ack = hostile_pair.hostile.path_ack(1);
    hostile_pair.send(&ack);
    assert_eq!(state(&mut hostile_pair), PathState::Validating);
    let sent_challenges = hostile_pair.hostile.challenges();
    hostile_pair.send_on(1, &payload(&[Frame::PathResponse(sent_challenges[0])]));
    assert_eq!(state(&mut hostile_pair), PathState::Active);
}

#[test]
fn an_unvalidated_address_is_challenged_in_small_datagrams_whatever_size_is_configured() {
    let config = quic::TransportConfig::default().with_max_paths(2).with_datagram_size(3000);
    let hostile = crate::support::hostile::Hostile::multipath_client(7, 1);
    let mut hostile_pair = HostilePair::established(HostilePair::with_server(config, hostile));
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1170 }]));
    hostile_pair.wait(Duration::from_secs(3));
    // Three times the bytes received suffice for three challenges.
    let sent_challenges =
        received_on(&hostile_pair, 1, |frame| matches!(frame, Frame::PathChallenge(_))).collect::<Vec<_>>();
    assert_eq!(sent_challenges, [1200; 3]);
}

#[test]
fn an_unresponsive_path_is_challenged_every_second_and_used_once_it_responds() {
    let mut dead = link(100, 10);
    dead.state = LineState::Silent;
    // Challenges alone do not keep the connection alive.
    let keep_alive = Some(Duration::from_secs(5));
    let mut pair =
        Setup::new(31).over(&[link(100, 10), dead]).with_config(|config| config.keep_alive = keep_alive).build();
    pair.connect();
    open_on(&mut pair, 1, false);
    let mut offered = 0;
    for second in 0..30 {
        pair.run_for(Duration::from_secs(1));
        let now_offered = pair.more_links[0][0].stats().offered;
        assert!(now_offered > offered, "no challenge in second {second}");
        // First at short intervals, then once a second and no more, since the packets may burden an
        // uninvolved host.
        assert!(second < 2 || now_offered <= offered + 2, "{} in second {second}", now_offered - offered);
        offered = now_offered;
    }
    assert_eq!(state(&mut pair, Side::Client, 1), Some(PathState::Validating));
    assert_eq!(state(&mut pair, Side::Server, 1), None);
    assert!(pair.more_links[0][0].stats().vanished >= 30);
    set_state(&mut pair, 1, BOTH, LineState::Up);
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
