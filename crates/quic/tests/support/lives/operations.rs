//! What happens to a connection in its life.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netem::{LineState, LinkConfig};
use quic::{Addresses, PathId, PathState, Side};
use units::{Duration, Ratio, Rng};

use super::super::seeds::magnitude;
use super::super::{CLIENT, Node, SERVER, server_on};
use super::Life;

/// The address of the attacker.
const ATTACKER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 666);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Ask,
    Step,
    Jump,
    Faults,
    Cut,
    Restore,
    /// The system refuses to send at one of the hosts.
    Refuse,
    /// A NAT gives a socket of the client another address.
    Rebind,
    /// The client moves its only path.
    Migrate,
    OpenPath,
    AbandonPath,
    RestartServer,
    RestartClient,
    /// An attacker on the path repeats a datagram, perhaps changed.
    Forge,
}

const ALL: [Operation; 14] = [
    Operation::Ask,
    Operation::Step,
    Operation::Jump,
    Operation::Faults,
    Operation::Cut,
    Operation::Restore,
    Operation::Refuse,
    Operation::Rebind,
    Operation::Migrate,
    Operation::OpenPath,
    Operation::AbandonPath,
    Operation::RestartServer,
    Operation::RestartClient,
    Operation::Forge,
];

/// The operations of a life: a strict one has no restarts, and one path migrates while several are
/// opened and abandoned.
pub(super) fn permitted(is_strict: bool, has_paths: bool) -> Vec<Operation> {
    let is_permitted = |operation: &Operation| match operation {
        Operation::RestartServer | Operation::RestartClient => !is_strict,
        Operation::Migrate => !has_paths,
        Operation::OpenPath | Operation::AbandonPath => has_paths,
        _ => true,
    };
    ALL.into_iter().filter(is_permitted).collect()
}

/// Gives some operations a weight.
pub(super) fn weights(rng: &mut Rng, permitted: &[Operation]) -> Vec<(Operation, u64)> {
    let mut weights = Vec::new();
    for operation in permitted {
        let is_needed = matches!(operation, Operation::Ask | Operation::Step);
        let is_restart = matches!(operation, Operation::RestartServer | Operation::RestartClient);
        if is_needed || rng.below(2) == 0 {
            weights.push((*operation, magnitude(rng, if is_restart { 4 } else { 30 })));
        }
    }
    weights
}

/// Chooses one by the weights.
pub(super) fn choose(rng: &mut Rng, weights: &[(Operation, u64)]) -> Operation {
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let mut at = rng.below(total);
    let chosen = weights.iter().find(|(_, weight)| match at.checked_sub(*weight) {
        Some(left) => {
            at = left;
            false
        }
        None => true,
    });
    chosen.expect("the weights sum up to the total").0
}

impl Life {
    /// Does one thing.
    pub(super) fn act(&mut self, operation: Operation) {
        self.apply(operation);
        self.run_for(Duration::from_micros(1));
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Ask => self.ask(),
            Operation::Step => {
                let span = magnitude(&mut self.rng, 500_000);
                self.run_for(Duration::from_micros(span));
            }
            Operation::Jump => {
                let span = magnitude(&mut self.rng, 8_000);
                self.run_for(Duration::from_millis(span));
            }
            Operation::Faults => self.change_faults(),
            Operation::Cut | Operation::Restore => self.change_state(operation == Operation::Restore),
            Operation::Refuse => {
                let (refuse, is_client) = (self.ratio(), self.rng.below(2) == 0);
                let node: &mut Node = if is_client { &mut self.pair.client } else { &mut self.pair.server };
                node.refuse = refuse;
            }
            // During the handshake the client's address must not change (RFC 9000, section 9): only a
            // timeout ends such a connection.
            Operation::Rebind if self.is_strict && !self.is_confirmed => {}
            Operation::Rebind => {
                let (socket, port) = (self.pick_socket(), self.rng.between(1024, 65_535) as u16);
                let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, self.rng.below(2) as u8));
                self.pair.remap(socket, SocketAddr::new(ip, port));
                self.happened.rebindings += 1;
            }
            Operation::Migrate | Operation::OpenPath | Operation::AbandonPath => self.change_paths(operation),
            Operation::RestartServer => {
                self.happened.server_restarts += 1;
                self.may_be_reset = true;
                self.servers.clear();
                self.pair.server = self.restarted_node(Side::Server, self.happened.server_restarts);
            }
            Operation::RestartClient => {
                self.happened.client_restarts += 1;
                self.pair.client = self.restarted_node(Side::Client, self.happened.client_restarts);
                self.connect();
            }
            // Before that, an attacker that sees the packets can end the handshake: it knows their keys
            // (RFC 9000, section 21.2).
            Operation::Forge if !self.is_confirmed => {}
            Operation::Forge => self.forge(),
        }
    }

    /// Some recorded datagrams arrive once more at either host, from where they came or from the
    /// attacker's address.
    fn forge(&mut self) {
        let recorded = self.pair.record.as_ref().expect("recording").len();
        for _ in 0..self.rng.between(1, 8).min(recorded as u64) {
            let record = self.pair.record.as_ref().expect("recording");
            let mut datagram = record[self.rng.below(recorded as u64) as usize].2.clone();
            for _ in 0..self.rng.below(4) {
                let at = self.rng.below(datagram.len() as u64) as usize;
                datagram[at] ^= 1 << self.rng.below(8);
            }
            if self.rng.below(8) == 0 {
                datagram.truncate(1 + self.rng.below(datagram.len() as u64) as usize);
            }
            let (now, is_own) = (self.pair.now, self.rng.below(2) == 0);
            if self.rng.below(2) == 0 {
                let from = if is_own { ATTACKER } else { CLIENT };
                self.pair.server.receive(now, &datagram, from);
            } else {
                self.pair.client.receive(now, &datagram, if is_own { ATTACKER } else { SERVER });
            }
            self.happened.forged += 1;
        }
    }

    fn ratio(&mut self) -> Ratio {
        let most = self.fault_most;
        if most == 0 || self.rng.below(2) == 0 { Ratio::ZERO } else { Ratio::new(self.rng.between(1, most), 100) }
    }

    fn pick_socket(&mut self) -> u16 {
        self.rng.below(1 + self.pair.more_links.len() as u64) as u16
    }

    fn change_faults(&mut self) {
        let link = usize::from(self.pick_socket());
        for direction in 0..2 {
            let mut config = self.pair.link_pair(link)[direction].config().clone();
            config.loss = self.ratio();
            config.duplicate = self.ratio();
            config.corrupt = self.ratio();
            config.reorder = self.ratio();
            config.delay = Duration::from_micros(self.rng.between(10, 100_000));
            let now = self.pair.now;
            self.pair.link_pair(link)[direction].set_config(now, config);
        }
    }

    fn change_state(&mut self, restores: bool) {
        let (link, direction) = (usize::from(self.pick_socket()), self.rng.below(2) as usize);
        let broken = [LineState::Silent, LineState::Silent, LineState::Held][self.rng.below(3) as usize];
        let state = if restores { LineState::Up } else { broken };
        let now = self.pair.now;
        let link = &mut self.pair.link_pair(link)[direction];
        link.set_config(now, LinkConfig { state, ..link.config().clone() });
    }

    /// Calls that the connection may refuse: it does not matter here.
    fn change_paths(&mut self, operation: Operation) {
        let (now, socket) = (self.pair.now, self.pick_socket());
        let remote = if socket == 0 { SERVER } else { server_on(socket) };
        let addresses = Addresses { socket, ..Addresses::of(remote) };
        let at = self.pair.client.connections.len() - 1;
        let connection = self.pair.client.connection(at);
        match operation {
            Operation::Migrate => {
                let is_begun = connection.is_established() && connection.migrate(now, addresses).is_ok();
                self.happened.migrations += u64::from(is_begun);
            }
            Operation::OpenPath => drop(connection.open_path(now, addresses, self.rng.below(4) == 0)),
            _ => {
                // Only one of several that work: a connection without a path ends.
                let stats = connection.path_stats();
                let open = stats.iter().filter(|path| matches!(path.state, PathState::Active | PathState::Silent));
                let open: Vec<PathId> = open.map(|path| path.id).collect();
                if open.len() > 1 {
                    let path = open[self.rng.below(open.len() as u64) as usize];
                    connection.abandon_path(now, path, 0);
                }
            }
        }
    }
}
