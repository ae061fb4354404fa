//! What a peer sees of connection IDs, of migration and of the frames about paths.
//! `docs/spec/requirements` names the clauses.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use quic::{Addresses, Dir, ErrorCode, PathId, TransportConfig};
use units::Duration;
use wire::quic::{Frame, Space, TransportParameters, emit_ack};

use super::{frames, id};
use crate::support::hostile::{
    HOSTILE, Hostile, HostilePair, OpenedPacket, client_parameters, encode, hostile_on, payload,
};

#[test]
fn no_more_ids_are_issued_than_the_peer_keeps() {
    for limit in [2, 3, 4] {
        let hostile = Hostile::client(11, |id| {
            encode(&TransportParameters { active_connection_id_limit: limit, ..client_parameters(id) })
        });
        let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), hostile));
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_secs(1));
        // One comes with the handshake.
        let issued = frames(&pair).filter(|frame| matches!(frame, Frame::NewConnectionId { .. })).count() as u64;
        assert!((1..limit).contains(&issued), "{issued} IDs for a limit of {limit}");
    }
}

#[test]
fn an_id_is_retired_in_packets_to_another_one() {
    let mut pair = HostilePair::against_server();
    let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 1, id: id(1), reset_token: [1; 16] };
    pair.send_and_ack(&payload(&[frame]));
    // It is lost, and sent again.
    pair.wait(Duration::from_secs(3));
    let retires = |packet: &&OpenedPacket| {
        packet.frames().iter().any(|frame| matches!(frame, Frame::RetireConnectionId { sequence: 0, .. }))
    };
    let packets: Vec<_> = pair.hostile.opened.iter().filter(retires).collect();
    assert!(packets.len() > 1, "{}", packets.len());
    assert!(packets.iter().all(|packet| packet.dcid == id(1)), "RFC 9000, section 19.16");
}

#[test]
fn a_peer_without_connection_ids_may_issue_none() {
    let nameless = Hostile::client_without_id(7, |id| encode(&client_parameters(id)));
    let mut pair = HostilePair::established(HostilePair::with_server(TransportConfig::default(), nameless));
    let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 0, id: id(1), reset_token: [1; 16] };
    let packet = pair.hostile.packet(Space::Data, &payload(&[frame]));
    pair.deliver(&packet);
    assert!(!pair.victim_is_alive());
    let event = pair.victim.events[0].back();
    assert!(
        matches!(event, Some(quic::Event::Closed(quic::ConnectionError::PeerMisbehaved(error)))
            if error.code == ErrorCode::PROTOCOL_VIOLATION),
        "{event:?}"
    );
}

#[test]
fn states_of_a_path_have_rising_sequence_numbers() {
    let mut pair = HostilePair::against_multipath_server(2, 1);
    for round in 0..6 {
        let now = pair.now;
        assert!(pair.victim.connection(0).set_path_backup(now, PathId::ZERO, round % 2 == 0));
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_millis(50));
    }
    let mut numbers: Vec<u64> = frames(&pair)
        .filter_map(|frame| match frame {
            Frame::PathStatus { path: PathId::ZERO, sequence, .. } => Some(sequence),
            _ => None,
        })
        .collect();
    // A frame that was lost is sent again as it was.
    numbers.dedup();
    assert!(numbers.len() >= 6 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn every_id_and_its_token_are_new() {
    let mut pair = HostilePair::against_server();
    let (mut ids, mut tokens) = (BTreeSet::from([pair.hostile.remote_id]), BTreeSet::new());
    for retired in 0..200 {
        let mut body = pair.hostile.ack(Space::Data);
        body.extend(payload(&[Frame::RetireConnectionId { path: None, sequence: retired }]));
        let issued = frames(&pair).find_map(|frame| match frame {
            Frame::NewConnectionId { sequence, id, reset_token, .. } if sequence == retired + 1 => {
                Some((id, reset_token))
            }
            _ => None,
        });
        let (id, token) = issued.expect("another ID is issued");
        assert!(ids.insert(id) && tokens.insert(token), "ID {retired}");
        pair.hostile.remote_id = id;
        pair.send(&body);
        pair.wait(Duration::from_millis(10));
    }
}

/// Sends one 1-RTT packet from `source`.
fn send_from(pair: &mut HostilePair, source: SocketAddr, body: &[u8]) {
    let packet = pair.hostile.packet(Space::Data, body);
    pair.deliver_unpadded(&packet, source);
}

#[test]
fn challenges_leave_one_by_one_and_their_response_may_come_from_any_address() {
    let moved = SocketAddr::new(HOSTILE.ip(), 7777);
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    send_from(&mut pair, moved, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    assert!(pair.hostile.opened.iter().all(|packet| packet.challenges().len() <= 1), "RFC 9000, section 8.2.1");
    let data = *pair.hostile.challenges_to(moved).last().expect("the new address is validated");
    let other = SocketAddr::new(HOSTILE.ip(), 8888);
    send_from(&mut pair, other, &payload(&[Frame::PathResponse(data), Frame::Padding { len: 1150 }]));
    // The limit of an address that is not validated no longer applies.
    let connection = pair.victim.connection(0);
    let stream = connection.open(Dir::Uni).expect("a stream is allowed");
    connection.write(stream, Bytes::from_static(&[7; 8_000])).expect("the send buffer has space");
    let before = pair.victim_bytes[&moved];
    pair.wait(Duration::from_millis(100));
    assert!(pair.victim_bytes[&moved] >= before + 8_000, "RFC 9000, section 8.2.2");
}

#[test]
fn a_new_address_starts_with_the_initial_window_unless_only_the_port_is_new() {
    let elsewhere = SocketAddr::from(([192, 0, 2, 9], 9));
    for (to, is_kept) in [(SocketAddr::new(HOSTILE.ip(), 7777), true), (elsewhere, false)] {
        let mut pair = HostilePair::against_server();
        let stream = pair.victim.connection(0).open(Dir::Uni).expect("a stream is allowed");
        pair.victim.connection(0).write(stream, Bytes::from(vec![7; 200_000])).expect("the send buffer has space");
        let window = |pair: &mut HostilePair| pair.victim.connection(0).path_stats()[0].congestion.window;
        let initial = window(&mut pair);
        for _ in 0..10 {
            pair.send_and_ack(&payload(&[Frame::Ping]));
            pair.wait(Duration::from_millis(20));
        }
        let grown = window(&mut pair);
        assert!(grown > initial);
        send_from(&mut pair, to, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        assert_eq!(window(&mut pair), if is_kept { grown } else { initial }, "RFC 9000, section 9.4");
    }
}

#[test]
fn a_client_that_migrates_uses_another_id_of_its_peer() {
    let mut pair = HostilePair::against_client();
    let first = pair.hostile.local_id;
    let addresses = Addresses { socket: 1, ..Addresses::of(hostile_on(1)) };
    let now = pair.now;
    let answer = pair.victim.connection(0).migrate(now, addresses);
    assert_eq!(answer, Err(quic::MigrateError::NoConnectionId), "RFC 9000, section 9.5");
    let frame = Frame::NewConnectionId { path: None, sequence: 1, retire_prior_to: 0, id: id(1), reset_token: [1; 16] };
    pair.send_and_ack(&payload(&[frame]));
    assert_eq!(pair.victim.connection(0).migrate(now, addresses), Ok(()));
    pair.wait(Duration::from_secs(1));
    let ids_to = |address| {
        let packets = pair.hostile.opened.iter().filter(move |packet| packet.to == Some(address));
        packets.map(|packet| packet.dcid).collect::<BTreeSet<_>>()
    };
    assert_eq!((ids_to(HOSTILE), ids_to(hostile_on(1))), ([first].into(), [id(1)].into()));
}

#[test]
fn lost_frames_about_paths_are_repeated_unless_they_are_outdated() {
    let mut pair = HostilePair::against_multipath_server(2, 1);
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let now = pair.now;
    for is_backup in [true, false] {
        assert!(pair.victim.connection(0).set_path_backup(now, PathId::ZERO, is_backup));
        pair.send(&payload(&[Frame::Ping]));
    }
    pair.send(&payload(&[Frame::PathAbandon { path: PathId(1), code: 0 }]));
    // All of that is lost: only what comes later is acknowledged.
    let lost = pair.hostile.opened.iter().map(|packet| packet.number).max();
    for _ in 0..10 {
        pair.send(&payload(&[Frame::Ping]));
        pair.send(&payload(&[Frame::Ping]));
        pair.wait(Duration::from_millis(100));
        let newest = pair.hostile.opened.last().map(|packet| packet.number);
        if let Some(newest) = newest.filter(|_| newest > lost) {
            let mut ack = Vec::new();
            emit_ack(None, 0, std::iter::once(newest..=newest), None, &mut ack);
            pair.send(&ack);
        }
    }
    let count = |wanted: &dyn Fn(&Frame<'_>) -> bool| frames(&pair).filter(|frame| wanted(frame)).count();
    let abandons = count(&|frame| matches!(frame, Frame::PathAbandon { path: PathId(1), .. }));
    assert!(abandons > 1, "{abandons} PATH_ABANDON");
    let limits = count(&|frame| matches!(frame, Frame::MaxPathId(_)));
    assert!(limits > 1, "{limits} MAX_PATH_ID");
    let states: Vec<u64> = frames(&pair)
        .filter_map(|frame| if let Frame::PathStatus { sequence, .. } = frame { Some(sequence) } else { None })
        .collect();
    assert!(states.len() > 2 && states.is_sorted(), "{states:?}");
    assert_eq!(states.iter().filter(|sequence| **sequence == states[0]).count(), 1, "{states:?}");
}
