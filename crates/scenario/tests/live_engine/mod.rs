//! A live run in virtual time: engines with their drivers, cells and handles, over sockets in memory, with applications that use
//! handles. Links are models, and time is what the run says.
//!
//! ```text
//!   App ─ Desk ─ handles ─ Engine, Steps ─ sockets ─ network of a ─ relay ══ Link ══ relay ─ network of b ─ sockets ─ Engine …
//! ```
//!
//! Nothing here is of the worlds that it is compared with, but the applications and the seeds.

mod alias;
mod card;
pub(crate) mod streams;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use alias::Alias;
use card::Card;
use engine::{
    ConnectOptions, ConnectionHandle, Engine, EngineConfig, Given, LiveSocket, ManualClock, Placement, Steps,
};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, RECV_BUFFER_BYTES, RecvMeta, Transmit};
use netem::{Link, Packet};
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{PathId, Side};
use scenario::apps::App;
use scenario::begin::{PathPlan, transport_config};
use scenario::faults::scheduled;
use scenario::model::{DURATION_MAX, Scenario};
use scenario::packets::{Sent, host_seeds, link_rng};
use scenario::recorder::Recorder;
use scenario::world::{Order, Stages};
use streams::{Bell, Desk};
use units::{Instant, Rng};

/// Ports of the hosts, as in the simulation.
const PORTS: [u16; 2] = [1000, 2000];

/// Calls to each socket in a turn of a driver. Other processors make one.
const CALLS_PER_TURN: usize = 2;

/// The addresses of a host: one for each path.
fn address(host: usize, path: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, path as u8, host as u8 + 1)), PORTS[host])
}

/// What processor `driver` of several is bound to in truth, where it says that it is bound to [`address`].
fn hidden_address(host: usize, path: usize, driver: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, driver as u8, path as u8, host as u8 + 1)), PORTS[host])
}

/// Which processors do what at both hosts, and in which order.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) placement: Placement,
    /// Which of those that have something to do has the next turn, and whether the application comes before the next one. Without, each
    /// has a turn, drivers last, since the others bring what has arrived by now, and then the application.
    pub(crate) chance: Option<Rng>,
}

impl Placed {
    /// In order.
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, chance: None }
    }
}

/// One host with its engine, its application, and the place where its packets leave the memory.
struct Host {
    number: usize,
    engine: Engine,
    steps: Steps,
    bell: Arc<Bell>,
    /// The one that begins has it at once.
    connection: Option<ConnectionHandle>,
    desk: Option<Desk>,
    app: App,
    /// Receives what the host sends to any address of the other, and sends it what comes from there.
    relay: MemorySocket,
}

/// A datagram on a link.
#[derive(Clone)]
struct Frame {
    path: usize,
    bytes: Vec<u8>,
}

impl Packet for Frame {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.bytes.corrupt(rng);
    }
}

/// What came of a run.
pub(crate) struct LiveRun {
    pub(crate) failure: Option<String>,
    pub(crate) is_done: bool,
}

struct Live<'a> {
    scenario: &'a Scenario,
    plan: PathPlan,
    clock: ManualClock,
    hosts: [Host; 2],
    /// Both directions of each link in use.
    links: Vec<[Link<Frame>; 2]>,
    /// Where they end at each host.
    cards: [Card; 2],
    routes: Vec<usize>,
    /// Datagrams sent so far, per path and direction.
    counts: Vec<[u64; 2]>,
    /// Processors with sockets of their own, among which paths are shared out as a system does for a shared port.
    drivers: usize,
    chance: Option<Rng>,
    recorder: Recorder,
    failure: Option<String>,
    sink: &'a mut dyn FnMut(&Sent<'_>) -> bool,
}

/// Runs `scenario`. `sink` hears of each datagram that leaves a host, and says whether the link gets it.
pub(crate) fn run(
    scenario: &Scenario,
    order: &Order,
    stages: Stages,
    placed: &Placed,
    sink: &mut dyn FnMut(&Sent<'_>) -> bool,
) -> LiveRun {
    let clock = ManualClock::new();
    let root = Rng::from_seed(order.seed);
    let apps = [App::sending(scenario, &root), App::receiving(scenario)].map(|app| app.with_stages(stages));
    let used = scenario.links_under(&order.paths);
    let routes = order.paths.iter().map(|&path| {
        let link = scenario.paths[path].link;
        used.iter().position(|used| *used == link).expect("it is under this path")
    });
    let link = |index: &usize| {
        let name = &scenario.links[*index].name;
        [0, 1].map(|direction| Link::new(scheduled(scenario, *index, direction), link_rng(order.seed, name, direction)))
    };
    let mut number = 0;
    let hosts = apps.map(|app| {
        number += 1;
        Host::new(scenario, order, number - 1, app, &clock, placed.placement)
    });
    let live = Live {
        scenario,
        plan: PathPlan::new(scenario, &order.paths),
        clock,
        hosts,
        routes: routes.collect(),
        links: used.iter().map(link).collect(),
        cards: [0, 1].map(|host| Card::new(scenario.hosts[host].coalesce)),
        counts: vec![[0; 2]; order.paths.len()],
        drivers: placed.placement.driver_count(),
        chance: placed.chance.clone(),
        recorder: Recorder::new(scenario),
        failure: None,
        sink,
    };
    live.finish()
}

impl Host {
    fn new(
        scenario: &Scenario,
        order: &Order,
        number: usize,
        app: App,
        clock: &ManualClock,
        placement: Placement,
    ) -> Self {
        let seeds = host_seeds(order.seed, number);
        let side = if number == 0 { Side::Client } else { Side::Server };
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, seeds.sessions));
        let network = MemoryNetwork::new();
        let paths = order.paths.len();
        // Those of the first driver first.
        let bind = |place| -> Box<dyn LiveSocket> {
            let (driver, path) = (place / paths, place % paths);
            let inner = network.bind(hidden_address(number, path, driver)).expect("it is free");
            Box::new(Alias { inner, local: address(number, path) })
        };
        let config = EngineConfig {
            placement,
            transport: transport_config(scenario, number, order.paths.len()),
            server: (number == 1).then(|| Arc::clone(&factory)),
            handshake_timeout: DURATION_MAX,
            ..EngineConfig::default()
        };
        let sockets = (0..paths * placement.driver_count()).map(bind).collect();
        let given = Given { clock: clock.clone(), secret: seeds.secret };
        let (engine, steps) = Engine::start_stepped(config, sockets, given).expect("it starts");
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORTS[1 - number]);
        let relay = network.bind(any).expect("it is free");
        let connection = (number == 0).then(|| {
            let first = PathPlan::new(scenario, &order.paths).first;
            let options = ConnectOptions { socket: Some(first), processor: Some(0), ..ConnectOptions::default() };
            engine.connect_with(&options, address(1, first), "b", factory).expect("it begins")
        });
        Self { number, engine, steps, bell: Arc::default(), connection, desk: None, app, relay }
    }

    /// Something is due by `now`.
    fn is_due(&self, now: Instant) -> bool {
        self.steps.due_at().is_some_and(|at| at <= now)
    }

    /// When something is due without an arrival.
    fn due_at(&self) -> Option<Instant> {
        self.steps.due_at().into_iter().chain(self.app.timeout()).min()
    }

    /// Whether the application has a connection now; true once.
    fn connect(&mut self) -> bool {
        if self.desk.is_some() {
            return false;
        }
        // Asked after each turn, so nobody has to be woken.
        let connection = match &self.connection {
            Some(connection) => {
                connection.poll_connected(Waker::noop()).map(|result| result.map(|()| connection.clone()))
            }
            None => self.engine.poll_accept(Waker::noop()),
        };
        let Poll::Ready(Ok(connection)) = connection else { return false };
        self.desk = Some(Desk::new(&self.bell, connection.clone()));
        self.connection = Some(connection);
        true
    }
}

impl Live<'_> {
    fn finish(mut self) -> LiveRun {
        let end = Instant::ZERO + self.scenario.duration;
        loop {
            let now = self.clock.now();
            for host in 0..2 {
                self.settle(now, host);
            }
            let links = self.links.iter().flatten().filter_map(Link::poll_timeout);
            let cards = self.cards.iter().filter_map(Card::due_at);
            let next = links.chain(cards).chain(self.hosts.iter().filter_map(Host::due_at)).min().unwrap_or(end);
            if self.failure.is_some() || self.recorder.is_done() || next >= end {
                return LiveRun { failure: self.failure, is_done: self.recorder.is_done() };
            }
            self.clock.set(next.max(now));
            self.deliver();
        }
    }

    /// The host's application does what is due, then its processors and the application take turns until all wait.
    fn settle(&mut self, now: Instant, host: usize) {
        // Calls of before may have done turns.
        self.carry_away(now, host);
        if self.hosts[host].app.timeout().is_some_and(|at| at <= now) {
            self.pump(now, host);
        }
        while self.hosts[host].is_due(now) {
            if self.take_turns(now, host) {
                self.react(now, host);
            }
        }
        if self.chance.is_some() {
            // It may have been left out after the last turn.
            self.react(now, host);
            if self.hosts[host].is_due(now) {
                return self.settle(now, host);
            }
        }
        if let Some(closed) = self.hosts[host].connection.as_ref().and_then(ConnectionHandle::closed) {
            self.failure.get_or_insert(closed.to_string());
        }
    }

    /// Turns of processors that have something to do. Whether it is the application's turn now.
    fn take_turns(&mut self, now: Instant, host: usize) -> bool {
        let steps = &mut self.hosts[host].steps;
        let is_due = |steps: &Steps, processor: usize| steps.due_at_of(processor).is_some_and(|at| at <= now);
        let Some(chance) = &mut self.chance else {
            let drivers = self.drivers;
            for processor in (drivers..steps.processor_count()).rev() {
                for _ in 0..CALLS_PER_TURN {
                    if is_due(steps, processor) {
                        steps.turn_of(processor);
                    }
                }
            }
            for processor in (0..drivers).rev() {
                if is_due(steps, processor) {
                    steps.turn_of(processor);
                }
            }
            self.carry_away(now, host);
            return true;
        };
        let due: Vec<usize> = (0..steps.processor_count()).filter(|processor| is_due(steps, *processor)).collect();
        steps.turn_of(due[chance.below(due.len() as u64) as usize]);
        let reacts = chance.below(2) == 0;
        self.carry_away(now, host);
        reacts
    }

    fn react(&mut self, now: Instant, number: usize) {
        let host = &mut self.hosts[number];
        if host.connect() && number == 0 {
            host.app.on_connected(now);
            self.open_paths();
        }
        let host = &mut self.hosts[number];
        let Some(desk) = &mut host.desk else { return };
        while let Some(event) = host.bell.pop() {
            host.app.on_event(now, &event, desk, &mut self.recorder);
        }
        self.pump(now, number);
    }

    fn pump(&mut self, now: Instant, number: usize) {
        let host = &mut self.hosts[number];
        if let Some(desk) = &mut host.desk {
            host.app.pump(now, desk, &mut self.recorder);
        }
        // Where calls do turns.
        self.carry_away(now, number);
    }

    fn open_paths(&self) {
        let connection = self.hosts[0].connection.as_ref().expect("there is one");
        for &(place, is_backup) in &self.plan.others {
            connection.open_path(place, address(1, place), is_backup).expect("there is room");
        }
        if self.plan.is_first_backup {
            connection.set_path_backup(PathId::ZERO, true).expect("there is room");
        }
    }

    /// What a host has sent goes to the links.
    fn carry_away(&mut self, now: Instant, number: usize) {
        let mut buffer = vec![0; RECV_BUFFER_BYTES];
        let mut meta = RecvMeta::default();
        let host = &mut self.hosts[number];
        while host.relay.recv(&mut [&mut buffer[..]], std::slice::from_mut(&mut meta)).is_ok() {
            let Some(IpAddr::V4(ip)) = meta.destination_ip else { panic!("sockets in memory know: {meta:?}") };
            let path = usize::from(ip.octets()[2]);
            assert_eq!(meta.source, address(host.number, path), "each path has a socket of its own");
            for datagram in buffer[..meta.len].chunks(meta.stride) {
                let count = &mut self.counts[path][number];
                let sent = Sent { at: now, direction: number, path, number: *count, datagram };
                *count += 1;
                if (self.sink)(&sent) {
                    self.links[self.routes[path]][number].send(now, Frame { path, bytes: datagram.to_vec() });
                }
            }
        }
        assert_eq!(host.relay.overflowed(), 0, "the relay keeps up");
    }

    /// What has arrived by now goes to the sockets, at once or when the host looks.
    fn deliver(&mut self) {
        let now = self.clock.now();
        for (direction, link) in self.links.iter_mut().flat_map(|link| link.iter_mut().enumerate()) {
            let card = &mut self.cards[1 - direction];
            while let Some(frame) = link.poll_deliver(now) {
                card.take(now, frame);
            }
        }
        for host in 0..2 {
            for batch in self.cards[host].hand_over(now) {
                let path = batch.path;
                let transmit = Transmit {
                    destination: hidden_address(host, path, path % self.drivers),
                    source_ip: Some(address(1 - host, path).ip()),
                    ecn: None,
                    contents: &batch.bytes,
                    segment_size: Some(batch.stride),
                };
                self.hosts[host].relay.send(&transmit).expect("the socket is there");
            }
        }
    }
}
