//! Resets and SYNs from others (RFC 5961, sections 3 and 4; RFC 1337), and those of the peer.

use tcp::{CloseReason, Event, State, TcpConfig};
use units::Duration;
use wire::tcp::Flags;

use crate::support::peer::{Peer, offer};

fn peer() -> Peer {
    Peer::opens(&TcpConfig::default(), offer())
}

#[test]
fn a_reset_with_the_expected_number_ends_the_connection() {
    for flags in [Flags::RST, Flags::RST | Flags::ACK] {
        let mut peer = peer();
        peer.write(100);
        peer.send(peer.segment().flags(flags));
        assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::Reset)));
        assert_eq!((peer.sent().len(), peer.connection.poll_timeout()), (0, None));
    }
}

#[test]
fn a_reset_with_data_and_one_into_a_closed_window_end_the_connection() {
    let mut with_data = peer();
    with_data.send(with_data.segment().flags(Flags::RST).len(30));
    assert_eq!(with_data.connection.close_reason(), Some(CloseReason::Reset), "RFC 9293, section 3.5.3");
    let mut closed = Peer::opens(&TcpConfig { receive_buffer: 1000, ..TcpConfig::default() }, offer());
    closed.send_data(1000);
    assert_eq!(closed.pass(Duration::from_secs(1)).last().map(|sent| sent.window), Some(0));
    closed.send(closed.segment().flags(Flags::RST));
    assert_eq!(closed.connection.close_reason(), Some(CloseReason::Reset), "section 3.4");
}

#[test]
fn nothing_is_sent_after_a_reset() {
    let mut peer = peer();
    peer.write(100_000);
    peer.receive();
    // A hole: an acknowledgement is due at once.
    peer.send(peer.segment().seq(500).len(100));
    peer.send(peer.segment().flags(Flags::RST));
    assert_eq!(peer.connection.state(), State::Closed);
    assert_eq!(peer.sent().len(), 0);
}

#[test]
fn a_reset_elsewhere_in_the_window_is_answered_and_not_believed() {
    let mut peer = peer();
    for seq in [2, 1000, 60_000] {
        peer.send(peer.segment().seq(seq).flags(Flags::RST));
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].flags == Flags::ACK && answer[0].ack == 1, "{answer:?}");
    }
    peer.assert_works();
}

#[test]
fn a_reset_outside_the_window_is_dropped() {
    let mut peer = peer();
    for seq in [0, 70_000, 1 << 31, u32::MAX] {
        peer.send(peer.segment().seq(seq).flags(Flags::RST));
        assert_eq!(peer.sent().len(), 0, "{seq}");
    }
    peer.assert_works();
}

#[test]
fn a_syn_is_answered_and_not_believed_and_the_answers_are_limited() {
    for seq in [0, 1, 1000, 1 << 31] {
        let mut peer = peer();
        let mut answers = 0;
        for _ in 0..100 {
            peer.send(peer.segment().seq(seq).flags(Flags::SYN));
            for sent in peer.sent() {
                assert!(sent.flags == Flags::ACK && sent.ack == 1, "{sent:?}");
                answers += 1;
            }
        }
        assert!((1..=10).contains(&answers), "{answers}");
        peer.pass(Duration::from_secs(6));
        peer.send(peer.segment().seq(seq).flags(Flags::SYN));
        assert_eq!(peer.sent().len(), 1);
        peer.assert_works();
    }
}

#[test]
fn only_a_reset_with_the_expected_number_ends_time_wait() {
    let mut peer = peer();
    peer.connection.finish();
    peer.receive();
    peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
    peer.nxt += 1;
    assert_eq!(peer.connection.state(), State::TimeWait);
    peer.receive();
    for seq in [0, 1, 3, 70_000] {
        peer.send(peer.segment().seq(seq).flags(Flags::RST));
        peer.sent();
        assert_eq!(peer.connection.state(), State::TimeWait, "{seq}");
    }
    peer.send(peer.segment().flags(Flags::RST));
    assert_eq!((peer.connection.state(), peer.sent().len()), (State::Closed, 0));
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::Finished));
}

/// Some hosts send such resets after their FIN.
#[test]
fn a_reset_that_does_not_count_the_end_ends_the_connection() {
    for finishes in [false, true] {
        let mut peer = peer();
        peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
        if finishes {
            peer.connection.finish();
        }
        peer.receive();
        peer.nxt += 1;
        peer.send(peer.segment().seq(peer.nxt - 2).flags(Flags::RST));
        assert!(peer.connection.state().is_synchronized());
        peer.send(peer.segment().seq(peer.nxt - 1).flags(Flags::RST));
        assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::Reset)));
    }
}

#[test]
fn only_a_reset_that_acknowledges_the_syn_refuses_an_open() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    let syn = peer.receive();
    assert!(syn.len() == 1 && syn[0].flags == Flags::SYN | Flags::ECE | Flags::CWR);
    for (flags, ack) in [(Flags::RST, 1), (Flags::RST | Flags::ACK, 0), (Flags::RST | Flags::ACK, 2)] {
        peer.send(peer.segment().flags(flags).ack(ack));
        assert_eq!((peer.connection.state(), peer.sent().len()), (State::SynSent, 0), "{flags} {ack}");
    }
    peer.send(peer.segment().flags(Flags::RST | Flags::ACK));
    assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::Refused)));
}

#[test]
fn an_answer_that_acknowledges_another_syn_is_reset() {
    let mut peer = Peer::awaits(&TcpConfig::default());
    peer.receive();
    for (flags, ack) in [(Flags::SYN | Flags::ACK, 0), (Flags::SYN | Flags::ACK, 2), (Flags::ACK, 5000)] {
        peer.send(peer.segment().flags(flags).ack(ack));
        let reset = peer.sent();
        assert!(reset[0].flags == Flags::RST && reset[0].seq == ack, "{reset:?}");
        assert_eq!(peer.connection.state(), State::SynSent);
    }
}

/// A driver drops such a connection. If it waited for a plan that never comes, the driver would
/// keep it for ever, with its addresses and ports: SYNs of a later connection would not be
/// answered.
#[test]
fn a_connection_that_has_ended_has_nothing_to_acknowledge() {
    let mut reset = peer();
    // They are acknowledged at once, but the reset arrives before the acknowledgement leaves.
    reset.send_data(1460);
    reset.send_data(1460);
    assert!(reset.connection.has_plan());
    reset.send(reset.segment().flags(Flags::RST));
    assert_eq!((reset.connection.has_plan(), reset.sent().len()), (false, 0));

    let mut finished = peer();
    finished.send(finished.segment().flags(Flags::FIN | Flags::ACK));
    finished.nxt += 1;
    finished.connection.finish();
    assert!(finished.receive().iter().any(|sent| sent.has(Flags::FIN)));
    // The peer repeats its FIN, and acknowledges ours.
    finished.send(finished.segment().seq(finished.nxt - 1).flags(Flags::FIN | Flags::ACK));
    assert_eq!(finished.connection.close_reason(), Some(CloseReason::Finished));
    assert_eq!((finished.connection.has_plan(), finished.sent().len()), (false, 0));
}
