//! In-memory sockets that share a network inside one process.
//!
//! The network behaves like the loopback device of a machine: every address exists, nothing is lost
//! in transit, and a full inbox drops datagrams. Batches stay together, as they do over loopback
//! with both offloads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use units::Ecn;

use crate::counters::SocketCounters;
use crate::datagram::{BATCH_BYTES_MAX, DatagramSocket, RecvMeta, SendError, Transmit};

/// Capacity of one socket's inbox in bytes; further datagrams are dropped. UDP sockets request the
/// same size.
pub const INBOX_BYTES_MAX: usize = 4 << 20;

/// Capacity of one socket's inbox in batches. It bounds a flood of empty datagrams.
pub const INBOX_BATCHES_MAX: usize = 4096;

/// Largest number of datagrams in one batch, as in Linux since 4.18.
const SEGMENTS_MAX: usize = 64;

/// Number of used buffers that an inbox keeps for later arrivals.
const SPARE_BUFFERS_MAX: usize = 64;

/// The first port of the dynamic range (RFC 6335, section 6).
const DYNAMIC_PORT_FIRST: u16 = 49_152;

/// An in-memory network. Clones refer to the same network.
#[derive(Clone, Debug)]
pub struct MemoryNetwork {
    shared: Arc<Shared>,
}

/// A socket on a [`MemoryNetwork`]. Dropping the last handle frees its address.
#[derive(Debug)]
pub struct MemorySocket {
    shared: Arc<Shared>,
    local: SocketAddr,
    inbox: Arc<Mutex<Inbox>>,
    binding: Arc<Binding>,
    counters: SocketCounters,
}

#[derive(Debug)]
struct Shared {
    datagram_bytes_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// Inboxes by address and port alone: flow labels and scopes are ignored.
    inboxes: BTreeMap<(IpAddr, u16), Arc<Mutex<Inbox>>>,
    port_next: u16,
    /// Number of datagrams to addresses without a socket.
    unreachable: u64,
}

#[derive(Debug, Default)]
struct Inbox {
    arrived: VecDeque<Arrived>,
    /// Sum of the lengths in `arrived`.
    bytes: usize,
    /// Number of datagrams dropped because the inbox was full.
    overflowed: u64,
    waker: Option<Waker>,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Arrived {
    source: SocketAddr,
    destination_ip: IpAddr,
    ecn: Option<Ecn>,
    stride: usize,
    contents: Vec<u8>,
}

impl MemoryNetwork {
    /// Creates an empty network that accepts datagrams of UDP's maximum size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_datagram_bytes_max(BATCH_BYTES_MAX)
    }

    /// Creates an empty network that rejects datagrams of more than `datagram_bytes_max` bytes as
    /// too large, like a device with a small MTU.
    #[must_use]
    pub fn with_datagram_bytes_max(datagram_bytes_max: usize) -> Self {
        let table = Table { inboxes: BTreeMap::new(), port_next: DYNAMIC_PORT_FIRST, unreachable: 0 };
        Self { shared: Arc::new(Shared { datagram_bytes_max, table: Mutex::new(table) }) }
    }

    /// Opens a socket at `address`. Port 0 selects a free port. A wildcard address receives the
    /// datagrams for which there is no socket at the exact address.
    ///
    /// # Errors
    /// `AddrInUse` if the address is already in use, or if no port is free.
    pub fn bind(&self, address: SocketAddr) -> io::Result<MemorySocket> {
        let mut table = lock(&self.shared.table);
        let in_use = || io::Error::new(io::ErrorKind::AddrInUse, format!("{address} is already in use"));
        let port = match address.port() {
            0 => table.free_port(address.ip()).ok_or_else(in_use)?,
            port => port,
        };
        let local = SocketAddr::new(address.ip(), port);
        if table.inboxes.contains_key(&(local.ip(), port)) {
            return Err(in_use());
        }
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        table.inboxes.insert((local.ip(), port), Arc::clone(&inbox));
        let shared = Arc::clone(&self.shared);
        let binding = Arc::new(Binding { shared: Arc::clone(&shared), local });
        Ok(MemorySocket { shared, local, inbox, binding, counters: SocketCounters::default() })
    }

    /// Returns the number of datagrams sent to addresses without a socket.
    #[must_use]
    pub fn unreachable(&self) -> u64 {
        lock(&self.shared.table).unreachable
    }
}

impl Default for MemoryNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    fn free_port(&mut self, ip: IpAddr) -> Option<u16> {
        for _ in DYNAMIC_PORT_FIRST..=u16::MAX {
            let port = self.port_next;
            self.port_next = port.checked_add(1).unwrap_or(DYNAMIC_PORT_FIRST);
            if !self.inboxes.contains_key(&(ip, port)) {
                return Some(port);
            }
        }
        None
    }

    fn route(&self, destination: SocketAddr) -> Option<Arc<Mutex<Inbox>>> {
        let port = destination.port();
        let exact = self.inboxes.get(&(destination.ip(), port));
        exact.or_else(|| self.inboxes.get(&(wildcard(destination.ip()), port))).cloned()
    }
}

impl Inbox {
    /// Stores a batch, or counts it as overflowed. Returns the waker to call once the lock is
    /// released.
    fn deliver(&mut self, source: SocketAddr, transmit: &Transmit<'_>) -> Option<Waker> {
        let bytes = transmit.contents.len();
        if self.bytes + bytes > INBOX_BYTES_MAX || self.arrived.len() >= INBOX_BATCHES_MAX {
            self.overflowed += bytes.div_ceil(transmit.stride()).max(1) as u64;
            return None;
        }
        let mut contents = self.spare.pop().unwrap_or_default();
        contents.extend_from_slice(transmit.contents);
        self.bytes += bytes;
        self.arrived.push_back(Arrived {
            source,
            destination_ip: transmit.destination.ip(),
            ecn: transmit.ecn,
            stride: transmit.stride(),
            contents,
        });
        self.waker.clone()
    }

    /// Copies the oldest batch into `buffer`, truncated to its size.
    fn take(&mut self, buffer: &mut [u8]) -> Option<RecvMeta> {
        let mut arrived = self.arrived.pop_front()?;
        self.bytes -= arrived.contents.len();
        let len = arrived.contents.len().min(buffer.len());
        buffer[..len].copy_from_slice(&arrived.contents[..len]);
        let meta = RecvMeta {
            source: arrived.source,
            destination_ip: Some(arrived.destination_ip),
            len,
            stride: arrived.stride,
            ecn: arrived.ecn,
        };
        if self.spare.len() < SPARE_BUFFERS_MAX {
            arrived.contents.clear();
            self.spare.push(arrived.contents);
        }
        Some(meta)
    }
}

impl MemorySocket {
    /// Calls `waker` on every later arrival, and at once if data has already arrived. Replaces the
    /// previous waker.
    ///
    /// The waker runs on the sending thread and blocks it while it runs.
    pub fn set_waker(&self, waker: Waker) {
        let mut inbox = lock(&self.inbox);
        let wake_now = (!inbox.arrived.is_empty()).then(|| waker.clone());
        inbox.waker = Some(waker);
        drop(inbox);
        if let Some(waker) = wake_now {
            waker.wake();
        }
    }

    /// Returns the number of datagrams dropped because the inbox was full.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        lock(&self.inbox).overflowed
    }

    fn source(&self, transmit: &Transmit<'_>) -> SocketAddr {
        let chosen = transmit.source_ip.unwrap_or_else(|| self.local.ip());
        let ip = match chosen {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.local.port())
    }

    fn check(&self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        transmit.check()?;
        if transmit.stride() > self.shared.datagram_bytes_max {
            return Err(SendError::TooLarge);
        }
        let family = |ip: IpAddr| ip.is_ipv4() == self.local.is_ipv4();
        if !family(transmit.destination.ip()) || !transmit.source_ip.is_none_or(family) {
            return Err(SendError::Other(rustix::io::Errno::AFNOSUPPORT.into()));
        }
        Ok(())
    }
}

impl DatagramSocket for MemorySocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_gso_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn max_gro_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.check(transmit)?;
        let source = self.source(transmit);
        let stride = transmit.stride();
        let inbox = {
            let mut table = lock(&self.shared.table);
            let inbox = table.route(transmit.destination);
            if inbox.is_none() {
                table.unreachable += transmit.contents.len().div_ceil(stride).max(1) as u64;
            }
            inbox
        };
        let mut rest = transmit.contents;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(stride.saturating_mul(SEGMENTS_MAX)));
            let piece = Transmit { contents: piece, segment_size: Some(stride), ..*transmit };
            self.counters.on_sent(piece.contents.len(), stride);
            let waker = inbox.as_ref().and_then(|inbox| lock(inbox).deliver(source, &piece));
            if let Some(waker) = waker {
                waker.wake();
            }
            rest = after;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        if buffers.is_empty() || metas.is_empty() {
            return Ok(0);
        }
        let mut inbox = lock(&self.inbox);
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(metas) {
            let Some(taken) = inbox.take(buffer) else { break };
            self.counters.on_received(taken.len, taken.stride, buffer.len());
            *meta = taken;
            count += 1;
        }
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn counters(&self) -> &SocketCounters {
        &self.counters
    }
}

/// Creates another handle for the same socket, with its own counters.
impl Clone for MemorySocket {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            local: self.local,
            inbox: Arc::clone(&self.inbox),
            binding: Arc::clone(&self.binding),
            counters: SocketCounters::default(),
        }
    }
}

/// Frees the address when the last handle is dropped.
#[derive(Debug)]
struct Binding {
    shared: Arc<Shared>,
    local: SocketAddr,
}

impl Drop for Binding {
    fn drop(&mut self) {
        lock(&self.shared.table).inboxes.remove(&(self.local.ip(), self.local.port()));
    }
}

const fn wildcard(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Locks `mutex` even after a panic, which must not disable the network: every change under these
/// locks is complete or absent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
