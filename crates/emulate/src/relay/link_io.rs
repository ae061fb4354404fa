//! Packet I/O of a relay link.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use net::udp::RECV_BATCH_MAX;
use net::{DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, UdpSocket};
use netem::{Change, ConfigError, Link, Packet};
use units::{Duration, Instant, Rng};

use super::RelayLink;
use super::batch::Batch;
use super::clients::{ClientId, Clients, FIRST_CLIENT_SOURCE};
use crate::poller::Poller;
use crate::pool::BufferPool;
use crate::report::{DirectionReport, Lateness, LinkReport};
use crate::worker::{LinkIo, SingleDirection, change_link};

/// Number of receive buffers, each for one batch of datagrams.
const BUFFERS: usize = 8;

/// Times that all buffers are filled from a socket per turn.
const READS_PER_TURN: usize = 4;

/// Datagrams sent per turn and direction.
const WRITES_PER_TURN: usize = 512;

/// Datagrams of a busy relay are received and sent together at this interval. Where a system call
/// takes microseconds, a wake-up for each datagram of a few hundred Mb/s would fill the processors;
/// the delays of real links are some ten times as long. A datagram that arrives or is due after a
/// longer rest is not held back.
const BATCH_INTERVAL: Duration = Duration::from_micros(200);

/// Poller source of the front socket.
const FRONT: usize = 0;

/// A datagram on the link.
#[derive(Clone)]
struct Datagram {
    bytes: Vec<u8>,
    client: ClientId,
    ecn: Option<Ecn>,
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

    fn mark_ce(&mut self) -> bool {
        // A datagram without an ECN mark is not ECN-capable (RFC 3168, section 5).
        if self.ecn.is_some() {
            self.ecn = Some(Ecn::Ce);
        }
        self.ecn.is_some()
    }

    fn is_scalable(&self) -> bool {
        self.ecn == Some(Ecn::Ect1)
    }
}

/// The link and counters of one direction.
struct RelayDirection {
    link: Link<Datagram>,
    batch: Batch,
    lateness: Lateness,
    refused: u64,
    ignored: u64,
}

pub(super) struct RelayIo {
    name: String,
    front: UdpSocket,
    front_readable: bool,
    server: Option<SocketAddr>,
    clients: Clients,
    forward: RelayDirection,
    backward: RelayDirection,
    buffers: Vec<Vec<u8>>,
    pool: BufferPool,
    turned_away: u64,
    unserved: u64,
    /// The system's error at the first occurrence.
    unserved_why: Option<String>,
}

impl RelayDirection {
    fn new(link: Link<Datagram>) -> Self {
        Self { link, batch: Batch::default(), lateness: Lateness::default(), refused: 0, ignored: 0 }
    }

    /// Sends `datagrams` into the link.
    fn offer(&mut self, now: Instant, client: ClientId, meta: &RecvMeta, buffer: &[u8], pool: &mut BufferPool) {
        for datagram in meta.datagrams(buffer) {
            let mut bytes = pool.take();
            bytes.clear();
            bytes.extend_from_slice(datagram);
            self.link.send(now, Datagram { bytes, client, ecn: meta.ecn });
        }
    }

    /// Sends datagrams due by `now`, in batches, with `send`, which returns the number of rejected
    /// datagrams.
    fn deliver(
        &mut self,
        now: Instant,
        count_max: usize,
        pool: &mut BufferPool,
        mut send: impl FnMut(&mut Batch) -> u64,
    ) {
        let Some(due) = self.link.poll_timeout().filter(|&due| due <= now) else { return };
        for index in 0..WRITES_PER_TURN {
            let Some(Datagram { bytes, client, ecn }) = self.link.poll_deliver(now) else { break };
            if index == 0 {
                self.lateness.record(due, now);
            }
            if !self.batch.accepts(client, ecn, bytes.len(), count_max) {
                self.refused += send(&mut self.batch);
            }
            self.batch.push(client, ecn, &bytes);
            pool.put(bytes);
        }
        self.refused += send(&mut self.batch);
    }

    fn report(&self) -> DirectionReport {
        DirectionReport {
            link: *self.link.stats(),
            held: self.link.held(),
            lateness: self.lateness,
            refused: self.refused,
            ignored: self.ignored,
        }
    }
}

impl RelayIo {
    pub(super) fn new(link: RelayLink, front: UdpSocket, rng: &Rng) -> Self {
        Self {
            name: link.name,
            front,
            front_readable: true,
            server: link.server,
            clients: Clients::default(),
            forward: RelayDirection::new(Link::new(link.forward, rng.split("forward"))),
            backward: RelayDirection::new(Link::new(link.backward, rng.split("backward"))),
            buffers: vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS],
            pool: BufferPool::default(),
            turned_away: 0,
            unserved: 0,
            unserved_why: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn take_from_clients(&mut self, poller: &Poller) {
        let mut metas = [RecvMeta::default(); BUFFERS];
        for _ in 0..READS_PER_TURN {
            if !self.front_readable {
                return;
            }
            let Some(count) = receive(&mut self.front, &mut self.buffers, &mut metas) else {
                self.front_readable = false;
                return;
            };
            self.front_readable = may_have_more(count);
            let now = poller.clock().now();
            for (meta, buffer) in metas[..count].iter().zip(&self.buffers) {
                let Some(server) = self.server else {
                    self.forward.ignored += meta.datagrams(buffer).count() as u64;
                    continue;
                };
                match self.clients.admit(meta.source, server, now, poller) {
                    Ok(client) => self.forward.offer(now, client, meta, buffer, &mut self.pool),
                    Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                        if self.turned_away == 0 {
                            tracing::warn!(%error, client = %meta.source, "the relay rejects clients");
                        }
                        self.turned_away += meta.datagrams(buffer).count() as u64;
                    }
                    Err(error) => {
                        self.unserved += meta.datagrams(buffer).count() as u64;
                        self.unserved_why.get_or_insert_with(|| {
                            tracing::warn!(%error, client = %meta.source, "the relay cannot open a socket for a client");
                            error.to_string()
                        });
                    }
                }
            }
        }
    }

    /// Reads once from each readable socket towards the server; returns whether there may be more.
    fn take_from_server(&mut self, now: Instant) -> bool {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut has_more = false;
        for (id, client) in self.clients.readable_mut() {
            let Some(count) = receive(&mut client.socket, &mut self.buffers, &mut metas) else {
                client.is_readable = false;
                continue;
            };
            client.is_readable = may_have_more(count);
            has_more |= client.is_readable;
            for (meta, buffer) in metas[..count].iter().zip(&self.buffers) {
                let is_server = self.server.is_some_and(|server| is_same(server, meta.source));
                if is_server {
                    self.backward.offer(now, id, meta, buffer, &mut self.pool);
                } else {
                    self.backward.ignored += meta.datagrams(buffer).count() as u64;
                }
            }
        }
        has_more
    }

    fn deliver(&mut self, now: Instant) {
        let Self { front, server, clients, forward, backward, pool, .. } = self;
        // All sockets have the same segmentation limit.
        let count_max = front.max_gso_segments();
        forward.deliver(now, count_max, pool, |batch| {
            match (batch.client().and_then(|id| clients.get_mut(id)), *server) {
                (Some(client), Some(server)) => batch.send(&mut client.socket, server),
                // The client's slot was given to another in the meantime.
                _ => batch.clear(),
            }
        });
        backward.deliver(now, count_max, pool, |batch| match batch.client().and_then(|id| clients.get_mut(id)) {
            Some(client) => batch.send(front, client.address),
            None => batch.clear(),
        });
    }
}

impl LinkIo for RelayIo {
    const TURN_MIN: Duration = BATCH_INTERVAL;

    fn start(&mut self, poller: &Poller) -> io::Result<()> {
        poller.watch(FRONT, self.front.as_raw_fd())
    }

    fn readable(&mut self, source: usize) {
        match source.checked_sub(FIRST_CLIENT_SOURCE) {
            None => self.front_readable = true,
            Some(slot) => self.clients.readable(slot),
        }
    }

    fn turn(&mut self, poller: &Poller) -> io::Result<bool> {
        let clock = poller.clock();
        self.take_from_clients(poller);
        let server_has_more = (0..READS_PER_TURN).all(|_| self.take_from_server(clock.now()));
        let has_more = server_has_more || self.front_readable;
        self.deliver(clock.now());
        Ok(has_more)
    }

    fn due(&self) -> Option<Instant> {
        self.forward.link.poll_timeout().into_iter().chain(self.backward.link.poll_timeout()).min()
    }

    fn change(&mut self, now: Instant, direction: SingleDirection, change: &Change) -> Result<(), ConfigError> {
        let direction = match direction {
            SingleDirection::Forward => &mut self.forward,
            SingleDirection::Backward => &mut self.backward,
        };
        change_link(&mut direction.link, now, change)
    }

    fn set_server(&mut self, server: SocketAddr) {
        self.server = Some(server);
    }

    fn report(&self) -> LinkReport {
        LinkReport {
            name: self.name.clone(),
            forward: self.forward.report(),
            backward: self.backward.report(),
            turned_away: self.turned_away,
            unserved: self.unserved,
            unserved_why: self.unserved_why.clone(),
            clients: self.clients.count(),
            ..LinkReport::default()
        }
    }
}

/// Fills the buffers. Returns `None` if no data is available, and zero if the next attempt may
/// succeed.
fn receive(socket: &mut UdpSocket, buffers: &mut [Vec<u8>], metas: &mut [RecvMeta; BUFFERS]) -> Option<usize> {
    let mut buffers = buffers.iter_mut();
    let mut slices: [&mut [u8]; BUFFERS] =
        core::array::from_fn(|_| buffers.next().map_or(&mut [] as &mut [u8], Vec::as_mut_slice));
    match socket.recv(&mut slices, metas) {
        Ok(count) => Some(count),
        // An unreachable peer is reported once, before the data of other peers.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted) => Some(0),
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                tracing::debug!(%error, "error on a socket of the relay");
            }
            None
        }
    }
}

/// Returns whether a socket may have more after a call that received `count` messages. A call that
/// receives fewer than it has space for has emptied the socket, and the poller reports what arrives
/// later. With zero the call had an error instead.
const fn may_have_more(count: usize) -> bool {
    count == 0 || count == if BUFFERS < RECV_BATCH_MAX { BUFFERS } else { RECV_BATCH_MAX }
}

/// Compares address and port; ignores flow labels and scopes.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}
