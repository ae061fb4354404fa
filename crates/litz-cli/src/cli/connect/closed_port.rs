//! Ends a connection whose peer has ended without a word: its host says that the port is closed.
//!
//! Every connection that a command makes is watched, by a thread of its own: what the command does with
//! the connection may block, or wait for the peer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use litz::paths::closed_port::ClosedPortWatch;
use litz::{Connection, PathState};
use net::{MonotonicClock, PortProbe};
use quic_endpoint::local_ends::{LocalEnd, LocalEnds};
use units::Instant;

use super::sockets::socket;

/// How often a connection is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Code of the close, which no peer receives.
const CLOSE_CODE: u64 = 0;

/// The thread that watches one connection. It ends when this is dropped.
pub(super) struct PeerWatch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

impl PeerWatch {
    /// Watches `connection`, whose sockets have these local ends and this mark.
    pub(super) fn start(connection: Connection, ends: Arc<LocalEnds>, mark: Option<u32>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let has_ended = Arc::<AtomicBool>::default();
        let (clock, told) = (MonotonicClock::start(), Arc::clone(&has_ended));
        let watch = ClosedPortWatch::new(clock.now());
        let mut watcher = Watcher { connection, ends, mark, watch, probes: BTreeMap::new() };
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for a connection")]
        let thread = std::thread::spawn(move || {
            // The sending end is dropped with the connection.
            while stopped.recv_timeout(LOOK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if watcher.look(clock.now()) {
                    told.store(true, Ordering::Release);
                    watcher.connection.close(CLOSE_CODE, "the peer's port is closed");
                    return;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread), has_ended }
    }

    /// Whether this host has ended the connection, because the peer's port is closed.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

struct Watcher {
    connection: Connection,
    ends: Arc<LocalEnds>,
    /// With which packets leave: without it, those of a tunnel's probes would enter the tunnel.
    mark: Option<u32>,
    watch: ClosedPortWatch,
    /// By the socket of the path: between which ends, and the probe.
    probes: BTreeMap<u16, (LocalEnd, SocketAddr, PortProbe)>,
}

impl Watcher {
    /// Looks at the connection; true if the peer has ended.
    fn look(&mut self, now: Instant) -> bool {
        let stats = self.connection.stats();
        let received = stats.receive.bytes_received;
        let expects = stats.paths.iter().any(|path| path.in_flight_bytes > 0);
        if !self.watch.is_due(now, received, expects) {
            return false;
        }
        let (mut asked, mut refused) = (0, 0);
        for path in stats.paths.iter().filter(|path| path.state != PathState::Abandoned) {
            let end = self.ends.of(&path.addresses);
            if end.down.is_some() {
                continue;
            }
            asked += 1;
            refused += usize::from(self.ask(path.addresses.socket, end, path.addresses.remote));
        }
        self.watch.on_answers(asked, refused)
    }

    /// Whether the host at `remote` said that the port is closed.
    fn ask(&mut self, index: u16, end: LocalEnd, remote: SocketAddr) -> bool {
        let known = self.probes.get(&index).filter(|(from, to, _)| (from, *to) == (&end, remote));
        if known.is_none() {
            // A link-local address needs the index of its device, which is chosen by its name here.
            let ip = match end.ip {
                IpAddr::V6(ip) if ip.is_unicast_link_local() => Ipv6Addr::UNSPECIFIED.into(),
                ip => ip,
            };
            let options = socket(SocketAddr::new(ip, 0), end.device.as_deref()).with_mark(self.mark);
            match PortProbe::open(&options, remote) {
                Ok(probe) => _ = self.probes.insert(index, (end, remote, probe)),
                Err(error) => {
                    tracing::debug!(%error, %remote, "cannot ask whether a port is closed");
                    return false;
                }
            }
        }
        self.probes.get(&index).is_some_and(|(.., probe)| probe.ask())
    }
}
