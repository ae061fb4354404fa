//! Reports of routers.

use std::cell::RefCell;
use std::rc::Rc;

use tcp::{CloseReason, Event, IcmpError, IcmpErrorKind, SoftError, State, TcpConfig, Tuple};
use units::{Duration, Seq32};

use crate::support::peer::{INITIAL, Peer, offer};
use crate::support::{CLIENT, Pair, SERVER, link, pattern};

const TUPLE: Tuple = Tuple { local: CLIENT, remote: SERVER };

#[test]
fn a_smaller_packet_size_is_taken_from_a_report_about_an_outstanding_segment() {
    let mut pair = Pair::new(1, &link(10, 10));
    pair.connect();
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&dropped);
    pair.tamper = Some(Box::new(move |_, packet| {
        if packet.bytes.len() > 1300 {
            seen.borrow_mut().push(packet.header().seq);
            return Vec::new();
        }
        vec![packet.clone()]
    }));
    let bytes = pattern(300_000, 1);
    pair.hosts[0].send(bytes.clone(), true);
    pair.run_for(Duration::from_millis(5));
    let seq = *dropped.borrow().first().expect("the first segments are too large");
    let now = pair.now;
    let report = |seq, kind| IcmpError { tuple: TUPLE, seq, kind };
    let client = pair.hosts[0].connection();
    let full = client.segment();
    // Nothing with this number is outstanding: it is forged.
    client.handle_icmp(now, &report(Seq32::new(seq.get() ^ 1 << 30), IcmpErrorKind::PacketTooBig(Some(600))));
    assert_eq!(client.segment(), full);
    client.handle_icmp(now, &report(seq, IcmpErrorKind::PacketTooBig(Some(1300))));
    assert_eq!(client.segment(), 1300 - 52);
    // A tiny size is not accepted.
    client.handle_icmp(now, &report(seq, IcmpErrorKind::PacketTooBig(Some(68))));
    assert_eq!(client.segment(), 552 - 52);
    let count = dropped.borrow().len();
    assert!(pair.run_until(Duration::from_secs(5), |pair| pair.hosts[1].has_ended));
    assert!(pair.hosts[1].received == bytes);
    assert_eq!(dropped.borrow().len(), count, "no more large packets were sent");
    assert_eq!(pair.hosts[0].connection().stats().send.timeouts, 0);
}

#[test]
fn a_refusal_ends_an_attempt_to_connect_but_no_connection() {
    let mut pair = Pair::new(2, &link(10, 10));
    pair.open();
    pair.run_for(Duration::from_millis(1));
    let initial = pair.hosts[0].connection().initial_sequence();
    let report = IcmpError { tuple: TUPLE, seq: initial, kind: IcmpErrorKind::Refused };
    let now = pair.now;
    // A soft error: the peer may be reached later.
    let soft = IcmpError { kind: IcmpErrorKind::Unreachable, ..report };
    pair.hosts[0].connection().handle_icmp(now, &soft);
    assert_eq!(pair.hosts[0].state(), Some(State::SynSent));
    pair.hosts[0].connection().handle_icmp(now, &report);
    assert_eq!(pair.hosts[0].state(), Some(State::Closed));

    let mut pair = Pair::new(2, &link(10, 10));
    pair.connect();
    pair.hosts[0].send(pattern(1000, 1), false);
    pair.run_for(Duration::from_millis(1));
    let (now, seq) = (pair.now, pair.hosts[0].connection().initial_sequence() + 1);
    pair.hosts[0].connection().handle_icmp(now, &IcmpError { seq, ..report });
    assert_eq!(pair.hosts[0].state(), Some(State::Established));
}

/// Returns a report about the segment of `peer` with this number, counted from the initial one.
fn report(peer: &Peer, seq: u32, kind: IcmpErrorKind) -> IcmpError {
    IcmpError { tuple: peer.tuple, seq: Seq32::new(INITIAL) + seq, kind }
}

#[test]
fn soft_errors_are_told_once_and_forgotten_when_the_peer_answers() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.events.clear();
    peer.write(1000);
    peer.receive();
    for kind in [IcmpErrorKind::Unreachable, IcmpErrorKind::Unreachable, IcmpErrorKind::Refused] {
        peer.connection.handle_icmp(peer.now, &report(&peer, 1, kind));
        peer.sent();
    }
    // A report about data that are not outstanding is forged.
    peer.connection.handle_icmp(peer.now, &report(&peer, 5000, IcmpErrorKind::Unreachable));
    peer.sent();
    let expected = [SoftError::Unreachable, SoftError::Refused].map(Event::SoftError);
    assert_eq!((&peer.events[..], peer.connection.soft_error()), (&expected[..], Some(SoftError::Refused)));
    peer.send_ack();
    assert_eq!((peer.connection.state(), peer.connection.soft_error()), (State::Established, None));
}

#[test]
fn a_connection_that_times_out_says_whether_the_peer_could_be_reached() {
    for (kind, reason) in [
        (None, CloseReason::TimedOut),
        (Some(IcmpErrorKind::Unreachable), CloseReason::Unreachable),
        (Some(IcmpErrorKind::Refused), CloseReason::Unreachable),
    ] {
        let config = TcpConfig { timeouts_max: 6, ..TcpConfig::default() };
        let mut peer = Peer::opens(&config, offer());
        peer.events.clear();
        peer.write(1000);
        peer.sent();
        if let Some(kind) = kind {
            peer.connection.handle_icmp(peer.now, &report(&peer, 1, kind));
        }
        peer.pass(Duration::from_secs(300));
        assert_eq!(peer.connection.close_reason(), Some(reason), "{kind:?}");
        let soft = |error| peer.events.contains(&Event::SoftError(error));
        // A silent peer is reported, too (RFC 9293, section 3.8.3, R1).
        assert_eq!(soft(SoftError::Silent), kind.is_none(), "{:?}", peer.events);
    }
    // R1: three retransmissions.
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.write(1000);
    let mut told = Vec::new();
    for _ in 0..5 {
        peer.pass_until_sent(Duration::from_secs(10)).expect("a retransmission");
        told.push(peer.connection.soft_error().is_some());
    }
    assert_eq!((peer.connection.stats().send.timeouts, told), (3, vec![false, false, false, false, true]));
    // An attempt to connect ends in the same way.
    let mut peer = Peer::awaits(&TcpConfig { syn_attempts_max: 3, ..TcpConfig::default() });
    peer.sent();
    peer.connection.handle_icmp(peer.now, &report(&peer, 0, IcmpErrorKind::Unreachable));
    peer.pass(Duration::from_secs(60));
    assert_eq!(peer.connection.close_reason(), Some(CloseReason::Unreachable));
}
