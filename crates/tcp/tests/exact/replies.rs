//! Answers without a connection: resets (RFC 9293, section 3.10.7.1) and TIME-WAIT.

use tcp::{Arrival, Plan, State, TcpConfig, reply};
use units::{Duration, Seq32};
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{INITIAL, PEER_INITIAL, Peer, Segment, offer};

/// Returns the reset that answers a segment: its numbers as on the wire, and its flags.
fn reset(peer: &Peer, segment: &Segment) -> Option<(u32, u32, Flags)> {
    let mut plan = Plan::default();
    if !reply::reset(&peer.arrival(segment), &mut plan) {
        return None;
    }
    let sent = open(&plan);
    Some((sent.header.seq.get(), sent.header.ack.get(), sent.header.flags))
}

fn open(plan: &Plan) -> Arrival {
    let mut packet = tcp::SuperPacket::default();
    plan.seal(&mut packet);
    let mut arrival = None;
    packet.packets(|bytes| {
        arrival = Some(Arrival::open(&bytes::Bytes::copy_from_slice(bytes), None, false).expect("a valid segment"));
    });
    arrival.expect("a segment")
}

#[test]
fn a_segment_without_a_connection_is_reset_and_a_reset_is_not() {
    let peer = Peer::opens(&TcpConfig::default(), offer());
    let segment = peer.segment().seq(7).ack(9);
    assert_eq!(reset(&peer, &segment), Some((INITIAL + 9, 0, Flags::RST)));
    let end = PEER_INITIAL + 7 + 100;
    let cases = [(Flags::SYN, 1), (Flags::FIN, 1), (Flags::SYN | Flags::FIN, 2), (Flags::empty(), 0)];
    for (flags, more) in cases {
        let segment = segment.clone().flags(flags).len(100);
        assert_eq!(reset(&peer, &segment), Some((0, end + more, Flags::RST | Flags::ACK)), "{flags}");
    }
    for flags in [Flags::RST, Flags::RST | Flags::ACK, Flags(0x1ff)] {
        assert_eq!(reset(&peer, &segment.clone().flags(flags)), None);
    }
}

/// Returns a connection that has closed first and received the peer's FIN.
fn time_wait(options: Options) -> Peer {
    let mut peer = Peer::opens(&TcpConfig::default(), options);
    peer.connection.finish();
    peer.receive();
    peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
    peer.nxt += 1;
    peer.receive();
    assert_eq!(peer.connection.state(), State::TimeWait);
    peer
}

#[test]
fn time_wait_answers_what_is_not_the_last_acknowledgement() {
    let mut peer = time_wait(offer());
    let mut rest = peer.connection.time_wait().expect("in this state");
    let mut plan = Plan::default();
    let answers = |rest: &mut reply::TimeWait, plan: &mut Plan, peer: &Peer, segment: &Segment| {
        rest.handle_segment(peer.now, &peer.arrival(segment), plan).then(|| open(plan).header)
    };
    let until = rest.until();
    assert_eq!(until, peer.now + TcpConfig::default().time_wait);
    assert!(answers(&mut rest, &mut plan, &peer, &peer.segment()).is_none(), "an answer would be answered");
    peer.now += Duration::from_secs(5);
    for segment in [peer.segment().seq(9000), peer.segment().seq(9000).flags(Flags::SYN), peer.segment().len(5)] {
        let header = answers(&mut rest, &mut plan, &peer, &segment).expect("an answer");
        assert_eq!(
            (header.flags, header.seq, header.ack),
            (Flags::ACK, Seq32::new(INITIAL + 2), Seq32::new(PEER_INITIAL + 2))
        );
        assert_eq!(rest.until(), until, "only a repeated end prolongs it");
    }
    // A FIN that is not the peer's.
    for seq in [0, 900, 1 << 31] {
        answers(&mut rest, &mut plan, &peer, &peer.segment().seq(seq).flags(Flags::FIN | Flags::ACK));
        assert_eq!(rest.until(), until, "{seq}");
    }
    assert!(answers(&mut rest, &mut plan, &peer, &peer.segment().seq(1).flags(Flags::FIN | Flags::ACK)).is_some());
    assert_eq!(rest.until(), peer.now + TcpConfig::default().time_wait);
    for (seq, end) in [(0, rest.until()), (3, rest.until()), (2, peer.now)] {
        let reset = peer.segment().seq(seq).flags(Flags::RST);
        assert!(answers(&mut rest, &mut plan, &peer, &reset).is_none());
        assert_eq!(rest.until(), end, "{seq}: RFC 9293, section 3.10.7.4, second check");
    }
}

#[test]
fn the_connection_itself_behaves_the_same_in_time_wait() {
    let mut peer = time_wait(offer());
    let until = peer.connection.poll_timeout().expect("a timer");
    peer.now += Duration::from_secs(5);
    for seq in [0, 900, 1 << 31] {
        peer.send(peer.segment().seq(seq).flags(Flags::FIN | Flags::ACK));
        peer.sent();
        assert_eq!(peer.connection.poll_timeout(), Some(until), "{seq}");
    }
    peer.send(peer.segment().seq(1).flags(Flags::FIN | Flags::ACK));
    assert_eq!(peer.sent().len(), 1);
    assert_eq!(peer.connection.poll_timeout(), Some(peer.now + TcpConfig::default().time_wait));
}

#[test]
fn a_later_syn_may_take_the_place_of_a_connection_in_time_wait() {
    let stamp = |peer: &Peer, value: u32| peer.segment().flags(Flags::SYN).stamp(value, 0);
    let is_allowed = |peer: &Peer, segment: &Segment| {
        peer.connection.time_wait().expect("in this state").may_be_replaced(peer.now, &peer.arrival(segment))
    };
    // Without timestamps, a later number (RFC 9293, section 3.10.7.4, MAY-2).
    let peer = time_wait(offer());
    let syn = peer.segment().flags(Flags::SYN);
    assert!(is_allowed(&peer, &syn.clone().seq(5000)));
    assert!(!is_allowed(&peer, &syn.clone().seq(1)) && !is_allowed(&peer, &syn.clone().seq(u32::MAX - 5000)));
    assert!(!is_allowed(&peer, &syn.clone().seq(5000).flags(Flags::SYN | Flags::ACK)));
    assert!(!is_allowed(&peer, &syn.seq(5000).flags(Flags::ACK)));
    // With timestamps, a later timestamp, whatever the number; never an earlier one (RFC 6191,
    // section 2).
    let peer = time_wait(Options { timestamps: Some(Timestamps::default()), ..offer() });
    let value = peer.clock();
    assert!(is_allowed(&peer, &stamp(&peer, value + 1).seq(1)));
    assert!(is_allowed(&peer, &stamp(&peer, value).seq(5000)) && !is_allowed(&peer, &stamp(&peer, value).seq(1)));
    assert!(!is_allowed(&peer, &stamp(&peer, value - 1).seq(5000)));
}
