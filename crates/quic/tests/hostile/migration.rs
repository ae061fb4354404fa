//! A client whose address changes in the ways that RFC 9000 allows, and a server that has not yet
//! validated the new address (sections 8.2 and 9.3).

use std::net::SocketAddr;

use bytes::Bytes;
use quic::Dir;
use units::Duration;
use wire::quic::{Frame, Space};

use crate::support::hostile::{HOSTILE, HostilePair, SealOverrides, payload};

/// The new address: another port, as after a NAT rebinding.
const MOVED: SocketAddr = SocketAddr::new(HOSTILE.ip(), 7777);

/// Bytes that the server has sent to the new address.
fn sent_to_new_address(pair: &HostilePair) -> u64 {
    pair.victim_bytes.get(&MOVED).copied().unwrap_or(0)
}

/// Sends one 1-RTT packet from the new address; returns its size.
fn send_from_new_address(pair: &mut HostilePair, body: &[u8]) -> u64 {
    let packet = pair.hostile.packet(Space::Data, body);
    pair.deliver_unpadded(&packet, MOVED);
    packet.len() as u64
}

/// The challenges that the server has sent to the new address, each with the size of its datagram.
fn challenges(pair: &HostilePair) -> Vec<([u8; 8], usize)> {
    let to_new = pair.hostile.opened.iter().filter(|packet| packet.to == Some(MOVED));
    to_new.flat_map(|packet| packet.challenges().into_iter().map(move |data| (data, packet.datagram_len))).collect()
}

fn newest_challenge(pair: &HostilePair) -> Option<[u8; 8]> {
    challenges(pair).last().map(|(data, _)| *data)
}

fn is_response(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::PathResponse(_))
}

/// Gives the server a stream with `len` bytes to send.
fn give_data_to_send(pair: &mut HostilePair, len: usize) {
    let connection = pair.victim.connection(0);
    let id = connection.open(Dir::Uni).expect("a stream is allowed");
    connection.write(id, Bytes::from(vec![7; len])).expect("the send buffer has space");
}

#[test]
fn an_acknowledged_response_does_not_end_the_validation_of_a_migrated_path() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    // The client probes the new address first (section 9.1) and gets a response.
    let mut received =
        send_from_new_address(&mut pair, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    pair.wait(Duration::from_millis(100));
    assert!(pair.hostile.has_received(is_response), "the server responds");
    assert_eq!(
        pair.victim.connection(0).path_stats()[0].addresses.remote,
        HOSTILE,
        "a probing packet migrates nothing"
    );
    assert_eq!(newest_challenge(&pair), None);
    // The packet that migrates the path acknowledges the response.
    let mut body = pair.hostile.ack(Space::Data);
    body.extend(payload(&[Frame::Ping]));
    received += send_from_new_address(&mut pair, &body);
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED);
    let challenge = newest_challenge(&pair).expect("the server validates the new address");
    assert!(sent_to_new_address(&pair) <= 3 * received, "{} bytes for {received}", sent_to_new_address(&pair));
    // Once the client has responded, the limit is lifted.
    received +=
        send_from_new_address(&mut pair, &payload(&[Frame::PathResponse(challenge), Frame::Padding { len: 1150 }]));
    let before = sent_to_new_address(&pair);
    give_data_to_send(&mut pair, 6_000);
    pair.wait(Duration::from_millis(100));
    assert!(sent_to_new_address(&pair) >= before + 6_000, "{} bytes for {received} in all", sent_to_new_address(&pair));
    pair.assert_alive("a client that migrates");
}

#[test]
fn a_challenge_to_a_new_address_is_repeated_whatever_is_acknowledged() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    send_from_new_address(&mut pair, &payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1150 }]));
    let mut body = pair.hostile.ack(Space::Data);
    body.extend(payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
    send_from_new_address(&mut pair, &body);
    // The first challenge is lost: no later frame responds to it.
    let first = newest_challenge(&pair).expect("the server sends a challenge");
    for _ in 0..3 {
        let body = pair.hostile.ack(Space::Data);
        send_from_new_address(&mut pair, &[body, payload(&[Frame::Ping, Frame::Padding { len: 1100 }])].concat());
    }
    pair.wait(Duration::from_millis(300));
    assert_ne!(newest_challenge(&pair), Some(first), "each repetition has data of its own");
}

#[test]
fn a_challenge_in_a_small_datagram_is_followed_by_one_in_a_full_one() {
    // The datagram that migrates the path either leaves the server enough credit for a full
    // datagram or does not.
    for (padding, is_full) in [(0, false), (1100, true)] {
        let mut pair = HostilePair::against_server();
        pair.send_and_ack(&payload(&[Frame::Ping]));
        send_from_new_address(&mut pair, &payload(&[Frame::Ping, Frame::Padding { len: padding }]));
        let asked = challenges(&pair);
        assert_eq!(asked.iter().map(|(_, len)| *len >= 1200).collect::<Vec<_>>(), [is_full], "{asked:?}");
        let answer = |pair: &mut HostilePair, data| {
            let body = [pair.hostile.ack(Space::Data), payload(&[Frame::PathResponse(data)])].concat();
            send_from_new_address(pair, &body);
        };
        answer(&mut pair, asked[0].0);
        pair.wait(Duration::from_millis(100));
        // The response to the small challenge validates the address. It does not show that full
        // datagrams arrive there (section 8.2.3).
        let again = challenges(&pair).split_off(1);
        assert_eq!(again.len(), usize::from(!is_full), "{again:?}");
        assert!(again.iter().all(|(_, len)| *len >= 1200), "{again:?}");
        // The server sends full challenges until it knows.
        pair.wait(Duration::from_secs(2));
        let again = challenges(&pair).split_off(1);
        assert_eq!(again.len() > 1, !is_full, "{again:?}");
        if let Some((data, _)) = again.last() {
            answer(&mut pair, *data);
        }
        let count = challenges(&pair).len();
        pair.wait(Duration::from_secs(5));
        assert_eq!(challenges(&pair).len(), count, "the size is validated");
        pair.assert_alive("a client that migrates");
    }
}

#[test]
fn a_new_address_gets_at_most_three_times_the_bytes_it_sent() {
    // A bare packet of 29 bytes, one of an acknowledgement's size, and larger ones.
    for (seed, sizes) in [[0; 8], [39; 8], [5, 40, 150, 0, 300, 20, 1100, 600]].iter().enumerate() {
        let mut pair = HostilePair::against_server();
        pair.send_and_ack(&payload(&[Frame::Ping]));
        give_data_to_send(&mut pair, 200_000);
        pair.send_and_ack(&payload(&[Frame::Ping]));
        let mut received = 0;
        for (index, size) in sizes.iter().enumerate() {
            let what = format!("seed {seed}, packet {index}");
            let body = [pair.hostile.ack(Space::Data), payload(&[Frame::Ping, Frame::Padding { len: *size }])].concat();
            received += send_from_new_address(&mut pair, &body);
            assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED, "{what}");
            let sent = sent_to_new_address(&pair);
            assert!(sent <= 3 * received, "{what}: {sent} bytes for {received}");
            pair.wait(Duration::from_millis(20));
            let sent = sent_to_new_address(&pair);
            assert!(sent <= 3 * received, "{what}: {sent} bytes for {received} after a while");
        }
        assert!(
            sent_to_new_address(&pair) > received,
            "seed {seed}: the server sent {} bytes",
            sent_to_new_address(&pair)
        );
        assert_eq!(pair.hostile.unopened, 0, "seed {seed}: every datagram holds complete packets");
        pair.assert_alive("a client that migrates");
    }
}

#[test]
fn a_challenge_to_a_new_address_can_be_repeated_although_there_is_little_credit_and_much_to_send() {
    let mut pair = HostilePair::against_server();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    give_data_to_send(&mut pair, 200_000);
    pair.send_and_ack(&payload(&[Frame::Ping]));
    // The client only downloads, so nothing but acknowledgements comes from its new port. The server
    // has sent all that it may, and what it sends now is lost.
    let body = pair.hostile.ack(Space::Data);
    let received = send_from_new_address(&mut pair, &body);
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED);
    assert!(received < 60, "{received} bytes");
    pair.wait(Duration::from_millis(500));
    let asked = challenges(&pair);
    assert!(asked.len() >= 2, "a single loss must not end it: {asked:?}");
    assert!(asked.iter().all(|(_, len)| *len < 60), "{asked:?}");
    assert!(sent_to_new_address(&pair) <= 3 * received, "{} bytes for {received}", sent_to_new_address(&pair));
    // The response to the repetition lets the data go on.
    let before = sent_to_new_address(&pair);
    let body = [pair.hostile.ack(Space::Data), payload(&[Frame::PathResponse(asked[1].0)])].concat();
    send_from_new_address(&mut pair, &body);
    pair.wait(Duration::from_millis(100));
    assert!(sent_to_new_address(&pair) > before + 5_000, "{} bytes", sent_to_new_address(&pair) - before);
    pair.assert_alive("a client behind a NAT that rebinds");
}

/// The client's packets come from the new address, the server challenges it, and the path moves back
/// because the client does not respond. Returns the challenges.
fn moved_back_without_response(pair: &mut HostilePair) -> Vec<[u8; 8]> {
    pair.send_and_ack(&payload(&[Frame::Ping]));
    let body = [pair.hostile.ack(Space::Data), payload(&[Frame::Ping, Frame::Padding { len: 1100 }])].concat();
    send_from_new_address(pair, &body);
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED);
    pair.wait(Duration::from_secs(5));
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE, "no response (section 9.3.2)");
    challenges(pair).into_iter().map(|(data, _)| data).collect()
}

#[test]
fn a_response_that_congestion_control_has_held_back_validates_the_address_of_its_challenge() {
    // Section 8.2.2 permits the delay. By section 8.2.3 any earlier challenge may be responded to.
    for at in 0..2 {
        let mut pair = HostilePair::against_server();
        let asked = moved_back_without_response(&mut pair);
        pair.wait(Duration::from_secs(20));
        let body = [pair.hostile.ack(Space::Data), payload(&[Frame::PathResponse(asked[at]), Frame::Ping])].concat();
        let received = send_from_new_address(&mut pair, &body);
        assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED);
        assert_eq!(challenges(&pair).len(), asked.len(), "challenge {at} of {asked:?}: the address is validated");
        let before = sent_to_new_address(&pair);
        give_data_to_send(&mut pair, 6_000);
        pair.wait(Duration::from_millis(100));
        let sent = sent_to_new_address(&pair) - before;
        assert!(sent >= 6_000, "challenge {at} of {asked:?}: {sent} bytes for {received}");
        pair.wait(Duration::from_secs(5));
        assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED, "it stays");
        pair.assert_alive("a client with a full window that moved");
    }
}

#[test]
fn a_late_response_validates_no_other_address_than_that_of_its_challenge() {
    let mut pair = HostilePair::against_server();
    let older = pair.hostile.next_number[Space::Data.index()];
    pair.hostile.next_number[Space::Data.index()] += 1;
    let asked = moved_back_without_response(&mut pair);
    // An older packet moves nothing, whatever it contains.
    let overrides = SealOverrides { number: Some(older), ..SealOverrides::default() };
    let late =
        pair.hostile.packet_with(Space::Data, &payload(&[Frame::PathResponse(asked[0]), Frame::Ping]), overrides);
    pair.deliver_unpadded(&late, MOVED);
    assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    let to_former = |pair: &HostilePair| pair.hostile.challenges_to(HOSTILE).len();
    let before = to_former(&pair);
    pair.wait(Duration::from_secs(3));
    assert!(to_former(&pair) > before, "the server still asks whether the client is at its former address");
    pair.assert_alive("a client whose packets overtake each other");
}

#[test]
fn a_new_address_has_three_probe_timeouts_to_respond() {
    // Section 8.2.4: of the larger probe timeout, that of the path or that of an unknown route, which is
    // about a second. The response to the client's challenge is acknowledged after `round_trip` seconds.
    for (round_trip, at_least, at_most) in [(0, 3, 5), (2, 6, 9)] {
        let mut pair = HostilePair::against_server();
        pair.send_and_ack(&payload(&[Frame::Ping]));
        pair.send(&payload(&[Frame::PathChallenge([5; 8]), Frame::Padding { len: 1100 }]));
        let acknowledged = pair.hostile.ack(Space::Data);
        pair.wait(Duration::from_secs(round_trip));
        pair.send(&acknowledged);
        send_from_new_address(&mut pair, &payload(&[Frame::Ping, Frame::Padding { len: 1100 }]));
        pair.wait(Duration::from_secs(at_least));
        assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, MOVED, "{round_trip} s");
        pair.wait(Duration::from_secs(at_most - at_least));
        assert_eq!(pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE, "{round_trip} s");
        pair.assert_alive("a client that does not respond at its new address");
    }
}
