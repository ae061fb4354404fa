//! The code point of differentiated services (RFC 2474) of packets.

use bytes::Bytes;
use tcp::{Connection, Plan, SuperPacket, TcpConfig, reply};
use units::{Instant, Seq32};
use wire::ip::Packet;
use wire::tcp::Flags;

use crate::support::peer::{Peer, offer};
use crate::support::{CLIENT, SERVER};

/// Returns the code point of a plan's packets, with ECN beside it, whatever the way of writing
/// them.
fn dscp(plan: &Plan) -> u8 {
    let (mut shared, mut cut, mut all) = (SuperPacket::default(), SuperPacket::default(), Vec::new());
    plan.seal_shared(&mut shared);
    plan.seal_packets(None, &mut cut);
    for packet in [&shared, &cut] {
        packet.packets(|bytes| all.push(Packet::parse(bytes).expect("a packet").dscp));
    }
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0]
}

fn next(connection: &mut Connection, now: Instant) -> Plan {
    let mut plan = Plan::default();
    assert!(connection.poll_plan(now, 8, &mut plan));
    plan
}

#[test]
fn all_packets_have_the_code_point_that_was_set_last() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    for code_point in [0, 46, 63, 1] {
        peer.connection.set_dscp(code_point);
        peer.connection.write(&mut Bytes::from(vec![7; 2000])).expect("there is space");
        let plan = next(&mut peer.connection, peer.now);
        assert_eq!((plan.data_len() > 0, dscp(&plan)), (true, code_point));
    }
    peer.connection.abort();
    assert_eq!(dscp(&next(&mut peer.connection, peer.now)), 1, "a reset, too");
}

#[test]
fn a_syn_has_it_if_it_was_set_before() {
    let tuple = tcp::Tuple { local: CLIENT, remote: SERVER };
    for code_point in [0, 46] {
        let mut connection = Connection::connect(Instant::ZERO, TcpConfig::default(), tuple, Seq32::new(1), 2);
        connection.set_dscp(code_point);
        assert_eq!(dscp(&next(&mut connection, Instant::ZERO)), code_point);
    }
}

#[test]
fn what_answers_in_time_wait_has_it_and_a_reset_without_a_connection_has_none() {
    let mut peer = Peer::opens(&TcpConfig::default(), offer());
    peer.connection.set_dscp(46);
    peer.connection.finish();
    peer.receive();
    peer.send(peer.segment().flags(Flags::FIN | Flags::ACK));
    peer.nxt += 1;
    let mut rest = peer.connection.time_wait().expect("in this state");
    let (mut plan, segment) = (Plan::default(), peer.arrival(&peer.segment().len(5)));
    assert!(rest.handle_segment(peer.now, &segment, &mut plan));
    assert_eq!(dscp(&plan), 46);
    assert!(reply::reset(&segment, &mut plan));
    assert_eq!(dscp(&plan), 0);
}

#[test]
#[should_panic(expected = "six bits")]
fn more_than_six_bits_are_an_error_of_the_caller() {
    Peer::opens(&TcpConfig::default(), offer()).connection.set_dscp(64);
}
