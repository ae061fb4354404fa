//! Frames and packets of the multipath extension (draft-ietf-quic-multipath-21) in invalid use.

use std::net::SocketAddr;

use quic::{ConnectionId, Dir, ErrorCode, PathId, PathState, Policy, TransportConfig};
use units::Duration;
use wire::quic::{Frame, Space, emit_ack};

use crate::support::hostile::{HOSTILE, Hostile, HostilePair, hostile_on, payload};

/// The new address of the first path: another port, as after a NAT rebinding.
const MOVED: SocketAddr = SocketAddr::new(HOSTILE.ip(), 7777);

/// The highest path ID that the victims here accept.
const MAX: u32 = 3;

fn path_id(path: u32, sequence: u64, byte: u8) -> Frame<'static> {
    let id = ConnectionId::new(&[byte; 8]).expect("eight bytes");
    Frame::NewConnectionId { path: Some(PathId(path)), sequence, retire_prior_to: 0, id, reset_token: [byte; 16] }
}

fn path_ack(path: u32, from: u64, to: u64) -> Vec<u8> {
    let mut out = Vec::new();
    emit_ack(Some(PathId(path)), 0, [from..=to].into_iter(), None, &mut out);
    out
}

/// Every frame of the extension that names a path, for `path`.
fn frames_of(path: u32) -> Vec<(&'static str, Vec<u8>)> {
    let id = PathId(path);
    vec![
        ("PATH_ACK", path_ack(path, 0, 0)),
        ("PATH_ABANDON", payload(&[Frame::PathAbandon { path: id, code: 0 }])),
        ("PATH_STATUS_BACKUP", payload(&[Frame::PathStatus { path: id, sequence: 0, available: false }])),
        ("PATH_STATUS_AVAILABLE", payload(&[Frame::PathStatus { path: id, sequence: 0, available: true }])),
        ("PATH_NEW_CONNECTION_ID", payload(&[path_id(path, 0, 9)])),
        ("PATH_RETIRE_CONNECTION_ID", payload(&[Frame::RetireConnectionId { path: Some(id), sequence: 0 }])),
        ("PATHS_BLOCKED", payload(&[Frame::PathsBlocked(id)])),
        ("PATH_CIDS_BLOCKED", payload(&[Frame::PathCidsBlocked { path: id, next_sequence: 0 }])),
    ]
}

/// Both victims, with four paths negotiated.
fn victims() -> [HostilePair; 2] {
    [HostilePair::against_multipath_server(MAX + 1, MAX), HostilePair::against_multipath_client(MAX + 1, MAX)]
}

/// A server with `count` paths besides the first, all of them validated.
fn server_with_paths(count: u32) -> HostilePair {
    server_with_paths_as(TransportConfig::default(), count)
}

/// As [`server_with_paths`], with another configuration.
fn server_with_paths_as(config: TransportConfig, count: u32) -> HostilePair {
    let config = config.with_max_paths(count + 1);
    let mut pair = HostilePair::established(HostilePair::with_server(config, Hostile::multipath_client(7, count)));
    for path in 1..=count {
        let issued = [pair.hostile.issue(path, 0)];
        pair.send_and_ack(&payload(&issued));
        pair.send_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        let on_path = pair.hostile.opened.iter().filter(|packet| packet.path == PathId(path));
        let challenges: Vec<[u8; 8]> = on_path.flat_map(|packet| packet.challenges()).collect();
        pair.send_on(path, &payload(&[Frame::PathResponse(challenges[0])]));
    }
    let stats = pair.victim.connection(0).path_stats();
    assert!(stats.len() == count as usize + 1 && stats.iter().all(|path| path.state == PathState::Active), "{stats:?}");
    pair
}

#[test]
fn frames_about_paths_beyond_the_limit_are_refused() {
    // Section 4: a connection error of type PROTOCOL_VIOLATION.
    for path in [MAX + 1, MAX + 2, 1 << 20, u32::MAX] {
        for (name, frame) in frames_of(path) {
            for mut pair in victims() {
                pair.send(&frame);
                pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("{name} of path {path}"));
            }
        }
    }
}

#[test]
fn multipath_frames_without_negotiation_are_refused() {
    // RFC 9000, section 12.4: an unknown frame type.
    for path in [0, 1] {
        let mut frames = frames_of(path);
        frames.push(("MAX_PATH_ID", payload(&[Frame::MaxPathId(PathId(path))])));
        for (name, frame) in frames {
            let victims: [HostilePair; 4] = [
                HostilePair::against_server(),
                HostilePair::against_client(),
                HostilePair::against_multipath_server(0, MAX),
                HostilePair::against_multipath_client(0, MAX),
            ];
            for mut pair in victims {
                pair.send(&frame);
                pair.assert_closed(ErrorCode::FRAME_ENCODING_ERROR, name);
            }
        }
    }
}

#[test]
fn multipath_frames_in_handshake_packets_are_refused() {
    // Section 4: only in 1-RTT packets.
    let mut frames = frames_of(0);
    frames.push(("MAX_PATH_ID", payload(&[Frame::MaxPathId(PathId(MAX))])));
    for (name, frame) in frames {
        let config = quic::TransportConfig::default().with_max_paths(MAX + 1);
        let rng_seed = 7;
        let mut hostile = crate::support::hostile::Hostile::multipath_client(rng_seed, MAX);
        let first = hostile.flight();
        let mut pair = HostilePair::with_server(config, hostile);
        first.iter().for_each(|datagram| pair.deliver(datagram));
        let packet = pair.hostile.packet(Space::Initial, &frame);
        pair.deliver(&packet);
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, name);
    }
}

#[test]
fn acknowledgements_of_unsent_packets_are_refused() {
    // RFC 9000, section 13.1, path by path.
    for (path, number) in [(0, 500), (1, 500), (1, (1 << 62) - 1)] {
        let mut pair = server_with_paths(1);
        let ack = path_ack(path, number, number);
        pair.send(&ack);
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("packet {number} of path {path}"));
    }
    // Paths that are negotiated and not open, or closed, have no state: such frames are ignored.
    let mut pair = server_with_paths(2);
    pair.send(&payload(&[Frame::PathAbandon { path: PathId(2), code: 0 }]));
    pair.send(&path_ack(2, 0, 0));
    pair.assert_alive("an acknowledgement of a closed path");
    pair.wait(Duration::from_secs(10));
    pair.send(&path_ack(2, 0, 0));
    pair.send(&path_ack(2, 0, 1_000));
    pair.assert_alive("long after");
    for mut pair in victims() {
        pair.send(&path_ack(2, 0, 5));
        pair.assert_alive("an acknowledgement of an unopened path");
    }
}

#[test]
fn path_limits_that_decrease_or_are_too_large_are_refused() {
    for max in [MAX, MAX + 1, 1 << 30, u32::MAX] {
        for mut pair in victims() {
            pair.send_and_ack(&payload(&[Frame::MaxPathId(PathId(max))]));
            // Lower than before, but not than the initial limit: reordered (section 4.6).
            pair.send_and_ack(&payload(&[Frame::MaxPathId(PathId(MAX))]));
            pair.send_and_ack(&payload(&[Frame::Ping]));
            pair.wait(Duration::from_secs(1));
            pair.assert_alive(&format!("a limit of {max}"));
            assert!(!pair.hostile.can_use(MAX + 1), "no more IDs than the limit");
        }
    }
    for max in [0, MAX - 1] {
        for mut pair in victims() {
            pair.send(&payload(&[Frame::MaxPathId(PathId(max))]));
            pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("{max} after {MAX}"));
        }
    }
}

#[test]
fn connection_ids_of_paths_must_be_distinct_and_within_the_limit() {
    for mut pair in victims() {
        // The same ID for two paths (section 3.2.1).
        pair.send(&payload(&[path_id(1, 0, 1), path_id(2, 0, 1)]));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an ID for two paths");
    }
    for mut pair in victims() {
        let first = pair.hostile.local_id;
        let frame = Frame::NewConnectionId {
            path: Some(PathId(1)),
            sequence: 0,
            retire_prior_to: 0,
            id: first,
            reset_token: [1; 16],
        };
        pair.send(&payload(&[frame]));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "the first path's ID for another one");
    }
    for mut pair in victims() {
        pair.send(&payload(&[path_id(1, 0, 1)]));
        let id = ConnectionId::new(&[1; 8]).expect("eight bytes");
        let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 0, id, reset_token: [1; 16] };
        pair.send(&payload(&[frame]));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "another path's ID for the first one");
    }
    for mut pair in victims() {
        pair.send(&payload(&[path_id(1, 0, 1), path_id(1, 0, 2)]));
        pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "two IDs of one number");
    }
    for mut pair in victims() {
        // More than the advertised limit, on one path.
        pair.send(&payload(&[path_id(1, 0, 1), path_id(1, 1, 2)]));
        pair.assert_alive("as many as the limit");
        pair.send(&payload(&[path_id(1, 2, 3)]));
        pair.assert_closed(ErrorCode::CONNECTION_ID_LIMIT_ERROR, "more IDs than the limit");
    }
    for mut pair in victims() {
        // As many on every path, in any order, with repetitions.
        for path in [3, 1, 2, 1, 3] {
            pair.send(&payload(&[path_id(path, 1, 10 + path as u8), path_id(path, 0, 20 + path as u8)]));
        }
        pair.assert_alive("as many as allowed");
    }
    for sequence in [1, 1_000, (1 << 62) - 1] {
        for mut pair in victims() {
            pair.send(&payload(&[Frame::RetireConnectionId { path: Some(PathId(1)), sequence }]));
            pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an ID that was never issued");
        }
    }
}

#[test]
fn blocked_frames_about_paths_and_ids_are_checked() {
    for mut pair in victims() {
        // Two for the first path, one for others that are not open.
        let fine = [(0, 0), (0, 2), (1, 0), (1, 1), (3, 1)];
        let frames = fine.map(|(path, next_sequence)| Frame::PathCidsBlocked { path: PathId(path), next_sequence });
        pair.send(&payload(&frames));
        pair.send(&payload(&[0, 1, MAX].map(|max| Frame::PathsBlocked(PathId(max)))));
        pair.assert_alive("complaints");
    }
    for (path, next_sequence) in [(0, 3), (1, 2), (3, 1 << 61)] {
        for mut pair in victims() {
            pair.send(&payload(&[Frame::PathCidsBlocked { path: PathId(path), next_sequence }]));
            // Section 4.7.
            pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("number {next_sequence} of path {path}"));
        }
    }
}

#[test]
fn abandoning_all_paths_closes_the_connection() {
    for mut pair in victims() {
        let all: Vec<Frame<'_>> = (0..=MAX).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
        pair.send(&payload(&all));
        pair.assert_closed(ErrorCode::NO_ERROR, "no path is left");
    }
    // Paths that are not in use may be abandoned, and do not come back.
    for mut pair in victims() {
        for _ in 0..3 {
            let unused: Vec<Frame<'_>> =
                (1..=MAX).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
            pair.send_and_ack(&payload(&unused));
            pair.send_and_ack(&payload(&[Frame::Ping]));
            for path in 1..=MAX {
                let frames = pair.hostile.opened.iter().flat_map(|packet| packet.frames());
                let count = frames
                    .filter(|frame| matches!(frame, Frame::PathAbandon { path: abandoned, .. } if abandoned.0 == path))
                    .count();
                assert_eq!(count, 1, "path {path} is abandoned by both, once");
            }
            pair.wait(Duration::from_secs(3));
        }
        pair.assert_alive("paths that are not in use");
        let raised = largest_limit(&pair);
        assert_eq!(raised, Some(2 * MAX), "as many new ones are allowed, once");
    }
}

fn largest_limit(pair: &HostilePair) -> Option<u32> {
    let frames = pair.hostile.opened.iter().flat_map(|packet| packet.frames());
    frames.filter_map(|frame| if let Frame::MaxPathId(max) = frame { Some(max.0) } else { None }).max()
}

#[test]
fn repeatedly_abandoning_a_path_allows_one_new_path() {
    // The first path, in use, then others whose use the hostile peer itself prevents.
    let mut pair = server_with_paths(1);
    for _ in 0..20 {
        let frames = payload(&[Frame::PathAbandon { path: PathId(0), code: 7 }]);
        pair.send_on(1, &frames);
        let ack = pair.hostile.path_ack(1);
        pair.send_on(1, &ack);
        pair.wait(Duration::from_secs(3));
    }
    pair.assert_alive("the first path");
    assert_eq!(largest_limit(&pair), Some(2));

    let mut pair = HostilePair::against_multipath_server(MAX + 1, 0);
    for round in 0..20 {
        let limit = largest_limit(&pair).unwrap_or(MAX);
        assert!(limit <= MAX, "round {round}: {limit} paths");
        let all: Vec<Frame<'_>> = (1..=limit).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
        pair.send_and_ack(&payload(&all));
        pair.wait(Duration::from_secs(3));
    }
    pair.assert_alive("paths that may not be opened");
    // Once they could be opened, their state is discarded and others replace them.
    pair.send_and_ack(&payload(&[Frame::MaxPathId(PathId(MAX))]));
    pair.wait(Duration::from_secs(3));
    pair.send_and_ack(&payload(&[Frame::Ping]));
    assert_eq!(largest_limit(&pair), Some(2 * MAX));
    assert!(!(1..=MAX).any(|path| pair.hostile.can_use(path)), "a closed path gets no IDs");
    assert!(pair.hostile.opened.len() < 500, "{} packets", pair.hostile.opened.len());
}

#[test]
fn packets_on_closed_paths_are_acknowledged_and_then_dropped() {
    let mut pair = server_with_paths(2);
    pair.send(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    let before = pair.victim.connection(0).stats().receive.packets_received;
    let sent = pair.victim_bytes.get(&hostile_on(1)).copied();
    // Late packets are acknowledged on another path (section 3.4.3).
    for _ in 0..3 {
        pair.send_on(1, &payload(&[Frame::Ping, Frame::PathChallenge([3; 8]), Frame::Padding { len: 1100 }]));
    }
    pair.wait(Duration::from_millis(100));
    assert_eq!(pair.victim.connection(0).stats().receive.packets_received, before + 3);
    assert_eq!(pair.victim_bytes.get(&hostile_on(1)).copied(), sent, "nothing is sent on a closed path");
    let acknowledged = |pair: &HostilePair| {
        pair.hostile.has_received(|frame| {
        matches!(frame, Frame::Ack(ack) if ack.path == Some(PathId(1)) && ack.ranges().any(|range| *range.end() >= 4))
    })
    };
    assert!(acknowledged(&pair), "late packets are acknowledged");
    pair.wait(Duration::from_secs(10));
    let before = pair.victim.connection(0).stats().receive.packets_received;
    for _ in 0..3 {
        pair.send_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    }
    assert_eq!(pair.victim.connection(0).stats().receive.packets_received, before, "its state is discarded");
    assert!(
        pair.victim.connection(0).path_stats().iter().all(|path| path.id != PathId(1)),
        "and it is not opened again"
    );
    // Late frames about it are no error (section 4).
    pair.send(&payload(&[Frame::PathCidsBlocked { path: PathId(1), next_sequence: 2 }]));
    pair.assert_alive("packets on a closed path");
}

#[test]
fn packets_on_paths_that_the_client_has_not_opened_are_dropped() {
    let mut pair = HostilePair::against_multipath_client(MAX + 1, MAX);
    let issued: Vec<Frame<'_>> = (1..=MAX).map(|path| pair.hostile.issue(path, 0)).collect();
    pair.send_and_ack(&payload(&issued));
    for path in 1..=MAX {
        assert!(pair.hostile.can_use(path));
        for _ in 0..10 {
            pair.send_on(path, &payload(&[Frame::PathChallenge([4; 8]), Frame::Padding { len: 1100 }]));
        }
    }
    pair.wait(Duration::from_secs(2));
    // Servers open no path (section 3).
    assert_eq!(pair.victim.connection(0).path_stats().len(), 1);
    assert!((1..=MAX as u16).all(|socket| !pair.victim_bytes.contains_key(&hostile_on(socket))), "no response is sent");
    pair.assert_alive("packets on paths that are not open");
}

#[test]
fn a_path_seen_from_many_addresses_stays_within_the_amplification_limit() {
    let mut pair = HostilePair::against_multipath_server(2, 1);
    let issued = [pair.hostile.issue(1, 0)];
    pair.send_and_ack(&payload(&issued));
    for socket in 1..=200 {
        let packet = pair
            .hostile
            .packet_on(1, &payload(&[Frame::PathChallenge([socket as u8; 8]), Frame::Padding { len: 1100 }]));
        pair.deliver_on(socket, &packet);
    }
    pair.wait(Duration::from_secs(2));
    for socket in 1..=200 {
        let sent = pair.victim_bytes.get(&hostile_on(socket)).copied().unwrap_or(0);
        assert!(sent <= 3 * 1200, "{sent} bytes for one packet from {socket}");
    }
    assert_eq!(pair.victim.connection(0).path_stats().len(), 2);
    pair.assert_alive("many addresses");
}

#[test]
fn challenges_without_end_get_responses_within_the_window() {
    for path in [0, 1] {
        let mut pair = server_with_paths(1);
        for round in 0..200_u64 {
            let frames: Vec<Frame<'_>> =
                (0..100).map(|index| Frame::PathChallenge((round * 100 + index).to_be_bytes())).collect();
            pair.send_on(path, &payload(&frames));
        }
        let responses = pair.hostile.opened.iter().flat_map(|packet| packet.frames());
        let responses = responses.filter(|frame| matches!(frame, Frame::PathResponse(_))).count();
        assert!((1..5_000).contains(&responses), "path {path}: {responses} responses to 20,000 challenges");
        pair.send_and_ack(&payload(&[Frame::Ping]));
        let ack = pair.hostile.path_ack(1);
        pair.send(&ack);
        pair.wait(Duration::from_secs(1));
        let last = Frame::PathResponse(19_999_u64.to_be_bytes());
        assert!(pair.hostile.has_received(|frame| *frame == last), "path {path}: the last challenge is answered");
        pair.assert_alive("challenges without end");
    }
}

#[test]
fn the_latest_of_many_status_frames_counts() {
    for mut pair in victims() {
        for round in 0..2_000_u64 {
            let frames: Vec<Frame<'_>> = (0..=MAX)
                .map(|path| Frame::PathStatus { path: PathId(path), sequence: round * 3, available: round % 2 == 0 })
                .collect();
            pair.send(&payload(&frames));
        }
        let id = pair.victim.connection(0).open(Dir::Uni).expect("allowed");
        pair.victim.connection(0).write(id, vec![1; 1000].into()).expect("the send buffer has space");
        pair.send_and_ack(&payload(&[Frame::Ping]));
        // The pacer has paid for the acknowledgements of this many packets.
        pair.wait(Duration::from_secs(1));
        assert!(
            pair.hostile.has_received(|frame| matches!(frame, Frame::Stream(_))),
            "all are backups, so one is used"
        );
        pair.assert_alive("many status frames");
    }
}

#[test]
fn a_path_is_acknowledged_at_its_new_address_whatever_the_policy() {
    // The client may have left the former address on every path, also where it sends nothing that
    // would show that.
    for policy in Policy::ALL {
        let mut config = TransportConfig::default();
        config.policy = policy;
        let mut pair = server_with_paths_as(config, 1);
        let before = pair.hostile.opened.len();
        let number = pair.hostile.next_number[Space::Data.index()];
        for _ in 0..2 {
            let packet = pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
            pair.deliver_unpadded(&packet, MOVED);
        }
        pair.wait(Duration::from_millis(100));
        let [moved, other] = &pair.victim.connection(0).path_stats()[..] else { panic!("two paths") };
        assert_eq!((moved.addresses.remote, moved.state), (MOVED, PathState::Validating), "{policy}");
        assert_eq!(other.state, PathState::Active, "{policy}");
        let acknowledges = |frame: &Frame<'_>| matches!(frame, Frame::Ack(ack) if ack.path.unwrap_or(PathId(0)) == PathId(0) && ack.largest >= number);
        let sent = pair.hostile.opened[before..].iter();
        let to: Vec<_> =
            sent.filter(|packet| packet.frames().iter().any(acknowledges)).map(|packet| packet.to).collect();
        assert!(!to.is_empty() && to.iter().all(|to| *to == Some(MOVED)), "{policy}: {to:?}");
        pair.assert_alive("a client that moved");
    }
}

#[test]
fn an_acknowledgement_does_not_end_the_validation_of_a_silent_path_that_moved() {
    // RFC 9000, section 8.2.3: an acknowledgement is no response to a challenge.
    let mut pair = server_with_paths(1);
    let acknowledged = pair.hostile.path_ack(1);
    pair.send_on(1, &acknowledged);
    // The server's response is not acknowledged, so the first path becomes silent. Then the other one
    // ends, and a NAT gives the silent path another address.
    pair.send(&payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1100 }]));
    pair.wait(Duration::from_secs(3));
    pair.send_on(1, &payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    let from_new_address = |pair: &mut HostilePair, body: &[u8]| {
        let packet = pair.hostile.packet(Space::Data, body);
        pair.deliver_unpadded(&packet, MOVED);
    };
    let first_path = |pair: &mut HostilePair| {
        let stats = &pair.victim.connection(0).path_stats()[0];
        (stats.addresses.remote, stats.state, stats.packets_acked)
    };
    let before = pair.hostile.path_ack(0);
    from_new_address(&mut pair, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    let (remote, state, acked) = first_path(&mut pair);
    assert_eq!((remote, state), (MOVED, PathState::Silent));
    from_new_address(&mut pair, &before);
    assert!(first_path(&mut pair).2 > acked, "an acknowledgement arrives");
    let asked = pair.hostile.challenges_to(MOVED).len();
    pair.wait(Duration::from_secs(1));
    let challenges = pair.hostile.challenges_to(MOVED);
    assert!(challenges.len() > asked, "the server repeats its challenge");
    let answer = payload(&[Frame::PathResponse(challenges[challenges.len() - 1]), Frame::Ping]);
    from_new_address(&mut pair, &answer);
    assert_eq!(first_path(&mut pair).1, PathState::Active);
    let sent = |pair: &HostilePair| pair.victim_bytes[&MOVED];
    let before = sent(&pair);
    let connection = pair.victim.connection(0);
    let id = connection.open(Dir::Uni).expect("a stream is allowed");
    connection.write(id, bytes::Bytes::from(vec![7; 10_000])).expect("the send buffer has space");
    pair.settle();
    pair.wait(Duration::from_millis(100));
    assert!(sent(&pair) >= before + 10_000, "no limit: {} bytes", sent(&pair) - before);
    pair.assert_alive("a client behind a NAT that rebinds");
}
