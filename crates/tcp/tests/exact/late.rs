//! Timeouts that are due to a delay, found without timestamps (F-RTO, RFC 5682, section 3).

use recovery::Algorithm;
use tcp::TcpConfig;
use units::Duration;
use wire::tcp::{Flags, Options};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Sent, offer};

const RTT: Duration = Duration::from_millis(50);

/// Position after ten segments and the SYN.
const WINDOW: u64 = 10_001;

/// Returns a peer to which ten segments of 1000 bytes were sent and one more as a tail loss probe,
/// and which is silent until the timeout resends the first one. `written` bytes were written in
/// all.
fn timed_out(written: usize) -> Peer {
    let config = TcpConfig { congestion: Some(Algorithm::NewReno), ..TcpConfig::default() };
    let options = Options { mss: Some(1000), ..offer() };
    let mut peer = Peer::sends_syn(&config, options, Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.now += RTT;
    peer.send_ack();
    peer.write(written);
    assert_eq!(peer.sent().len(), 10);
    let probe = peer.pass_until_sent(RTT * 3).expect("a tail loss probe");
    assert_eq!(seqs(&probe), [if written > 10_000 { 10_001 } else { 9001 }]);
    let again = peer.pass_until_sent(RTT * 10).expect("a timeout");
    assert_eq!((seqs(&again), peer.connection.stats().send.timeouts), (vec![1], 1));
    assert_eq!(peer.connection.congestion().0, WINDOW, "nothing is decided");
    peer
}

fn seqs(all: &[Sent]) -> Vec<u32> {
    all.iter().map(|sent| sent.seq).collect()
}

#[test]
fn acknowledgements_of_what_was_sent_before_the_timeout_show_a_delay() {
    for is_in_order in [true, false] {
        let mut peer = timed_out(40_000);
        peer.now += RTT * 2;
        peer.send(peer.segment().ack(1001));
        assert_eq!(seqs(&peer.pass(Duration::from_millis(20))), [11_001, 12_001], "step 2b");
        if is_in_order {
            peer.send(peer.segment().ack(2001));
        } else {
            peer.send(peer.segment().ack(1001).sack(&[(3001, 4001)]));
        }
        let stats = peer.connection.stats().send;
        assert_eq!((stats.bytes_lost, stats.bytes_resent), (0, 1000), "{stats:?}");
        assert!(peer.connection.congestion().0 > WINDOW, "step 3b: {:?}", peer.connection.congestion());
        // The rest arrives, and nothing is resent.
        for end in 3..=13 {
            peer.send(peer.segment().ack(1000 * end + 1));
            peer.pass(Duration::from_millis(1));
        }
        let stats = peer.connection.stats().send;
        assert_eq!((stats.bytes_lost, stats.bytes_resent, stats.timeouts), (0, 1000, 1), "{stats:?}");
    }
}

#[test]
fn if_only_what_was_sent_after_it_arrives_everything_before_was_lost() {
    let mut peer = timed_out(40_000);
    peer.now += RTT;
    peer.send(peer.segment().ack(1001));
    assert_eq!(seqs(&peer.pass(Duration::from_millis(20))), [11_001, 12_001]);
    peer.now += RTT;
    // An acknowledgement without news decides nothing.
    peer.send(peer.segment().ack(1001));
    assert_eq!((peer.sent().len(), peer.connection.congestion().0), (0, WINDOW + 1000));
    peer.send(peer.segment().ack(1001).sack(&[(11_001, 12_001)]));
    assert_eq!(seqs(&peer.sent()), [1001], "step 3a");
    let stats = peer.connection.stats().send;
    // The first segment and the ten that followed; not the data sent after the timeout.
    assert_eq!(stats.bytes_lost, 11_000);
    assert_eq!(peer.connection.congestion(), (2000, 2000));
}

#[test]
fn without_new_data_a_timeout_counts_as_a_loss() {
    let mut peer = timed_out(10_000);
    peer.now += RTT;
    peer.send(peer.segment().ack(1001));
    assert_eq!(seqs(&peer.sent()), [1001, 2001], "step 2a: slow start with what was lost");
    // The result is the same if the peer accepts no more.
    let mut peer = timed_out(40_000);
    peer.now += RTT;
    peer.window = 10_000;
    peer.send(peer.segment().ack(1001));
    assert_eq!(seqs(&peer.sent()), [1001, 2001]);
}

#[test]
fn an_acknowledgement_of_everything_leaves_the_loss_of_the_first() {
    let mut peer = timed_out(40_000);
    peer.now += RTT;
    peer.send(peer.segment().ack(11_001));
    let stats = peer.connection.stats().send;
    assert_eq!(stats.bytes_lost, 1000);
    assert_eq!(peer.connection.congestion().0, 2000, "RFC 5681, section 3.1: the loss window");
}

#[test]
fn a_second_timeout_ends_the_doubt() {
    let mut peer = timed_out(40_000);
    peer.now += RTT;
    peer.send(peer.segment().ack(1001));
    assert_eq!(peer.pass(Duration::from_millis(20)).len(), 2);
    let again = peer.pass_until_sent(Duration::from_secs(5)).expect("a timeout");
    assert_eq!(seqs(&again), [1001, 2001], "{:?}", peer.connection.stats().send);
    assert_eq!(peer.connection.congestion().0, 2000);
}

#[test]
fn in_a_recovery_a_timeout_is_a_loss() {
    let config = TcpConfig { congestion: Some(Algorithm::NewReno), ..TcpConfig::default() };
    let options = Options { mss: Some(1000), ..offer() };
    let mut peer = Peer::sends_syn(&config, options, Flags::SYN, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.now += RTT;
    peer.send_ack();
    peer.write(40_000);
    peer.sent();
    peer.now += RTT;
    peer.send(peer.segment().ack(1).sack(&[(5001, 10_001)]));
    peer.pass(RTT);
    assert!(peer.connection.stats().send.bytes_lost >= 4000);
    let before = peer.connection.congestion().0;
    let again = peer.pass_until_sent(RTT * 10).expect("a timeout");
    assert_eq!((again[0].seq, peer.connection.stats().send.timeouts), (1, 1), "{again:?}");
    assert!(peer.connection.congestion().0 < before, "step 1");
}
