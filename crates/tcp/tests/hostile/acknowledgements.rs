//! Peers that lie about the data they have received.

use bytes::Bytes;
use tcp::{State, TcpConfig};
use units::Duration;
use wire::tcp::{Flags, Options};

use crate::support::peer::{Peer, Sent, offer};

fn peer() -> Peer {
    Peer::opens(&TcpConfig::default(), offer())
}

/// Asserts that everything arrives at an honest peer in the end.
fn assert_completes(peer: &mut Peer, end: u32) {
    for _ in 0..10_000 {
        if peer.expected >= end {
            return;
        }
        let sent = peer.pass_until_sent(Duration::from_secs(200)).expect("something is sent");
        peer.note(&sent);
        peer.send_ack();
    }
    panic!("only {} of {end} arrived", peer.expected);
}

#[test]
fn an_acknowledgement_of_unsent_data_is_answered_and_not_believed() {
    let mut peer = peer();
    peer.write(5000);
    peer.sent();
    for ack in [5002, 6000, 1 << 30] {
        peer.send(peer.segment().ack(ack));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].flags == Flags::ACK, "{answer:?}");
    }
    assert_eq!(peer.connection.stats().send.bytes_acked, 0);
    assert_completes(&mut peer, 5001);
}

#[test]
fn optimistic_acknowledgements_cannot_go_beyond_what_was_sent() {
    let mut peer = peer();
    peer.write(1 << 20);
    let mut acked = 1;
    for _ in 0..5000 {
        let sent = peer.pass(Duration::from_millis(1));
        let end = sent.iter().map(Sent::end).max().unwrap_or(acked);
        for step in 1..=3 {
            peer.send(peer.segment().ack(end + step * 10_000));
        }
        acked = end;
        peer.send(peer.segment().ack(acked));
    }
    assert_eq!(acked, (1 << 20) + 1);
    assert_eq!(peer.connection.congestion().1, 0, "nothing is in flight");
}

#[test]
fn blocks_that_lie_are_ignored() {
    let mut peer = peer();
    peer.write(20_000);
    let first = peer.sent();
    let nxt = first.last().expect("data").end();
    let lies: [&[(u32, u32)]; 7] = [
        &[(nxt, nxt + 1000)],
        &[(nxt - 100, nxt + 1)],
        &[(3000, 2000), (2000, 2000)],
        &[(u32::MAX - 5, 3)],
        &[(1, 1 << 31), (0, u32::MAX)],
        &[(1 << 30, 1 << 31), ((1 << 31) + 5, 2)],
        &[(0, 1), (0, 0), (1, 1), (nxt, nxt)],
    ];
    for blocks in lies {
        peer.send(peer.segment().ack(1).sack(blocks));
        let (_, in_flight) = peer.connection.congestion();
        assert_eq!(in_flight, u64::from(nxt) - 1, "{blocks:?}");
    }
    assert_completes(&mut peer, 20_001);
}

#[test]
fn a_peer_that_drops_what_it_has_reported_gets_it_again() {
    let mut peer = peer();
    peer.write(14_600);
    let sent = peer.sent();
    assert_eq!(sent.len(), 10);
    // All but the first, which is lost; then the peer drops the data (RFC 2018, section 8).
    peer.send(peer.segment().ack(1).sack(&[(1461, 14_601)]));
    assert_completes(&mut peer, 14_601);
}

#[test]
fn thousands_of_tiny_blocks_cost_bounded_memory_and_work() {
    let config = TcpConfig { send_buffer: 4 << 20, ..TcpConfig::default() };
    let mut peer = Peer::opens(&config, Options { window_scale: Some(14), ..offer() });
    peer.window = 1024;
    peer.send_ack();
    // A large flight: each segment is acknowledged after a tenth of a second.
    let mut bytes = Bytes::from(vec![0; 32 << 20]);
    for round in 0.. {
        assert!(round < 100, "{:?}", peer.connection.congestion());
        let _ = peer.connection.write(&mut bytes);
        let sent = peer.pass(Duration::from_millis(100));
        peer.note(&sent);
        if peer.connection.congestion().1 > 2 << 20 {
            break;
        }
        sent.iter().for_each(|sent| peer.send(peer.segment().ack(sent.end())));
    }
    let (start, in_flight) = (peer.expected - peer.connection.congestion().1 as u32, peer.connection.congestion().1);
    // Every second byte, four bytes at a time.
    for at in (0..in_flight as u32 - 20).step_by(8).take(100_000) {
        let at = start + at;
        let blocks = [(at + 1, at + 2), (at + 3, at + 4), (at + 5, at + 6), (at + 7, at + 8)];
        peer.send(peer.segment().ack(start).sack(&blocks));
    }
    let runs = peer.connection.sent_runs();
    assert!(runs <= in_flight as usize / 1460 * 2 + 100, "{runs}");
    assert_completes(&mut peer, start + in_flight as u32);
}

#[test]
fn duplicate_acknowledgements_without_end_send_nothing_new() {
    for sack in [true, false] {
        let mut peer = Peer::opens(&TcpConfig { sack, ..TcpConfig::default() }, offer());
        peer.write(14_600);
        peer.sent();
        let mut bytes = 0;
        for _ in 0..1000 {
            peer.send(peer.segment().ack(1));
            bytes += peer.sent().iter().map(|sent| sent.data.len()).sum::<usize>();
        }
        assert!(bytes <= 2 * 1460, "{bytes}");
        assert_completes(&mut peer, 14_601);
    }
}

#[test]
fn numbers_that_wrap_make_no_difference() {
    for initials in [(u32::MAX, u32::MAX), (u32::MAX - 5000, u32::MAX - 700), (1 << 31, (1 << 31) - 3000)] {
        let mut peer = Peer::opens_with(&TcpConfig::default(), offer(), Flags::SYN, initials);
        peer.write(20_000);
        for _ in 0..10 {
            peer.send_data(1000);
        }
        assert_eq!(peer.read().len(), 10_000);
        assert_completes(&mut peer, 20_001);
        peer.connection.finish();
        assert_completes(&mut peer, 20_002);
        peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
        assert_eq!(peer.connection.state(), State::TimeWait);
    }
}
