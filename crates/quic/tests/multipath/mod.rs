//! Connections over several model links, one subject per file (draft-ietf-quic-multipath-21).

mod capacity;
mod classes;
mod datagrams;
mod failover;
mod flow;
mod idle_paths;
mod links;
mod migration;
mod negotiation;
mod paths;
mod policies;
mod regressions;
mod validation;

use quic::{Addresses, PathId, PathState, Side};

use crate::support::hostile::{HostilePair, payload};
use crate::support::{Pair, server_on};
use flow::node;

fn state(pair: &mut Pair, side: Side, path: u32) -> Option<PathState> {
    let stats = node(pair, side).connection(0).path_stats();
    stats.iter().find(|stats| stats.id == PathId(path)).map(|stats| stats.state)
}

fn open_on(pair: &mut Pair, socket: u16, is_backup: bool) {
    let addresses = Addresses { socket, ..Addresses::of(server_on(socket)) };
    let opened = pair.client.connection(0).open_path(pair.now, addresses, is_backup);
    assert_eq!(opened, Ok(()), "socket {socket}");
}

/// A server that has issued and received an ID for path 1.
fn server_with_path() -> HostilePair {
    let mut hostile_pair = HostilePair::against_multipath_server(2, 1);
    let issued = [hostile_pair.hostile.issue(1, 0)];
    hostile_pair.send_and_ack(&payload(&issued));
    hostile_pair
}
