//! Connections whose application is gone (RFC 1122, section 4.2.2.13).

use tcp::{CloseReason, State, TcpConfig};
use units::Duration;
use wire::tcp::Flags;

use crate::support::peer::{Peer, offer};

const TIME_WAIT: Duration = Duration::from_secs(60);

fn peer() -> Peer {
    Peer::opens(&TcpConfig { time_wait: TIME_WAIT, ..TcpConfig::default() }, offer())
}

#[test]
fn what_was_written_is_sent_and_then_the_end() {
    let mut peer = peer();
    peer.write(3000);
    peer.connection.orphan();
    let sent = peer.receive();
    assert_eq!(sent.iter().map(|sent| sent.data.len()).sum::<usize>(), 3000);
    assert!(sent.last().is_some_and(|sent| sent.has(Flags::FIN)));
    peer.send_ack();
    assert_eq!(peer.connection.state(), State::FinWait2);
    peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::Finished));
}

#[test]
fn unread_data_are_answered_with_a_reset() {
    for comes_later in [false, true] {
        let mut peer = peer();
        if comes_later {
            peer.connection.orphan();
            peer.receive();
        }
        peer.send_data(10);
        if !comes_later {
            peer.connection.orphan();
        }
        let sent = peer.sent();
        assert!(sent.len() == 1 && sent[0].has(Flags::RST), "{comes_later}: {sent:?}");
        assert_eq!(peer.connection.close_reason(), Some(CloseReason::Aborted));
    }
}

#[test]
fn a_peer_that_never_ends_is_left_after_a_while_whenever_the_application_went() {
    for is_late in [false, true] {
        let mut peer = peer();
        peer.connection.finish();
        if !is_late {
            peer.connection.orphan();
        }
        peer.receive();
        peer.send_ack();
        assert_eq!(peer.connection.state(), State::FinWait2);
        peer.pass(Duration::from_secs(600));
        if is_late {
            assert_eq!(peer.connection.state(), State::FinWait2, "the application may still read");
            peer.connection.orphan();
        }
        assert_eq!(peer.sent().len(), 0);
        peer.pass(TIME_WAIT);
        assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut), "{is_late}");
    }
}

#[test]
fn a_window_that_never_opens_is_probed_for_some_time_only() {
    let mut peer = peer();
    peer.send(peer.segment().window(0));
    peer.write(100);
    peer.connection.orphan();
    let end = peer.now + Duration::from_secs(3600);
    while peer.pass_until_sent(end.saturating_since(peer.now)).is_some() {
        peer.send(peer.segment().ack(1).window(0));
    }
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut));
}

#[test]
fn an_abort_resets_with_the_next_sequence_number() {
    let mut peer = peer();
    peer.write(100);
    peer.receive();
    peer.connection.abort();
    let sent = peer.sent();
    assert!(sent.len() == 1 && sent[0].has(Flags::RST) && sent[0].seq == 101, "{sent:?}");
    peer.connection.abort();
    assert_eq!((peer.sent().len(), peer.connection.poll_timeout()), (0, None));
}
