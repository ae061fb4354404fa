//! Stateless resets (RFC 9000, section 10.3).

use std::sync::Arc;

use netem::{LineState, LinkConfig};
use quic::session::deterministic::DeterministicFactory;
use quic::{ConnectionError, Dir, Event, PathId, RESETS_MAX, Route, Side, TransportConfig};
use units::{Duration, Rng};
use wire::quic::{Frame, TransportParameters};

use crate::support::hostile::{HOSTILE, Hostile, HostilePair, client_parameters, encode, payload};
use crate::support::stages::Staging;
use crate::support::{Node, Pair, Setup};

const KEY: [u8; 32] = [7; 32];

fn closed(pair: &mut Pair) -> Option<Event> {
    pair.client.take_event(0, |event| matches!(event, Event::Closed(_)))
}

/// A connected pair over `links` links.
fn connected(seed: u64, links: usize) -> Pair {
    let mut setup = Setup { reset_key: Some(KEY), ..Setup::new(seed) };
    let link = setup.links[0].clone();
    if links > 1 {
        setup = setup.over(&vec![link; links]);
    }
    let mut pair = setup.build();
    pair.connect();
    if links > 1 {
        pair.open_paths();
    }
    pair.run_for(Duration::from_secs(1));
    pair
}

/// The server is started again, and knows of no connection.
fn restart_server(pair: &mut Pair, reset_key: Option<[u8; 32]>) {
    let rng = Rng::from_seed(pair.seed).split("restarted server");
    let factory = DeterministicFactory::new(Side::Server, rng.split("session"));
    let config = TransportConfig::default();
    pair.server = Node::with_reset_key(Side::Server, config, &rng, Some(Arc::new(factory)), reset_key);
}

/// Makes the client send.
fn write(pair: &mut Pair) {
    let connection = pair.client.connection(0);
    let id = connection.open(Dir::Uni).expect("a stream is allowed");
    connection.write(id, bytes::Bytes::from(vec![7; 500])).expect("the send buffer has space");
}

#[test]
fn a_restarted_server_resets_the_connections_that_it_has_forgotten() {
    for links in [1, 2] {
        let mut pair = connected(1, links);
        restart_server(&mut pair, Some(KEY));
        write(&mut pair);
        let at = pair.now;
        let mut event = None;
        pair.run_until(Duration::from_secs(10), |pair| {
            event = event.take().or_else(|| closed(pair));
            event.is_some()
        });
        assert_eq!(event, Some(Event::Closed(ConnectionError::Reset)), "{links} links");
        assert!(pair.now - at < Duration::from_millis(100), "{links} links: after {}", pair.now - at);
        // Nothing more is sent, and nothing is left (section 10.2.2).
        let sent = pair.link_stats()[0].carried;
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.link_stats()[0].carried, sent, "{links} links");
        assert!(pair.client.connections[0].is_none());
        assert_eq!(pair.client.endpoint.route_count(), 0);
    }
}

/// Packets of an abandoned path arrive after the server has forgotten the path. It answers with
/// resets, whose token is no longer valid.
#[test]
fn late_packets_of_an_abandoned_path_do_not_reset_the_connection() {
    let mut pair = connected(5, 2);
    let set = |pair: &mut Pair, state| {
        let now = pair.now;
        let config = LinkConfig { state, ..pair.links[0].config().clone() };
        pair.links[0].set_config(now, config);
    };
    set(&mut pair, LineState::Held);
    for _ in 0..20 {
        write(&mut pair);
        pair.run_for(Duration::from_millis(5));
    }
    let now = pair.now;
    assert!(pair.client.connection(0).abandon_path(now, PathId::ZERO, 0));
    pair.run_for(Duration::from_secs(10));
    let answers = pair.link_stats()[1].carried;
    set(&mut pair, LineState::Up);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.link_stats()[1].carried > answers, "the server resets what it does not know");
    assert_eq!(closed(&mut pair), None);
    assert!(pair.client.connection(0).is_established());
}

#[test]
fn a_detached_receive_half_recognises_a_reset() {
    let mut setup = Setup { reset_key: Some(KEY), ..Setup::new(2) };
    setup.staging = Staging { detached: true, ..Staging::default() };
    let mut pair = setup.build();
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    restart_server(&mut pair, Some(KEY));
    write(&mut pair);
    let is_reset = |pair: &mut Pair| closed(pair) == Some(Event::Closed(ConnectionError::Reset));
    assert!(pair.run_until(Duration::from_secs(5), is_reset));
}

#[test]
fn a_server_with_another_key_or_none_cannot_reset() {
    for key in [None, Some([8; 32])] {
        let mut pair = connected(3, 1);
        restart_server(&mut pair, key);
        write(&mut pair);
        pair.run_for(Duration::from_secs(5));
        assert_eq!(closed(&mut pair), None);
        // It is a packet that does not open, and no more.
        assert_eq!(pair.client.connection(0).stats().receive.packets_unauthentic, 0);
        assert!(pair.link_stats()[1].carried > 0, "it answers, if at all, with what no token of ours ends");
    }
}

#[test]
fn a_reset_looks_like_a_packet_and_is_smaller_than_its_trigger() {
    let mut pair = connected(4, 1);
    restart_server(&mut pair, Some(KEY));
    let mut resets = Vec::new();
    for len in 0..200 {
        let datagram: Vec<u8> = [0x45, 1, 2, 3, 4, 5, 6, 7, 8].into_iter().cycle().take(len).collect();
        let (now, mut reset) = (pair.now + Duration::from_secs(len as u64), Vec::new());
        let is_answered = pair.server.endpoint.stateless_reset(now, &datagram, &mut reset);
        assert_eq!(is_answered, len > 21, "{len} bytes (section 10.3)");
        assert_eq!(pair.server.endpoint.route(&datagram) == Route::Forgotten, len > 21);
        if is_answered {
            assert!(reset.len() < len && reset.len() >= 21, "{} bytes for {len} (section 10.3.3)", reset.len());
            assert_eq!(reset[0] & 0xc0, 0x40, "a short header");
            resets.push(reset);
        }
    }
    let bits: std::collections::BTreeSet<_> = resets.iter().map(|reset| reset[..5].to_vec()).collect();
    assert_eq!(bits.len(), resets.len(), "unpredictable bits");
    // A token belongs to a connection ID.
    let tokens: std::collections::BTreeSet<_> = resets.iter().map(|reset| reset[reset.len() - 16..].to_vec()).collect();
    assert_eq!(tokens.len(), 1);
    // A long header gets none: it may begin a connection.
    let mut out = Vec::new();
    assert!(!pair.server.endpoint.stateless_reset(pair.now, &[0xc5; 1200], &mut out));
}

#[test]
fn resets_are_limited() {
    let mut pair = connected(5, 1);
    restart_server(&mut pair, Some(KEY));
    let mut count = 0;
    for index in 0..10_000_u32 {
        let now = pair.now + Duration::from_micros(u64::from(index) * 300);
        let datagram = [&[0x45][..], &index.to_be_bytes(), &[0; 60]].concat();
        count += u32::from(pair.server.endpoint.stateless_reset(now, &datagram, &mut Vec::new()));
    }
    // Within three seconds.
    assert!(count > RESETS_MAX && count <= 4 * RESETS_MAX, "{count} resets");
}

#[test]
fn two_hosts_without_state_do_not_answer_each_other_for_ever() {
    let mut pair = connected(6, 1);
    restart_server(&mut pair, Some(KEY));
    let mut other = connected(7, 1);
    restart_server(&mut other, Some([9; 32]));
    let mut datagram = vec![0x45; 1200];
    let mut rounds = 0;
    loop {
        let mut answer = Vec::new();
        let host = if rounds % 2 == 0 { &mut pair.server } else { &mut other.server };
        if !host.endpoint.stateless_reset(pair.now, &datagram, &mut answer) {
            break;
        }
        datagram = answer;
        rounds += 1;
    }
    assert!((1..=25).contains(&rounds), "{rounds} answers");
}

const TOKEN: [u8; 16] = [0x77; 16];

/// A client whose server has this token.
fn against_client() -> HostilePair {
    let make = |first: &[u8]| {
        Hostile::server(7, first, |id, original| {
            encode(&TransportParameters {
                original_destination_connection_id: Some(original),
                stateless_reset_token: Some(TOKEN),
                ..client_parameters(id)
            })
        })
    };
    let mut pair = HostilePair::established(HostilePair::with_client(TransportConfig::default(), make));
    pair.send(&payload(&[Frame::HandshakeDone]));
    pair
}

/// A stateless reset with a header of this first byte.
fn reset_from(first: u8, token: [u8; 16], len: usize) -> Vec<u8> {
    let mut datagram = vec![0x4c; len];
    datagram[0] = first;
    datagram.extend_from_slice(&token);
    datagram
}

#[test]
fn only_tokens_of_ids_in_use_reset_a_connection() {
    let mut pair = against_client();
    let unused = [0x55; 16];
    let id = quic::ConnectionId::new(&[3; 8]).expect("eight bytes");
    pair.send(&payload(&[Frame::NewConnectionId {
        path: None,
        sequence: 1,
        retire_prior_to: 0,
        id,
        reset_token: unused,
    }]));
    let reset = |token: [u8; 16], len: usize| reset_from(0x4c, token, len);
    // Of an ID that is not in use (section 10.3.1), a wrong one in each byte, and one that is too
    // short.
    let mut others = vec![reset(unused, 25), reset(TOKEN, 4)];
    for at in 0..16 {
        let mut wrong = TOKEN;
        wrong[at] ^= 1;
        others.push(reset(wrong, 25));
    }
    for datagram in others {
        pair.deliver_unpadded(&datagram, HOSTILE);
        pair.assert_alive("a datagram without a valid token");
    }
    pair.deliver_unpadded(&reset(TOKEN, 30), HOSTILE);
    assert!(!pair.victim_is_alive());
    assert_eq!(pair.hostile.close(), None, "nothing is sent to a peer without state");
    assert_eq!(pair.victim.events[0].back(), Some(&Event::Closed(ConnectionError::Reset)));
}

#[test]
fn a_reset_counts_whatever_its_header() {
    // RFC 9000, section 10.3: other versions might reset with a long header. Its version and the
    // lengths of its connection IDs are whatever they are.
    for first in [0x00, 0x4c, 0x80, 0xcc, 0xff] {
        for len in [5, 30, 1_200] {
            let mut pair = against_client();
            pair.deliver_unpadded(&reset_from(first, TOKEN, len), HOSTILE);
            let event = pair.victim.events[0].back();
            assert_eq!(event, Some(&Event::Closed(ConnectionError::Reset)), "{first:#x}, {len} bytes");
        }
        // Headers that a version could have: version 1 and a connection ID that is known or not.
        for known in [false, true] {
            let mut pair = against_client();
            let id =
                if known { pair.hostile.remote_id } else { quic::ConnectionId::new(&[9; 8]).expect("eight bytes") };
            let mut datagram = vec![first, 0, 0, 0, 1, 8];
            datagram.extend_from_slice(id.as_slice());
            datagram.extend([7; 60]);
            datagram.extend(TOKEN);
            pair.deliver_unpadded(&datagram, HOSTILE);
            assert!(!pair.victim_is_alive(), "{first:#x}, known: {known}");
        }
    }
}

#[test]
fn every_packet_is_long_enough_to_be_reset() {
    for seed in 0..4 {
        let mut setup = Setup::new(seed).with_loss(2);
        setup = setup.with_config(|config| config.keep_alive = Some(Duration::from_secs(1)));
        let mut pair = setup.build();
        pair.record = Some(Vec::new());
        pair.connect();
        for _ in 0..20 {
            write(&mut pair);
            pair.run_for(Duration::from_secs(3));
        }
        pair.client.connection(0).close(pair.now, 0, "");
        pair.run_for(Duration::from_secs(3));
        let record = pair.record.take().expect("it was on");
        let one_rtt = record.iter().map(|(_, _, datagram)| datagram).filter(|datagram| datagram[0] & 0x80 == 0);
        let shortest = one_rtt.map(Vec::len).min().expect("1-RTT packets were sent");
        // RFC 9000, section 10.3: 22 bytes more than a connection ID of ours, which has 8.
        assert_eq!(shortest, 30, "seed {seed}");
    }
}

#[test]
fn every_bit_of_a_reset_varies() {
    let mut pair = connected(4, 1);
    restart_server(&mut pair, Some(KEY));
    let datagram: Vec<u8> = [0x45, 1, 2, 3, 4, 5, 6, 7, 8].into_iter().cycle().take(200).collect();
    let resets: Vec<Vec<u8>> = (0..64)
        .map(|round| {
            let (now, mut reset) = (pair.now + Duration::from_secs(round), Vec::new());
            assert!(pair.server.endpoint.stateless_reset(now, &datagram, &mut reset));
            reset
        })
        .collect();
    // Apart from the token, and the two bits of a short header.
    for index in 0..resets[0].len() - 16 {
        let ones = resets.iter().fold(0, |ones, reset| ones | reset[index]);
        let zeros = resets.iter().fold(0, |zeros, reset| zeros | !reset[index]);
        let free = if index == 0 { 0x3f } else { 0xff };
        assert_eq!((ones & free, zeros & free), (free, free), "byte {index}");
    }
}
