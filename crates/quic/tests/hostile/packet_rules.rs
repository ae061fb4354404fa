//! Versions, connection IDs, duplicates and resets, as a peer sees them. `docs/spec/requirements`
//! names the clauses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quic::session::deterministic::DeterministicFactory;
use quic::{ConnectionId, ErrorCode, Side, TransportConfig, Version};
use units::{Duration, Instant, Rng};
use wire::quic::{Frame, Space};

use super::{frames, in_the_middle_of_the_handshake, ping, received};
use crate::support::Node;
use crate::support::hostile::{HOSTILE, Hostile, HostilePair, SealOverrides, payload};

const KEY: [u8; 32] = [7; 32];

/// A server with a key for resets; all else of it follows from `seed`.
fn server(seed: u64) -> HostilePair {
    let rng = Rng::from_seed(seed).split("server");
    let factory = DeterministicFactory::new(Side::Server, rng.split("session"));
    let config = TransportConfig::default();
    let victim = Node::with_reset_key(Side::Server, config, &rng, Some(Arc::new(factory)), Some(KEY));
    HostilePair { now: Instant::ZERO, victim, hostile: Hostile::ordinary_client(1), victim_bytes: BTreeMap::new() }
}

/// A client connects, and learns the IDs and tokens that the server chooses for it.
fn ids_for(pair: &mut HostilePair, client: u64) -> Vec<(ConnectionId, Option<[u8; 16]>)> {
    pair.hostile = Hostile::ordinary_client(client);
    pair.run_session();
    pair.send_and_ack(&payload(&[Frame::Ping]));
    assert!(pair.hostile.is_ready());
    let issued = frames(pair).filter_map(|frame| match frame {
        Frame::NewConnectionId { id, reset_token, .. } => Some((id, Some(reset_token))),
        _ => None,
    });
    let first = (pair.hostile.remote_id, None);
    std::iter::once(first).chain(issued).collect()
}

#[test]
fn no_connection_id_is_used_twice_even_by_a_server_that_is_started_again() {
    // RFC 9000, section 10.3.2: the key outlives the server, and so does what a reset reveals.
    let (mut ids, mut tokens, mut count) = (BTreeSet::new(), BTreeSet::new(), [0, 0]);
    for start in 0..4 {
        let mut pair = server(start);
        for client in 0..30 {
            for (id, token) in ids_for(&mut pair, client) {
                ids.insert(id);
                tokens.extend(token);
                count = [count[0] + 1, count[1] + usize::from(token.is_some())];
            }
        }
    }
    assert!(count[1] >= 120, "{count:?}");
    assert_eq!([ids.len(), tokens.len()], count);
}

#[test]
fn the_ids_of_a_connection_have_nothing_in_common() {
    // RFC 9000, section 5.1: any two IDs of a connection differ in each bit half of the time.
    let (mut pair, mut differences, mut pairs) = (server(9), [0_u32; 64], 0);
    for client in 0..100 {
        let ids = ids_for(&mut pair, client);
        for (index, (one, _)) in ids.iter().enumerate() {
            for (other, _) in &ids[index + 1..] {
                pairs += 1;
                for (bit, count) in differences.iter_mut().enumerate() {
                    let byte = |id: &ConnectionId| id.as_slice()[bit / 8] >> (bit % 8) & 1;
                    *count += u32::from(byte(one) != byte(other));
                }
            }
        }
    }
    assert!(pairs >= 100);
    assert!(differences.iter().all(|count| (pairs / 4..pairs * 3 / 4).contains(count)), "{differences:?} of {pairs}");
}

#[test]
fn a_connection_that_is_alive_sends_no_resets() {
    // RFC 9000, section 11.
    let mut pair = server(1);
    pair.run_session();
    assert!(pair.hostile.is_ready() && pair.victim_is_alive());
    let ack = pair.hostile.ack(Space::Data);
    pair.send(&ack);
    let (sent, opened) = (pair.victim_bytes.get(&HOSTILE).copied(), pair.hostile.opened.len());
    let mut rng = Rng::from_seed(2);
    for len in 25..1_200 {
        let mut garbage = vec![0; len];
        rng.fill(&mut garbage);
        garbage[0] = 0x40 | garbage[0] & 0x3f;
        garbage[1..9].copy_from_slice(pair.hostile.remote_id.as_slice());
        pair.deliver_unpadded(&garbage, HOSTILE);
    }
    assert!(pair.victim.connection(0).stats().receive.packets_unauthentic > 1_000);
    assert_eq!((pair.victim_bytes.get(&HOSTILE).copied(), pair.hostile.opened.len()), (sent, opened));
    // One of a connection that it does not know gets one.
    let mut unknown = vec![0x41; 100];
    unknown[1..9].copy_from_slice(&[9; 8]);
    pair.deliver_unpadded(&unknown, HOSTILE);
    assert!(pair.victim_bytes.get(&HOSTILE).copied() > sent);
}

#[test]
fn packets_of_another_version_are_discarded() {
    // RFC 9000, section 5.2.1. The keys are the right ones, so only the version tells.
    let mut pair = HostilePair::established(HostilePair::with_client(TransportConfig::default(), super::server_for));
    for (version, count) in [(Some(Version::V2), 0), (None, 1)] {
        let before = received(&mut pair);
        let odd = SealOverrides { version, ..SealOverrides::default() };
        let packet = pair.hostile.packet_with(Space::Handshake, &ping(), odd);
        pair.deliver(&packet);
        assert_eq!(received(&mut pair), before + count, "{version:?}");
    }
}

#[test]
fn only_a_packet_that_opens_counts_as_a_duplicate() {
    // RFC 9000, section 12.3.
    let mut pair = HostilePair::against_server();
    let packet = pair.hostile.packet(Space::Data, &ping());
    pair.deliver(&packet);
    let mut forged = packet.clone();
    *forged.last_mut().expect("a tag") ^= 1;
    for (datagram, duplicates, forgeries) in [(&forged, 0, 1), (&packet, 1, 1), (&forged, 1, 2)] {
        pair.deliver(datagram);
        let stats = pair.victim.connection(0).stats().receive;
        assert_eq!((stats.packets_duplicate, stats.packets_unauthentic), (duplicates, forgeries));
    }
}

#[test]
fn handshake_bytes_left_over_at_the_end_of_their_level_are_a_violation() {
    // RFC 9001, section 4.1.3: a gap keeps them from TLS.
    let mut pair = in_the_middle_of_the_handshake();
    pair.hostile = Hostile::ordinary_client(9);
    let (_, hello) = pair.hostile.handshake_bytes().remove(0);
    let end = hello.len() as u64;
    for (offset, data) in [(end + 5, &b"more"[..]), (0, &hello)] {
        let packet = pair.hostile.packet(Space::Initial, &payload(&[Frame::Crypto { offset, data }]));
        pair.deliver(&packet);
    }
    pair.wait(Duration::from_millis(1));
    pair.assert_closed(ErrorCode::PROTOCOL_VIOLATION, "bytes beyond the hello");
}
