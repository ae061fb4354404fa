//! The thread that takes packets from the TUN device and puts them into connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use bytes::Bytes;
use litz::{DatagramError, DatagramPaths, PathId, PathState};
use net::tun::{OFFLOAD_HEADER_BYTES, TUN_BUFFER_BYTES, Tun, TunDevice};
use net::{BufferPool, MonotonicClock};
use tunnel::item::ITEM_HEADER_BYTES;
use tunnel::mtu::{Reports, clamp_segment_size, is_too_large};
use tunnel::urgent::{COPIES, Urgency};
use tunnel::{Outbox, Outboxes, Packet, PrefixMap, UrgentKinds};
use units::{Duration, Instant, Rate};

use super::device::{DeviceCounters, parse_read};
use super::peers::{Peer, PeerId, Peers};
use super::terminate::terminator::Terminator;
use super::wake::WakeEvent;

/// Packets that are read before the connections are served.
const READS_PER_ROUND: usize = 32;

/// Shorter packets for our TCP are copied, so that an acknowledgement does not keep 64 KiB alive.
const COPY_BELOW: usize = 16 << 10;

/// How often the paths of a connection are looked at to which flows are pinned.
const PATHS_INTERVAL: Duration = Duration::from_millis(100);

/// Packets of flows that send little which pass others at a time on one path: half of what the path keeps.
const SPARSE_OF_PATH_MAX: usize = 32;

/// Phases of controllers that have not found the capacity of their path.
const SLOW_STARTS: [&str; 3] = ["startup", "slow_start", "conservative_slow_start"];

/// What is to be done with the packets of certain flows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flows {
    /// Those that leave at once, on two paths.
    pub(crate) urgent: UrgentKinds,
    /// Whether each flow keeps to one path, if the peer knows such flows.
    pub(crate) pins: bool,
}

/// A thread that takes packets from a device. It ends when this is dropped.
pub(crate) struct Entry {
    wake: WakeEvent,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Entry {
    /// Starts the thread.
    pub(crate) fn start(
        tun: Tun,
        peers: Arc<Peers>,
        wake: WakeEvent,
        counters: Arc<DeviceCounters>,
        terminator: Arc<Terminator>,
        seed: u64,
        flows: Flows,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let state = State {
            tun,
            peers,
            version: 0,
            routes: PrefixMap::new(),
            destinations: BTreeMap::new(),
            wake: wake.clone(),
            waker: wake.waker(),
            stop: Arc::clone(&stop),
            counters,
            terminator,
            clock: MonotonicClock::start(),
            round: 0,
            seed,
            flows,
            reports: Reports::default(),
            memory: BufferPool::new(TUN_BUFFER_BYTES),
        };
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for the device")]
        let thread = std::thread::spawn(move || {
            if let Err(error) = state.run() {
                tracing::error!(%error, "the TUN device cannot be read any more");
            }
        });
        Self { wake, stop, thread: Some(thread) }
    }

    /// Whether the thread has ended: the device is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

struct State {
    tun: Tun,
    peers: Arc<Peers>,
    version: u64,
    routes: PrefixMap<PeerId>,
    destinations: BTreeMap<PeerId, Destination>,
    wake: WakeEvent,
    waker: Waker,
    stop: Arc<AtomicBool>,
    counters: Arc<DeviceCounters>,
    terminator: Arc<Terminator>,
    clock: MonotonicClock,
    /// Counts rounds of reading and serving.
    round: u64,
    seed: u64,
    flows: Flows,
    reports: Reports,
    /// Memory of packets for our TCP.
    memory: BufferPool,
}

/// A peer, and what waits for it.
struct Destination {
    peer: Arc<Peer>,
    outboxes: Outboxes,
    urgency: Urgency,
    /// Bytes of a datagram of the connection, as of the round that was last asked in. It becomes less when a path
    /// fails.
    len_max: usize,
    asked_in: u64,
    /// When to look at the paths again.
    paths_at: Instant,
}

impl State {
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; TUN_BUFFER_BYTES];
        while !self.stop.load(Ordering::Acquire) {
            self.follow_peers();
            self.round += 1;
            let (mut reads, mut is_full) = (0, false);
            while reads < READS_PER_ROUND {
                match self.tun.read(&mut buffer) {
                    // A full batch leaves before more is read: what is read meanwhile would only wait here.
                    Ok(len) if self.take(&mut buffer, len) => {
                        is_full = true;
                        break;
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                reads += 1;
            }
            let now = self.clock.now();
            for destination in self.destinations.values_mut() {
                destination.serve(now, self.round, &self.waker);
            }
            if reads < READS_PER_ROUND && !is_full {
                // A connection that has space wakes this thread, and so does a change of the peers.
                let next = self.destinations.values().filter_map(|to| to.outboxes.blocked_until(now)).min();
                self.wake.wait(self.tun.as_fd(), next.map(|at| at.saturating_since(now).into()))?;
                self.unblock();
            } else if self.destinations.values().any(|to| to.outboxes.is_blocked()) && self.wake.take() {
                // The host sends without a pause, so this thread never waits.
                self.unblock();
            }
        }
        Ok(())
    }

    /// Tries again to give each connection what waits for it.
    fn unblock(&mut self) {
        self.destinations.values_mut().for_each(|to| to.outboxes.unblock());
    }

    fn follow_peers(&mut self) {
        let version = self.peers.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let table = self.peers.table();
        self.destinations.retain(|id, _| table.peers.contains_key(id));
        for (id, peer) in table.peers {
            self.destinations.entry(id).or_insert_with(|| Destination::new(peer, self.flows));
        }
        self.routes = table.routes;
    }

    /// Takes a packet of `len` bytes that was read, with its offload header. Whether a connection has a full
    /// batch now that it may take.
    fn take(&mut self, buffer: &mut Vec<u8>, len: usize) -> bool {
        let Some(read) = parse_read(&mut buffer[..len]) else {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        // Packets to addresses that no peer has: multicast that the kernel sends by itself, mostly.
        let to = self.routes.get(read.inner.destination).and_then(|id| self.destinations.get_mut(id));
        let Some(to) = to else { return false };
        if self.terminator.takes(&read.with(&buffer[OFFLOAD_HEADER_BYTES..len]), &to.peer) {
            self.terminator.push(own(&self.memory, buffer, len));
            return false;
        }
        to.ask_len_max(self.round);
        let ip = &mut buffer[OFFLOAD_HEADER_BYTES..len];
        let _changed = clamp_segment_size(ip, &read.inner, read.is_partial, to.peer.mtu);
        let packet = read.with(ip);
        let counters = &to.peer.counters;
        if is_too_large(&packet, to.peer.mtu) {
            counters.too_large.fetch_add(1, Ordering::Relaxed);
            let (now, mtu) = (self.clock.now(), to.peer.mtu);
            self.report_size(now, mtu, &packet);
            return false;
        }
        counters.packets_in.fetch_add(1, Ordering::Relaxed);
        counters.bytes_in.fetch_add(packet.ip.len() as u64, Ordering::Relaxed);
        let flow = packet.inner.flow(self.seed);
        if to.send_urgent(|| self.clock.now(), flow, &packet) {
            return false;
        }
        let place = OFFLOAD_HEADER_BYTES..len;
        to.outboxes.take(|| self.clock.now(), flow, buffer, place, &read, to.len_max)
    }

    /// Tells the sender of a packet that only packets up to `mtu` bytes get through.
    fn report_size(&mut self, now: Instant, mtu: u16, packet: &Packet<'_>) {
        // A complete packet has an empty offload header.
        let mut report = vec![0; OFFLOAD_HEADER_BYTES];
        // The kernel refuses it if the device is down: then nothing waits for it.
        if self.reports.report(now, packet, mtu, &mut report) && self.tun.write(&[io::IoSlice::new(&report)]).is_err() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The first `len` bytes of `buffer`, which gets other memory from `pool` if they are many.
fn own(pool: &BufferPool, buffer: &mut Vec<u8>, len: usize) -> Bytes {
    if len < COPY_BELOW || buffer.len() != TUN_BUFFER_BYTES {
        return Bytes::copy_from_slice(&buffer[..len]);
    }
    let filled = std::mem::replace(buffer, pool.take().into_vec());
    Bytes::from_owner(pool.filled(filled.into_boxed_slice(), len))
}

impl Destination {
    fn new(peer: Arc<Peer>, Flows { urgent, pins }: Flows) -> Self {
        let len_max = peer.connection.datagram_len_max().unwrap_or(0);
        let outboxes = if pins && peer.knows_pins { Outboxes::pinned(peer.rate) } else { Outboxes::sprayed(peer.rate) };
        Self { peer, outboxes, urgency: Urgency::new(urgent), len_max, asked_in: 0, paths_at: Instant::ZERO }
    }

    /// Before packets are packed, since those that are too large are lost. Once a round.
    fn ask_len_max(&mut self, round: u64) {
        if self.asked_in != round {
            self.asked_in = round;
            self.len_max = self.peer.connection.datagram_len_max().unwrap_or(self.len_max);
        }
    }

    /// Sends a packet at once, on two paths, if it is urgent. Whether it is on its way.
    fn send_urgent(&mut self, now: impl Fn() -> Instant, flow: u16, packet: &Packet<'_>) -> bool {
        if !self.urgency.takes(&now, packet, self.len_max.saturating_sub(ITEM_HEADER_BYTES)) {
            return false;
        }
        let outbox = self.outboxes.of_flow(now, flow);
        let Some(datagram) = outbox.pack_alone(flow, packet, self.len_max) else { return false };
        self.peer.counters.urgent.fetch_add(1, Ordering::Relaxed);
        if self.peer.connection.send_datagram_on(datagram.clone(), DatagramPaths::Copies(COPIES)).is_err() {
            // The connection has no space for it, or has ended. It has its number, so it goes with the others.
            outbox.put(flow, datagram);
        }
        true
    }

    /// Gives the connection as much as it takes.
    fn serve(&mut self, now: Instant, round: u64, waker: &Waker) {
        if self.outboxes.waiting_bytes() > 0 {
            self.ask_len_max(round);
        }
        if self.outboxes.is_pinned() && now >= self.paths_at {
            self.paths_at = now + PATHS_INTERVAL;
            self.follow_paths(now);
        }
        let (peer, len_max) = (&self.peer, &mut self.len_max);
        self.outboxes.serve(|path, outbox, was_blocked| {
            let mut link = Link { peer, path: path.map(PathId), len_max: &mut *len_max };
            let is_blocked = was_blocked || link.send(now, outbox, waker);
            if outbox.has_queued() && link.send_sparse(now, outbox) {
                // What the connection did not take waits in the line, and the thread for space.
                return is_blocked || link.send(now, outbox, waker);
            }
            is_blocked
        });
        let (stats, counters) = (self.outboxes.stats(), &self.peer.counters);
        counters.dropped.store(stats.dropped + stats.overflowed, Ordering::Relaxed);
        counters.marked.store(stats.marked, Ordering::Relaxed);
        counters.queued_bytes.store(self.outboxes.waiting_bytes() as u64, Ordering::Relaxed);
        counters.queued_flows.store(self.outboxes.queued_flows() as u64, Ordering::Relaxed);
    }

    /// Pins flows to the paths that work.
    fn follow_paths(&mut self, now: Instant) {
        let stats = self.peer.connection.stats();
        // Before the end of slow start, the window says little.
        let is_known = |path: &litz::PathStats| !SLOW_STARTS.contains(&path.congestion.phase);
        let rate = |path: &litz::PathStats| {
            let round_trip = path.round_trip.max(Duration::from_micros(1));
            Rate::from_transfer(path.congestion.window, round_trip).filter(|_| is_known(path))
        };
        let working = stats.paths.iter().filter(|path| path.state == PathState::Active && !path.is_backup);
        let paths: Vec<_> = working.map(|path| (path.id.0, rate(path))).collect();
        self.outboxes.follow(now, &paths);
    }
}

/// Where an outbox leads.
struct Link<'a> {
    peer: &'a Peer,
    /// None if datagrams take any path.
    path: Option<PathId>,
    len_max: &'a mut usize,
}

impl Link<'_> {
    /// Sends packets of flows that send little before all that waits for space. Whether one of them now waits, too.
    fn send_sparse(&self, now: Instant, outbox: &mut Outbox) -> bool {
        let connection = &self.peer.connection;
        let departed = connection.datagrams_departed(self.path);
        // A path keeps the newest of those that pass others. The rest waits until the connection has taken these.
        let most = self.path.map_or(usize::MAX, |_| SPARSE_OF_PATH_MAX);
        for _ in 0..most {
            let Some((flow, datagram)) = outbox.pop_sparse(now, *self.len_max, departed) else { return false };
            let paths = self.path.map_or(DatagramPaths::Any, DatagramPaths::Only);
            if connection.send_datagram_on(datagram.clone(), paths).is_err() {
                // As with urgent packets.
                outbox.put(flow, datagram);
                return true;
            }
        }
        false
    }

    /// Gives the connection as much as it takes. Whether it has no space now; then it wakes this thread.
    fn send(&mut self, now: Instant, outbox: &mut Outbox, waker: &Waker) -> bool {
        let connection = &self.peer.connection;
        loop {
            let batch = outbox.fill(now, *self.len_max);
            if batch.is_empty() {
                return false;
            }
            let sent = match self.path {
                None => connection.poll_send_datagrams(batch, waker),
                Some(path) => connection.poll_send_datagrams_on(batch, path, waker),
            };
            match sent {
                Poll::Ready(Ok(count)) => outbox.on_taken(count),
                Poll::Pending => return true,
                // The path's datagrams have become smaller since. The packet is lost; the next ones fit.
                Poll::Ready(Err(DatagramError::TooLarge { .. })) => {
                    batch.pop_front();
                }
                // The connection has ended: the peer is removed soon.
                Poll::Ready(Err(_)) => {
                    batch.clear();
                    return false;
                }
            }
            *self.len_max = connection.datagram_len_max().unwrap_or(*self.len_max);
        }
    }
}
