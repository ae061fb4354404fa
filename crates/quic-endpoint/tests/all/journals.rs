//! Connections on threads, under every placement, write journals of their inputs. Replayed inline,
//! on one thread and without the peer and the network, they produce the same bytes.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use engine::{JournalFolder, Placement};
use net::MemoryNetwork;
use net::testing::{DropSends, InterceptedSocket};
use quic::journal::LogEnd;
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{Dir, PathState, Policy, Replay, Side, Strategy, TransportConfig};
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig};
use units::{Duration, Rng};

/// No step takes this long on any machine. A test that waits longer hangs.
const TEST_TIMEOUT: StdDuration = StdDuration::from_secs(60);

/// The length of a transfer in bytes.
const LEN: usize = 6 << 20;

/// One of this many batches is lost.
const LOST_OF: u64 = 61;

/// Two engines with the same placement that write journals of all connections.
struct EnginePair {
    client: Engine,
    server: Engine,
    folder: JournalFolder,
    path: PathBuf,
    lost: Arc<AtomicU64>,
}

/// A new temporary folder.
fn fresh_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("litz-journals-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn factory(side: Side) -> Arc<dyn SessionFactory> {
    Arc::new(DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1)))
}

fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + TEST_TIMEOUT.into()), poll).expect("the engine hangs")
}

fn wait_until(engine: &Engine, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = engine.now() + TEST_TIMEOUT.into();
    while !is_so() {
        assert!(engine.now() < deadline, "{what}");
        assert!(engine.block_on(Some(engine.now() + Duration::from_millis(1)), |_| Poll::<()>::Pending).is_none());
    }
}

impl EnginePair {
    fn new(placement: Placement, sockets: usize, policy: Policy) -> Self {
        let (network, lost) = (MemoryNetwork::new(), Arc::new(AtomicU64::new(0)));
        let path = fresh_folder(&format!("{placement}-{sockets}").replace(['(', ')'], "-"));
        let folder = JournalFolder::create(&path).unwrap();
        let engine = || {
            let transport = TransportConfig::default()
                .with_datagram_size(1452)
                .with_max_paths(sockets as u32)
                // Links in memory have no rates, so any other scheduler would prefer the first one.
                .with_scheduler(Strategy::RoundRobin)
                .with_policy(policy)
                .with_key_update_interval(1000)
                .with_journal(folder.source());
            let config =
                EngineConfig { placement, transport, server: Some(factory(Side::Server)), ..EngineConfig::default() };
            let socket = || {
                let inner = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                Box::new(InterceptedSocket::new(inner, DropSends::one_of(LOST_OF, &lost))) as Box<_>
            };
            Engine::start(config, (0..sockets * placement.driver_count()).map(|_| socket()).collect()).unwrap()
        };
        let (client, server) = (engine(), engine());
        Self { client, server, folder, path, lost }
    }

    /// Opens a connection with a path for each socket.
    fn connect(&self, paths: usize) -> (ConnectionHandle, ConnectionHandle) {
        let address = self.server.local_addrs()[0];
        let ours = self.client.connect(address, "peer", factory(Side::Client)).unwrap();
        wait(&self.client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&self.server, |waker| self.server.poll_accept(waker)).unwrap();
        for (socket, address) in self.server.local_addrs().iter().enumerate().take(paths).skip(1) {
            ours.open_path(socket, *address, false).unwrap();
        }
        wait_until(&self.client, "all paths are active", || {
            let now = ours.stats().unwrap().paths;
            now.len() == paths && now.iter().all(|path| path.state == PathState::Active)
        });
        (ours, theirs)
    }

    /// Transfers data from the client to the server.
    fn carry(&self, ours: &ConnectionHandle, theirs: &ConnectionHandle) {
        carry((&self.client, ours), (&self.server, theirs));
    }

    /// Stops the engines and replays every journal.
    fn replay(self, connections: usize) -> Totals {
        self.client.stop();
        self.server.stop();
        drop((self.client, self.server));
        self.folder.wait();
        assert_eq!(self.folder.take_errors(), Vec::<String>::new());
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert_eq!(files.len(), 2 * connections, "each side writes a journal of each connection: {files:?}");
        let mut totals = Totals::default();
        for file in &files {
            replay(file, &mut totals);
        }
        assert!(totals.bytes > (connections * LEN) as u64, "the journals hold {totals:?}");
        assert!(self.lost.load(Ordering::Relaxed) > 0, "no packet was lost");
        std::fs::remove_dir_all(&self.path).unwrap();
        totals
    }
}

/// Totals over replayed journals.
#[derive(Debug, Default)]
struct Totals {
    /// Planned bytes.
    bytes: u64,
    /// Entries for a receive half that was detached.
    detached: u64,
    /// Entries written by detached receive halves.
    by_receive_halves: u64,
}

/// Transfers data on a new stream.
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
    assert!(arrived == sent, "{} of {LEN} bytes arrived, or they differ", arrived.len());
}

/// Replays one journal, which must be complete and produce the same bytes.
fn replay(path: &Path, totals: &mut Totals) {
    let file = BufReader::new(std::fs::File::open(path).unwrap());
    let mut replay = Replay::begin(file).unwrap_or_else(|stopped| panic!("{}: {stopped}", path.display()));
    while let Some(step) = replay.step().unwrap_or_else(|stopped| panic!("{}: {stopped}", path.display())) {
        totals.bytes += step.planned().map_or(0, |(_, bytes)| bytes);
        totals.detached += u64::from(step.entry.name() == "detached");
        totals.by_receive_halves += u64::from(step.entry.to_string().starts_with("receive half"));
    }
    assert_eq!(replay.end(), Some(LogEnd::Complete), "{}", path.display());
}

fn journals_replay_under(placement: Placement, paths: usize, policy: Policy) {
    let pair = EnginePair::new(placement, paths, policy);
    let (ours, theirs) = pair.connect(paths);
    pair.carry(&ours, &theirs);
    let stats = ours.stats().unwrap();
    assert!(stats.send.packets_lost > 0 && stats.send.key_updates > 0, "{stats:?}");
    drop((ours, theirs));
    pair.replay(1);
}

#[test]
fn journals_of_placement_thread_replay_to_the_same_bytes() {
    journals_replay_under(Placement::Thread, 2, Policy::CRDA);
}

#[test]
fn journals_of_placement_packet_replay_to_the_same_bytes() {
    journals_replay_under(Placement::Packet(2), 2, Policy::CRCA);
}

#[test]
fn journals_of_placement_path_replay_to_the_same_bytes() {
    journals_replay_under(Placement::Path(2), 2, Policy::DRDA);
}

#[test]
fn journals_of_placement_path_with_a_worker_for_every_socket_replay_to_the_same_bytes() {
    journals_replay_under(Placement::Path(3), 2, Policy::DRCA);
}

#[test]
fn journals_of_placement_split_replay_to_the_same_bytes() {
    let pair = EnginePair::new(Placement::Split, 2, Policy::CRDA);
    let (ours, theirs) = pair.connect(2);
    std::thread::scope(|scope| {
        let back = scope.spawn(|| carry((&pair.server, &theirs), (&pair.client, &ours)));
        carry((&pair.client, &ours), (&pair.server, &theirs));
        back.join().unwrap();
    });
    // Receive halves that have returned meanwhile are detached again.
    carry((&pair.server, &theirs), (&pair.client, &ours));
    carry((&pair.client, &ours), (&pair.server, &theirs));
    let stats = ours.stats().unwrap();
    assert!(stats.send.packets_lost > 0 && stats.send.key_updates > 0, "{stats:?}");
    for engine in [&pair.client, &pair.server] {
        let split = engine.receive_worker_stats();
        assert!(split.iter().any(|split| split.detached > 0 && split.batches > 20), "{split:?}");
    }
    drop((ours, theirs));
    let totals = pair.replay(1);
    assert!(totals.detached >= 2 && totals.by_receive_halves > 100, "{totals:?}");
}

#[test]
fn journals_of_placement_connection_replay_to_the_same_bytes() {
    let pair = EnginePair::new(Placement::Connection(2), 1, Policy::CRDA);
    let connections = [pair.connect(1), pair.connect(1)];
    connections.iter().for_each(|(ours, theirs)| pair.carry(ours, theirs));
    drop(connections);
    pair.replay(2);
}

#[test]
fn journals_are_private_and_never_overwrite_a_file() {
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
fn a_journal_is_reported_once_when_it_has_all_its_blocks() {
    let path = fresh_folder("ended");
    let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&ended);
    let folder = JournalFolder::create_with(&path, move |journal| {
        let content = std::fs::read(journal).unwrap();
        seen.lock().unwrap().push((journal.to_owned(), content));
    });
    let folder = folder.unwrap();
    let [mut first, mut second] = [Side::Client, Side::Server].map(|side| folder.source().0(side).unwrap());
    // A connection that writes nothing has no journal.
    drop(folder.source().0(Side::Client).unwrap());
    assert!(first.take(b"one ") && second.take(b"two"));
    folder.wait();
    assert_eq!(ended.lock().unwrap().len(), 0, "both go on");
    assert!(first.take(b"more"));
    drop(first);
    folder.wait();
    assert_eq!(*ended.lock().unwrap(), [(path.join("0001-client.journal"), b"one more".to_vec())]);
    drop(second);
    folder.wait();
    assert_eq!(ended.lock().unwrap().len(), 2);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_journal_that_cannot_be_written_ends_and_reports_an_error() {
    let path = fresh_folder("gone");
    let folder = JournalFolder::create(&path).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let mut sink = folder.source().0(Side::Client).unwrap();
    assert!(sink.take(b"the first block is queued before the error is known"));
    folder.wait();
    assert!(!sink.take(b"the second block is refused"), "the journal continues");
    let errors = folder.take_errors();
    assert!(errors.len() == 1 && errors[0].contains("is incomplete"), "{errors:?}");
    assert!(JournalFolder::create(Path::new("/proc/none/journals")).is_err());
}
