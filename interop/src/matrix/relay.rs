//! A UDP relay between a client and a server on loopback, as a NAT: it makes faults, and counts what
//! passes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use net::{DatagramSocket, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocket, UdpSocketOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{Ecn, Rng};

/// How long the relay's thread sleeps at most before it looks whether it is dropped.
const TICK: Duration = Duration::from_millis(20);

/// Buffers that are read from one socket before the next one has its turn.
const BUFFERS_PER_TURN: usize = 8;

/// Clients that the relay tells apart, at most: migrations of one connection.
const FLOWS_MAX: usize = 16;

/// The faults that a relay makes.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Datagrams lost of a thousand, in each direction.
    pub loss_per_mille: u32,
    /// Longer datagrams are dropped, in bytes of UDP payload.
    pub datagram_max: Option<usize>,
    /// With the first datagram of the client after this many bytes have passed in both directions, it
    /// has another address for the server; one entry for each time, ascending. (If no datagram
    /// followed, neither side could know.)
    pub rebind_at: Vec<u64>,
    /// Once a datagram comes from a new address of the client, nothing passes on the flows before.
    pub old_paths_die: bool,
    /// From the client's second connection on, nothing comes back before 0-RTT data have passed. On
    /// loopback, the server's answer to a first packet can be faster than the next call of a program.
    pub holds_until_early: bool,
    /// Every such ECN-capable datagram of a direction is marked CE.
    pub mark_every: Option<u64>,
}

/// Datagrams that are held back, at most: a server sends less before its client is validated (RFC
/// 9000, section 8.1).
const HELD_MAX: usize = 64;

/// Connections of the client that are told apart, at most.
const CONNECTIONS_MAX: usize = 16;

/// What passed in one direction.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Datagrams that arrived at the relay.
    pub datagrams: u64,
    /// Bytes that were passed on.
    pub bytes: u64,
    /// Datagrams dropped by the faults.
    pub dropped: u64,
    /// The longest datagram that was passed on.
    pub longest: usize,
    /// Datagrams that came with an ECN-capable mark.
    pub ecn_capable: u64,
    /// The datagrams since the last one with an ECN-capable mark.
    pub since_ecn: u64,
    /// Datagrams that left with CE.
    pub marked: u64,
}

/// What the relay has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From the client.
    pub up: Way,
    /// From the server.
    pub down: Way,
    /// Retry packets of the server.
    pub retries: u64,
    /// Datagrams of the client that begin with, or contain after an Initial packet, 0-RTT data.
    pub early: u64,
    /// The version of the client's first packet.
    pub began_in: Option<u32>,
    /// Versions in long headers of the server, other than zero.
    pub versions: Vec<u32>,
    /// Bytes passed for each address of the client, in the order in which they appeared.
    pub flows: Vec<u64>,
    /// How often the client got another address for the server.
    pub rebindings: u64,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// Nothing passes.
    is_cut: bool,
    is_dropped: bool,
    seen: Seen,
    failed: Option<io::Error>,
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Mutex<Shared>>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("the relay does not panic")
}

fn socket() -> io::Result<UdpSocket> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpSocket::open(&UdpSocketOptions::new(loopback)).map_err(io::Error::other)
}

impl Relay {
    /// Starts one in front of `server`.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn start(server: SocketAddr, faults: Faults, seed: u64) -> io::Result<Self> {
        let front = socket()?;
        let address = front.local_addr()?;
        let shared = Shared { server, is_cut: false, is_dropped: false, seen: Seen::default(), failed: None };
        let shared = Arc::new(Mutex::new(shared));
        let mut worker = Worker {
            front,
            flows: Vec::new(),
            known: BTreeMap::new(),
            faults,
            rng: Rng::from_seed(seed),
            passed: 0,
            connections: BTreeSet::new(),
            held: Vec::new(),
        };
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || {
                if let Err(error) = worker.run(&shared) {
                    lock(&shared).failed = Some(error);
                }
            }
        });
        Ok(Self { shared, address, thread: Some(thread) })
    }

    /// Where the client has to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing pass, or everything again.
    pub fn set_cut(&self, is_cut: bool) {
        lock(&self.shared).is_cut = is_cut;
    }

    /// The server is at another address from now on.
    pub fn set_server(&self, server: SocketAddr) {
        lock(&self.shared).server = server;
    }

    /// What it has seen so far.
    ///
    /// # Errors
    /// If its thread failed.
    pub fn seen(&self) -> io::Result<Seen> {
        let mut shared = lock(&self.shared);
        shared.failed.take().map_or_else(|| Ok(shared.seen.clone()), Err)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.shared).is_dropped = true;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the relay does not panic");
        }
    }
}

/// An address of the client.
struct Flow {
    client: SocketAddr,
    back: UdpSocket,
    is_dead: bool,
}

struct Worker {
    front: UdpSocket,
    flows: Vec<Flow>,
    known: BTreeMap<SocketAddr, usize>,
    faults: Faults,
    rng: Rng,
    /// Bytes passed in both directions.
    passed: u64,
    /// The client's connections, by the source connection IDs of its long headers.
    connections: BTreeSet<Vec<u8>>,
    /// Datagrams of the server that wait for 0-RTT data: the flow, the mark, the contents.
    held: Vec<(usize, Option<Ecn>, Vec<u8>)>,
}

impl Worker {
    fn run(&mut self, shared: &Mutex<Shared>) -> io::Result<()> {
        let mut buffer = vec![0; RECV_BUFFER_BYTES];
        while !lock(shared).is_dropped {
            self.wait()?;
            for _ in 0..BUFFERS_PER_TURN {
                let Some(meta) = receive(&mut self.front, &mut buffer)? else { break };
                self.from_client(&meta, &buffer, &mut lock(shared))?;
            }
            for index in 0..self.flows.len() {
                for _ in 0..BUFFERS_PER_TURN {
                    let Some(meta) = receive(&mut self.flows[index].back, &mut buffer)? else { break };
                    self.from_server(index, &meta, &buffer, &mut lock(shared))?;
                }
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let sockets = std::iter::once(&self.front).chain(self.flows.iter().map(|flow| &flow.back));
        let mut fds: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)).collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        match poll(&mut fds, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn from_client(&mut self, meta: &RecvMeta, buffer: &[u8], shared: &mut Shared) -> io::Result<()> {
        let index = match self.known.get(&meta.source) {
            Some(&index) => index,
            None if self.flows.len() == FLOWS_MAX => return Ok(()),
            None => {
                for flow in &mut self.flows {
                    flow.is_dead |= self.faults.old_paths_die;
                }
                self.flows.push(Flow { client: meta.source, back: socket()?, is_dead: false });
                shared.seen.flows.push(0);
                self.known.insert(meta.source, self.flows.len() - 1);
                self.flows.len() - 1
            }
        };
        for datagram in meta.datagrams(buffer) {
            self.note_client(datagram, &mut shared.seen);
            if let Some(ecn) = self.admit(datagram.len(), meta.ecn, index, shared.is_cut, &mut shared.seen.up) {
                self.count(index, datagram.len(), &mut shared.seen);
                self.rebind_if_due(index, &mut shared.seen)?;
                send(&mut self.flows[index].back, shared.server, ecn, datagram);
            }
        }
        Ok(())
    }

    fn from_server(&mut self, index: usize, meta: &RecvMeta, buffer: &[u8], shared: &mut Shared) -> io::Result<()> {
        // A server that was replaced has nothing more to say.
        if meta.source != shared.server {
            return Ok(());
        }
        for datagram in meta.datagrams(buffer) {
            note_long_header(datagram, &mut shared.seen);
            if let Some(ecn) = self.admit(datagram.len(), meta.ecn, index, shared.is_cut, &mut shared.seen.down) {
                let client = self.flows[index].client;
                self.count(index, datagram.len(), &mut shared.seen);
                if self.is_holding(&shared.seen) {
                    if self.held.len() < HELD_MAX {
                        self.held.push((index, ecn, datagram.to_vec()));
                    }
                } else {
                    send(&mut self.front, client, ecn, datagram);
                }
            }
        }
        Ok(())
    }

    /// Counts what the long header of a client's datagram tells, and releases what waits for it.
    fn note_client(&mut self, datagram: &[u8], seen: &mut Seen) {
        if let Some((version, _)) = long_header(datagram) {
            seen.began_in.get_or_insert(version);
        }
        if let Some(id) = source_connection_id(datagram).filter(|_| self.connections.len() < CONNECTIONS_MAX) {
            self.connections.insert(id.to_vec());
        }
        seen.early += u64::from(has_early_data(datagram));
        if !self.is_holding(seen) {
            for (index, ecn, held) in self.held.drain(..) {
                send(&mut self.front, self.flows[index].client, ecn, &held);
            }
        }
    }

    fn is_holding(&self, seen: &Seen) -> bool {
        self.faults.holds_until_early && self.connections.len() > 1 && seen.early == 0
    }

    /// The mark with which the datagram is passed on; none if it is dropped.
    fn admit(
        &mut self,
        len: usize,
        ecn: Option<Ecn>,
        index: usize,
        is_cut: bool,
        way: &mut Way,
    ) -> Option<Option<Ecn>> {
        way.datagrams += 1;
        way.since_ecn += 1;
        if ecn.is_some() {
            way.ecn_capable += 1;
            way.since_ecn = 0;
        }
        if is_cut || self.flows[index].is_dead {
            return None;
        }
        let is_lost = self.rng.below(1000) < u64::from(self.faults.loss_per_mille);
        if is_lost || self.faults.datagram_max.is_some_and(|max| len > max) {
            way.dropped += 1;
            return None;
        }
        way.bytes += len as u64;
        way.longest = way.longest.max(len);
        let is_marked = ecn.is_some() && self.faults.mark_every.is_some_and(|every| way.ecn_capable % every == 0);
        way.marked += u64::from(is_marked);
        Some(if is_marked { Some(Ecn::Ce) } else { ecn })
    }

    fn count(&mut self, index: usize, len: usize, seen: &mut Seen) {
        self.passed += len as u64;
        seen.flows[index] += len as u64;
    }

    fn rebind_if_due(&mut self, index: usize, seen: &mut Seen) -> io::Result<()> {
        if self.faults.rebind_at.first().is_some_and(|at| self.passed >= *at) {
            self.faults.rebind_at.remove(0);
            seen.rebindings += 1;
            self.flows[index].back = socket()?;
        }
        Ok(())
    }
}

fn receive(socket: &mut UdpSocket, buffer: &mut [u8]) -> io::Result<Option<RecvMeta>> {
    let mut meta = [RecvMeta::default()];
    match socket.recv(&mut [buffer], &mut meta) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(meta[0])),
        // A server that restarts is not there for a moment.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Passes a datagram on. One that the socket refuses is lost, as in a router with full queues.
fn send(socket: &mut UdpSocket, destination: SocketAddr, ecn: Option<Ecn>, contents: &[u8]) {
    let transmit = Transmit { destination, source_ip: None, ecn, contents, segment_size: None };
    let _is_lost = socket.send(&transmit).is_err();
}

const VERSION_2: u32 = 0x6b33_43cf;

/// The version and the type bits of a long header (RFC 9000, section 17.2).
fn long_header(datagram: &[u8]) -> Option<(u32, u8)> {
    let (&first, rest) = datagram.split_first()?;
    let version = u32::from_be_bytes(rest.get(..4)?.try_into().expect("four bytes"));
    (first & 0x80 != 0).then_some((version, first >> 4 & 3))
}

/// The source connection ID of a long header (RFC 8999, section 5.1).
fn source_connection_id(datagram: &[u8]) -> Option<&[u8]> {
    long_header(datagram)?;
    let rest = datagram.get(5..)?;
    let rest = rest.get(1 + usize::from(*rest.first()?)..)?;
    rest.get(1..1 + usize::from(*rest.first()?))
}

fn note_long_header(datagram: &[u8], seen: &mut Seen) {
    let Some((version, kind)) = long_header(datagram) else { return };
    if version == 0 {
        return;
    }
    if !seen.versions.contains(&version) {
        seen.versions.push(version);
    }
    // RFC 9369, section 3.2: version 2 has other type bits.
    seen.retries += u64::from(kind == if version == VERSION_2 { 0 } else { 3 });
}

/// Whether a packet of 0-RTT data is in the datagram.
fn has_early_data(mut datagram: &[u8]) -> bool {
    while let Some((version, kind)) = long_header(datagram) {
        let kind = if version == VERSION_2 { (kind + 3) % 4 } else { kind };
        if kind == 1 {
            return true;
        }
        let Some(rest) = after_packet(datagram, kind == 0) else { return false };
        datagram = rest;
    }
    false
}

/// What follows a packet with a long header (RFC 9000, section 17.2).
fn after_packet(datagram: &[u8], is_initial: bool) -> Option<&[u8]> {
    let mut rest = datagram.get(5..)?;
    for _connection_id in 0..2 {
        let len = usize::from(*rest.first()?);
        rest = rest.get(1 + len..)?;
    }
    if is_initial {
        let (token, after) = varint(rest)?;
        rest = after.get(token..)?;
    }
    let (len, after) = varint(rest)?;
    after.get(len..)
}

fn varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let len = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    let value = number.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    Some(((value & (u64::MAX >> (66 - 8 * len))) as usize, rest))
}
