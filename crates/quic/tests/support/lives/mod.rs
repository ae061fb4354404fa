//! Whole lives of connections: from the handshake to the close, under faults from the first
//! packet on. Each life turns some faults off and others far up: loss, reordering, duplicates,
//! corruption, links that fail, address changes by a NAT, migration, paths opened and abandoned,
//! sends that the system refuses, key updates, restarts of either host, and an attacker that repeats
//! and changes datagrams.
//!
//! Afterwards the links recover, and every request must be answered in full, with every byte
//! correct. Then the client closes, and nothing may be left.
//!
//! A connection may end early for a reason only: a timeout, where there is one, or a reset
//! by a server that was started again or has timed out itself. In a *strict* life neither exists, and
//! its one connection must last.
//!
//! A life is chosen by a seed alone ([`live`]), or by a script that names each operation
//! ([`live_by_script`]), which a fuzzer writes.

mod application;
mod operations;

use std::sync::Arc;

use netem::LinkConfig;
use quic::session::deterministic::DeterministicFactory;
use quic::{ConnectionError, Event, Policy, Side, Strategy, TransportConfig, Versions};
use units::{Duration, Rate, Rng};

use self::application::{Client, Request, Server};
use self::operations::Operation;
use super::seeds::{FailureContext, magnitude};
use super::stages::{Stages, Staging};
use super::{Node, Pair, Sessions, Setup};

/// The time within which all requests must be answered after the links have recovered.
const LIVENESS: Duration = Duration::from_secs(600);

/// The server's key for stateless resets, which survives its restarts.
const RESET_KEY: [u8; 32] = [9; 32];

/// How many operations a life has at most.
const STEPS_MAX: u64 = 120;

/// Datagrams that the attacker has at hand, at least; twice as many at most.
const RECORDED_MAX: usize = 100;

/// How many requests a life has at most.
const REQUESTS_MAX: usize = 25;

/// What has happened, so that a set of lives can prove that it met what it was made for.
#[derive(Debug, Default, Clone, Copy)]
pub struct Happened {
    strict: u64,
    bytes: u64,
    connections: u64,
    resets: u64,
    timeouts: u64,
    handshake_timeouts: u64,
    server_restarts: u64,
    client_restarts: u64,
    lost: u64,
    vanished: u64,
    corrupted: u64,
    reordered: u64,
    duplicated: u64,
    refused: u64,
    rebindings: u64,
    migrations: u64,
    paths: u64,
    key_updates: u64,
    probes: u64,
    forged: u64,
}

impl Happened {
    /// All numbers, to add and compare them.
    pub fn fields(&mut self) -> [&mut u64; 20] {
        [
            &mut self.strict,
            &mut self.bytes,
            &mut self.connections,
            &mut self.resets,
            &mut self.timeouts,
            &mut self.handshake_timeouts,
            &mut self.server_restarts,
            &mut self.client_restarts,
            &mut self.lost,
            &mut self.vanished,
            &mut self.corrupted,
            &mut self.reordered,
            &mut self.duplicated,
            &mut self.refused,
            &mut self.rebindings,
            &mut self.migrations,
            &mut self.paths,
            &mut self.key_updates,
            &mut self.probes,
            &mut self.forged,
        ]
    }
}

struct Life {
    rng: Rng,
    pair: Pair,
    setup: Setup,
    sessions: Sessions,
    /// What may happen in this life.
    permitted: Vec<Operation>,
    fault_most: u64,
    is_strict: bool,
    client: Client,
    /// By the server's connections, of the server that runs now.
    servers: Vec<Server>,
    /// Since the connection began, the server has been started again, or given up a connection.
    may_be_reset: bool,
    /// The client has confirmed the handshake of the connection.
    is_confirmed: bool,
    happened: Happened,
    failure_context: FailureContext,
}

fn config(rng: &mut Rng, is_strict: bool) -> TransportConfig {
    let strategies =
        [Strategy::EarliestDelivery, Strategy::RoundRobin, Strategy::LowestRtt, Strategy::Redundant { copies: 2 }];
    // The faults make some handshakes take longer than the default.
    let mut config = TransportConfig::default();
    config.idle_timeout = if is_strict { Duration::ZERO } else { Duration::from_secs(rng.between(5, 40)) };
    config.handshake_timeout = if is_strict { Duration::ZERO } else { Duration::from_secs(rng.between(3, 20)) };
    config.stream_window = 1000 + magnitude(rng, 1 << 20);
    config.stream_window_max = config.stream_window + magnitude(rng, 1 << 22);
    config.connection_window = 1000 + magnitude(rng, 1 << 21);
    config.connection_window_max = config.connection_window + magnitude(rng, 1 << 23);
    config.send_buffer_max = 1000 + magnitude(rng, 1 << 22);
    config.max_concurrent_bidi_streams = rng.between(1, 20);
    config.datagram_size = rng.between(1200, 1452) as usize;
    config.key_update_interval = if rng.below(2) == 0 { 1 << 22 } else { magnitude(rng, 300) };
    config.grease = rng.below(2) == 0;
    config.scheduler = if rng.below(2) == 0 { Strategy::default() } else { strategies[rng.below(4) as usize] };
    // Any client of these connects to any server of these.
    config.versions = [Versions::V1, Versions::PreferV1, Versions::PreferV2][rng.below(3) as usize];
    config.policy = if rng.below(2) == 0 { Policy::default() } else { Policy::ALL[rng.below(4) as usize] };
    config
}

fn link(rng: &mut Rng) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(rng.between(10, 100_000)),
        rate: (rng.below(4) > 0).then(|| Rate::from_mbps(magnitude(rng, 1000))),
        queue_bytes: rng.between(6_000, 200_000),
        reorder_by: Duration::from_micros(magnitude(rng, 80_000)),
        ..LinkConfig::default()
    }
}

fn setup(seed: u64, rng: &mut Rng, is_strict: bool) -> Setup {
    let mut setup = Setup::new(seed);
    (setup.client, setup.server) = (config(rng, is_strict), config(rng, is_strict));
    // One path that may migrate, or several.
    setup.client.max_paths = if rng.below(2) == 0 { 0 } else { rng.between(2, 4) as u32 };
    setup.server.max_paths = rng.between(2, 4) as u32;
    // Only a packet of the client shows its new address, and one that waits for a response may have
    // nothing else to send.
    setup.client.keep_alive = Some(Duration::from_millis(rng.between(300, 3000)));
    setup.links = [link(rng), link(rng)];
    setup.more_links = (0..rng.between(1, 3)).map(|_| [link(rng), link(rng)]).collect();
    setup.reset_key = (rng.below(4) > 0).then_some(RESET_KEY);
    setup.staging = Staging { detached: rng.below(2) == 0, ..Staging::default() };
    setup
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed).split("life");
        let is_strict = rng.below(3) == 0;
        let fault_most = rng.below(4) * 12;
        let mut setup = setup(seed, &mut rng, is_strict);
        let permitted = operations::permitted(is_strict, setup.client.max_paths > 0);
        let factory = |side, name| Arc::new(DeterministicFactory::new(side, rng.split(name)));
        let sessions = Sessions {
            client: factory(Side::Client, "client session"),
            server: factory(Side::Server, "server session"),
            server_name: "server".to_owned(),
        };
        setup.sessions = Some(sessions.clone());
        let text = format!(
            "life {seed}: strict {is_strict} {:?} {:?} {:?} {:?} detached {} reset key {} faults up to {fault_most} %",
            setup.client,
            setup.server,
            setup.links,
            setup.more_links,
            setup.staging.detached,
            setup.reset_key.is_some(),
        );
        let mut pair = setup.clone().build();
        pair.record = Some(Vec::new());
        pair.start();
        Self {
            rng,
            pair,
            setup,
            sessions,
            permitted,
            fault_most,
            is_strict,
            client: Client::default(),
            servers: Vec::new(),
            may_be_reset: false,
            is_confirmed: false,
            happened: Happened { strict: u64::from(is_strict), connections: 1, ..Happened::default() },
            failure_context: FailureContext(text),
        }
    }

    fn ask(&mut self) {
        if self.client.requests() < REQUESTS_MAX {
            let [up_len, down_len] = [0; 2].map(|_| magnitude(&mut self.rng, 100_000) - 1);
            self.client.ask(Request { up_len, down_len });
        }
    }

    /// Time passes in small steps, after each of which the applications read and write.
    fn run_for(&mut self, span: Duration) {
        let end = self.pair.now + span;
        while self.pair.now < end {
            self.pump();
            self.pair.flush();
            self.pair.step(end);
            self.forget_old_datagrams();
        }
        self.pump();
    }

    /// The attacker remembers little.
    fn forget_old_datagrams(&mut self) {
        let record = self.pair.record.as_mut().expect("recording");
        if record.len() > 2 * RECORDED_MAX {
            record.drain(..record.len() - RECORDED_MAX);
        }
    }

    /// Lets both applications read and write, and begins the next connection if the last has ended.
    fn pump(&mut self) {
        self.check_ends();
        let now = self.pair.now;
        let at = self.pair.client.connections.len() - 1;
        if self.pair.client.connection(at).is_established() {
            self.client.pump(self.pair.client.connection(at), now);
        }
        let node = &mut self.pair.server;
        self.servers.resize_with(node.connections.len(), Server::default);
        for (index, server) in self.servers.iter_mut().enumerate() {
            if node.connections[index].is_some() && node.connection(index).is_established() {
                server.pump(node.connection(index), now, &self.client);
            }
        }
    }

    /// Each end of a connection needs a reason.
    fn check_ends(&mut self) {
        let now = self.pair.now;
        let last = self.pair.client.connections.len() - 1;
        let mut is_over = false;
        for node in [&mut self.pair.client, &mut self.pair.server] {
            for (index, events) in node.events.iter_mut().enumerate() {
                for event in events.drain(..) {
                    self.is_confirmed |= node.side == Side::Client && event == Event::Confirmed;
                    let Event::Closed(error) = event else { continue };
                    let has_reason = match error {
                        ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut => !self.is_strict,
                        ConnectionError::Reset => node.side == Side::Client && self.may_be_reset,
                        _ => false,
                    };
                    assert!(has_reason, "{:?} at {now:?}: {error:?}", node.side);
                    is_over |= node.side == Side::Client && index == last;
                    // It sends resets for a connection that it has given up, too.
                    self.may_be_reset |= node.side == Side::Server;
                    self.happened.resets += u64::from(error == ConnectionError::Reset);
                    self.happened.timeouts += u64::from(error == ConnectionError::TimedOut);
                    self.happened.handshake_timeouts += u64::from(error == ConnectionError::HandshakeTimedOut);
                }
            }
        }
        if is_over {
            self.connect();
        }
    }

    fn connect(&mut self) {
        self.client.forget_streams();
        (self.may_be_reset, self.is_confirmed) = (false, false);
        self.pair.start();
        self.happened.connections += 1;
    }

    /// The links recover, everything is answered, and the connection is closed.
    fn finish(&mut self) {
        self.pair.heal();
        self.ask();
        let until = self.pair.now + LIVENESS;
        while !self.client.is_done() {
            assert!(self.pair.now < until, "not answered within {LIVENESS}: {}", self.describe());
            self.run_for(Duration::from_millis(20));
        }
        self.count();
        self.close();
    }

    fn close(&mut self) {
        let now = self.pair.now;
        let at = self.pair.client.connections.len() - 1;
        self.pair.client.connection(at).close(now, 0, "done");
        // Others that the server still has are those of clients that were started again.
        let most = self.setup.client.idle_timeout.max(self.setup.server.idle_timeout) * 4;
        self.pair.run_for(most.max(Duration::from_secs(60)));
        let left = |node: &Node| node.connections.iter().flatten().count();
        assert_eq!(left(&self.pair.client), 0, "{}", self.describe());
        assert_eq!(self.pair.client.endpoint.route_count(), 0);
        if !self.is_strict {
            assert_eq!(left(&self.pair.server), 0, "{}", self.describe());
            assert_eq!(self.pair.server.endpoint.route_count(), 0);
        }
    }

    fn count(&mut self) {
        let happened = &mut self.happened;
        let links = self.pair.links.iter().chain(self.pair.more_links.iter().flatten());
        for stats in links.map(netem::Link::stats) {
            happened.lost += stats.lost;
            happened.vanished += stats.vanished;
            happened.corrupted += stats.corrupted;
            happened.reordered += stats.reordered;
            happened.duplicated += stats.duplicated;
        }
        for node in [&mut self.pair.client, &mut self.pair.server] {
            happened.refused += node.refused;
            for connection in node.connections.iter().flatten() {
                let send = connection.stats().send;
                happened.key_updates += send.key_updates;
                happened.probes += send.probe_timeouts;
                let last = connection.path_stats().last().map_or(0, |path| u64::from(path.id.0));
                happened.paths += if node.side == Side::Client { last } else { 0 };
            }
        }
        happened.bytes += self.client.bytes_read + self.servers.iter().map(|server| server.bytes_read).sum::<u64>();
    }

    fn describe(&mut self) -> String {
        let sides = [&self.pair.client, &self.pair.server].map(|node| {
            let connections = node.connections.iter().flatten();
            connections.map(|connection| (connection.stats(), connection.path_stats())).collect::<Vec<_>>()
        });
        format!("at {:?}: {:?} {sides:#?}", self.pair.now, self.client)
    }

    fn restarted_node(&mut self, side: Side, number: u64) -> Node {
        let rng = Rng::from_seed(self.setup.seed).split(&format!("{side:?} {number}"));
        let mut node = match side {
            Side::Client => Node::new(side, self.setup.client.clone(), &rng, None),
            Side::Server => {
                let sessions = Some(self.sessions.server.clone());
                Node::with_reset_key(side, self.setup.server.clone(), &rng, sessions, self.setup.reset_key)
            }
        };
        node.stages = Stages::new(self.setup.staging.clone(), rng.split("stages"));
        node
    }
}

/// A life in which everything follows from the seed. Some operations never happen in it, others are
/// frequent.
///
/// # Panics
/// If it does not end well.
pub fn live(seed: u64) -> Happened {
    let mut life = Life::new(seed);
    let weights = operations::weights(&mut life.rng, &life.permitted);
    life.failure_context.0.push_str(&format!(" {weights:?}"));
    life.ask();
    let steps = life.rng.between(5, STEPS_MAX);
    for _ in 0..steps {
        let operation = operations::choose(&mut life.rng, &weights);
        life.act(operation);
    }
    life.finish();
    life.happened
}

/// A life whose operations a script names: four bytes of a seed for all else, then for each operation
/// a byte that chooses it, and two of a seed for its details.
///
/// # Panics
/// If it does not end well.
pub fn live_by_script(script: &[u8]) -> Happened {
    let Some((seed, operations)) = script.split_first_chunk() else { return Happened::default() };
    let mut life = Life::new(u64::from(u32::from_be_bytes(*seed)));
    life.ask();
    for [which, details @ ..] in operations.as_chunks::<3>().0.iter().take(STEPS_MAX as usize) {
        life.rng = Rng::from_seed(u64::from(u16::from_be_bytes(*details)));
        life.act(life.permitted[usize::from(*which) % life.permitted.len()]);
    }
    life.finish();
    life.happened
}
