//! What the thread of a relay's link does.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use net::{DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, UdpSocket};
use netem::{Change, ConfigError, Link, Packet};
use units::{Instant, Rng};

use super::RelayLink;
use super::batch::Batch;
use super::clients::{CLIENTS_FROM, ClientId, Clients};
use crate::pool::Pool;
use crate::sleep::Sleeper;
use crate::worker::{OneWay, Station, change_link};
use crate::{DirectionReport, Lateness, LinkReport};

/// Receive buffers, each for one batch of datagrams.
const BUFFERS: usize = 8;

/// Times that all buffers are filled from the front socket in one turn.
const READS_PER_TURN: usize = 4;

/// Datagrams sent in one turn and direction.
const WRITES_PER_TURN: usize = 512;

/// Source of the front socket.
const FRONT: usize = 0;

/// A datagram under way.
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
        // A datagram without a mark does not understand them (RFC 3168, section 5).
        if self.ecn.is_some() {
            self.ecn = Some(Ecn::Ce);
        }
        self.ecn.is_some()
    }
}

/// One direction's link and counters.
struct Way {
    link: Link<Datagram>,
    batch: Batch,
    lateness: Lateness,
    refused: u64,
    ignored: u64,
}

pub(super) struct RelayStation {
    name: String,
    front: UdpSocket,
    front_readable: bool,
    server: Option<SocketAddr>,
    clients: Clients,
    forward: Way,
    backward: Way,
    buffers: Vec<Vec<u8>>,
    pool: Pool,
    turned_away: u64,
    unserved: u64,
    /// What the system said the first time.
    unserved_why: Option<String>,
}

impl Way {
    fn new(link: Link<Datagram>) -> Self {
        Self { link, batch: Batch::default(), lateness: Lateness::default(), refused: 0, ignored: 0 }
    }

    /// Hands `datagrams` to the link.
    fn offer(&mut self, now: Instant, client: ClientId, meta: &RecvMeta, buffer: &[u8], pool: &mut Pool) {
        for datagram in meta.datagrams(buffer) {
            let mut bytes = pool.take();
            bytes.clear();
            bytes.extend_from_slice(datagram);
            self.link.send(now, Datagram { bytes, client, ecn: meta.ecn });
        }
    }

    /// Lets out what is due by `now`, in batches that `send` sends; it says how many datagrams were refused.
    fn deliver(&mut self, now: Instant, count_max: usize, pool: &mut Pool, mut send: impl FnMut(&mut Batch) -> u64) {
        let Some(due) = self.link.poll_timeout().filter(|&due| due <= now) else { return };
        for index in 0..WRITES_PER_TURN {
            let Some(Datagram { bytes, client, ecn }) = self.link.poll_deliver(now) else { break };
            if index == 0 {
                self.lateness.note(due, now);
            }
            if !self.batch.takes(client, ecn, bytes.len(), count_max) {
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

impl RelayStation {
    pub(super) fn new(link: RelayLink, front: UdpSocket, rng: &Rng) -> Self {
        Self {
            name: link.name,
            front,
            front_readable: true,
            server: link.server,
            clients: Clients::default(),
            forward: Way::new(Link::new(link.forward, rng.split("forward"))),
            backward: Way::new(Link::new(link.backward, rng.split("backward"))),
            buffers: vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS],
            pool: Pool::default(),
            turned_away: 0,
            unserved: 0,
            unserved_why: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn take_from_clients(&mut self, sleeper: &Sleeper) {
        let mut metas = [RecvMeta::default(); BUFFERS];
        for _ in 0..READS_PER_TURN {
            if !self.front_readable {
                return;
            }
            let Some(count) = receive(&mut self.front, &mut self.buffers, &mut metas) else {
                self.front_readable = false;
                return;
            };
            let now = sleeper.clock().now();
            for (meta, buffer) in metas[..count].iter().zip(&self.buffers) {
                let Some(server) = self.server else {
                    self.forward.ignored += meta.datagrams(buffer).count() as u64;
                    continue;
                };
                match self.clients.admit(meta.source, server, now, sleeper) {
                    Ok(client) => self.forward.offer(now, client, meta, buffer, &mut self.pool),
                    Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                        if self.turned_away == 0 {
                            tracing::warn!(%error, client = %meta.source, "the relay turns clients away");
                        }
                        self.turned_away += meta.datagrams(buffer).count() as u64;
                    }
                    Err(error) => {
                        self.unserved += meta.datagrams(buffer).count() as u64;
                        self.unserved_why.get_or_insert_with(|| {
                            tracing::warn!(%error, client = %meta.source, "the relay has no socket for a client");
                            error.to_string()
                        });
                    }
                }
            }
        }
    }

    fn take_from_server(&mut self, now: Instant) -> bool {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut has_more = false;
        for (id, client) in self.clients.readable_mut() {
            let Some(count) = receive(&mut client.socket, &mut self.buffers, &mut metas) else {
                client.is_readable = false;
                continue;
            };
            has_more = true;
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
        // All sockets segment alike.
        let count_max = front.max_gso_segments();
        forward.deliver(now, count_max, pool, |batch| {
            match (batch.client().and_then(|id| clients.get_mut(id)), *server) {
                (Some(client), Some(server)) => batch.send(&mut client.socket, server),
                // The client's place has gone to another meanwhile.
                _ => batch.clear(),
            }
        });
        backward.deliver(now, count_max, pool, |batch| match batch.client().and_then(|id| clients.get_mut(id)) {
            Some(client) => batch.send(front, client.address),
            None => batch.clear(),
        });
    }
}

impl Station for RelayStation {
    fn start(&mut self, sleeper: &Sleeper) -> io::Result<()> {
        sleeper.watch(FRONT, self.front.as_raw_fd())
    }

    fn readable(&mut self, source: usize) {
        match source.checked_sub(CLIENTS_FROM) {
            None => self.front_readable = true,
            Some(slot) => self.clients.readable(slot),
        }
    }

    fn turn(&mut self, sleeper: &Sleeper) -> io::Result<bool> {
        let clock = sleeper.clock();
        self.take_from_clients(sleeper);
        let has_more = self.take_from_server(clock.now()) || self.front_readable;
        self.deliver(clock.now());
        Ok(has_more)
    }

    fn due(&self) -> Option<Instant> {
        self.forward.link.poll_timeout().into_iter().chain(self.backward.link.poll_timeout()).min()
    }

    fn change(&mut self, now: Instant, direction: OneWay, change: &Change) -> Result<(), ConfigError> {
        let way = match direction {
            OneWay::Forward => &mut self.forward,
            OneWay::Backward => &mut self.backward,
        };
        change_link(&mut way.link, now, change)
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
        }
    }
}

/// Fills the buffers; none if nothing is there, and zero if the next attempt may find something.
fn receive(socket: &mut UdpSocket, buffers: &mut [Vec<u8>], metas: &mut [RecvMeta; BUFFERS]) -> Option<usize> {
    let mut buffers = buffers.iter_mut();
    let mut slices: [&mut [u8]; BUFFERS] =
        core::array::from_fn(|_| buffers.next().map_or(&mut [] as &mut [u8], Vec::as_mut_slice));
    match socket.recv(&mut slices, metas) {
        Ok(count) => Some(count),
        // A peer that is gone shows once, before what others have sent.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted) => Some(0),
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                tracing::debug!(%error, "the relay's socket");
            }
            None
        }
    }
}

/// The same address and port; flow labels and scopes do not matter.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}
