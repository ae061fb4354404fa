//! [`ReplaceableSocket`]: a UDP socket that can be replaced while an endpoint uses it.
//!
//! A socket that is bound to a network device stops working when the device is removed, even if
//! another one with the same name and address is created later. An endpoint keeps its sockets for
//! its whole life. So the endpoint's socket stays, and the socket behind it is replaced.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use driver::sync::lock;
use engine::Readiness;
use net::{DatagramSocket, RecvMeta, SendError, SocketCounters, Transmit, UdpSocket};

use super::socket::LiveSocket;

/// A UDP socket, or the place for one, which a [`SocketSwitch`] replaces and switches off and on.
#[derive(Debug)]
pub struct ReplaceableSocket {
    /// The current socket; `None` before the first one is installed.
    inner: Option<UdpSocket>,
    /// The version of the switch seen by this handle, and its count of replacements.
    version: u64,
    replaced: u64,
    /// The reason why nothing can be sent now.
    down: Option<String>,
    shared: Arc<Shared>,
    /// Counters reported while there is no socket.
    none: SocketCounters,
}

/// Replaces the socket behind a [`ReplaceableSocket`], from any thread.
#[derive(Debug, Clone)]
pub struct SocketSwitch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Version of the settings, incremented with every change; zero at the start.
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest socket. Each handle clones it.
    replacement: Option<UdpSocket>,
    /// Number of replacements.
    replaced: u64,
    down: Option<String>,
    /// Wakers of the threads that receive from the handles: at most two, the driver's and a
    /// worker's.
    wakers: Vec<Waker>,
}

/// Maximum number of datagrams in a batch for a UDP socket (UDP_MAX_SEGMENTS before Linux 6.9).
const SEGMENTS_MAX: usize = 64;

/// Maximum number of threads to wake. A handle registers again when another handle of its socket
/// begins to receive.
const WAKERS_MAX: usize = 8;

impl ReplaceableSocket {
    /// Creates a socket and its switch.
    #[must_use]
    pub fn new(socket: UdpSocket) -> (Self, SocketSwitch) {
        Self::with(Some(socket))
    }

    /// Creates a place without a socket: it receives nothing, and nothing can be sent.
    #[must_use]
    pub fn vacant() -> (Self, SocketSwitch) {
        Self::with(None)
    }

    fn with(inner: Option<UdpSocket>) -> (Self, SocketSwitch) {
        let shared = Arc::new(Shared::default());
        let switch = SocketSwitch { shared: Arc::clone(&shared) };
        (Self { inner, version: 0, replaced: 0, down: None, shared, none: SocketCounters::default() }, switch)
    }

    /// Adopts changes of the switch. Nearly always there are none, and the cost is one load.
    #[inline]
    fn refresh(&mut self) {
        if self.shared.version.load(Ordering::Acquire) != self.version {
            self.adopt();
        }
    }

    #[cold]
    fn adopt(&mut self) {
        let state = lock(&self.shared.state);
        let version = self.shared.version.load(Ordering::Acquire);
        self.down.clone_from(&state.down);
        if let Some(replacement) = state.replacement.as_ref().filter(|_| state.replaced != self.replaced) {
            match replacement.try_clone() {
                Ok(socket) => (self.inner, self.replaced) = (Some(socket), state.replaced),
                Err(error) => {
                    // The next call tries again.
                    self.down = Some(format!("its socket cannot be exchanged: {error}"));
                    return;
                }
            }
        }
        self.version = version;
    }
}

impl SocketSwitch {
    /// Installs another socket behind all handles, and switches it on.
    pub fn replace(&self, socket: UdpSocket) {
        self.change(|state| {
            (state.replacement, state.down) = (Some(socket), None);
            state.replaced += 1;
        });
    }

    /// Stops sending, and reports the reason to senders at once: the path becomes silent without
    /// waiting for acknowledgements that cannot come.
    pub fn switch_off(&self, reason: &str) {
        self.change(|state| state.down = Some(reason.to_owned()));
    }

    /// Resumes sending.
    pub fn switch_on(&self) {
        self.change(|state| state.down = None);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.shared.state);
        change(&mut state);
        self.shared.version.fetch_add(1, Ordering::AcqRel);
        let wakers = state.wakers.clone();
        drop(state);
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

impl DatagramSocket for ReplaceableSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.inner {
            Some(socket) => socket.local_addr(),
            None => Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        }
    }

    fn max_gso_segments(&self) -> usize {
        // The driver asks only once. A socket with a lower limit splits batches itself.
        self.inner.as_ref().map_or(SEGMENTS_MAX, DatagramSocket::max_gso_segments)
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.as_ref().map_or(1, DatagramSocket::max_gro_segments)
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.refresh();
        match (&self.down, &mut self.inner) {
            (None, Some(socket)) => socket.send(transmit),
            (Some(reason), _) => Err(SendError::Other(io::Error::new(io::ErrorKind::NetworkDown, reason.clone()))),
            (None, None) => Err(SendError::Other(io::ErrorKind::NotConnected.into())),
        }
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.refresh();
        self.inner.as_mut().map_or(Ok(()), DatagramSocket::flush)
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.refresh();
        match &mut self.inner {
            Some(socket) => socket.recv(buffers, metas),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.as_ref().map_or(&self.none, DatagramSocket::counters)
    }
}

impl LiveSocket for ReplaceableSocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.refresh();
        let mut state = lock(&self.shared.state);
        state.wakers.retain(|known| !known.will_wake(waker));
        if state.wakers.len() == WAKERS_MAX {
            state.wakers.remove(0);
        }
        state.wakers.push(waker.clone());
        drop(state);
        match &mut self.inner {
            Some(socket) => socket.readiness(waker),
            None => Readiness::Waker,
        }
    }

    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        self.refresh();
        let inner = self.inner.as_ref().map(UdpSocket::try_clone).transpose()?;
        let (down, shared) = (self.down.clone(), Arc::clone(&self.shared));
        let none = SocketCounters::default();
        Ok(Some(Box::new(Self { inner, version: self.version, replaced: self.replaced, down, shared, none })))
    }

    fn replacements(&mut self) -> u64 {
        self.refresh();
        self.replaced
    }
}
