//! Running freely, on threads and under every placement, each connection writes down what goes into it; replayed inline, on one
//! thread, without the other side and the network, it makes the same bytes again.

use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration as Patience;

use bytes::Bytes;
use engine::{ConnectionHandle, Engine, EngineConfig, JournalFolder, LiveSocket, Placement, Readiness};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit};
use quic::journal::LogEnd;
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{Dir, PathState, Policy, Replay, Side, Strategy, TransportConfig};
use units::{Duration, Rng};

/// Nothing here takes that long, on any machine: beyond, something hangs.
const PATIENCE: Patience = Patience::from_secs(60);

/// Bytes of one transfer.
const LEN: usize = 6 << 20;

/// Of so many batches, one is lost.
const LOST_OF: u64 = 61;

/// A socket on whose way batches are lost.
struct Lossy {
    inner: MemorySocket,
    sent: u64,
    lost: Arc<AtomicU64>,
}

impl DatagramSocket for Lossy {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.inner.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.sent += 1;
        if self.sent.is_multiple_of(LOST_OF) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.send(transmit)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.inner.flush()
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.inner.recv(buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.counters()
    }
}

impl LiveSocket for Lossy {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.inner.readiness(waker)
    }
}

/// Two engines with the same placement that write down all connections.
struct World {
    client: Engine,
    server: Engine,
    folder: JournalFolder,
    path: PathBuf,
    lost: Arc<AtomicU64>,
}

/// A folder of its own in the system's folder for such things, removed in the end.
fn fresh_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("litz-journals-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn factory(side: Side) -> Arc<dyn SessionFactory> {
    Arc::new(DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1)))
}

fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + PATIENCE.into()), poll).expect("the engine hangs")
}

fn patiently(engine: &Engine, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = engine.now() + PATIENCE.into();
    while !is_so() {
        assert!(engine.now() < deadline, "{what}");
        assert!(engine.block_on(Some(engine.now() + Duration::from_millis(1)), |_| Poll::<()>::Pending).is_none());
    }
}

impl World {
    fn new(placement: Placement, sockets: usize, policy: Policy) -> Self {
        let (network, lost) = (MemoryNetwork::new(), Arc::new(AtomicU64::new(0)));
        let path = fresh_folder(&format!("{placement}-{sockets}").replace(['(', ')'], "-"));
        let folder = JournalFolder::create(&path).unwrap();
        let engine = || {
            let transport = TransportConfig {
                datagram_size: 1452,
                max_paths: sockets as u32,
                // Links in memory have no rates, so any other would give most to the first that is fast enough.
                scheduler: Strategy::RoundRobin,
                policy,
                key_update_interval: 1000,
                journal: Some(folder.source()),
                ..TransportConfig::default()
            };
            let config =
                EngineConfig { placement, transport, server: Some(factory(Side::Server)), ..EngineConfig::default() };
            let socket = || {
                let inner = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                Box::new(Lossy { inner, sent: 0, lost: Arc::clone(&lost) }) as Box<_>
            };
            Engine::start(config, (0..sockets * placement.driver_count()).map(|_| socket()).collect()).unwrap()
        };
        let (client, server) = (engine(), engine());
        Self { client, server, folder, path, lost }
    }

    /// A connection over all sockets.
    fn connect(&self, paths: usize) -> (ConnectionHandle, ConnectionHandle) {
        let address = self.server.local_addrs()[0];
        let ours = self.client.connect(address, "peer", factory(Side::Client)).unwrap();
        wait(&self.client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&self.server, |waker| self.server.poll_accept(waker)).unwrap();
        for (socket, address) in self.server.local_addrs().iter().enumerate().take(paths).skip(1) {
            ours.open_path(socket, *address, false).unwrap();
        }
        patiently(&self.client, "all paths are active", || {
            let now = ours.stats().unwrap().paths;
            now.len() == paths && now.iter().all(|path| path.state == PathState::Active)
        });
        (ours, theirs)
    }

    /// Bytes one way, and their end back the other.
    fn carry(&self, ours: &ConnectionHandle, theirs: &ConnectionHandle) {
        carry((&self.client, ours), (&self.server, theirs));
    }

    /// Stops, and replays every journal: packets sent in all of them, and bytes of all of them.
    fn replay(self, connections: usize) -> Told {
        self.client.stop();
        self.server.stop();
        drop((self.client, self.server));
        self.folder.wait();
        assert_eq!(self.folder.take_complaints(), Vec::<String>::new());
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 2 * connections, "each side writes down each connection: {files:?}");
        let mut told = Told::default();
        for file in &files {
            replay(file, &mut told);
        }
        assert!(told.bytes > (connections * LEN) as u64, "the journals tell of {told:?}");
        assert!(self.lost.load(Ordering::Relaxed) > 0, "nothing was lost on the way");
        std::fs::remove_dir_all(&self.path).unwrap();
        told
    }
}

/// What journals tell of.
#[derive(Debug, Default)]
struct Told {
    /// Planned.
    bytes: u64,
    /// Times a receive half went elsewhere, and what they did there.
    parted: u64,
    of_receive_halves: u64,
}

/// Carries bytes on a stream of its own.
fn carry((sender, ours): (&Engine, &ConnectionHandle), (receiver, theirs): (&Engine, &ConnectionHandle)) {
    let sent: Bytes = (0..LEN).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect();
    let arrived = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut recv = wait(receiver, |waker| theirs.poll_accept_uni(waker)).unwrap();
            let mut all = Vec::with_capacity(LEN);
            while wait(receiver, |waker| recv.poll_ready(waker)).unwrap() {
                let front = std::mem::take(recv.front_mut());
                all.extend(front.pieces().flat_map(|piece| piece.to_vec()));
            }
            all
        });
        let mut opening = ours.open(Dir::Uni);
        let (mut send, _) = wait(sender, |waker| opening.poll(waker)).unwrap();
        for at in (0..LEN).step_by(1 << 20) {
            let mut chunk = Some(sent.slice(at..(at + (1 << 20)).min(LEN)));
            wait(sender, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
        }
        send.finish().unwrap();
        reading.join().unwrap()
    });
    assert!(arrived == sent, "{} of {LEN} bytes arrived, or others", arrived.len());
}

/// Replays one file, which must be complete and equal.
fn replay(path: &Path, told: &mut Told) {
    let file = BufReader::new(std::fs::File::open(path).unwrap());
    let mut replay = Replay::begin(file).unwrap_or_else(|stopped| panic!("{}: {stopped}", path.display()));
    while let Some(step) = replay.step().unwrap_or_else(|stopped| panic!("{}: {stopped}", path.display())) {
        told.bytes += step.planned().map_or(0, |(_, bytes)| bytes);
        told.parted += u64::from(step.entry.name() == "parted");
        told.of_receive_halves += u64::from(step.entry.to_string().starts_with("receive half"));
    }
    assert_eq!(replay.end(), Some(LogEnd::Complete), "{}", path.display());
}

fn journals_replay_under(placement: Placement, paths: usize, policy: Policy) {
    let world = World::new(placement, paths, policy);
    let (ours, theirs) = world.connect(paths);
    world.carry(&ours, &theirs);
    let stats = ours.stats().unwrap();
    assert!(stats.send.packets_lost > 0 && stats.send.key_updates > 0, "{stats:?}");
    drop((ours, theirs));
    world.replay(1);
}

#[test]
fn one_thread_writes_down_what_replays_to_the_same_bytes() {
    journals_replay_under(Placement::Thread, 2, Policy::CRDA);
}

#[test]
fn processors_that_seal_and_open_leave_what_replays_to_the_same_bytes() {
    journals_replay_under(Placement::Packet(2), 2, Policy::CRCA);
}

#[test]
fn processors_of_paths_leave_what_replays_to_the_same_bytes() {
    journals_replay_under(Placement::Path(2), 2, Policy::DRDA);
}

#[test]
fn as_many_processors_as_paths_and_one_more_leave_what_replays_to_the_same_bytes() {
    journals_replay_under(Placement::Path(3), 2, Policy::DRCA);
}

#[test]
fn halves_on_two_processors_leave_one_log_each_that_replays_to_the_same_bytes() {
    let world = World::new(Placement::Split, 2, Policy::CRDA);
    let (ours, theirs) = world.connect(2);
    std::thread::scope(|scope| {
        let back = scope.spawn(|| carry((&world.server, &theirs), (&world.client, &ours)));
        carry((&world.client, &ours), (&world.server, &theirs));
        back.join().unwrap();
    });
    // What has gone home meanwhile departs again.
    carry((&world.server, &theirs), (&world.client, &ours));
    carry((&world.client, &ours), (&world.server, &theirs));
    let stats = ours.stats().unwrap();
    assert!(stats.send.packets_lost > 0 && stats.send.key_updates > 0, "{stats:?}");
    for engine in [&world.client, &world.server] {
        let split = engine.split_stats();
        assert!(split.iter().any(|split| split.departed > 0 && split.batches > 20), "{split:?}");
    }
    drop((ours, theirs));
    let told = world.replay(1);
    assert!(told.parted >= 2 && told.of_receive_halves > 100, "{told:?}");
}

#[test]
fn connections_on_processors_of_their_own_leave_what_replays_to_the_same_bytes() {
    let world = World::new(Placement::Connection(2), 1, Policy::CRDA);
    let connections = [world.connect(1), world.connect(1)];
    connections.iter().for_each(|(ours, theirs)| world.carry(ours, theirs));
    drop(connections);
    world.replay(2);
}

#[test]
fn journals_are_private_and_replace_no_other() {
    use std::os::unix::fs::PermissionsExt;
    let path = fresh_folder("private");
    for round in 1..=2 {
        let folder = JournalFolder::create(&path).unwrap();
        let mut sink = folder.source().0(Side::Server).unwrap();
        assert!(sink.take(b"not a journal, but bytes"));
        folder.wait();
        let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), round, "{files:?}");
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("0001-server.journal"))), (0o700, 0o600));
    assert_eq!(std::fs::read(path.join("0002-server.journal")).unwrap(), b"not a journal, but bytes");
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_journal_that_cannot_be_written_ends_and_is_told_of() {
    let path = fresh_folder("gone");
    let folder = JournalFolder::create(&path).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let mut sink = folder.source().0(Side::Client).unwrap();
    assert!(sink.take(b"the first block is on its way before anybody can know"));
    folder.wait();
    assert!(!sink.take(b"the second one is not taken"), "the journal goes on");
    let complaints = folder.take_complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("ends early"), "{complaints:?}");
    assert!(JournalFolder::create(Path::new("/proc/none/journals")).is_err());
}
