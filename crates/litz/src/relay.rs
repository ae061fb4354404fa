//! A relay on loopback: datagrams between clients and one server pass through link models, without root.
//!
//! ```text
//!   client ──▶ front socket ──▶ forward link ──▶ one socket a client ──▶ server
//!          ◀──              ◀── backward link ◀──                   ◀──
//! ```
//!
//! The relay is one thread. Datagrams leave when the model says so, as exactly as the system's timers allow.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use net::{DatagramSocket, MonotonicClock, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocket, UdpSocketOptions};
use netem::{Link, LinkConfig, LinkStats, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{Duration, Instant, Rng};

/// Clients the relay remembers; datagrams of further ones are dropped.
pub const CLIENTS_MAX: usize = 64;

/// Receive buffers, each for one batch.
const BATCHES: usize = 8;

/// The relay looks this often whether it was asked to stop or to change.
const WAKE_INTERVAL: Duration = Duration::from_millis(20);

/// What a relay does.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Where clients send to; port 0 is any.
    pub listen: SocketAddr,
    /// The link towards the server.
    pub forward: LinkConfig,
    /// The link back.
    pub backward: LinkConfig,
    /// Seed of the links' faults.
    pub seed: u64,
}

/// A running relay. Dropping it stops it.
pub struct Relay {
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// While set, everything that arrives is dropped: the network is away.
    away: AtomicBool,
    server: Mutex<Option<SocketAddr>>,
    stats: Mutex<RelayStats>,
}

/// What the links did.
#[derive(Debug, Clone, Default)]
pub struct RelayStats {
    /// Towards the server.
    pub forward: LinkStats,
    /// Back.
    pub backward: LinkStats,
    /// Datagrams dropped while the network was away.
    pub away: u64,
}

impl Relay {
    /// Starts a relay. Until [`Relay::set_server`] is called, datagrams are dropped.
    ///
    /// # Errors
    /// If the front socket cannot be opened.
    pub fn start(config: RelayConfig) -> io::Result<Self> {
        let front = UdpSocket::open(&UdpSocketOptions::new(config.listen)).map_err(io::Error::other)?;
        let local_addr = front.local_addr()?;
        let shared = Arc::new(Shared::default());
        let root = Rng::from_seed(config.seed);
        let mut worker = Worker {
            front,
            clients: Vec::new(),
            by_address: BTreeMap::new(),
            forward: Link::new(config.forward, root.split("forward")),
            backward: Link::new(config.backward, root.split("backward")),
            shared: shared.clone(),
            clock: MonotonicClock::start(),
            buffers: vec![vec![0; RECV_BUFFER_BYTES]; BATCHES],
        };
        #[expect(clippy::disallowed_methods, reason = "an emulated link beside the engine: one thread, joined on drop")]
        let thread = std::thread::Builder::new().name("litz-relay".into()).spawn(move || worker.run())?;
        Ok(Self { local_addr, shared, thread: Some(thread) })
    }

    /// Where clients send to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where the server listens.
    pub fn set_server(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }

    /// Takes the network away, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
    }

    /// What the links have done so far.
    pub fn stats(&self) -> RelayStats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the relay has been printed; there is nobody to tell it to here.
            let _joined = thread.join();
        }
    }
}

/// A datagram under way.
#[derive(Clone)]
struct Datagram {
    bytes: Vec<u8>,
    client: usize,
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

struct Client {
    address: SocketAddr,
    socket: UdpSocket,
}

struct Worker {
    front: UdpSocket,
    clients: Vec<Client>,
    by_address: BTreeMap<SocketAddr, usize>,
    forward: Link<Datagram>,
    backward: Link<Datagram>,
    shared: Arc<Shared>,
    clock: MonotonicClock,
    buffers: Vec<Vec<u8>>,
}

impl Worker {
    fn run(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let server = *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner);
            let away = self.shared.away.load(Ordering::Relaxed);
            let mut dropped = self.take_from_clients(away || server.is_none());
            dropped += self.take_from_server(away);
            if let Some(server) = server {
                self.deliver(server);
            }
            let mut stats = self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
            stats.forward = *self.forward.stats();
            stats.backward = *self.backward.stats();
            stats.away += dropped;
            drop(stats);
            self.wait();
        }
    }

    /// Datagrams that clients sent; returns how many were dropped.
    fn take_from_clients(&mut self, drop_all: bool) -> u64 {
        let mut metas = [RecvMeta::default(); BATCHES];
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut dropped = 0;
        while let Some(count) = receive(&mut self.front, &mut buffers, &mut metas) {
            let now = self.clock.now();
            for (meta, buffer) in metas[..count].iter().zip(&buffers) {
                let client = self.client(meta.source).filter(|_| !drop_all);
                for bytes in meta.datagrams(buffer) {
                    match client {
                        Some(client) => self.forward.send(now, Datagram { bytes: bytes.to_vec(), client }),
                        None => dropped += 1,
                    }
                }
            }
        }
        self.buffers = buffers;
        dropped
    }

    fn take_from_server(&mut self, drop_all: bool) -> u64 {
        let mut metas = [RecvMeta::default(); BATCHES];
        let mut dropped = 0;
        for client in 0..self.clients.len() {
            while let Some(count) = receive(&mut self.clients[client].socket, &mut self.buffers, &mut metas) {
                let now = self.clock.now();
                for (meta, buffer) in metas[..count].iter().zip(&self.buffers) {
                    for bytes in meta.datagrams(buffer) {
                        if drop_all {
                            dropped += 1;
                        } else {
                            self.backward.send(now, Datagram { bytes: bytes.to_vec(), client });
                        }
                    }
                }
            }
        }
        dropped
    }

    /// The number of the client at `address`; none if there are too many.
    fn client(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(client) = self.by_address.get(&address) {
            return Some(*client);
        }
        if self.clients.len() >= CLIENTS_MAX {
            return None;
        }
        let bind = SocketAddr::new(self.front.local_addr().ok()?.ip(), 0);
        let socket = match UdpSocket::open(&UdpSocketOptions::new(bind)) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "the relay cannot serve another client");
                return None;
            }
        };
        self.clients.push(Client { address, socket });
        self.by_address.insert(address, self.clients.len() - 1);
        Some(self.clients.len() - 1)
    }

    /// Sends what the links let out. What the system's buffers refuse is dropped, as a full link would.
    fn deliver(&mut self, server: SocketAddr) {
        let now = self.clock.now();
        while let Some(datagram) = self.forward.poll_deliver(now) {
            send(&mut self.clients[datagram.client].socket, server, &datagram.bytes);
        }
        while let Some(datagram) = self.backward.poll_deliver(now) {
            let destination = self.clients[datagram.client].address;
            send(&mut self.front, destination, &datagram.bytes);
        }
    }

    /// Sleeps until a datagram arrives or one is due.
    fn wait(&mut self) {
        let now = self.clock.now();
        let due = [self.forward.poll_timeout(), self.backward.poll_timeout()].into_iter().flatten().min();
        let span = due.map_or(WAKE_INTERVAL, |due: Instant| due.saturating_since(now).min(WAKE_INTERVAL));
        let timeout = Timespec { tv_sec: 0, tv_nsec: span.as_nanos() as _ };
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.front.as_fd(), PollFlags::IN)];
        let sockets = self.clients.iter().map(|client| PollFd::from_borrowed_fd(client.socket.as_fd(), PollFlags::IN));
        descriptors.extend(sockets);
        // An interrupted wait is as good as a short one.
        let _ready = poll(&mut descriptors, Some(&timeout));
    }
}

/// Fills the buffers; none if nothing is there.
fn receive(socket: &mut UdpSocket, buffers: &mut [Vec<u8>], metas: &mut [RecvMeta; BATCHES]) -> Option<usize> {
    let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    match socket.recv(&mut slices, metas) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => {
            // A peer that is gone shows as a refused connection; the relay goes on for the others.
            tracing::debug!(%error, "the relay's socket");
            None
        }
    }
}

fn send(socket: &mut UdpSocket, destination: SocketAddr, contents: &[u8]) {
    let transmit = Transmit { destination, source_ip: None, ecn: None, contents, segment_size: None };
    if let Err(error) = socket.send(&transmit) {
        tracing::debug!(?error, "the relay could not send");
    }
}
