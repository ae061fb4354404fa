//! The negotiation of multipath, and what follows from it.

use quic::{Addresses, ErrorCode, OpenPathError, PathId, PathState};
use units::Duration;
use wire::quic::{Frame, Space};

use crate::support::hostile::{Hostile, HostilePair, client_parameters, encode, hostile_on, multipath, payload};
use crate::support::{Pair, Setup, server_on};

/// A pair over four links whose sides want this many paths.
fn pair(client: u32, server: u32) -> Pair {
    let link = super::links::link(100, 5);
    let mut setup = Setup::new(u64::from(client * 10 + server)).over(&[link.clone(), link.clone(), link.clone(), link]);
    (setup.client.max_paths, setup.server.max_paths) = (client, server);
    setup.build()
}

fn open(pair: &mut Pair, socket: u16) -> Result<(), OpenPathError> {
    let addresses = Addresses { socket, ..Addresses::of(server_on(socket)) };
    pair.client.connection(0).open_path(pair.now, addresses, false)
}

#[test]
fn as_many_paths_are_opened_as_both_sides_allow() {
    for (client, server) in [0, 1, 2, 4].into_iter().flat_map(|client| [0, 1, 2, 4].map(|server| (client, server))) {
        let what = format!("the client wants {client}, the server {server}");
        let mut pair = pair(client, server);
        pair.start();
        assert_eq!(open(&mut pair, 1), Err(OpenPathError::TooEarly), "{what}");
        pair.client = crate::support::Node::new(quic::Side::Client, config(client), &units::Rng::from_seed(9), None);
        pair.connect();
        let agreed = client > 0 && server > 0;
        let spoken = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).is_multipath());
        assert_eq!(spoken, [agreed; 2], "{what}");
        let addresses = Addresses::of(crate::support::CLIENT);
        let refusal = pair.server.connection(0).open_path(pair.now, addresses, false);
        assert_eq!(refusal, Err(OpenPathError::NotClient), "{what}");
        let wanted = if agreed { client.saturating_sub(1) } else { 0 };
        for socket in 1..=wanted as u16 {
            assert_eq!(open(&mut pair, socket), Ok(()), "{what}: path {socket}");
        }
        let refusal = if agreed && client > 1 { OpenPathError::TooMany } else { OpenPathError::Unsupported };
        assert_eq!(open(&mut pair, 1), Err(refusal), "{what}");
        pair.run_for(Duration::from_secs(3));
        let both = if agreed { client.min(server) } else { 1 };
        for node in [&mut pair.client, &mut pair.server] {
            let stats = node.connection(0).path_stats();
            let ids: Vec<u32> = stats.iter().map(|path| path.id.0).collect();
            assert_eq!(ids, (0..both).collect::<Vec<_>>(), "{what}");
            assert!(stats.iter().all(|path| path.state == PathState::Active), "{what}: {stats:?}");
        }
        crate::support::apps::transfer(&mut pair, 100_000, Duration::from_secs(5));
        pair.client.connection(0).close(pair.now, 0, "");
        assert_eq!(open(&mut pair, 1), Err(OpenPathError::Closed), "{what}");
    }
}

fn config(max_paths: u32) -> quic::TransportConfig {
    quic::TransportConfig::default().with_max_paths(max_paths)
}

#[test]
fn a_client_at_the_path_limit_reports_it_once_and_continues_when_it_rises() {
    let mut hostile_pair = HostilePair::against_multipath_client(4, 1);
    let now = hostile_pair.now;
    for socket in 1..=3 {
        let addresses = Addresses { socket, ..Addresses::of(hostile_on(socket)) };
        assert_eq!(hostile_pair.victim.connection(0).open_path(now, addresses, false), Ok(()));
    }
    let issued: Vec<Frame<'_>> = vec![hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    hostile_pair.wait(Duration::from_millis(100));
    let blocked = |hostile_pair: &HostilePair| {
        let frames = hostile_pair.hostile.opened.iter().flat_map(|packet| packet.frames());
        frames.filter(|frame| matches!(frame, Frame::PathsBlocked(PathId(1)))).count()
    };
    assert_eq!(blocked(&hostile_pair), 1);
    assert!(hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(1)), "path 1 is open");
    assert!(!hostile_pair.hostile.can_use(2), "no ID is issued for a path beyond the peer's limit");
    let more = [Frame::MaxPathId(PathId(3)), hostile_pair.hostile.issue(2, 0), hostile_pair.hostile.issue(3, 0)];
    hostile_pair.send_and_ack(&payload(&more));
    hostile_pair.wait(Duration::from_millis(10));
    for path in 2..=3 {
        assert!(hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(path)), "path {path} is open");
    }
    hostile_pair.assert_alive("a limit that rises");
}

/// Whether the acknowledgements in the packets of one space name their path; fails if there are
/// none.
fn names_paths(hostile_pair: &HostilePair, space: Space) -> Vec<bool> {
    let packets = hostile_pair.hostile.opened.iter().filter(|packet| packet.space == space);
    let frames = packets.flat_map(|packet| packet.frames());
    let acks: Vec<bool> = frames
        .filter_map(|frame| match frame {
            Frame::Ack(ack) => Some(ack.path.is_some()),
            _ => None,
        })
        .collect();
    assert!(!acks.is_empty(), "{space:?}: nothing was acknowledged");
    acks
}

#[test]
fn acknowledgements_name_their_path_if_and_only_if_multipath_was_negotiated() {
    let agreed: [fn() -> HostilePair; 2] =
        [|| HostilePair::against_multipath_server(2, 0), || HostilePair::against_multipath_client(1, 3)];
    let not: [fn() -> HostilePair; 4] = [
        HostilePair::against_server as fn() -> HostilePair,
        || HostilePair::against_multipath_server(0, 3),
        HostilePair::against_client,
        || HostilePair::against_multipath_client(0, 3),
    ];
    let cases = agreed.map(|make| (make, true)).into_iter().chain(not.map(|make| (make, false)));
    for (index, (make, names)) in cases.enumerate() {
        let mut hostile_pair = make();
        for _ in 0..10 {
            hostile_pair.send(&payload(&[Frame::Ping]));
        }
        hostile_pair.wait(Duration::from_millis(100));
        assert!(names_paths(&hostile_pair, Space::Data).iter().all(|named| *named == names), "case {index}");
        for space in [Space::Initial, Space::Handshake] {
            // Not every flight is acknowledged by a packet of its own.
            if hostile_pair.hostile.opened.iter().any(|packet| packet.space == space) {
                let frames = hostile_pair
                    .hostile
                    .opened
                    .iter()
                    .filter(|packet| packet.space == space)
                    .flat_map(|packet| packet.frames());
                let mut acks =
                    frames.filter_map(|frame| if let Frame::Ack(ack) = frame { Some(ack.path) } else { None });
                assert!(acks.all(|path| path.is_none()), "case {index}: {space:?}");
            }
        }
        // Both frame types must be accepted (section 2.3).
        let ack = hostile_pair.hostile.ack(Space::Data);
        hostile_pair.send(&ack);
        hostile_pair.assert_alive("ACK frames are understood");
        if names {
            let ack = hostile_pair.hostile.path_ack(0);
            hostile_pair.send(&ack);
            hostile_pair.assert_alive("PATH_ACK frames are understood");
        }
    }
}

#[test]
fn the_path_is_part_of_the_nonce() {
    let mut hostile_pair = HostilePair::against_multipath_server(2, 1);
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    assert!(hostile_pair.hostile.can_use(1));
    let refused =
        |hostile_pair: &mut HostilePair| hostile_pair.victim.connection(0).stats().receive.packets_unauthentic;
    // The right connection ID with the nonce of another path.
    let wrong = hostile_pair.hostile.packet_sealed_for(1, PathId::ZERO, 0, &payload(&[Frame::Ping]));
    hostile_pair.deliver_on(1, &wrong);
    assert_eq!(refused(&mut hostile_pair), 1);
    assert_eq!(hostile_pair.victim.connection(0).path_stats().len(), 1, "nothing authentic arrived");
    hostile_pair.send_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    assert_eq!(refused(&mut hostile_pair), 1);
    assert_eq!(hostile_pair.victim.connection(0).path_stats().len(), 2);
    // The victim's packets open with the path's own nonce.
    hostile_pair.send_on(1, &payload(&[Frame::PathChallenge([1; 8]), Frame::Padding { len: 1100 }]));
    assert!(hostile_pair.hostile.opened.iter().any(|packet| packet.path == PathId(1)));
    assert_eq!(hostile_pair.hostile.unopened, 0);
}

#[test]
fn multipath_without_connection_ids_is_refused() {
    // Section 2.1.
    let nameless = Hostile::client_without_id(7, |id| encode(&multipath(client_parameters(id), 3)));
    let hostile_pair = HostilePair::with_server(config(4), nameless);
    hostile_pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "a client without a connection ID");
    let hostile_pair = HostilePair::with_client(config(4), |first| {
        Hostile::server_without_id(7, first, |id, original| {
            let mut parameters = multipath(client_parameters(id), 3);
            parameters.original_destination_connection_id = Some(original);
            encode(&parameters)
        })
    });
    hostile_pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "a server without a connection ID");
    // Without the parameter the connection has a single path.
    let hostile_pair =
        HostilePair::with_server(config(4), Hostile::client_without_id(7, |id| encode(&client_parameters(id))));
    assert!(hostile_pair.victim_is_alive(), "{:?}", hostile_pair.victim.events);
}

#[test]
fn a_path_limit_beyond_32_bits_is_refused() {
    for (max, is_valid) in [(u64::from(u32::MAX), true), (u64::from(u32::MAX) + 1, false)] {
        let hostile = Hostile::client(7, |id| {
            let mut parameters = encode(&client_parameters(id));
            parameters.extend(crate::support::hostile::parameter(0x3e, &crate::support::hostile::number(max)));
            parameters
        });
        let hostile_pair = HostilePair::with_server(config(4), hostile);
        if is_valid {
            hostile_pair.assert_alive("the largest limit");
        } else {
            hostile_pair.assert_closed(ErrorCode::TRANSPORT_PARAMETER_ERROR, "a limit beyond 32 bits");
        }
    }
}
