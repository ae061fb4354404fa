//! Two endpoints, a model link in each direction, and a virtual clock, in lock-step.
//!
//! ```text
//!   client ──▶ links[0] ──▶ server          ──▶ more_links[i][0] ──▶
//!          ◀── links[1] ◀──                 ◀── more_links[i][1] ◀──
//! ```
//!
//! With more links, both hosts have one socket for each: link `i` runs between socket `i` of the
//! client and of the server.
//!
//! Everything follows from one seed. Each test proves by the link's own counters that its fault
//! occurred.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of the harness")]

pub mod apps;
pub mod datagram;
pub mod hostile;
pub mod injection;
pub mod journals;
mod links;
pub mod lives;
pub mod seeds;
pub mod spins;
pub mod stages;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use netem::{Link, LinkConfig};
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{
    Addresses, BeginError, Connection, ConnectionKey, Endpoint, Event, Plan, Route, SecretSource, Side, TransportConfig,
};
use units::{Duration, Ecn, Instant, Ratio, Rng};

use self::datagram::Datagram;
use self::journals::Checked;
use self::spins::Spins;
use self::stages::{Arrival, Stages, Staging};

/// The client's address.
pub const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 1000);
/// The server's address.
pub const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 2000);

/// The client's address on link `link`.
pub const fn client_on(link: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, link as u8, 1)), CLIENT.port())
}

/// The server's address on link `link`.
pub const fn server_on(link: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, link as u8, 2)), SERVER.port())
}

/// Datagrams a plan may hold in the harness.
const BATCH: usize = 16;

/// Plans that a connection makes at one moment, at most: far more than any window allows.
const ROUNDS_MAX: usize = 100_000;

/// Refused plans of one connection at one moment, at most.
const REFUSALS_MAX: u32 = 200;

/// Called for each datagram before it enters a link; false drops it.
pub type Tap = Box<dyn FnMut(Instant, &[u8]) -> bool>;

/// What a network makes of an ECN codepoint.
pub type CodepointChange = fn(Option<Ecn>) -> Option<Ecn>;

/// The session factories of both sides.
#[derive(Clone)]
pub struct Sessions {
    pub client: Arc<dyn SessionFactory>,
    pub server: Arc<dyn SessionFactory>,
    /// The ALPN protocols or names that the client requests.
    pub server_name: String,
}

/// One host: an endpoint and its connections.
pub struct Node {
    pub side: Side,
    pub endpoint: Endpoint,
    pub connections: Vec<Option<Connection>>,
    pub events: Vec<VecDeque<Event>>,
    plan: Plan,
    sealed: Vec<u8>,
    /// Datagrams to send and their destinations, from the endpoint or from connections.
    pub outbox: Vec<(Addresses, Datagram)>,
    /// Sockets that are full.
    pub full: Vec<u16>,
    /// Share of plans that the system refuses to send, on one socket or on all.
    pub refuse: Ratio,
    pub refuse_only: Option<u16>,
    /// How many plans the system refused.
    pub refused: u64,
    refuse_rng: Rng,
    /// The executor of sealing and opening.
    pub stages: Stages,
    /// Dropped after the connections, whose journals are complete then.
    _checked: Checked,
}

impl Node {
    /// A host; one with `sessions` accepts connections.
    pub fn new(side: Side, config: TransportConfig, rng: &Rng, sessions: Option<Arc<dyn SessionFactory>>) -> Self {
        Self::with_secrets(side, config, rng, sessions, |secrets| secrets)
    }

    /// As [`new`](Self::new); one with a reset key sends stateless resets.
    pub fn with_reset_key(
        side: Side,
        config: TransportConfig,
        rng: &Rng,
        sessions: Option<Arc<dyn SessionFactory>>,
        reset_key: Option<[u8; 32]>,
    ) -> Self {
        Self::with_secrets(side, config, rng, sessions, |secrets| match &reset_key {
            Some(key) => secrets.with_reset_key(key),
            None => secrets,
        })
    }

    /// As [`new`](Self::new), with other keys than those of a plain endpoint.
    pub fn with_secrets(
        side: Side,
        mut config: TransportConfig,
        rng: &Rng,
        sessions: Option<Arc<dyn SessionFactory>>,
        with_secrets: impl FnOnce(SecretSource) -> SecretSource,
    ) -> Self {
        let mut key = [0; 32];
        let checked = Checked::by_environment();
        config.journal = config.journal.or_else(|| checked.source());
        rng.split("secrets").fill(&mut key);
        let secrets = with_secrets(SecretSource::new(&key));
        let endpoint = Endpoint::new(config, sessions, secrets).expect("the test's configuration is valid");
        Self {
            side,
            endpoint,
            connections: Vec::new(),
            events: Vec::new(),
            plan: Plan::new(),
            sealed: Vec::new(),
            outbox: Vec::new(),
            full: Vec::new(),
            refuse: Ratio::ZERO,
            refuse_only: None,
            refused: 0,
            refuse_rng: rng.split("refuse"),
            stages: Stages::new(Staging::default(), rng.split("stages")),
            _checked: checked,
        }
    }

    /// Adopts a connection.
    pub fn add(&mut self, connection: Connection) -> usize {
        self.connections.push(Some(connection));
        self.events.push(VecDeque::new());
        self.connections.len() - 1
    }

    /// A datagram arrives at the first socket.
    pub fn receive(&mut self, now: Instant, datagram: &[u8], remote: SocketAddr) {
        self.receive_on(now, datagram, None, Addresses::of(remote));
    }

    /// A datagram arrives with an ECN codepoint.
    pub fn receive_on(&mut self, now: Instant, datagram: &[u8], ecn: Option<Ecn>, addresses: Addresses) {
        let arrival = Arrival::new(datagram, ecn, addresses);
        if let Some(arrival) = self.stages.keep(now, arrival) {
            self.deliver(now, arrival);
        }
    }

    /// Passes on what the stages have kept, and absorbs what they have done.
    pub fn take_in(&mut self, now: Instant) {
        for arrival in self.stages.take_arrivals(now) {
            self.deliver(now, arrival);
        }
        self.stages.absorb(now, &mut self.connections);
    }

    /// Datagrams that arrived together are passed to their connection, or begin one.
    fn deliver(&mut self, now: Instant, arrival: Arrival) {
        match self.endpoint.route(&arrival.data) {
            Route::Known(key) => {
                let index = key.0 as usize;
                let connection = self.connections[index].as_ref();
                if connection.is_some_and(|connection| self.stages.is_next_alone(connection, &arrival.addresses)) {
                    self.stages.absorb(now, &mut self.connections);
                }
                if let Some(connection) = &mut self.connections[index]
                    && self.stages.begin(now, index, connection, arrival)
                {
                    self.stages.absorb(now, &mut self.connections);
                }
            }
            Route::First => {
                let accepted = self.endpoint.accept(now, arrival.addresses, arrival.data, arrival.meta.ecn, false);
                match accepted.map_err(BeginError::into_answer) {
                    Ok(connection) => {
                        let index = self.add(connection);
                        self.apply_routes(index);
                    }
                    Err(Some(answer)) => self.outbox.push((arrival.addresses, answer.into())),
                    Err(None) => {}
                }
            }
            Route::UnknownVersion => {
                let mut answer = Vec::new();
                if self.endpoint.version_negotiation(&arrival.data, &mut answer) {
                    self.outbox.push((arrival.addresses, answer.into()));
                }
            }
            Route::Forgotten => {
                let mut reset = Vec::new();
                if self.endpoint.stateless_reset(now, &arrival.data, &mut reset) {
                    self.outbox.push((arrival.addresses, reset.into()));
                }
            }
            Route::Unknown => {}
        }
    }

    fn apply_routes(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else { return };
        while let Some(change) = connection.poll_route() {
            self.endpoint.apply(ConnectionKey(index as u32), change);
        }
    }

    /// Sends everything the connections have due.
    pub fn flush(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            self.apply_routes(index);
            let Some(connection) = &mut self.connections[index] else { continue };
            let (mut rounds, mut refusals) = (0, 0);
            let full = &self.full;
            while connection.poll_plan_where(
                now,
                &|socket| if full.contains(&socket) { 0 } else { BATCH },
                &mut self.plan,
            ) {
                rounds += 1;
                assert!(rounds < ROUNDS_MAX, "a connection never runs out of plans: {:?}", connection.stats());
                self.stages.exchange(now, index, connection);
                self.stages.note_planned(index, connection);
                self.stages.seal(&mut self.plan, &mut self.sealed);
                assert_eq!(self.sealed.len(), self.plan.size_bytes(), "a plan states its size");
                let socket = self.plan.addresses.map(|addresses| addresses.socket);
                let is_refusing = self.refuse_only.is_none_or(|only| socket == Some(only));
                if is_refusing && self.refuse_rng.chance(self.refuse) {
                    connection.handle_not_emitted(&self.plan.receipt());
                    if self.refuse_only.is_some() {
                        connection.handle_refused(now, self.plan.path);
                    }
                    self.refused += 1;
                    refusals += 1;
                    // A driver tries again when the system may accept datagrams; here, at the next
                    // step at the latest.
                    if refusals == REFUSALS_MAX {
                        break;
                    }
                    continue;
                }
                connection.handle_emitted(now, &self.plan.receipt());
                self.stages.exchange(now, index, connection);
                let datagrams = self.sealed.chunks(self.plan.segment_size);
                let addresses = self.plan.addresses.expect("a plan has a destination");
                let ecn = self.plan.ecn;
                self.outbox.extend(datagrams.map(|datagram| (addresses, Datagram { bytes: datagram.to_vec(), ecn })));
            }
            while let Some(event) = connection.poll_event().or_else(|| self.stages.poll_event(index)) {
                self.events[index].push_back(event);
            }
            if connection.is_closed() {
                self.stages.attach(index, connection);
                self.apply_routes(index);
                self.connections[index] = None;
            }
        }
    }

    /// When [`Node::handle_timeouts`] must run.
    pub fn timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten().filter_map(Connection::poll_timeout);
        connections.chain(self.stages.timeout()).min()
    }

    /// Runs the timers that are due.
    pub fn handle_timeouts(&mut self, now: Instant) {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
                self.stages.exchange(now, index, connection);
            }
        }
    }

    /// Connection number `index`, with its receive half attached.
    pub fn connection(&mut self, index: usize) -> &mut Connection {
        let connection = self.connections[index].as_mut().expect("the connection is alive");
        self.stages.attach(index, connection);
        connection
    }

    /// True if connection `index` has reported this event, which is removed then.
    pub fn take_event(&mut self, index: usize, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let position = self.events.get(index)?.iter().position(wanted)?;
        self.events[index].remove(position)
    }
}

/// The configuration of a pair.
#[derive(Clone)]
pub struct Setup {
    pub seed: u64,
    pub client: TransportConfig,
    pub server: TransportConfig,
    pub links: [LinkConfig; 2],
    /// In addition to the first link.
    pub more_links: Vec<[LinkConfig; 2]>,
    /// Deterministic sessions from the seed if `None`.
    pub sessions: Option<Sessions>,
    /// The executor of sealing and opening at both hosts.
    pub staging: Staging,
    /// With which the server resets connections that it has forgotten.
    pub reset_key: Option<[u8; 32]>,
}

impl Setup {
    /// A link of 100 Mb/s and 10 ms in each direction, without faults.
    pub fn new(seed: u64) -> Self {
        let link = LinkConfig {
            rate: Some(units::Rate::from_mbps(100)),
            delay: Duration::from_millis(10),
            queue_bytes: 256 * 1024,
            ..LinkConfig::default()
        };
        Self {
            seed,
            // Links with much loss take longer than the default for a handshake.
            client: TransportConfig::default().with_handshake_timeout(Duration::ZERO),
            server: TransportConfig::default().with_handshake_timeout(Duration::ZERO),
            links: [link.clone(), link],
            more_links: Vec::new(),
            sessions: None,
            staging: Staging::default(),
            reset_key: None,
        }
    }

    /// Uses other sessions than the deterministic ones.
    pub fn with_sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Changes both directions of the link.
    pub fn with_links(mut self, change: impl Fn(&mut LinkConfig)) -> Self {
        self.links.iter_mut().for_each(change);
        self
    }

    /// Uses these links, the same in both directions, and as many paths.
    pub fn over(mut self, links: &[LinkConfig]) -> Self {
        self.links = [links[0].clone(), links[0].clone()];
        self.more_links = links[1..].iter().map(|link| [link.clone(), link.clone()]).collect();
        self.with_config(|config| config.max_paths = links.len() as u32)
    }

    /// Changes both sides' configuration.
    pub fn with_config(mut self, change: impl Fn(&mut TransportConfig)) -> Self {
        change(&mut self.client);
        change(&mut self.server);
        self
    }

    /// Loses this percentage of packets in each direction.
    pub fn with_loss(self, percent: u64) -> Self {
        self.with_links(|link| link.loss = Ratio::new(percent, 100))
    }

    pub fn build(self) -> Pair {
        Pair::new(self)
    }
}

/// The pair.
pub struct Pair {
    pub now: Instant,
    pub seed: u64,
    pub client: Node,
    pub server: Node,
    pub links: [Link<Datagram>; 2],
    pub more_links: Vec<[Link<Datagram>; 2]>,
    /// Changes the ECN codepoint of every datagram on a link.
    pub codepoint_changes: [Option<CodepointChange>; 2],
    /// Whether a link, by its number, drops datagrams with a codepoint. They count as tapped.
    pub drops_codepoints: fn(u16) -> bool,
    sessions: Sessions,
    /// Every datagram that was sent, with its direction, if recording is on.
    pub record: Option<Vec<(Instant, usize, Vec<u8>)>>,
    /// Drops chosen datagrams, by direction, and counts them.
    pub taps: [Option<Tap>; 2],
    pub tapped: [u64; 2],
    /// Datagrams that the server sent to addresses that are not the client's.
    pub misaddressed: Vec<(SocketAddr, Vec<u8>)>,
    /// The address under which the server sees a socket of the client, where a NAT changed it.
    mappings: BTreeMap<u16, SocketAddr>,
    spins: Spins,
}

impl Pair {
    pub fn new(setup: Setup) -> Self {
        let root = Rng::from_seed(setup.seed);
        let [forward, backward] = setup.links;
        let sessions = setup.sessions.unwrap_or_else(|| Sessions {
            client: Arc::new(DeterministicFactory::new(Side::Client, root.split("client session"))),
            server: Arc::new(DeterministicFactory::new(Side::Server, root.split("server session"))),
            server_name: "server".to_owned(),
        });
        let listening = Some(sessions.server.clone());
        let mut pair = Self {
            now: Instant::ZERO,
            seed: setup.seed,
            client: Node::new(Side::Client, setup.client, &root.split("client"), None),
            server: Node::with_reset_key(Side::Server, setup.server, &root.split("server"), listening, setup.reset_key),
            links: [Link::new(forward, root.split("forward")), Link::new(backward, root.split("backward"))],
            more_links: (1..)
                .zip(setup.more_links)
                .map(|(index, [forward, backward])| {
                    let rng = root.split(&format!("link {index}"));
                    [Link::new(forward, rng.split("forward")), Link::new(backward, rng.split("backward"))]
                })
                .collect(),
            sessions,
            codepoint_changes: [None; 2],
            drops_codepoints: |_| false,
            record: None,
            taps: [None, None],
            tapped: [0; 2],
            misaddressed: Vec::new(),
            mappings: BTreeMap::new(),
            spins: Spins::default(),
        };
        for node in [&mut pair.client, &mut pair.server] {
            node.stages = Stages::new(setup.staging.clone(), root.split("stages"));
        }
        pair
    }

    /// Starts a connection; returns its number at the client.
    pub fn start(&mut self) -> usize {
        let (factory, name) = (self.sessions.client.as_ref(), &self.sessions.server_name);
        let connection =
            self.client.endpoint.connect(self.now, factory, name, Addresses::of(SERVER)).expect("sessions start");
        self.client.add(connection)
    }

    /// Starts the first connection and runs until both sides have confirmed the handshake.
    pub fn connect(&mut self) {
        self.start();
        let seed = self.seed;
        let confirmed = |node: &mut Node| node.take_event(0, |event| *event == Event::Confirmed).is_some();
        let (mut client_done, mut server_done) = (false, false);
        let done = self.run_until(Duration::from_secs(120), |pair| {
            client_done = client_done || confirmed(&mut pair.client);
            server_done = server_done || confirmed(&mut pair.server);
            client_done && server_done
        });
        assert!(done, "seed {seed}: no handshake: {:?} {:?}", self.client.events, self.server.events);
    }

    /// Opens a path over each link except the first, which has one.
    pub fn open_paths(&mut self) {
        for socket in 1..=self.more_links.len() as u16 {
            let addresses = Addresses { socket, ..Addresses::of(server_on(socket)) };
            let opened = self.client.connection(0).open_path(self.now, addresses, false);
            assert_eq!(opened, Ok(()), "path {socket}");
        }
    }

    /// Sends, then advances to the next event; false if there is none before `limit`.
    pub fn step(&mut self, limit: Instant) -> bool {
        self.flush();
        let links = self.links.iter().chain(self.more_links.iter().flatten()).map(Link::poll_timeout);
        let next = links.chain([self.client.timeout(), self.server.timeout()]);
        let Some(next) = next.flatten().min().filter(|next| *next <= limit) else {
            self.now = limit;
            return false;
        };
        if self.spins.are_too_many(self.now, next) {
            let who = [&self.client, &self.server].map(|node| {
                let connections = node.connections.iter().flatten();
                let paths: Vec<_> = connections.map(|connection| connection.path_stats()).collect();
                format!("due at {:?}, full sockets {:?}, {paths:?}", node.timeout(), node.full)
            });
            panic!("seed {}: a timer fires repeatedly at {:?}: {who:#?}", self.seed, self.now);
        }
        self.now = self.now.max(next);
        let seen_as = self.seen_as(0);
        while let Some(datagram) = self.links[0].poll_deliver(self.now) {
            self.server.receive_on(self.now, &datagram, datagram.ecn, Addresses::of(seen_as));
        }
        while let Some(datagram) = self.links[1].poll_deliver(self.now) {
            self.client.receive_on(self.now, &datagram, datagram.ecn, Addresses::of(SERVER));
        }
        for (socket, [forward, backward]) in (1..).zip(&mut self.more_links) {
            let at = |remote| Addresses { socket, ..Addresses::of(remote) };
            while let Some(datagram) = forward.poll_deliver(self.now) {
                let seen_as = self.mappings.get(&socket).copied().unwrap_or(client_on(socket));
                self.server.receive_on(self.now, &datagram, datagram.ecn, at(seen_as));
            }
            while let Some(datagram) = backward.poll_deliver(self.now) {
                self.client.receive_on(self.now, &datagram, datagram.ecn, at(server_on(socket)));
            }
        }
        self.client.take_in(self.now);
        self.server.take_in(self.now);
        self.client.handle_timeouts(self.now);
        self.server.handle_timeouts(self.now);
        true
    }

    /// Lets both sides send.
    pub fn flush(&mut self) {
        for direction in 0..2 {
            let node = if direction == 0 { &mut self.client } else { &mut self.server };
            node.flush(self.now);
            for (addresses, mut datagram) in std::mem::take(&mut node.outbox) {
                if let Some(change) = self.codepoint_changes[direction] {
                    datagram.ecn = change(datagram.ecn);
                }
                if datagram.ecn.is_some() && (self.drops_codepoints)(addresses.socket) {
                    self.tapped[direction] += 1;
                    continue;
                }
                let Addresses { remote, socket, .. } = addresses;
                let own = if socket == 0 { CLIENT } else { client_on(socket) };
                let seen_as = self.mappings.get(&socket).copied().unwrap_or(own);
                if socket > 0 {
                    if direction == 1 && remote != seen_as && self.mappings.contains_key(&socket) {
                        self.misaddressed.push((remote, datagram.bytes));
                        continue;
                    }
                    assert_eq!(remote, [server_on(socket), seen_as][direction], "a socket has one link");
                    if let Some(record) = &mut self.record {
                        record.push((self.now, direction, datagram.bytes.clone()));
                    }
                    self.more_links[usize::from(socket) - 1][direction].send(self.now, datagram);
                    continue;
                }
                if remote != [SERVER, seen_as][direction] {
                    self.misaddressed.push((remote, datagram.bytes));
                    continue;
                }
                if let Some(tap) = &mut self.taps[direction]
                    && !tap(self.now, &datagram)
                {
                    self.tapped[direction] += 1;
                    continue;
                }
                if let Some(record) = &mut self.record {
                    record.push((self.now, direction, datagram.bytes.clone()));
                }
                self.links[direction].send(self.now, datagram);
            }
        }
    }

    /// Runs until `done`, for at most `limit` of virtual time; false if that was not enough.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            self.flush();
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
    }

    /// Runs for `span`.
    pub fn run_for(&mut self, span: Duration) {
        let limit = self.now + span;
        while self.step(limit) {}
    }
}
