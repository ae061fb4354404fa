//! Packets that are wrong as packets.

use quic::ErrorCode;
use units::{Duration, Instant};
use wire::quic::{Frame, Space};

use crate::support::hostile::{Duel, HOSTILE, Hostile, Oddity, client_parameters, encode, payload};

#[test]
fn reserved_bits_are_a_violation() {
    let mut duel = Duel::against_server();
    let odd = Oddity { reserved_bits: true, ..Oddity::default() };
    let packet = duel.hostile.odd_packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
    duel.deliver(&packet);
    duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9000, section 17.3.1");
}

#[test]
fn a_packet_without_frames_is_a_violation() {
    let mut duel = Duel::against_server();
    duel.say(&[]);
    duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "RFC 9000, section 12.4");
}

#[test]
fn a_cleared_fixed_bit_is_taken_from_peers_that_were_told_so_and_dropped_otherwise() {
    let odd = Oddity { clear_fixed_bit: true, ..Oddity::default() };
    for grease in [true, false] {
        let config = quic::TransportConfig { grease, ..Default::default() };
        let mut duel = Duel::established(Duel::with_server(config, Hostile::ordinary_client(7)));
        let before = duel.victim.connection(0).stats().receive.packets_received;
        let packet = duel.hostile.odd_packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
        duel.deliver(&packet);
        duel.assert_alive("RFC 9287");
        let after = duel.victim.connection(0).stats().receive.packets_received;
        assert_eq!(after - before, u64::from(grease), "grease {grease}");
    }
}

#[test]
fn a_replayed_packet_is_told_and_changes_nothing() {
    let mut duel = Duel::against_server();
    let packet = duel.hostile.packet(Space::Data, &payload(&[Frame::Datagram { data: b"once" }]));
    for _ in 0..100 {
        duel.deliver(&packet);
    }
    duel.assert_alive("replays");
    let connection = duel.victim.connection(0);
    assert_eq!(connection.stats().receive.packets_duplicate, 99);
    assert!(connection.recv_datagram().is_some() && connection.recv_datagram().is_none());
}

#[test]
fn numbers_may_jump_as_far_as_they_can_be_decoded() {
    let mut duel = Duel::against_server();
    for number in [1 << 20, 1 << 30, (1 << 30) + 5, 3, 1 << 29] {
        let odd = Oddity { number: Some(number), ..Oddity::default() };
        let packet = duel.hostile.odd_packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 4 }]), odd);
        duel.deliver(&packet);
        duel.assert_alive("a jump");
    }
}

#[test]
fn key_phases_are_followed_one_step_and_never_two() {
    let mut duel = Duel::against_server();
    duel.say_and_ack(&payload(&[Frame::Ping]));
    // Two phases ahead looks like the present phase and does not open.
    let two = Oddity { phases_ahead: 2, ..Oddity::default() };
    let body = payload(&[Frame::Ping, Frame::Padding { len: 8 }]);
    let packet = duel.hostile.odd_packet(Space::Data, &body, two);
    duel.deliver(&packet);
    duel.assert_alive("two phases ahead");
    assert_eq!(duel.victim.connection(0).stats().receive.packets_unauthentic, 1);
    // One ahead is an update, which the victim follows before it acknowledges (RFC 9001, section 6.2).
    duel.hostile.update_keys();
    duel.say(&body);
    duel.say(&body);
    duel.assert_alive("an update");
    assert_eq!(duel.victim.connection(0).stats().send.key_updates, 1);
    assert!(duel.hostile.heard.last().is_some_and(|heard| heard.phase), "the answer is of the new phase");
}

#[test]
fn key_updates_one_after_another_are_followed_or_dropped_and_never_panic() {
    let mut duel = Duel::against_server();
    let body = payload(&[Frame::Ping, Frame::Padding { len: 8 }]);
    for _ in 0..50 {
        duel.hostile.update_keys();
        duel.say(&body);
        duel.say(&body);
    }
    duel.wait(Duration::from_secs(1));
    let updates = duel.victim.connection(0).stats().send.key_updates;
    assert!((1..=50).contains(&updates), "{updates}");
}

#[test]
fn packets_that_do_not_open_are_counted_and_forgotten() {
    let mut duel = Duel::against_server();
    let good = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 30 }]));
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x01;
        duel.deliver(&bad);
    }
    duel.assert_alive("a bit turned around anywhere");
    let stats = duel.victim.connection(0).stats().receive;
    assert!(stats.packets_unauthentic as usize > good.len() - 12, "{stats:?}");
    duel.deliver(&good);
    let after = duel.victim.connection(0).stats().receive;
    assert_eq!(after.packets_received, stats.packets_received + 1, "the true one still opens");
}

#[test]
fn truncated_and_random_datagrams_never_reach_a_session() {
    let mut duel = Duel::against_server();
    let good = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 30 }]));
    for len in 0..good.len() {
        duel.deliver(&good[..len]);
    }
    let mut rng = units::Rng::from_seed(5);
    for _ in 0..2000 {
        let mut noise = vec![0; rng.below(1500) as usize];
        rng.fill(&mut noise);
        if noise.len() > 9 && rng.below(2) == 0 {
            noise[1..9].copy_from_slice(duel.hostile.remote_id.as_slice());
        }
        duel.deliver(&noise);
    }
    duel.assert_alive("noise");
    assert_eq!(duel.victim.connections.len(), 1);
    assert!(duel.victim.connection(0).stats().receive.packets_dropped > 0);
}

#[test]
fn an_honest_connection_beside_a_hostile_one_keeps_working() {
    use crate::support::{Setup, apps, hostile::HOSTILE};
    let mut pair = Setup::new(3).build();
    pair.connect();
    let mut hostile = Hostile::ordinary_client(9);
    let talk = |pair: &mut crate::support::Pair, hostile: &mut Hostile, datagram: &[u8]| {
        pair.server.receive(pair.now, datagram, HOSTILE);
        pair.flush();
        for (_, answer) in std::mem::take(&mut pair.strays) {
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
fn an_acknowledgement_of_the_old_phase_that_comes_with_an_update_allows_no_second_one() {
    let config = quic::TransportConfig { key_update_interval: 3, ..Default::default() };
    let mut duel = Duel::established(Duel::with_server(config, Hostile::ordinary_client(7)));
    // The update's first packet carries the first acknowledgement of all, of packets of phase 0.
    duel.hostile.update_keys();
    duel.say_and_ack(&payload(&[Frame::Ping]));
    assert_eq!(duel.victim.connection(0).stats().send.key_updates, 1, "it follows");
    // Many packets wear the key out, the old keys' time is over, and nothing of phase 1 is ever acknowledged.
    for _ in 0..20 {
        duel.say(&payload(&[Frame::Ping, Frame::Padding { len: 8 }]));
        duel.wait(Duration::from_millis(500));
    }
    assert!(duel.victim.connection(0).stats().send.packets_sent > 10);
    assert_eq!(duel.victim.connection(0).stats().send.key_updates, 1, "RFC 9001, section 6.1");
    duel.assert_alive("a peer that does not acknowledge the update");
}

#[test]
fn an_acknowledgement_of_a_skipped_number_gives_an_optimist_away() {
    // RFC 9000, section 21.4. A number is left out about every 4096 packets.
    let generous = |id| wire::quic::TransportParameters {
        initial_max_data: 1 << 40,
        initial_max_stream_data_uni: 1 << 40,
        ..client_parameters(id)
    };
    let hostile = Hostile::client(7, |id| encode(&generous(id)));
    let mut duel = Duel::established(Duel::with_server(quic::TransportConfig::default(), hostile));
    let stream = duel.victim.connection(0).open(quic::Dir::Uni).expect("the peer allows streams");
    let mut expected = None;
    let skipped = 'search: loop {
        assert!(expected.unwrap_or(0) < 20_000, "no number is left out");
        let _ = duel.victim.connection(0).write(stream, bytes::Bytes::from(vec![3; 100_000]));
        // The newest number is enough: ranges of what was heard would be long, and nothing here is lost.
        for heard in duel.hostile.heard.drain(..).filter(|heard| heard.space == Space::Data) {
            if expected.is_some_and(|expected| heard.number > expected) {
                break 'search expected.expect("it is some");
            }
            expected = Some(heard.number + 1);
        }
        duel.wait(Duration::from_millis(30));
        duel.say_and_ack(&payload(&[Frame::Ping]));
    };
    duel.assert_alive("acknowledgements of what was sent");
    let mut ack = Vec::new();
    wire::quic::emit_ack(None, 0, std::iter::once(skipped - 5..=skipped + 1), None, &mut ack);
    duel.say(&ack);
    duel.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "a number that was never used");
}

#[test]
fn initial_packets_in_small_datagrams_are_dropped_by_servers() {
    let mut duel = Duel::with_server(Default::default(), Hostile::ordinary_client(7));
    duel.hostile = Hostile::ordinary_client(8);
    let hello = duel.hostile.flight();
    hello.iter().for_each(|datagram| duel.deliver(datagram));
    let index = duel.victim.connections.len() - 1;
    let received = |duel: &mut Duel| duel.victim.connection(index).stats().receive.packets_received;
    let before = received(&mut duel);
    let small = duel.hostile.packet(Space::Initial, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    assert!(small.len() < 1200);
    duel.deliver_as_it_is(&small, HOSTILE);
    assert_eq!(received(&mut duel), before, "RFC 9000, section 14.1");
    let large = duel.hostile.packet(Space::Initial, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    duel.deliver(&large);
    assert_eq!(received(&mut duel), before + 1, "the same in a large one counts");
}

#[test]
fn datagrams_from_another_address_buy_nothing_unless_they_are_the_clients() {
    let elsewhere = std::net::SocketAddr::from(([192, 0, 2, 9], 9));
    // What does not authenticate moves nothing.
    let mut duel = Duel::against_server();
    let packet = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    let mut forged = packet.clone();
    *forged.last_mut().expect("it has bytes") ^= 1;
    duel.deliver_as_it_is(&forged, elsewhere);
    assert_eq!(duel.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    assert!(!duel.answered_bytes.contains_key(&elsewhere));
    // What does, and is the newest, does (RFC 9000, section 9.3); what is older does not.
    let newer = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    duel.deliver(&newer);
    duel.deliver_as_it_is(&packet, elsewhere);
    assert_eq!(duel.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    let newest = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    duel.deliver_as_it_is(&newest, elsewhere);
    assert_eq!(duel.victim.connection(0).path_stats()[0].addresses.remote, elsewhere);
    assert!(duel.answered_bytes.get(&elsewhere).copied().unwrap_or(0) <= 3 * newest.len() as u64);
    // Nobody answers there, so it goes back to where it was (section 9.3.2).
    duel.wait(units::Duration::from_secs(3));
    assert_eq!(duel.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    // Questions alone may come from anywhere (section 9.2).
    let mut duel = Duel::against_server();
    let probe =
        duel.hostile.packet(Space::Data, &payload(&[Frame::PathChallenge([7; 8]), Frame::Padding { len: 1100 }]));
    duel.deliver_as_it_is(&probe, elsewhere);
    assert_eq!(duel.victim.connection(0).path_stats()[0].addresses.remote, HOSTILE);
    // Servers do not move.
    let mut duel = Duel::against_client();
    let before = duel.victim.connection(0).stats().receive;
    let packet = duel.hostile.packet(Space::Data, &payload(&[Frame::Ping, Frame::Padding { len: 20 }]));
    duel.deliver_as_it_is(&packet, elsewhere);
    let after = duel.victim.connection(0).stats().receive;
    assert_eq!(after.datagrams_stray, before.datagrams_stray + 1, "RFC 9000, section 9");
    assert_eq!(after.packets_received, before.packets_received);
    assert_eq!(after.bytes_received, before.bytes_received, "no credit for anti-amplification");
    duel.deliver(&packet);
    assert_eq!(duel.victim.connection(0).stats().receive.packets_received, before.packets_received + 1);
}
