//! A peer that violates the protocol: the connection closes with the code that RFC 9000 names, or
//! continues. It never panics, and the memory the peer can make it hold is bounded.

mod conformance;
mod early;
mod floods;
mod frames;
mod handshake_deadline;
mod handshake_rules;
mod injection;
mod migration;
mod multipath;
mod packet_rules;
mod packets;
mod parameters;
mod path_rules;
mod path_timers;
mod probing;
mod recovery_rules;
mod stream_rules;

use quic::{ConnectionId, TransportConfig};
use wire::quic::{Frame, Space, TransportParameters};

use crate::support::hostile::{Hostile, HostilePair, OpenedPacket, client_parameters, encode, payload};

fn id(byte: u8) -> ConnectionId {
    ConnectionId::new(&[byte; 8]).expect("eight bytes")
}

/// The frames that have arrived from the victim.
fn frames(pair: &HostilePair) -> impl Iterator<Item = Frame<'_>> {
    pair.hostile.opened.iter().flat_map(OpenedPacket::frames)
}

/// A server between a client's first and second flight; the client is still to send the latter.
fn in_the_middle_of_the_handshake() -> HostilePair {
    let mut pair = HostilePair::with_server(TransportConfig::default(), Hostile::ordinary_client(7));
    pair.hostile = Hostile::ordinary_client(8);
    let hello = pair.hostile.flight();
    hello.iter().for_each(|datagram| pair.deliver(datagram));
    pair
}

/// An ordinary server for a client whose first datagram this is.
fn server_for(first: &[u8]) -> Hostile {
    Hostile::server(7, first, |id, original| {
        let original_destination_connection_id = Some(original);
        encode(&TransportParameters { original_destination_connection_id, ..client_parameters(id) })
    })
}

/// Packets that the victim's newest connection has received.
fn received(pair: &mut HostilePair) -> u64 {
    let index = pair.victim.connections.len() - 1;
    pair.victim.connection(index).stats().receive.packets_received
}

fn ping() -> Vec<u8> {
    payload(&[Frame::Ping, Frame::Padding { len: 20 }])
}

/// Whether an acknowledgement of this number has arrived in a packet of this space.
fn is_acknowledged(pair: &HostilePair, space: Space, number: u64) -> bool {
    let packets = pair.hostile.opened.iter().filter(|packet| packet.space == space);
    packets.flat_map(OpenedPacket::frames).any(|frame| match frame {
        Frame::Ack(ack) => ack.ranges().any(|range| range.contains(&number)),
        _ => false,
    })
}
