//! Packet keys that panic or hang in a worker's thread when a test requests it.

pub(crate) mod multipath;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    DirectionKeys, ExportError, HandshakeVersions, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session,
    SessionFactory, SessionSummary, TAG_LEN,
};
use quic::{ConnectionId, PathId, Side, TransportError, Version};
use quic_endpoint::runtime::{Engine, RecvHandle};
use units::Rng;

/// No step takes this long on any machine. A test that waits longer hangs.
const TEST_TIMEOUT: StdDuration = StdDuration::from_secs(60);

pub(crate) const LEN: usize = 24 << 20;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    None,
    Panic,
    Hang,
}

/// A fault of a number of workers, and when it occurs.
#[derive(Debug)]
pub(crate) struct WorkerFault {
    fault: FaultKind,
    /// Packets that workers seal or open before it occurs.
    after: AtomicU64,
    /// The number of workers in which it still has to occur.
    left: AtomicU64,
    /// Workers that hang may continue.
    released: Mutex<bool>,
    signal: Condvar,
    /// The number of workers in which it has occurred.
    count: AtomicU64,
}

impl WorkerFault {
    pub(crate) fn new(fault: FaultKind, after: u64, workers: u64) -> Arc<Self> {
        Arc::new(Self {
            fault,
            after: AtomicU64::new(after),
            left: AtomicU64::new(workers),
            released: Mutex::new(false),
            signal: Condvar::new(),
            count: AtomicU64::new(0),
        })
    }

    /// Called before a packet is sealed or opened.
    fn before_packet(&self) {
        if self.fault == FaultKind::None || !is_worker() {
            return;
        }
        if self.after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |after| after.checked_sub(1)).is_ok() {
            return;
        }
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return;
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        assert!(self.fault != FaultKind::Panic, "requested by the test");
        let released = self.released.lock().unwrap();
        drop(self.signal.wait_while(released, |released| !*released).unwrap());
    }

    /// Lets the fault occur with the next packet.
    pub(crate) fn trigger(&self) {
        self.after.store(0, Ordering::SeqCst);
    }

    /// Whether it has occurred in any worker.
    pub(crate) fn has_occurred(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Whether it has occurred in all workers that it was requested for.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.fault == FaultKind::None || self.left.load(Ordering::SeqCst) == 0
    }

    /// The number of workers that have panicked.
    pub(crate) fn panic_count(&self) -> u64 {
        if self.fault == FaultKind::Panic { self.count.load(Ordering::SeqCst) } else { 0 }
    }

    /// Lets workers that hang continue.
    pub(crate) fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.signal.notify_all();
    }
}

#[expect(clippy::disallowed_methods, reason = "only workers have faults")]
fn is_worker() -> bool {
    std::thread::current()
        .name()
        .is_some_and(|name| ["litz-worker", "litz-path", "litz-receive"].iter().any(|kind| name.starts_with(kind)))
}

/// Creates sessions whose 1-RTT keys have the fault.
struct FaultySessions {
    inner: DeterministicFactory,
    fault: Arc<WorkerFault>,
}

struct FaultySession {
    inner: Box<dyn Session>,
    fault: Arc<WorkerFault>,
}

struct FaultyKey {
    inner: Arc<dyn PacketKey>,
    fault: Arc<WorkerFault>,
}

impl PacketKey for FaultyKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        self.fault.before_packet();
        self.inner.seal(path, number, header, payload)
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        self.fault.before_packet();
        self.inner.open(path, number, header, payload)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

impl FaultySession {
    fn with_fault(&self, packet: Arc<dyn PacketKey>) -> Arc<dyn PacketKey> {
        Arc::new(FaultyKey { inner: packet, fault: Arc::clone(&self.fault) })
    }
}

impl SessionFactory for FaultySessions {
    fn initial_keys(&self, destination: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        self.inner.initial_keys(destination, side, version)
    }

    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let inner = self.inner.start(server_name, parameters, versions)?;
        Ok(Box::new(FaultySession { inner, fault: Arc::clone(&self.fault) }))
    }
}

impl Session for FaultySession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.handle_crypto(bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        self.inner.poll_crypto(out).map(|keys| match keys {
            NewKeys::OneRtt(LevelKeys { seal, open }) => {
                let with_fault =
                    |keys: DirectionKeys| DirectionKeys { header: keys.header, packet: self.with_fault(keys.packet) };
                NewKeys::OneRtt(LevelKeys { seal: with_fault(seal), open: with_fault(open) })
            }
            keys => keys,
        })
    }

    fn next_phase(&self) -> PhaseKeys {
        let PhaseKeys { seal, open } = self.inner.next_phase();
        PhaseKeys { seal: self.with_fault(seal), open: self.with_fault(open) }
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

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn set_version(&mut self, version: Version) {
        self.inner.set_version(version);
    }

    fn summary(&self) -> SessionSummary {
        self.inner.summary()
    }
}

pub(crate) fn factory(side: Side, fault: &Arc<WorkerFault>) -> Arc<dyn SessionFactory> {
    let inner = DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1));
    Arc::new(FaultySessions { inner, fault: Arc::clone(fault) })
}

pub(crate) fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + TEST_TIMEOUT.into()), poll).expect("the engine hangs")
}

pub(crate) fn pattern() -> Bytes {
    (0..LEN).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect()
}

pub(crate) fn read_all(engine: &Engine, recv: &mut RecvHandle) -> Vec<u8> {
    let mut all = Vec::with_capacity(LEN);
    while wait(engine, |waker| recv.poll_ready(waker)).unwrap() {
        let front = std::mem::take(recv.front_mut());
        all.extend(front.pieces().flat_map(|piece| piece.to_vec()));
    }
    all
}

/// No fault.
pub(crate) fn no_fault() -> Arc<WorkerFault> {
    WorkerFault::new(FaultKind::None, 0, 0)
}
