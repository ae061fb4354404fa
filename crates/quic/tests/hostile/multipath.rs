//! Frames and packets of the multipath extension (draft-ietf-quic-multipath-21), used as they must not be.

use quic::{ConnectionId, Dir, ErrorCode, PathId, PathState};
use units::Duration;
use wire::quic::{Frame, Space, emit_ack};

use crate::support::hostile::{Duel, hostile_on, payload};

/// The highest path ID that the victims here take.
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

/// Both victims, with four paths agreed on.
fn victims() -> [Duel; 2] {
    [Duel::against_multipath_server(MAX + 1, MAX), Duel::against_multipath_client(MAX + 1, MAX)]
}

/// A server with `count` paths after the first, all of them validated.
fn server_with_paths(count: u32) -> Duel {
    let mut duel = Duel::against_multipath_server(count + 1, count);
    for path in 1..=count {
        let issued = [duel.hostile.issue(path, 0)];
        duel.say_and_ack(&payload(&issued));
        duel.say_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        let asked = duel.hostile.heard.iter().filter(|heard| heard.path == PathId(path));
        let answers: Vec<[u8; 8]> = asked
            .flat_map(|heard| heard.frames())
            .filter_map(|frame| if let Frame::PathChallenge(data) = frame { Some(data) } else { None })
            .collect();
        duel.say_on(path, &payload(&[Frame::PathResponse(answers[0])]));
    }
    let stats = duel.victim.connection(0).path_stats();
    assert!(stats.len() == count as usize + 1 && stats.iter().all(|path| path.state == PathState::Active), "{stats:?}");
    duel
}

#[test]
fn frames_about_paths_beyond_the_limit() {
    // Section 4: a connection error of type PROTOCOL_VIOLATION.
    for path in [MAX + 1, MAX + 2, 1 << 20, u32::MAX] {
        for (name, frame) in frames_of(path) {
            for mut duel in victims() {
                duel.say(&frame);
                duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("{name} of path {path}"));
            }
        }
    }
}

#[test]
fn frames_that_were_not_agreed_on() {
    // RFC 9000, section 12.4: an unknown frame type.
    for path in [0, 1] {
        let mut frames = frames_of(path);
        frames.push(("MAX_PATH_ID", payload(&[Frame::MaxPathId(PathId(path))])));
        for (name, frame) in frames {
            let victims: [Duel; 4] = [
                Duel::against_server(),
                Duel::against_client(),
                Duel::against_multipath_server(0, MAX),
                Duel::against_multipath_client(0, MAX),
            ];
            for mut duel in victims {
                duel.say(&frame);
                duel.assert_closed(ErrorCode::FRAME_ENCODING_ERROR, name);
            }
        }
    }
}

#[test]
fn frames_in_packets_of_the_handshake() {
    // Section 4: only in 1-RTT packets.
    let mut frames = frames_of(0);
    frames.push(("MAX_PATH_ID", payload(&[Frame::MaxPathId(PathId(MAX))])));
    for (name, frame) in frames {
        let config = quic::TransportConfig { max_paths: MAX + 1, ..quic::TransportConfig::default() };
        let rng_seed = 7;
        let mut hostile = crate::support::hostile::Hostile::multipath_client(rng_seed, MAX);
        let first = hostile.flight();
        let mut duel = Duel::with_server(config, hostile);
        first.iter().for_each(|datagram| duel.deliver(datagram));
        let packet = duel.hostile.packet(Space::Initial, &frame);
        duel.deliver(&packet);
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, name);
    }
}

#[test]
fn acknowledgements_of_what_was_never_sent() {
    // RFC 9000, section 13.1, path by path.
    for (path, number) in [(0, 500), (1, 500), (1, (1 << 62) - 1)] {
        let mut duel = server_with_paths(1);
        let ack = path_ack(path, number, number);
        duel.say(&ack);
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("packet {number} of path {path}"));
    }
    // Of paths that are agreed on and not open, or over, nothing is known: silently ignored.
    let mut duel = server_with_paths(2);
    duel.say(&payload(&[Frame::PathAbandon { path: PathId(2), code: 0 }]));
    duel.say(&path_ack(2, 0, 0));
    duel.assert_alive("an acknowledgement of a path that is over");
    duel.wait(Duration::from_secs(10));
    duel.say(&path_ack(2, 0, 0));
    duel.say(&path_ack(2, 0, 1_000));
    duel.assert_alive("long after");
    for mut duel in victims() {
        duel.say(&path_ack(2, 0, 5));
        duel.assert_alive("an acknowledgement of a path that nobody opened");
    }
}

#[test]
fn path_limits_that_fall_or_are_huge() {
    for max in [MAX, MAX + 1, 1 << 30, u32::MAX] {
        for mut duel in victims() {
            duel.say_and_ack(&payload(&[Frame::MaxPathId(PathId(max))]));
            // Lower than before, but not than the first one: overtaken (section 4.6).
            duel.say_and_ack(&payload(&[Frame::MaxPathId(PathId(MAX))]));
            duel.say_and_ack(&payload(&[Frame::Ping]));
            duel.wait(Duration::from_secs(1));
            duel.assert_alive(&format!("a limit of {max}"));
            assert!(!duel.hostile.can_use(MAX + 1), "no more IDs than we take");
        }
    }
    for max in [0, MAX - 1] {
        for mut duel in victims() {
            duel.say(&payload(&[Frame::MaxPathId(PathId(max))]));
            duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("{max} after {MAX}"));
        }
    }
}

#[test]
fn connection_ids_of_paths() {
    for mut duel in victims() {
        // The same one for two paths (section 3.2.1).
        duel.say(&payload(&[path_id(1, 0, 1), path_id(2, 0, 1)]));
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an ID for two paths");
    }
    for mut duel in victims() {
        let first = duel.hostile.local_id;
        let frame = Frame::NewConnectionId {
            path: Some(PathId(1)),
            sequence: 0,
            retire_prior_to: 0,
            id: first,
            reset_token: [1; 16],
        };
        duel.say(&payload(&[frame]));
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "the first path's ID for another one");
    }
    for mut duel in victims() {
        duel.say(&payload(&[path_id(1, 0, 1)]));
        let id = ConnectionId::new(&[1; 8]).expect("eight bytes");
        let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 0, id, reset_token: [1; 16] };
        duel.say(&payload(&[frame]));
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "another path's ID for the first one");
    }
    for mut duel in victims() {
        duel.say(&payload(&[path_id(1, 0, 1), path_id(1, 0, 2)]));
        duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "two IDs of one number");
    }
    for mut duel in victims() {
        // More than we said that we keep, on one path.
        duel.say(&payload(&[path_id(1, 0, 1), path_id(1, 1, 2)]));
        duel.assert_alive("as many as we keep");
        duel.say(&payload(&[path_id(1, 2, 3)]));
        duel.assert_closed(ErrorCode::CONNECTION_ID_LIMIT_ERROR, "more IDs than we keep");
    }
    for mut duel in victims() {
        // As many on every path, in any order, and repetitions.
        for path in [3, 1, 2, 1, 3] {
            duel.say(&payload(&[path_id(path, 1, 10 + path as u8), path_id(path, 0, 20 + path as u8)]));
        }
        duel.assert_alive("all there may be");
    }
    for sequence in [1, 1_000, (1 << 62) - 1] {
        for mut duel in victims() {
            duel.say(&payload(&[Frame::RetireConnectionId { path: Some(PathId(1)), sequence }]));
            duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "an ID that was never issued");
        }
    }
}

#[test]
fn complaints_about_ids() {
    for mut duel in victims() {
        // Two for the first path, one for others that are not open.
        let fine = [(0, 0), (0, 2), (1, 0), (1, 1), (3, 1)];
        let frames = fine.map(|(path, next_sequence)| Frame::PathCidsBlocked { path: PathId(path), next_sequence });
        duel.say(&payload(&frames));
        duel.say(&payload(&[0, 1, MAX].map(|max| Frame::PathsBlocked(PathId(max)))));
        duel.assert_alive("complaints");
    }
    for (path, next_sequence) in [(0, 3), (1, 2), (3, 1 << 61)] {
        for mut duel in victims() {
            duel.say(&payload(&[Frame::PathCidsBlocked { path: PathId(path), next_sequence }]));
            // Section 4.7.
            duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, &format!("number {next_sequence} of path {path}"));
        }
    }
}

#[test]
fn all_paths_given_up_at_once() {
    for mut duel in victims() {
        let all: Vec<Frame<'_>> = (0..=MAX).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
        duel.say(&payload(&all));
        duel.assert_closed(ErrorCode::NO_ERROR, "no path is left");
    }
    // Those that are not in use may go, and come back never.
    for mut duel in victims() {
        for _ in 0..3 {
            let unused: Vec<Frame<'_>> =
                (1..=MAX).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
            duel.say_and_ack(&payload(&unused));
            duel.say_and_ack(&payload(&[Frame::Ping]));
            for path in 1..=MAX {
                let said = duel.hostile.heard.iter().flat_map(|heard| heard.frames());
                let count = said
                    .filter(|frame| matches!(frame, Frame::PathAbandon { path: said, .. } if said.0 == path))
                    .count();
                assert_eq!(count, 1, "path {path} is given up by both, once");
            }
            duel.wait(Duration::from_secs(3));
        }
        duel.assert_alive("paths that are not in use");
        let raised = largest_limit(&duel);
        assert_eq!(raised, Some(2 * MAX), "as many new ones are allowed, once");
    }
}

fn largest_limit(duel: &Duel) -> Option<u32> {
    let frames = duel.hostile.heard.iter().flat_map(|heard| heard.frames());
    frames.filter_map(|frame| if let Frame::MaxPathId(max) = frame { Some(max.0) } else { None }).max()
}

#[test]
fn a_path_given_up_again_and_again_makes_room_for_one() {
    // The first path, in use, then others that the hostile side itself does not let us use.
    let mut duel = server_with_paths(1);
    for _ in 0..20 {
        let frames = payload(&[Frame::PathAbandon { path: PathId(0), code: 7 }]);
        duel.say_on(1, &frames);
        let ack = duel.hostile.path_ack(1);
        duel.say_on(1, &ack);
        duel.wait(Duration::from_secs(3));
    }
    duel.assert_alive("the first path");
    assert_eq!(largest_limit(&duel), Some(2));

    let mut duel = Duel::against_multipath_server(MAX + 1, 0);
    for round in 0..20 {
        let limit = largest_limit(&duel).unwrap_or(MAX);
        assert!(limit <= MAX, "round {round}: {limit} paths for nothing");
        let all: Vec<Frame<'_>> = (1..=limit).map(|path| Frame::PathAbandon { path: PathId(path), code: 7 }).collect();
        duel.say_and_ack(&payload(&all));
        duel.wait(Duration::from_secs(3));
    }
    duel.assert_alive("paths that nobody may open");
    // Once they could be opened, they are forgotten and others take their place.
    duel.say_and_ack(&payload(&[Frame::MaxPathId(PathId(MAX))]));
    duel.wait(Duration::from_secs(3));
    duel.say_and_ack(&payload(&[Frame::Ping]));
    assert_eq!(largest_limit(&duel), Some(2 * MAX));
    assert!(!(1..=MAX).any(|path| duel.hostile.can_use(path)), "what is over gets no IDs");
    assert!(duel.hostile.heard.len() < 500, "{} packets", duel.hostile.heard.len());
}

#[test]
fn packets_on_paths_that_are_over() {
    let mut duel = server_with_paths(2);
    duel.say(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    let before = duel.victim.connection(0).stats().receive.packets_received;
    let sent = duel.answered_bytes.get(&hostile_on(1)).copied();
    // Late ones are acknowledged, elsewhere (section 3.4.3).
    for _ in 0..3 {
        duel.say_on(1, &payload(&[Frame::Ping, Frame::PathChallenge([3; 8]), Frame::Padding { len: 1100 }]));
    }
    duel.wait(Duration::from_millis(100));
    assert_eq!(duel.victim.connection(0).stats().receive.packets_received, before + 3);
    assert_eq!(duel.answered_bytes.get(&hostile_on(1)).copied(), sent, "nothing is sent on a path that is over");
    let acknowledged = |duel: &Duel| {
        duel.hostile.has_heard(|frame| {
        matches!(frame, Frame::Ack(ack) if ack.path == Some(PathId(1)) && ack.ranges().any(|range| *range.end() >= 4))
    })
    };
    assert!(acknowledged(&duel), "late packets are acknowledged");
    duel.wait(Duration::from_secs(10));
    let before = duel.victim.connection(0).stats().receive.packets_received;
    for _ in 0..3 {
        duel.say_on(1, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    }
    assert_eq!(duel.victim.connection(0).stats().receive.packets_received, before, "it is forgotten");
    assert!(duel.victim.connection(0).path_stats().iter().all(|path| path.id != PathId(1)), "and not opened again");
    // Words about it are late and nobody's fault (section 4).
    duel.say(&payload(&[Frame::PathCidsBlocked { path: PathId(1), next_sequence: 2 }]));
    duel.assert_alive("packets on a path that is over");
}

#[test]
fn packets_on_paths_that_the_client_has_not_opened() {
    let mut duel = Duel::against_multipath_client(MAX + 1, MAX);
    let issued: Vec<Frame<'_>> = (1..=MAX).map(|path| duel.hostile.issue(path, 0)).collect();
    duel.say_and_ack(&payload(&issued));
    for path in 1..=MAX {
        assert!(duel.hostile.can_use(path));
        for _ in 0..10 {
            duel.say_on(path, &payload(&[Frame::PathChallenge([4; 8]), Frame::Padding { len: 1100 }]));
        }
    }
    duel.wait(Duration::from_secs(2));
    // Servers open no path (section 3).
    assert_eq!(duel.victim.connection(0).path_stats().len(), 1);
    assert!(
        (1..=MAX as u16).all(|socket| !duel.answered_bytes.contains_key(&hostile_on(socket))),
        "nothing is answered"
    );
    duel.assert_alive("packets on paths that are not open");
}

#[test]
fn a_path_from_many_addresses_follows_and_answers_little() {
    let mut duel = Duel::against_multipath_server(2, 1);
    let issued = [duel.hostile.issue(1, 0)];
    duel.say_and_ack(&payload(&issued));
    for socket in 1..=200 {
        let packet = duel
            .hostile
            .packet_on(1, &payload(&[Frame::PathChallenge([socket as u8; 8]), Frame::Padding { len: 1100 }]));
        duel.deliver_on(socket, &packet);
    }
    duel.wait(Duration::from_secs(2));
    for socket in 1..=200 {
        let sent = duel.answered_bytes.get(&hostile_on(socket)).copied().unwrap_or(0);
        assert!(sent <= 3 * 1200, "{sent} bytes for one packet from {socket}");
    }
    assert_eq!(duel.victim.connection(0).path_stats().len(), 2);
    duel.assert_alive("many addresses");
}

#[test]
fn challenges_without_end_are_answered_as_far_as_the_window_lets_them() {
    for path in [0, 1] {
        let mut duel = server_with_paths(1);
        for round in 0..200_u64 {
            let frames: Vec<Frame<'_>> =
                (0..100).map(|index| Frame::PathChallenge((round * 100 + index).to_be_bytes())).collect();
            duel.say_on(path, &payload(&frames));
        }
        let answers = duel.hostile.heard.iter().flat_map(|heard| heard.frames());
        let answers = answers.filter(|frame| matches!(frame, Frame::PathResponse(_))).count();
        assert!((1..5_000).contains(&answers), "path {path}: {answers} answers to 20,000 questions");
        duel.say_and_ack(&payload(&[Frame::Ping]));
        let ack = duel.hostile.path_ack(1);
        duel.say(&ack);
        duel.wait(Duration::from_secs(1));
        let last = Frame::PathResponse(19_999_u64.to_be_bytes());
        assert!(duel.hostile.has_heard(|frame| *frame == last), "path {path}: the last question is answered");
        duel.assert_alive("questions without end");
    }
}

#[test]
fn the_last_word_of_many_about_a_path_counts() {
    for mut duel in victims() {
        for round in 0..2_000_u64 {
            let frames: Vec<Frame<'_>> = (0..=MAX)
                .map(|path| Frame::PathStatus { path: PathId(path), sequence: round * 3, available: round % 2 == 0 })
                .collect();
            duel.say(&payload(&frames));
        }
        let id = duel.victim.connection(0).open(Dir::Uni).expect("allowed");
        duel.victim.connection(0).write(id, vec![1; 1000].into()).expect("room");
        duel.say_and_ack(&payload(&[Frame::Ping]));
        // The pacer has the acknowledgements of so many packets behind it.
        duel.wait(Duration::from_secs(1));
        assert!(duel.hostile.has_heard(|frame| matches!(frame, Frame::Stream(_))), "all are backups, so one is used");
        duel.assert_alive("many words");
    }
}
