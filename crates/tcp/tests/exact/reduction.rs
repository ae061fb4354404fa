//! Sending while the window shrinks (RFC 9937).

use recovery::Algorithm;
use tcp::TcpConfig;
use units::Duration;
use wire::tcp::{Flags, Options};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, offer};

const RTT: Duration = Duration::from_millis(50);
const SEGMENT: u32 = 1000;

/// Returns a peer to which twenty segments were sent, and which has acknowledged everything before
/// them. Also returns the position of the first of the twenty.
fn flight(congestion: Algorithm, options: Options, is_marked: bool) -> (Peer, u32) {
    let config = TcpConfig { congestion: Some(congestion), ..TcpConfig::default() };
    let flags = if is_marked { Flags::SYN | Flags::ECE | Flags::CWR } else { Flags::SYN };
    let mut peer = Peer::sends_syn(&config, Options { mss: Some(1000), ..options }, flags, (INITIAL, PEER_INITIAL));
    peer.receive();
    peer.now += RTT;
    peer.send_ack();
    peer.write(30_000);
    let sent = peer.receive();
    assert_eq!(sent.len(), 10, "{sent:?}");
    peer.now += RTT;
    peer.send_ack();
    let sent = peer.pass(RTT - Duration::from_millis(1));
    assert_eq!(sent.len(), 20, "{sent:?}");
    (peer, 10 * SEGMENT + 1)
}

/// Returns the number of segments that leave with each acknowledgement; `answer` makes the one with
/// this number.
fn answers(peer: &mut Peer, numbers: std::ops::Range<u32>, mut answer: impl FnMut(&mut Peer, u32)) -> Vec<usize> {
    let each = numbers.map(|number| {
        if number == 3 {
            // More data wait as soon as the loss is found.
            peer.write(40_000);
        }
        answer(peer, number);
        peer.pass(Duration::from_millis(2)).len()
    });
    each.collect()
}

#[test]
fn a_flight_with_one_loss_shrinks_without_silence_and_without_a_burst() {
    let (mut peer, first) = flight(Algorithm::NewReno, offer(), false);
    let counts = answers(&mut peer, 1..20, |peer, number| {
        let held = (first + SEGMENT, first + SEGMENT * (number + 1));
        peer.send(peer.segment().ack(first).sack(&[held]));
    });
    // The first two have let the window grow to 22 segments. The third finds the loss, and the first
    // segment leaves again at once. From then on eleven leave for eighteen that arrive, until the flight
    // has the size of the new window.
    assert_eq!(counts, [0, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(peer.connection.congestion(), (11_000, 11_000));
}

#[test]
fn a_peer_without_blocks_shrinks_the_flight_in_the_same_way() {
    let (mut peer, first) = flight(Algorithm::NewReno, Options::default(), false);
    let counts = answers(&mut peer, 1..20, |peer, _| peer.send(peer.segment().ack(first)));
    assert!(counts[..2] == [0, 0] && counts[2] == 1, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    assert!(counts[3..].windows(3).all(|three| three.contains(&1)), "no silence: {counts:?}");
    // Nineteen have arrived, and the segments that left are in flight.
    assert_eq!(counts.iter().sum::<usize>(), 10, "{counts:?}");
}

#[test]
fn many_losses_leave_the_slow_start_bound() {
    let (mut peer, first) = flight(Algorithm::NewReno, offer(), false);
    // The first fifteen were lost, five arrive.
    let counts = answers(&mut peer, 1..6, |peer, number| {
        let held = (first + 15 * SEGMENT, first + SEGMENT * (15 + number));
        peer.send(peer.segment().ack(first).sack(&[held]));
    });
    // The second finds the loss of those that were sent first. The flight is below the target at once: one
    // leaves for each that arrives.
    assert_eq!(counts, [0, 1, 1, 1, 1]);
    // Retransmissions arrive in order: one more leaves with each.
    let counts = answers(&mut peer, 1..4, |peer, number| {
        let held = (first + 15 * SEGMENT, first + 20 * SEGMENT);
        peer.send(peer.segment().ack(first + number * SEGMENT).sack(&[held]));
    });
    assert_eq!(counts, [2, 2, 2]);
}

#[test]
fn a_mark_shrinks_the_flight_in_the_same_way() {
    let (mut peer, first) = flight(Algorithm::NewReno, offer(), true);
    let counts = answers(&mut peer, 1..21, |peer, number| {
        let flags = if number == 1 { Flags::ACK | Flags::ECE } else { Flags::ACK };
        peer.send(peer.segment().ack(first + number * SEGMENT).flags(flags));
    });
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    assert!(counts.windows(3).all(|three| three.contains(&1)), "{counts:?}");
    assert_eq!(peer.connection.congestion(), (10_000, 10_000));
}

#[test]
fn an_undone_reduction_permits_the_whole_window_at_once() {
    let (mut peer, first) = flight(Algorithm::Cubic, offer(), false);
    let (window, _) = peer.connection.congestion();
    // The first segment is late, and was resent for nothing.
    answers(&mut peer, 1..5, |peer, number| {
        let held = (first + SEGMENT, first + SEGMENT * (number + 1));
        peer.send(peer.segment().ack(first).sack(&[held]));
    });
    assert!(peer.connection.congestion().0 < window);
    let before = peer.connection.stats().send.bytes_resent;
    assert_eq!(before, 1000);
    peer.send(peer.segment().ack(first + 5 * SEGMENT).sack(&[(first, first + SEGMENT)]));
    let _more = peer.pass(Duration::from_millis(20));
    let (after, in_flight) = peer.connection.congestion();
    assert!(in_flight + 1000 > after, "{in_flight} of {after}");
}

#[test]
fn acknowledgements_of_single_bytes_let_no_more_leave() {
    let (mut peer, first) = flight(Algorithm::NewReno, offer(), false);
    answers(&mut peer, 1..4, |peer, number| {
        let held = (first + SEGMENT, first + SEGMENT * (number + 1));
        peer.send(peer.segment().ack(first).sack(&[held]));
    });
    // The peer acknowledges byte by byte: each moves the first hole.
    let held = (first + SEGMENT, first + 4 * SEGMENT);
    for byte in 1..=SEGMENT - 1 {
        peer.send(peer.segment().ack(first + byte).sack(&[held]));
        peer.sent();
        let (window, in_flight) = peer.connection.congestion();
        assert!(in_flight <= 18_000, "{byte}: {in_flight} of {window}");
    }
    let _rest = peer.pass(Duration::from_millis(5));
    let resent = peer.connection.stats().send.bytes_resent;
    assert!(resent <= 2000, "{resent}");
}
