//! Malformed and unauthentic packets.

use quic::ErrorCode;
use units::{Duration, Instant};
use wire::quic::{Frame, Space};

use crate::support::hostile::{HOSTILE, Hostile, HostilePair, SealOverrides, client_parameters, encode, payload};

#[test]
fn reserved_bits_are_a_violation() {
    let mut hostile_pair = HostilePair::against_server();
    let odd = SealOverrides { reserved_bits: true, ..SealOverrides::default() };
    let packet =
        hostile_pair.hostile.packet_with(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
    hostile_pair.deliver(&packet);
    hostile_pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9000, section 17.3.1");
}

#[test]
fn a_packet_without_frames_is_a_violation() {
    let mut hostile_pair = HostilePair::against_server();
    hostile_pair.send(&[]);
    hostile_pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9000, section 12.4");
}

#[test]
fn a_cleared_quic_bit_is_accepted_if_greasing_was_negotiated_and_dropped_otherwise() {
    let odd = SealOverrides { clear_fixed_bit: true, ..SealOverrides::default() };
    for grease in [true, false] {
        let config = quic::TransportConfig::default().with_grease(grease);
        let mut hostile_pair = HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)));
        let before = hostile_pair.victim.connection(0).stats().receive.packets_received;
        let packet =
            hostile_pair.hostile.packet_with(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
        hostile_pair.deliver(&packet);
        hostile_pair.assert_alive("RFC 9287");
        let after = hostile_pair.victim.connection(0).stats().receive.packets_received;
        assert_eq!(after - before, u64::from(grease), "grease {grease}");
    }
}

#[test]
fn a_replayed_packet_is_counted_and_changes_nothing() {
    let mut hostile_pair = HostilePair::against_server();
    let packet = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Datagram { data: b"once" }]));
    for _ in 0..100 {
        hostile_pair.deliver(&packet);
    }
    hostile_pair.assert_alive("replays");
    let connection = hostile_pair.victim.connection(0);
    assert_eq!(connection.stats().receive.packets_duplicate, 99);
    assert!(connection.recv_datagram().is_some() && connection.recv_datagram().is_none());
}

#[test]
fn numbers_may_jump_as_far_as_they_can_be_decoded() {
    let mut hostile_pair = HostilePair::against_server();
    for number in [1 << 20, 1 << 30, (1 << 30) + 5, 3, 1 << 29] {
        let odd = SealOverrides { number: Some(number), ..SealOverrides::default() };
        let packet =
            hostile_pair.hostile.packet_with(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
        hostile_pair.deliver(&packet);
        hostile_pair.assert_alive("a jump");
    }
}

#[test]
fn key_phases_are_followed_one_step_and_never_two() {
    let mut hostile_pair = HostilePair::against_server();
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    // Two phases ahead has the same phase bit as the current phase and does not open.
    let two = SealOverrides { phases_ahead: 2, ..SealOverrides::default() };
    let body = payload(&[Frame::Ping, Frame::Padding { len: 8 }]);
    let packet = hostile_pair.hostile.packet_with(Space::Data, &body, two);
    hostile_pair.deliver(&packet);
    hostile_pair.assert_alive("two phases ahead");
    assert_eq!(hostile_pair.victim.connection(0).stats().receive.packets_unauthentic, 1);
    // One phase ahead is a key update, which the victim follows before it acknowledges (RFC 9001,
    // section 6.2).
    hostile_pair.hostile.update_keys();
    hostile_pair.send(&body);
    hostile_pair.send(&body);
    hostile_pair.assert_alive("an update");
    assert_eq!(hostile_pair.victim.connection(0).stats().send.key_updates, 1);
    assert!(hostile_pair.hostile.opened.last().is_some_and(|packet| packet.phase), "the response is of the new phase");
}

#[test]
fn key_updates_one_after_another_are_followed_or_dropped_and_never_panic() {
    let mut hostile_pair = HostilePair::against_server();
    let body = payload(&[Frame::Ping, Frame::Padding { len: 8 }]);
    for _ in 0..50 {
        hostile_pair.hostile.update_keys();
        hostile_pair.send(&body);
        hostile_pair.send(&body);
    }
    hostile_pair.wait(Duration::from_secs(1));
    let updates = hostile_pair.victim.connection(0).stats().send.key_updates;
    assert!((1..=50).contains(&updates), "{updates}");
}

#[test]
fn packets_that_fail_to_open_are_counted_and_dropped() {
    let mut hostile_pair = HostilePair::against_server();
    let good = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 30 }]));
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x01;
        hostile_pair.deliver(&bad);
    }
    hostile_pair.assert_alive("a bit flipped anywhere");
    let stats = hostile_pair.victim.connection(0).stats().receive;
    assert!(stats.packets_unauthentic as usize > good.len() - 12, "{stats:?}");
    hostile_pair.deliver(&good);
    let after = hostile_pair.victim.connection(0).stats().receive;
    assert_eq!(after.packets_received, stats.packets_received + 1, "the unmodified packet still opens");
}

#[test]
fn truncated_and_random_datagrams_never_reach_a_session() {
    let mut hostile_pair = HostilePair::against_server();
    let good = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 30 }]));
    for len in 0..good.len() {
        hostile_pair.deliver(&good[..len]);
    }
    let mut rng = units::Rng::from_seed(5);
    for _ in 0..2000 {
        let mut noise = vec![0; rng.below(1500) as usize];
        rng.fill(&mut noise);
        if noise.len() > 9 && rng.below(2) == 0 {
            noise[1..9].copy_from_slice(hostile_pair.hostile.remote_id.as_slice());
        }
        hostile_pair.deliver(&noise);
    }
    hostile_pair.assert_alive("noise");
    assert_eq!(hostile_pair.victim.connections.len(), 1);
    assert!(hostile_pair.victim.connection(0).stats().receive.packets_dropped > 0);
}

#[test]
fn a_connection_keeps_working_while_another_one_is_attacked() {
    use crate::support::{Setup, apps, hostile::HOSTILE};
    let mut pair = Setup::new(3).build();
    pair.connect();
    let mut hostile = Hostile::ordinary_client(9);
    let talk = |pair: &mut crate::support::Pair, hostile: &mut Hostile, datagram: &[u8]| {
        pair.server.receive(pair.now, datagram, HOSTILE);
        pair.flush();
        for (_, answer) in std::mem::take(&mut pair.misaddressed) {
            hostile.receive(&answer);
        }
    };
    for _ in 0..3 {
        for datagram in hostile.flight() {
            talk(&mut pair, &mut hostile, &datagram);
        }
    }
    assert!(hostile.is_ready());
    assert_eq!(pair.server.connections.len(), 2);
    for round in 0..200_u64 {
        let body = payload(&[Frame::PathChallenge([round as u8; 8]), Frame::Ping, Frame::MaxData(round)]);
        let packet = hostile.packet(Space::Data, &body);
        talk(&mut pair, &mut hostile, &packet);
    }
    let bad = hostile.packet(Space::Data, &payload(&[Frame::HandshakeDone]));
    talk(&mut pair, &mut hostile, &bad);
    assert_eq!(hostile.close(), Some((ErrorCode::PROTOCOL_VIOLATION, false)));
    let took = apps::transfer(&mut pair, 1_000_000, Duration::from_secs(10));
    assert!(took < Duration::from_secs(1), "{took}");
    assert!(pair.now > Instant::ZERO);
}

#[test]
fn an_acknowledgement_of_the_old_phase_allows_no_second_key_update() {
    let config = quic::TransportConfig::default().with_key_update_interval(3);
    let mut hostile_pair = HostilePair::established(HostilePair::with_server(config, Hostile::ordinary_client(7)));
    // The first packet of the update carries the first acknowledgement of all, for packets of phase
    // 0.
    hostile_pair.hostile.update_keys();
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    assert_eq!(hostile_pair.victim.connection(0).stats().send.key_updates, 1, "the victim follows");
    // Many packets approach the key's limit, the old keys have expired, and no packet of phase 1 is
    // ever acknowledged.
    for _ in 0..20 {
        hostile_pair.send(&payload(&[Frame::Ping, Frame::Padding { len: 8 }]));
        hostile_pair.wait(Duration::from_millis(500));
    }
    assert!(hostile_pair.victim.connection(0).stats().send.packets_sent > 10);
    assert_eq!(hostile_pair.victim.connection(0).stats().send.key_updates, 1, "RFC 9001, section 6.1");
    hostile_pair.assert_alive("a peer that does not acknowledge the update");
}

#[test]
fn acknowledging_a_skipped_number_closes_the_connection() {
    // RFC 9000, section 21.4. About one number in 4096 is skipped.
    let generous = |id| wire::quic::TransportParameters {
        initial_max_data: 1 << 40,
        initial_max_stream_data_uni: 1 << 40,
        ..client_parameters(id)
    };
    let hostile = Hostile::client(7, |id| encode(&generous(id)));
    let mut hostile_pair =
        HostilePair::established(HostilePair::with_server(quic::TransportConfig::default(), hostile));
    let stream = hostile_pair.victim.connection(0).open(quic::Dir::Uni).expect("the peer allows streams");
    let mut expected = None;
    let skipped = 'search: loop {
        assert!(expected.unwrap_or(0) < 20_000, "no number is skipped");
        let _ = hostile_pair.victim.connection(0).write(stream, bytes::Bytes::from(vec![3; 100_000]));
        // Acknowledging the newest number is enough: the ranges would be long, and nothing is lost
        // here.
        for packet in hostile_pair.hostile.opened.drain(..).filter(|packet| packet.space == Space::Data) {
            if expected.is_some_and(|expected| packet.number > expected) {
                break 'search expected.expect("the window holds some");
            }
            expected = Some(packet.number + 1);
        }
        hostile_pair.wait(Duration::from_millis(30));
        hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    };
    hostile_pair.assert_alive("acknowledgements of sent packets");
    let mut ack = Vec::new();
    wire::quic::emit_ack(None, 0, std::iter::once(skipped - 5..=skipped + 1), None, &mut ack);
    hostile_pair.send(&ack);
    hostile_pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "a skipped number");
}

#[test]
fn initial_packets_in_small_datagrams_are_dropped_by_servers() {
    let mut hostile_pair = HostilePair::with_server(Default::default(), Hostile::ordinary_client(7));
    hostile_pair.hostile = Hostile::ordinary_client(8);
    let hello = hostile_pair.hostile.flight();
    hello.iter().for_each(|datagram| hostile_pair.deliver(datagram));
    let index = hostile_pair.victim.connections.len() - 1;
    let received =
        |hostile_pair: &mut HostilePair| hostile_pair.victim.connection(index).stats().receive.packets_received;
    let before = received(&mut hostile_pair);
    let small = hostile_pair.hostile.packet(Space::Initial, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    assert!(small.len() < 1200);
    hostile_pair.deliver_unpadded(&small, HOSTILE);
    assert_eq!(received(&mut hostile_pair), before, "RFC 9000, section 14.1");
    let large = hostile_pair.hostile.packet(Space::Initial, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    hostile_pair.deliver(&large);
    assert_eq!(received(&mut hostile_pair), before + 1, "the same in a large one counts");
}

#[test]
fn unauthenticated_datagrams_from_another_address_earn_no_credit_and_move_no_path() {
    let elsewhere = std::net::SocketAddr::from(([192, 0, 2, 9], 9));
    // An unauthenticated packet does not migrate the path.
    let mut hostile_pair = HostilePair::against_server();
    let packet = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    let mut forged = packet.clone();
    *forged.last_mut().expect("the datagram is not empty") ^= 1;
    hostile_pair.deliver_unpadded(&forged, elsewhere);
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    assert!(!hostile_pair.victim_bytes.contains_key(&elsewhere));
    // An authenticated packet does if it has the highest number (RFC 9000, section 9.3); an older
    // one does not.
    let newer = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    hostile_pair.deliver(&newer);
    hostile_pair.deliver_unpadded(&packet, elsewhere);
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    let newest = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    hostile_pair.deliver_unpadded(&newest, elsewhere);
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[0].addresses.remote, elsewhere);
    assert!(hostile_pair.victim_bytes.get(&elsewhere).copied().unwrap_or(0) <= 3 * newest.len() as u64);
    // No response arrives from there, so the path returns to its former address (section 9.3.2).
    hostile_pair.wait(units::Duration::from_secs(5));
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    // Probing packets may come from any address (section 9.2).
    let mut hostile_pair = HostilePair::against_server();
    let probe = hostile_pair
        .hostile
        .packet(Space::Data, &payload(&[Frame::PathChallenge([7; 8]), Frame::Padding { len: 1100 }]));
    hostile_pair.deliver_unpadded(&probe, elsewhere);
    assert_eq!(hostile_pair.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    // Servers do not migrate.
    let mut hostile_pair = HostilePair::against_client();
    let before = hostile_pair.victim.connection(0).stats().receive;
    let packet = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    hostile_pair.deliver_unpadded(&packet, elsewhere);
    let after = hostile_pair.victim.connection(0).stats().receive;
    assert_eq!(after.datagrams_stray, before.datagrams_stray + 1, "RFC 9000, section 9");
    assert_eq!(after.packets_received, before.packets_received);
    assert_eq!(after.bytes_received, before.bytes_received, "no credit for anti-amplification");
    hostile_pair.deliver(&packet);
    assert_eq!(hostile_pair.victim.connection(0).stats().receive.packets_received, before.packets_received + 1);
}
