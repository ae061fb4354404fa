//! Keys that panic or hang on other processors than the driver's, when told to.

pub(crate) mod over_paths;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration as Patience;

use bytes::Bytes;
use engine::{Engine, RecvHandle};
use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    DirectionKeys, ExportError, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session, SessionFactory,
    SessionSummary, TAG_LEN,
};
use quic::{ConnectionId, PathId, Side, TransportError};
use units::Rng;

/// Nothing here takes that long, on any machine: beyond, something hangs.
const PATIENCE: Patience = Patience::from_secs(60);

pub(crate) const LEN: usize = 24 << 20;

/// What happens to a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Panic,
    Hang,
}

/// Which processor's luck ends when.
#[derive(Debug)]
pub(crate) struct Trouble {
    fault: Fault,
    /// In packets that workers still seal or open before it comes.
    after: AtomicU64,
    /// How many processors it is still to meet.
    left: AtomicU64,
    /// Those that hang may go on.
    released: Mutex<bool>,
    signal: Condvar,
    met: AtomicU64,
}

impl Trouble {
    pub(crate) fn new(fault: Fault, after: u64, workers: u64) -> Arc<Self> {
        Arc::new(Self {
            fault,
            after: AtomicU64::new(after),
            left: AtomicU64::new(workers),
            released: Mutex::new(false),
            signal: Condvar::new(),
            met: AtomicU64::new(0),
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
        self.met.fetch_add(1, Ordering::SeqCst);
        assert!(self.fault != Fault::Panic, "told to panic in a worker");
        let released = self.released.lock().unwrap();
        drop(self.signal.wait_while(released, |released| !*released).unwrap());
    }

    /// It comes now.
    pub(crate) fn come(&self) {
        self.after.store(0, Ordering::SeqCst);
    }

    /// Whether it has come.
    pub(crate) fn came(&self) -> bool {
        self.met.load(Ordering::SeqCst) > 0
    }

    /// All of it has come.
    pub(crate) fn is_over(&self) -> bool {
        self.fault == Fault::None || self.left.load(Ordering::SeqCst) == 0
    }

    /// Processors that have panicked.
    pub(crate) fn died(&self) -> u64 {
        if self.fault == Fault::Panic { self.met.load(Ordering::SeqCst) } else { 0 }
    }

    pub(crate) fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.signal.notify_all();
    }
}

#[expect(clippy::disallowed_methods, reason = "a fault for workers only")]
fn is_worker() -> bool {
    std::thread::current()
        .name()
        .is_some_and(|name| ["litz-worker", "litz-path", "litz-receive"].iter().any(|kind| name.starts_with(kind)))
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

pub(crate) fn factory(side: Side, trouble: &Arc<Trouble>) -> Arc<dyn SessionFactory> {
    let inner = DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1));
    Arc::new(Troubled { inner, trouble: Arc::clone(trouble) })
}

pub(crate) fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + PATIENCE.into()), poll).expect("the engine hangs")
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

/// The healthy.
pub(crate) fn healthy() -> Arc<Trouble> {
    Trouble::new(Fault::None, 0, 0)
}
