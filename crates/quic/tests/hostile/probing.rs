//! Challenges from addresses that are not the path's (RFC 9000, sections 8.2.2, 9.1 and 9.3.3).

use std::net::SocketAddr;

use quic::ConnectionId;
use units::Duration;
use wire::quic::{Frame, Space};

use crate::support::hostile::{HOSTILE, HostilePair, OpenedPacket, payload};

/// Another address of the peer, or an address that it spoofs.
const fn elsewhere(port: u16) -> SocketAddr {
    SocketAddr::new(HOSTILE.ip(), port)
}

const NEW: SocketAddr = elsewhere(7777);

fn bytes_to(pair: &HostilePair, address: SocketAddr) -> u64 {
    pair.victim_bytes.get(&address).copied().unwrap_or(0)
}

fn address_of_path(pair: &mut HostilePair) -> SocketAddr {
    pair.victim.connection(0).path_stats()[0].addresses.remote
}

/// Sends one 1-RTT packet from `source`; returns its size and the packets sent because of it.
fn send_from<'a>(pair: &'a mut HostilePair, source: SocketAddr, body: &[u8]) -> (u64, &'a [OpenedPacket]) {
    let before = pair.hostile.opened.len();
    let packet = pair.hostile.packet(Space::Data, body);
    pair.deliver_unpadded(&packet, source);
    (packet.len() as u64, &pair.hostile.opened[before..])
}

fn probe(data: u8, padding: usize) -> Vec<u8> {
    payload(&[Frame::PathChallenge([data; 8]), Frame::Padding { len: padding }])
}

fn id(byte: u8) -> ConnectionId {
    ConnectionId::new(&[byte; 8]).expect("eight bytes")
}

/// Issues another connection ID to the server.
fn issue(pair: &mut HostilePair, sequence: u64) -> ConnectionId {
    let id = id(sequence as u8);
    let token = [sequence as u8; 16];
    let frame = Frame::NewConnectionId { path: None, sequence, retire_prior_to: 0, id, reset_token: token };
    pair.send_and_ack(&payload(&[frame]));
    id
}

fn is_response(packet: &OpenedPacket, data: u8) -> bool {
    packet.frames().iter().any(|frame| matches!(frame, Frame::PathResponse(got) if *got == [data; 8]))
}

#[test]
fn a_response_leaves_to_the_address_of_the_challenge() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let (_, sent) = send_from(&mut pair, NEW, &probe(5, 1150));
    let [response, acknowledgement] = sent else { panic!("{} packets", sent.len()) };
    assert!(is_response(response, 5));
    assert_eq!((response.to, acknowledgement.to), (Some(NEW), Some(HOSTILE)), "only the response leaves the path");
    assert!(response.datagram_len >= 1200, "{} bytes", response.datagram_len);
    let is_probing = |frame: &Frame<'_>| matches!(frame, Frame::PathResponse(_) | Frame::Padding { .. });
    assert!(response.frames().iter().all(is_probing), "a packet off the path moves nothing: {:?}", response.frames());
    assert_eq!(address_of_path(&mut pair), HOSTILE, "a probing packet moves nothing");
    pair.wait(Duration::from_millis(100));
    assert_eq!(bytes_to(&pair, NEW), 1200);
    pair.assert_alive("a peer that probes");
}

#[test]
fn probed_addresses_get_at_most_three_times_the_bytes_they_sent() {
    for padding in [0, 20, 100, 400, 1150] {
        let mut pair = HostilePair::against_server();
        pair.send_and_ack(&payload(&[Frame::Ping]));
        for round in 0..200 {
            // Each address is used a few times, and all are forgotten in between.
            let from = elsewhere(8000 + round % 50);
            let before = bytes_to(&pair, from);
            let (received, sent) = send_from(&mut pair, from, &probe(round as u8, padding));
            assert!(sent.iter().any(|packet| is_response(packet, round as u8)), "padding {padding}");
            let sent = bytes_to(&pair, from) - before;
            assert!(sent > 0 && sent <= 3 * received, "padding {padding}: {sent} bytes for {received}");
            assert_eq!(address_of_path(&mut pair), HOSTILE);
            // The peer acknowledges nothing but on its own address.
            pair.send_and_ack(&payload(&[Frame::Ping]));
        }
        pair.assert_alive("a peer that probes from many addresses");
    }
}

#[test]
fn a_duplicate_of_a_probe_gets_no_response() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let packet = pair.hostile.packet(Space::Data, &probe(5, 1150));
    pair.deliver_unpadded(&packet, NEW);
    let copied_from = elsewhere(666);
    for _ in 0..10 {
        pair.deliver_unpadded(&packet, copied_from);
    }
    assert_eq!((bytes_to(&pair, NEW), bytes_to(&pair, copied_from)), (1200, 0));
}

#[test]
fn a_probed_address_gets_a_connection_id_of_its_own() {
    let mut pair = HostilePair::against_server();
    let first = pair.hostile.local_id;
    let second = issue(&mut pair, 1);
    let ids_to = |sent: &[OpenedPacket], address| {
        let there = sent.iter().filter(|packet| packet.to == Some(address));
        there.map(|packet| packet.dcid).collect::<Vec<_>>()
    };
    let (_, sent) = send_from(&mut pair, NEW, &probe(5, 1150));
    assert_eq!(ids_to(sent, NEW), [second], "section 9.5");
    assert_eq!(ids_to(sent, HOSTILE), [first]);
    // One from a third address needs a third ID: the second is given up for it.
    let third = elsewhere(9999);
    let (_, sent) = send_from(&mut pair, third, &probe(6, 1150));
    assert_eq!(ids_to(sent, HOSTILE), [first], "the server asks for another ID on the path");
    assert_eq!(bytes_to(&pair, third), 0);
    let gives_up = Frame::RetireConnectionId { path: None, sequence: 1 };
    assert!(pair.hostile.has_received(|frame| *frame == gives_up));
    let next = issue(&mut pair, 2);
    let (_, sent) = send_from(&mut pair, third, &probe(7, 1150));
    assert_eq!(ids_to(sent, third), [next]);
    // A frame that was repeated late issues nothing again.
    issue(&mut pair, 1);
    // The path moves, and its new address keeps its ID.
    let body = [pair.hostile.ack(Space::Data), payload(&[Frame::Ping, Frame::Padding { len: 1100 }])].concat();
    let before = bytes_to(&pair, HOSTILE);
    let (_, sent) = send_from(&mut pair, third, &body);
    let moved = ids_to(sent, third);
    assert!(!moved.is_empty() && moved.iter().all(|id| *id == next), "{moved:?}");
    let challenge = sent.iter().filter(|packet| packet.to == Some(third)).flat_map(OpenedPacket::challenges).next();
    let challenge = challenge.expect("the new address is validated");
    assert_eq!(address_of_path(&mut pair), third);
    assert!(bytes_to(&pair, HOSTILE) >= before + 1200, "the former address is probed (section 9.3.3)");
    // It does not respond any more, so its ID is given up.
    send_from(&mut pair, third, &payload(&[Frame::PathResponse(challenge)]));
    pair.wait(Duration::from_secs(5));
    let body = [pair.hostile.ack(Space::Data), payload(&[Frame::Ping])].concat();
    send_from(&mut pair, third, &body);
    let gives_up = Frame::RetireConnectionId { path: None, sequence: 0 };
    assert!(pair.hostile.has_received(|frame| *frame == gives_up), "of the former address");
    pair.assert_alive("a client that migrates");
}

#[test]
fn the_former_address_is_probed_and_can_take_the_path_back() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    // An attacker forwards a packet of the client from an address of its own (section 9.3.3).
    let attacker = elsewhere(666);
    let before = bytes_to(&pair, HOSTILE);
    let (_, sent) = send_from(&mut pair, attacker, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    assert_eq!(sent.iter().flat_map(OpenedPacket::challenges).count(), 2, "both addresses are validated");
    assert_eq!(bytes_to(&pair, HOSTILE), before + 1200);
    assert_eq!(address_of_path(&mut pair), attacker);
    // The client, which knows of no other path, responds on the active one with a packet that does
    // not only probe.
    let responses: Vec<Frame<'_>> = pair.hostile.challenges().into_iter().map(Frame::PathResponse).collect();
    let body = [pair.hostile.ack(Space::Data), payload(&responses)].concat();
    send_from(&mut pair, HOSTILE, &body);
    assert_eq!(address_of_path(&mut pair), HOSTILE);
    pair.assert_alive("a client whose packets are copied");
}
