//! Processors of a parallel stage die or hang: a connection loses their share of its speed and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration as Patience;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Placement, RecvHandle, StageStats};
use net::MemoryNetwork;
use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    DirectionKeys, ExportError, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session, SessionFactory,
    SessionSummary, TAG_LEN,
};
use quic::{ConnectionId, Dir, PathId, SendStats, Side, TransportConfig, TransportError};
use units::Rng;

/// Nothing here takes that long, on any machine: beyond, something hangs.
const PATIENCE: Patience = Patience::from_secs(60);

const LEN: usize = 24 << 20;

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Panic,
    Hang,
}

/// Which worker's luck ends when.
#[derive(Debug)]
struct Trouble {
    fault: Fault,
    /// In packets that workers still seal or open before it comes.
    after: AtomicU64,
    /// How many workers it meets, and is still to meet.
    workers: u64,
    left: AtomicU64,
    /// Those that hang may go on.
    released: Mutex<bool>,
    signal: Condvar,
    came: AtomicBool,
}

impl Trouble {
    fn new(fault: Fault, after: u64, workers: u64) -> Arc<Self> {
        Arc::new(Self {
            fault,
            after: AtomicU64::new(after),
            workers,
            left: AtomicU64::new(workers),
            released: Mutex::new(false),
            signal: Condvar::new(),
            came: AtomicBool::new(false),
        })
    }

    /// A packet is about to be sealed or opened.
    fn visit(&self) {
        if self.fault == Fault::None || !is_worker() {
            return;
        }
        if self.after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |after| after.checked_sub(1)).is_ok() {
            return;
        }
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return;
        }
        self.came.store(true, Ordering::SeqCst);
        assert!(self.fault != Fault::Panic, "told to panic in a worker");
        let released = self.released.lock().unwrap();
        drop(self.signal.wait_while(released, |released| !*released).unwrap());
    }

    /// Workers that shall have died when all trouble has come.
    fn dies_of_it(&self) -> u64 {
        if self.fault == Fault::Panic { self.workers } else { self.left.load(Ordering::SeqCst) }
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.signal.notify_all();
    }
}

#[expect(clippy::disallowed_methods, reason = "a fault for workers only")]
fn is_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("litz-worker"))
}

/// Makes sessions whose 1-RTT keys meet with trouble.
struct Troubled {
    inner: DeterministicFactory,
    trouble: Arc<Trouble>,
}

struct TroubledSession {
    inner: Box<dyn Session>,
    trouble: Arc<Trouble>,
}

struct TroubledKey {
    inner: Arc<dyn PacketKey>,
    trouble: Arc<Trouble>,
}

impl PacketKey for TroubledKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        self.trouble.visit();
        self.inner.seal(path, number, header, payload)
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        self.trouble.visit();
        self.inner.open(path, number, header, payload)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

impl TroubledSession {
    fn troubled(&self, packet: Arc<dyn PacketKey>) -> Arc<dyn PacketKey> {
        Arc::new(TroubledKey { inner: packet, trouble: Arc::clone(&self.trouble) })
    }
}

impl SessionFactory for Troubled {
    fn initial_keys(&self, destination: &ConnectionId, side: Side) -> LevelKeys {
        self.inner.initial_keys(destination, side)
    }

    fn start(&self, server_name: &str, parameters: &[u8]) -> Result<Box<dyn Session>, String> {
        let inner = self.inner.start(server_name, parameters)?;
        Ok(Box::new(TroubledSession { inner, trouble: Arc::clone(&self.trouble) }))
    }
}

impl Session for TroubledSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.handle_crypto(bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        self.inner.poll_crypto(out).map(|keys| match keys {
            NewKeys::OneRtt(LevelKeys { seal, open }) => {
                let troubled =
                    |keys: DirectionKeys| DirectionKeys { header: keys.header, packet: self.troubled(keys.packet) };
                NewKeys::OneRtt(LevelKeys { seal: troubled(seal), open: troubled(open) })
            }
            keys => keys,
        })
    }

    fn next_phase(&self) -> PhaseKeys {
        let PhaseKeys { seal, open } = self.inner.next_phase();
        PhaseKeys { seal: self.troubled(seal), open: self.troubled(open) }
    }

    fn advance_phase(&mut self) {
        self.inner.advance_phase();
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.inner.peer_parameters()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        self.inner.peer_identity()
    }

    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.inner.export(label, context, out)
    }

    fn summary(&self) -> SessionSummary {
        self.inner.summary()
    }
}

fn factory(side: Side, trouble: &Arc<Trouble>) -> Arc<dyn SessionFactory> {
    let inner = DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1));
    Arc::new(Troubled { inner, trouble: Arc::clone(trouble) })
}

fn engine(placement: Placement, trouble: &Arc<Trouble>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig { datagram_size: 1452, ..TransportConfig::default() };
    let server = Some(factory(Side::Server, trouble));
    let config = EngineConfig { placement, transport, server, ..EngineConfig::default() };
    Engine::start(config, vec![Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap())]).unwrap()
}

fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + PATIENCE.into()), poll).expect("the engine hangs")
}

fn pattern() -> Bytes {
    (0..LEN).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect()
}

fn read_all(engine: &Engine, recv: &mut RecvHandle) -> Vec<u8> {
    let mut all = Vec::with_capacity(LEN);
    while wait(engine, |waker| recv.poll_ready(waker)).unwrap() {
        let front = std::mem::take(recv.front_mut());
        all.extend(front.pieces().flat_map(|piece| piece.to_vec()));
    }
    all
}

/// What came of a transfer.
struct Outcome {
    sent: SendStats,
    sender: Option<StageStats>,
    receiver: Option<StageStats>,
}

/// A transfer from an engine with one placement to one with another, each with its trouble.
fn transfer(sender: (Placement, &Arc<Trouble>), receiver: (Placement, &Arc<Trouble>)) -> Outcome {
    let network = MemoryNetwork::new();
    let client = engine(sender.0, sender.1, &network);
    let server = engine(receiver.0, receiver.1, &network);
    let ours = client.connect(server.local_addrs()[0], "peer", factory(Side::Client, sender.1)).unwrap();
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
    let sent = pattern();
    let arrived = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut recv = wait(&server, |waker| theirs.poll_accept_uni(waker)).unwrap();
            read_all(&server, &mut recv)
        });
        let mut opening = ours.open(Dir::Uni);
        let (mut send, _) = wait(&client, |waker| opening.poll(waker)).unwrap();
        for chunk in 0..LEN.div_ceil(1 << 20) {
            let mut chunk = Some(sent.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
            wait(&client, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
        }
        send.finish().unwrap();
        reading.join().unwrap()
    });
    assert!(arrived == sent, "{} of {LEN} bytes arrived, or others", arrived.len());
    let stats = ours.stats().unwrap();
    for (engine, trouble) in [(&client, sender.1), (&server, receiver.1)] {
        wait_for_the_dead(engine, trouble);
    }
    let outcome = Outcome { sent: stats.send, sender: client.stage_stats(), receiver: server.stage_stats() };
    sender.1.release();
    receiver.1.release();
    client.stop();
    server.stop();
    outcome
}

/// A panic is told before its thread ends, which takes a while: nobody waits for that in a transfer.
fn wait_for_the_dead(engine: &Engine, trouble: &Trouble) {
    let died = |trouble: &Trouble| trouble.dies_of_it() - trouble.left.load(Ordering::SeqCst);
    let deadline = engine.now() + PATIENCE.into();
    while engine.now() < deadline && engine.stage_stats().is_some_and(|stats| stats.workers_gone < died(trouble)) {
        assert!(
            engine.block_on(Some(engine.now() + units::Duration::from_millis(1)), |_| Poll::<()>::Pending).is_none()
        );
    }
}

const ALONE: Placement = Placement::Thread;

fn healthy() -> Arc<Trouble> {
    Trouble::new(Fault::None, 0, 0)
}

#[test]
fn batches_are_shared_by_all_processors_on_both_sides() {
    let outcome = transfer((Placement::Packet(3), &healthy()), (Placement::Packet(3), &healthy()));
    for stats in [outcome.sender.unwrap(), outcome.receiver.unwrap()] {
        assert!(stats.workers.len() == 2 && stats.workers.iter().all(|worker| worker.batches > 0), "{stats:?}");
        assert_eq!((stats.workers_gone, stats.batches_lost), (0, 0), "{stats:?}");
    }
}

#[test]
fn a_worker_that_dies_while_it_seals_costs_no_packet() {
    let trouble = Trouble::new(Fault::Panic, 500, 1);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert!(trouble.came.load(Ordering::SeqCst) && stats.workers_gone == 1, "{stats:?}");
    assert!(stats.batches_redone > 0, "{stats:?}");
    assert!(stats.workers.iter().filter(|worker| worker.batches > 30).count() >= 1, "the other goes on: {stats:?}");
    assert_eq!(outcome.sent.packets_lost, 0, "{:?}", outcome.sent);
}

#[test]
fn the_driver_goes_on_alone_when_all_workers_have_died() {
    let trouble = Trouble::new(Fault::Panic, 500, 2);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert_eq!(stats.workers_gone, 2, "{stats:?}");
    assert_eq!(outcome.sent.packets_lost, 0, "{:?}", outcome.sent);
}

#[test]
fn a_worker_that_hangs_while_it_seals_costs_no_packet() {
    let trouble = Trouble::new(Fault::Hang, 500, 1);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert!(trouble.came.load(Ordering::SeqCst) && stats.workers_late > 0 && stats.batches_redone > 0, "{stats:?}");
    assert_eq!((stats.workers_gone, outcome.sent.packets_lost), (0, 0), "{:?}", outcome.sent);
}

#[test]
fn what_a_worker_takes_along_when_it_dies_while_it_opens_is_sent_again() {
    let trouble = Trouble::new(Fault::Panic, 500, 1);
    let outcome = transfer((ALONE, &healthy()), (Placement::Packet(3), &trouble));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_gone == 1 && (1..=4).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}

#[test]
fn what_a_worker_hangs_over_while_it_opens_is_sent_again() {
    let trouble = Trouble::new(Fault::Hang, 500, 1);
    let outcome = transfer((ALONE, &healthy()), (Placement::Packet(3), &trouble));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_late > 0 && (1..=4).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}
