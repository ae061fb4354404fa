//! A live run in virtual time: engines with their drivers, cells and handles, over sockets in
//! memory, with applications that use the handles. Links are models, and the run sets the clock.
//!
//! ```text
//!   App ─ HandleStreams ─ handles ─ Engine, SteppedEngine ─ sockets ─ network of a ─ relay ══ Link ══ relay ─ network of b ─ sockets ─ Engine …
//! ```
//!
//! It shares driver, handles and applications with the worlds that it is compared with. Engine,
//! sockets, relay and the order of turns are its own.

mod nic;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use engine::{ManualClock, Placement};
use net::testing::{Alias, InterceptedSocket};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, RECV_BUFFER_BYTES, RecvMeta, Transmit};
use netem::{Link, Packet};
use nic::Nic;
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{PathId, Side};
use quic_endpoint::runtime::{
    ConnectOptions, ConnectionHandle, Engine, EngineConfig, LiveSocket, SteppedEngine, SteppedEnv,
};
use scenario::apps::App;
use scenario::apps::handles::{EventQueue, HandleStreams};
use scenario::connection_setup::{PathPlan, transport_config};
use scenario::faults::scheduled;
use scenario::measurements::Measurements;
use scenario::model::Scenario;
use scenario::packets::{SentDatagram, host_seeds, link_rng};
use scenario::world::{PayloadMode, RunPlan};
use units::{Instant, Rng};

/// The UDP ports of the hosts, as in the simulation.
const PORTS: [u16; 2] = [1000, 2000];

/// Receive calls to each socket in a driver's turn. Other processors make one.
const CALLS_PER_TURN: usize = 2;

/// Returns the address of a path at a host.
fn address(host: usize, path: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, path as u8, host as u8 + 1)), PORTS[host])
}

/// Returns the real address of the socket of driver number `driver`, which reports [`address`] as
/// its own.
fn hidden_address(host: usize, path: usize, driver: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, driver as u8, path as u8, host as u8 + 1)), PORTS[host])
}

/// The placement of both hosts, and the order of turns.
#[derive(Clone)]
pub(crate) struct HostSetup {
    pub(crate) placement: Placement,
    /// Chooses randomly which processor with work takes the next turn, and whether the application
    /// runs before the following one. Without it, each processor takes a turn, drivers last,
    /// because the others receive what has arrived, and then the application runs.
    pub(crate) random_turns: Option<Rng>,
}

impl HostSetup {
    /// Turns in the fixed order.
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, random_turns: None }
    }
}

/// One host: its engine, its application, and the relay between its sockets and the links.
struct Host {
    number: usize,
    engine: Engine,
    steps: SteppedEngine,
    events: Arc<EventQueue>,
    /// Set from the start at the client.
    connection: Option<ConnectionHandle>,
    streams: Option<HandleStreams<Engine>>,
    app: App,
    /// Receives datagrams that the host sends to any address of the other host, and sends it those
    /// that arrive.
    relay: MemorySocket,
}

/// A datagram on a link.
#[derive(Clone)]
struct Datagram {
    path: usize,
    bytes: Vec<u8>,
}

impl Packet for Datagram {
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

/// The result of a live run.
pub(crate) struct LiveRun {
    pub(crate) failure: Option<String>,
    pub(crate) is_done: bool,
}

struct Live<'a> {
    scenario: &'a Scenario,
    path_plan: PathPlan,
    clock: ManualClock,
    hosts: [Host; 2],
    /// Both directions of each link in use.
    links: Vec<[Link<Datagram>; 2]>,
    /// The network card of each host.
    nics: [Nic; 2],
    routes: Vec<usize>,
    /// Datagrams sent so far, by path and direction.
    counts: Vec<[u64; 2]>,
    /// Drivers with their own sockets. Paths are distributed among them as a system distributes
    /// packets of a shared port.
    drivers: usize,
    random_turns: Option<Rng>,
    measurements: Measurements,
    failure: Option<String>,
    sink: &'a mut dyn FnMut(&SentDatagram<'_>) -> bool,
}

/// Runs `scenario`. `sink` receives each datagram that leaves a host and returns whether the link
/// carries it.
pub(crate) fn run(
    scenario: &Scenario,
    plan: &RunPlan,
    payload_mode: PayloadMode,
    setup: &HostSetup,
    sink: &mut dyn FnMut(&SentDatagram<'_>) -> bool,
) -> LiveRun {
    let clock = ManualClock::new();
    let root = Rng::from_seed(plan.seed);
    let apps = [App::sending(scenario, &root), App::receiving(scenario)].map(|app| app.with_payload_mode(payload_mode));
    let used = scenario.links_under(&plan.paths);
    let routes = plan.paths.iter().map(|&path| {
        let link = scenario.paths[path].link;
        used.iter().position(|used| *used == link).expect("it is under this path")
    });
    let link = |index: &usize| {
        let name = &scenario.links[*index].name;
        [0, 1].map(|direction| Link::new(scheduled(scenario, *index, direction), link_rng(plan.seed, name, direction)))
    };
    let mut number = 0;
    let hosts = apps.map(|app| {
        number += 1;
        Host::new(scenario, plan, number - 1, app, &clock, setup.placement)
    });
    let live = Live {
        scenario,
        path_plan: PathPlan::new(scenario, &plan.paths),
        clock,
        hosts,
        routes: routes.collect(),
        links: used.iter().map(link).collect(),
        nics: [0, 1].map(|host| Nic::new(scenario.hosts[host].coalesce)),
        counts: vec![[0; 2]; plan.paths.len()],
        drivers: setup.placement.driver_count(),
        random_turns: setup.random_turns.clone(),
        measurements: Measurements::new(scenario),
        failure: None,
        sink,
    };
    live.finish()
}

impl Host {
    fn new(
        scenario: &Scenario,
        plan: &RunPlan,
        number: usize,
        app: App,
        clock: &ManualClock,
        placement: Placement,
    ) -> Self {
        let seeds = host_seeds(plan.seed, number);
        let side = if number == 0 { Side::Client } else { Side::Server };
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, seeds.sessions));
        let network = MemoryNetwork::new();
        let paths = plan.paths.len();
        // The addresses of the first driver come first.
        let bind = |place| -> Box<dyn LiveSocket> {
            let (driver, path) = (place / paths, place % paths);
            let inner = network.bind(hidden_address(number, path, driver)).expect("it is free");
            Box::new(InterceptedSocket::new(inner, Alias(address(number, path))))
        };
        let config = EngineConfig {
            placement,
            transport: transport_config(scenario, number, plan.paths.len()),
            server: (number == 1).then(|| Arc::clone(&factory)),
            ..EngineConfig::default()
        };
        let sockets = (0..paths * placement.driver_count()).map(bind).collect();
        let given = SteppedEnv { clock: clock.clone(), secret: seeds.secret };
        let (engine, steps) = Engine::start_stepped(config, sockets, given).expect("it starts");
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORTS[1 - number]);
        let relay = network.bind(any).expect("it is free");
        let connection = (number == 0).then(|| {
            let first = PathPlan::new(scenario, &plan.paths).first;
            let options = ConnectOptions::default().with_socket(first).with_processor(0);
            engine.connect_with(&options, address(1, first), "b", factory).expect("it begins")
        });
        Self { number, engine, steps, events: Arc::default(), connection, streams: None, app, relay }
    }

    /// Returns whether work is due by `now`.
    fn is_due(&self, now: Instant) -> bool {
        self.steps.due_at().is_some_and(|at| at <= now)
    }

    /// Returns whether the application has events to handle.
    fn has_events(&self) -> bool {
        self.streams.is_some() && self.events.has_some()
    }

    /// Returns when work is due without an arrival.
    fn due_at(&self) -> Option<Instant> {
        self.steps.due_at().into_iter().chain(self.app.timeout()).min()
    }

    /// Takes a new connection; true once, when the application has one.
    fn connect(&mut self) -> bool {
        if self.streams.is_some() {
            return false;
        }
        // Polled after each turn, so no wake-up is needed.
        let connection = match &self.connection {
            Some(connection) => {
                connection.poll_connected(Waker::noop()).map(|result| result.map(|()| connection.clone()))
            }
            None => self.engine.poll_accept(Waker::noop()),
        };
        let Poll::Ready(Ok(connection)) = connection else { return false };
        self.streams = Some(HandleStreams::new(&self.events, connection.clone()));
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
            let nics = self.nics.iter().filter_map(Nic::due_at);
            let next = links.chain(nics).chain(self.hosts.iter().filter_map(Host::due_at)).min().unwrap_or(end);
            if self.failure.is_some() || self.measurements.is_done() || next >= end {
                return LiveRun { failure: self.failure, is_done: self.measurements.is_done() };
            }
            self.clock.set(next.max(now));
            self.deliver();
        }
    }

    /// Runs the host's due application work, then processors and application in turn until all are
    /// idle.
    fn settle(&mut self, now: Instant, host: usize) {
        // Earlier calls may have run turns.
        self.forward_sent(now, host);
        if self.hosts[host].app.timeout().is_some_and(|at| at <= now) {
            self.pump(now, host);
        }
        // Calls of the application may have run turns that queued events for it.
        while self.hosts[host].is_due(now) || self.hosts[host].has_events() {
            if !self.hosts[host].is_due(now) || self.take_turns(now, host) {
                self.run_application(now, host);
            }
        }
        if self.random_turns.is_some() {
            // The application may have been skipped after the last turn.
            self.run_application(now, host);
            if self.hosts[host].is_due(now) {
                return self.settle(now, host);
            }
        }
        if let Some(closed) = self.hosts[host].connection.as_ref().and_then(ConnectionHandle::closed) {
            self.failure.get_or_insert(closed.to_string());
        }
    }

    /// Runs turns of processors with work. Returns whether the application runs next.
    fn take_turns(&mut self, now: Instant, host: usize) -> bool {
        let steps = &mut self.hosts[host].steps;
        let is_due = |steps: &SteppedEngine, processor: usize| steps.due_at_of(processor).is_some_and(|at| at <= now);
        let Some(random_turns) = &mut self.random_turns else {
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
            self.forward_sent(now, host);
            return true;
        };
        let due: Vec<usize> = (0..steps.processor_count()).filter(|processor| is_due(steps, *processor)).collect();
        steps.turn_of(due[random_turns.below(due.len() as u64) as usize]);
        let reacts = random_turns.below(2) == 0;
        self.forward_sent(now, host);
        reacts
    }

    fn run_application(&mut self, now: Instant, number: usize) {
        let host = &mut self.hosts[number];
        if host.connect() && number == 0 {
            host.app.on_connected(now);
            self.open_paths();
        }
        let host = &mut self.hosts[number];
        let Some(streams) = &mut host.streams else { return };
        while let Some(event) = host.events.pop() {
            host.app.on_event(now, &event, streams, &mut self.measurements);
        }
        self.pump(now, number);
    }

    fn pump(&mut self, now: Instant, number: usize) {
        let host = &mut self.hosts[number];
        if let Some(streams) = &mut host.streams {
            host.app.pump(now, streams, &mut self.measurements);
        }
        // Calls may have run turns.
        self.forward_sent(now, number);
    }

    fn open_paths(&self) {
        let connection = self.hosts[0].connection.as_ref().expect("there is one");
        for &(place, is_backup) in &self.path_plan.others {
            connection.open_path(place, address(1, place), is_backup).expect("the peer allows another path");
        }
        if self.path_plan.is_first_backup {
            connection.set_path_backup(PathId::ZERO, true).expect("the peer allows another path");
        }
    }

    /// Forwards the datagrams that a host has sent to the links.
    fn forward_sent(&mut self, now: Instant, number: usize) {
        let mut buffer = vec![0; RECV_BUFFER_BYTES];
        let mut meta = RecvMeta::default();
        let host = &mut self.hosts[number];
        while host.relay.recv(&mut [&mut buffer[..]], std::slice::from_mut(&mut meta)).is_ok() {
            let Some(IpAddr::V4(ip)) = meta.destination_ip else { panic!("sockets in memory know: {meta:?}") };
            let path = usize::from(ip.octets()[2]);
            assert_eq!(meta.source, address(host.number, path), "each path has a socket of its own");
            for datagram in buffer[..meta.len].chunks(meta.stride) {
                let count = &mut self.counts[path][number];
                let sent = SentDatagram { at: now, direction: number, path, number: *count, datagram };
                *count += 1;
                if (self.sink)(&sent) {
                    self.links[self.routes[path]][number].send(now, Datagram { path, bytes: datagram.to_vec() });
                }
            }
        }
        assert_eq!(host.relay.overflowed(), 0, "the relay keeps up");
    }

    /// Passes arrived datagrams to the sockets, immediately or at the next interrupt.
    fn deliver(&mut self) {
        let now = self.clock.now();
        for (direction, link) in self.links.iter_mut().flat_map(|link| link.iter_mut().enumerate()) {
            let nic = &mut self.nics[1 - direction];
            while let Some(datagram) = link.poll_deliver(now) {
                nic.take(now, datagram);
            }
        }
        for host in 0..2 {
            for batch in self.nics[host].take_batches(now) {
                let path = batch.path;
                let transmit = Transmit {
                    destination: hidden_address(host, path, path % self.drivers),
                    source_ip: Some(address(1 - host, path).ip()),
                    ecn: None,
                    contents: &batch.bytes,
                    segment_size: Some(batch.stride),
                };
                self.hosts[host].relay.send(&transmit).expect("the socket exists");
            }
        }
    }
}
