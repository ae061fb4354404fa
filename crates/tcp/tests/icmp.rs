//! Reports of routers.

use std::cell::RefCell;
use std::rc::Rc;

use tcp::{IcmpError, IcmpErrorKind, State, Tuple};
use units::{Duration, Seq32};

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
    // A tiny size is not believed.
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
