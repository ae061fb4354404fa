//! Lost segments (RFC 8985, RFC 6582), and retransmissions.

use tcp::TcpConfig;
use units::Duration;
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, offer};

const RTT: Duration = Duration::from_millis(50);

/// Returns a peer a round trip of [`RTT`] away, to which ten full segments of 1000 bytes were sent.
fn flight(options: Options) -> Peer {
    let mut peer = Peer::sends_syn(&TcpConfig::default(), options, Flags::SYN, (INITIAL, PEER_INITIAL));
    let answer = peer.receive();
    assert_eq!(answer.len(), 1);
    peer.now += RTT;
    peer.send_ack();
    peer.write(10_000);
    let sent = peer.sent();
    assert!(sent.len() == 10 && sent.iter().all(|sent| sent.data.len() == 1000), "{sent:?}");
    peer.now += RTT;
    peer
}

#[test]
fn blocks_that_are_new_together_are_no_reordering() {
    let mut peer = flight(Options { mss: Some(1000), ..offer() });
    // The latest block comes first, and the acknowledgement that reported the other one was lost.
    peer.send(peer.segment().ack(1).sack(&[(7001, 8001), (3001, 4001)]));
    assert!(!peer.connection.has_seen_reordering());
    // A later one below these is.
    peer.send(peer.segment().ack(1).sack(&[(5001, 6001), (7001, 8001), (3001, 4001)]));
    assert!(peer.connection.has_seen_reordering());
}

#[test]
fn a_retransmission_beyond_a_hole_shows_that_another_one_was_lost() {
    let stamped = Options { mss: Some(1012), timestamps: Some(Timestamps::default()), ..offer() };
    let mut peer = flight(stamped);
    peer.send(peer.segment().ack(1).sack(&[(2001, 10_001)]));
    let again = peer.pass(RTT / 4);
    assert_eq!(again.iter().map(|sent| sent.data.len()).sum::<usize>(), 2000, "{again:?}");
    // The first is lost again. The peer echoes the last segment received in order: the end of the
    // handshake.
    peer.now += RTT;
    peer.send(peer.segment().ack(1).sack(&[(1001, 10_001)]));
    let third = peer.pass(RTT / 2);
    assert!(third.len() == 1 && third[0].seq == 1 && third[0].data.len() == 1000, "{third:?}");
    assert_eq!(peer.connection.stats().send.timeouts, 0, "RFC 8985, section 6.2");
}

#[test]
fn after_a_timeout_each_segment_is_sent_again_once() {
    let mut peer = flight(Options { mss: Some(1000), ..Options::default() });
    let mut seqs = Vec::new();
    // All were lost. Retransmissions arrive, and are acknowledged one by one.
    let again = peer.pass_until_sent(Duration::from_secs(5)).expect("a timeout");
    let mut arrived: std::collections::VecDeque<_> = again.into();
    while let Some(sent) = arrived.pop_front() {
        seqs.push(sent.seq);
        peer.note(std::slice::from_ref(&sent));
        peer.now += Duration::from_millis(10);
        peer.send_ack();
        arrived.extend(peer.sent());
    }
    let expected: Vec<_> = (0..10).map(|segment| 1 + 1000 * segment).collect();
    assert_eq!(seqs, expected, "a partial acknowledgement shows no loss then (RFC 6582, section 4)");
}
