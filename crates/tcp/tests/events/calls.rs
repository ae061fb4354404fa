//! Calls of the user and timeouts (RFC 9293, sections 3.10.1 to 3.10.6 and 3.10.8).

use bytes::Bytes;
use tcp::{CloseReason, Event, Read, State, WriteError};
use units::Duration;
use wire::tcp::Flags;

use super::situation::{Role, STATES, situation};
use crate::support::peer::Peer;

/// Checks each possible connection.
fn each(mut check: impl FnMut(State, &mut Peer)) {
    for state in STATES {
        for role in [Role::Server, Role::Client] {
            if let Some((mut peer, _)) = situation(state, role) {
                check(state, &mut peer);
            }
        }
    }
}

fn write(peer: &mut Peer) -> Result<(), WriteError> {
    peer.connection.write(&mut Bytes::from_static(b"more"))
}

/// Completes a handshake.
fn complete(peer: &mut Peer, state: State) {
    match state {
        State::SynSent => peer.send(peer.segment().flags(Flags::SYN | Flags::ACK).ack(1)),
        _ => peer.send(peer.segment().ack(1)),
    }
    peer.nxt = 1;
}

#[test]
fn data_are_queued_until_the_connection_is_established_sent_then_and_refused_after_the_end() {
    each(|state, peer| {
        // Otherwise a small segment waits for the one that is outstanding.
        peer.connection.set_nagle(false);
        let result = write(peer);
        let sent = peer.sent();
        let has_data = |sent: &[crate::support::peer::Sent]| sent.iter().any(|sent| &sent.data[..] == b"more");
        match state {
            State::SynSent | State::SynReceived => {
                assert!(result.is_ok() && sent.is_empty(), "{state:?}: {sent:?}");
                complete(peer, state);
                assert!(has_data(&peer.sent()), "{state:?}");
            }
            State::Established | State::CloseWait => assert!(result.is_ok() && has_data(&sent), "{state:?}: {sent:?}"),
            State::TimeWait => assert_eq!(result, Err(WriteError::Closed(CloseReason::Finished))),
            _ => assert!(result == Err(WriteError::Finished) && sent.is_empty(), "{state:?}"),
        }
    });
}

#[test]
fn a_reader_waits_gets_what_has_arrived_and_learns_of_the_end() {
    each(|state, peer| {
        let read = peer.connection.read(100);
        match state {
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => assert_eq!(read, Read::End),
            _ => assert_eq!(read, Read::Blocked, "{state:?}"),
        }
        if matches!(state, State::Established | State::FinWait1 | State::FinWait2) {
            peer.send_data(10);
            assert_eq!(peer.connection.read(100), Read::Bytes(Bytes::from_static(b"xxxxxxxxxx")), "{state:?}");
        }
    });
}

#[test]
fn an_end_is_sent_after_the_data_once_and_from_the_right_states() {
    each(|state, peer| {
        peer.connection.finish();
        let ends = |peer: &mut Peer| peer.sent().iter().filter(|sent| sent.has(Flags::FIN)).count();
        match state {
            State::SynSent | State::SynReceived => {
                // Queued.
                assert_eq!(ends(peer), 0, "{state:?}");
                complete(peer, state);
                assert_eq!((ends(peer), peer.connection.state()), (1, State::FinWait1), "{state:?}");
            }
            State::Established => assert_eq!((ends(peer), peer.connection.state()), (1, State::FinWait1)),
            State::CloseWait => assert_eq!((ends(peer), peer.connection.state()), (1, State::LastAck)),
            _ => assert_eq!((ends(peer), peer.connection.state()), (0, state)),
        }
    });
}

#[test]
fn an_abort_resets_the_peer_if_it_knows_of_the_connection() {
    each(|state, peer| {
        let nxt = situation(state, Role::Client).expect("each has one").1.snd_nxt as u32;
        peer.connection.abort();
        let sent = peer.sent();
        match state {
            State::SynSent => assert!(sent.is_empty(), "{sent:?}"),
            // It is over already.
            State::TimeWait => assert!(sent.is_empty() && peer.connection.state() == State::TimeWait),
            _ => assert!(sent.len() == 1 && sent[0].has(Flags::RST) && sent[0].seq == nxt, "{state:?}: {sent:?}"),
        }
        if state != State::TimeWait {
            assert_eq!(peer.connection.state(), State::Closed);
            assert_eq!(peer.events.last(), Some(&Event::Closed(CloseReason::Aborted)), "{state:?}");
            assert_eq!(write(peer), Err(WriteError::Closed(CloseReason::Aborted)), "{state:?}");
            assert_eq!(peer.pass(Duration::from_secs(600)).len(), 0, "nothing is sent again");
        }
    });
}

#[test]
fn what_is_not_acknowledged_is_sent_again_and_given_up() {
    each(|state, peer| {
        let sent = peer.pass(Duration::from_secs(2));
        let is_waiting = matches!(state, State::FinWait2 | State::TimeWait);
        assert_eq!(sent.is_empty(), is_waiting, "{state:?}: {sent:?}");
        if !is_waiting {
            let (_, v) = situation(state, Role::Client).expect("each has one");
            assert!(sent.iter().any(|sent| i64::from(sent.seq) == v.snd_una), "{state:?}: {sent:?}");
            peer.pass(Duration::from_secs(3600));
            assert_eq!(peer.connection.close_reason(), Some(CloseReason::TimedOut), "{state:?}");
        }
    });
}

#[test]
fn time_wait_ends_after_its_time() {
    let (mut peer, _) = situation(State::TimeWait, Role::Client).expect("there is one");
    let time_wait = tcp::TcpConfig::default().time_wait;
    peer.pass(time_wait - Duration::from_millis(1));
    assert_eq!(peer.connection.state(), State::TimeWait);
    peer.pass(Duration::from_millis(1));
    assert_eq!(peer.connection.state(), State::Closed);
}
