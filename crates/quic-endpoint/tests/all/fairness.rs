//! Connections that share a driver get equal shares of its throughput, for any order of the turns
//! of the processors.
//!
//! The engines are stepped, so the shares do not depend on the system's thread scheduler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use engine::{ManualClock, Placement};
use net::MemoryNetwork;
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{Dir, Side, TransportConfig};
use quic_endpoint::runtime::{
    ConnectionHandle, Engine, EngineConfig, LiveSocket, PendingOpen, RecvHandle, SendHandle, SteppedEngine, SteppedEnv,
};
use units::{Duration, Instant, Rng};

/// Bytes that each connection carries.
const LEN: usize = 1 << 20;

/// The flow-control window of a stream. It is small, so that no queue of the network overflows and
/// congestion control does not influence the shares.
const WINDOW: u64 = 32 << 10;

const CHUNK: usize = 64 << 10;

/// The duration of a turn of a processor.
const TURN: Duration = Duration::from_micros(20);

/// A multiple of the virtual time that the test needs.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

struct Host {
    engine: Engine,
    steps: SteppedEngine,
}

impl Host {
    fn new(side: Side, placement: Placement, network: &MemoryNetwork, clock: &ManualClock, rng: &Rng) -> Self {
        let transport = TransportConfig::default().with_stream_window(WINDOW).with_stream_window_max(WINDOW);
        let config = EngineConfig {
            placement,
            transport,
            server: (side == Side::Server).then(|| sessions(side, rng)),
            ..EngineConfig::default()
        };
        // Each driver has a socket.
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let bind = |_| -> Box<dyn LiveSocket> { Box::new(network.bind(any).expect("ports are free")) };
        let sockets = (0..placement.driver_count()).map(bind).collect();
        let mut secret = [0; 32];
        rng.split("secret").fill(&mut secret);
        let env = SteppedEnv { clock: clock.clone(), secret };
        let (engine, steps) = Engine::start_stepped(config, sockets, env).expect("the engine starts");
        Self { engine, steps }
    }
}

fn sessions(side: Side, rng: &Rng) -> Arc<dyn SessionFactory> {
    Arc::new(DeterministicFactory::new(side, rng.split("sessions")))
}

/// Writes one stream.
struct Writer {
    connection: ConnectionHandle,
    opening: Option<PendingOpen>,
    stream: Option<SendHandle>,
    chunk: Option<Bytes>,
    left: usize,
}

impl Writer {
    fn new(connection: ConnectionHandle) -> Self {
        Self { connection, opening: None, stream: None, chunk: None, left: LEN }
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection.poll_connected(Waker::noop()), Poll::Ready(Ok(())))
    }

    /// Writes as much as the outbox has space for.
    fn pump(&mut self) {
        if self.stream.is_none() {
            let opening = self.opening.get_or_insert_with(|| self.connection.open(Dir::Uni));
            let Poll::Ready(opened) = opening.poll(Waker::noop()) else { return };
            self.stream = Some(opened.expect("the connection is open").0);
        }
        let Some(stream) = &mut self.stream else { return };
        while self.left > 0 {
            let chunk = || Bytes::from(vec![7; CHUNK]);
            let mut chunk = Some(self.chunk.take().unwrap_or_else(chunk));
            if stream.poll_write_chunk(&mut chunk, Waker::noop()).is_pending() {
                self.chunk = chunk;
                return;
            }
            self.left -= CHUNK;
        }
        stream.finish().expect("the connection is open");
    }
}

/// Reads one stream.
struct Reader {
    connection: ConnectionHandle,
    stream: Option<RecvHandle>,
    read: usize,
}

impl Reader {
    fn new(connection: ConnectionHandle) -> Self {
        Self { connection, stream: None, read: 0 }
    }

    /// Reads everything available.
    fn pump(&mut self) {
        if self.stream.is_none() {
            let Poll::Ready(accepted) = self.connection.poll_accept_uni(Waker::noop()) else { return };
            self.stream = Some(accepted.expect("the connection is open"));
        }
        let Some(stream) = &mut self.stream else { return };
        while let Poll::Ready(Ok(true)) = stream.poll_ready(Waker::noop()) {
            self.read += std::mem::take(stream.front_mut()).len();
        }
    }
}

/// Runs a turn of a random processor that is due. If none is due, advances the clock until one is.
fn step(hosts: &mut [Host; 2], clock: &ManualClock, rng: &mut Rng) {
    let now = clock.now();
    let is_due = |host: &Host, processor: usize| host.steps.due_at_of(processor).is_some_and(|at| at <= now);
    let all = [0, 1].into_iter().flat_map(|host| (0..hosts[host].steps.processor_count()).map(move |at| (host, at)));
    let due: Vec<(usize, usize)> = all.filter(|(host, processor)| is_due(&hosts[*host], *processor)).collect();
    if due.is_empty() {
        let next = hosts.iter().filter_map(|host| host.steps.due_at()).min();
        clock.set(next.expect("connections have timers").max(now));
        return;
    }
    let (host, processor) = due[rng.below(due.len() as u64) as usize];
    hosts[host].steps.turn_of(processor);
    clock.set(now + TURN);
}

/// Bytes that each connection had received when half of all had.
fn shares_at_half(placement: Placement, count: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::from_seed(seed);
    let (network, clock) = (MemoryNetwork::new(), ManualClock::new());
    let mut hosts = [Side::Client, Side::Server]
        .map(|side| Host::new(side, placement, &network, &clock, &rng.split(&format!("{side:?}"))));
    let address = hosts[1].engine.local_addrs()[0];
    let factory = sessions(Side::Client, &rng.split("client"));
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    while readers.len() < count || !writers.iter().all(Writer::is_connected) {
        assert!(clock.now() < Instant::ZERO + TEST_TIMEOUT, "{placement}, seed {seed}: {} connections", readers.len());
        // One after the other, because handshakes are not the subject of this test.
        if writers.len() < count && writers.len() == readers.len() {
            let connection = hosts[0]
                .engine
                .connect(address, "server", Arc::clone(&factory))
                .expect("the driver accepts the request");
            writers.push(Writer::new(connection));
        }
        step(&mut hosts, &clock, &mut rng);
        if let Poll::Ready(accepted) = hosts[1].engine.poll_accept(Waker::noop()) {
            readers.push(Reader::new(accepted.expect("the engine runs")));
        }
    }
    let end = clock.now() + TEST_TIMEOUT;
    let mut at_half = None;
    while readers.iter().any(|reader| reader.read < LEN) {
        assert!(clock.now() < end, "{placement}, seed {seed}: the transfers are not complete");
        writers.iter_mut().for_each(Writer::pump);
        readers.iter_mut().for_each(Reader::pump);
        if readers.iter().map(|reader| reader.read).sum::<usize>() >= count * LEN / 2 {
            at_half.get_or_insert_with(|| readers.iter().map(|reader| reader.read).collect());
        }
        step(&mut hosts, &clock, &mut rng);
    }
    drop((writers, readers));
    at_half.expect("half of the bytes arrive before all of them")
}

const PLACEMENTS: [Placement; 5] =
    [Placement::Thread, Placement::Inline, Placement::Split, Placement::Packet(2), Placement::Path(2)];

/// Checks that each connection has received at least `least_min` bytes when half of all bytes have
/// arrived.
fn check_least(count: usize, least_min: usize) {
    for (placement, seed) in PLACEMENTS.into_iter().flat_map(|placement| (0..3).map(move |seed| (placement, seed))) {
        let shares = shares_at_half(placement, count, seed);
        let least = shares.iter().min().copied().unwrap_or(0);
        assert!(
            least >= least_min,
            "{placement}, seed {seed}: the smallest share is {least} bytes of {LEN}: {shares:?}"
        );
    }
}

#[test]
fn connections_that_share_a_driver_have_equal_shares() {
    // The driver serves this many connections in a turn. An equal share is half of the bytes; a
    // connection may be a few windows behind.
    check_least(64, LEN / 3);
}

#[test]
fn no_connection_starves_if_there_are_more_than_a_driver_serves_in_a_turn() {
    // Each connection was served several times.
    check_least(100, 2 * WINDOW as usize);
}
