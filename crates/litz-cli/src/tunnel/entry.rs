//! The thread that takes packets from the TUN device and puts them into connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use bytes::Bytes;
use litz::{DatagramError, DatagramPaths};
use net::MonotonicClock;
use net::tun::{OFFLOAD_HEADER_BYTES, TUN_BUFFER_BYTES, Tun, TunDevice};
use tunnel::item::ITEM_HEADER_BYTES;
use tunnel::mtu::{Reports, clamp_segment_size, is_too_large};
use tunnel::urgent::{COPIES, Urgency};
use tunnel::{Outbox, Packet, PrefixMap, UrgentKinds};

use super::device::{DeviceCounters, parse_read};
use super::peers::{Peer, PeerId, Peers};
use super::terminate::terminator::Terminator;
use super::wake::WakeEvent;

/// Packets that are read before the connections are served.
const READS_PER_ROUND: usize = 32;

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
        urgent: UrgentKinds,
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
            seed,
            urgent,
            reports: Reports::default(),
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
    seed: u64,
    urgent: UrgentKinds,
    reports: Reports,
}

/// A peer, and what waits for it.
struct Destination {
    peer: Arc<Peer>,
    outbox: Outbox,
    urgency: Urgency,
    len_max: usize,
    /// The connection has no space; it wakes this thread.
    is_blocked: bool,
}

impl State {
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; TUN_BUFFER_BYTES];
        while !self.stop.load(Ordering::Acquire) {
            self.follow_peers();
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
                destination.serve(now, &self.waker);
            }
            if reads < READS_PER_ROUND && !is_full {
                // A connection that has space wakes this thread, and so does a change of the peers.
                let next = self.destinations.values().filter_map(|to| to.outbox.blocked_until(now)).min();
                self.wake.wait(self.tun.as_fd(), next.map(|at| at.saturating_since(now).into()))?;
                self.unblock();
            } else if self.destinations.values().any(|destination| destination.is_blocked) && self.wake.take()? {
                // The host sends without a pause, so this thread never waits.
                self.unblock();
            }
        }
        Ok(())
    }

    /// Tries again to give each connection what waits for it.
    fn unblock(&mut self) {
        self.destinations.values_mut().for_each(|destination| destination.is_blocked = false);
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
            self.destinations.entry(id).or_insert_with(|| Destination::new(peer, self.urgent));
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
            self.terminator.push(Bytes::copy_from_slice(&buffer[..len]));
            return false;
        }
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
        to.outbox.take(|| self.clock.now(), flow, buffer, place, &read, to.len_max, to.is_blocked)
    }

    /// Tells the sender of a packet that only packets up to `mtu` bytes get through.
    fn report_size(&mut self, now: units::Instant, mtu: u16, packet: &Packet<'_>) {
        // A complete packet has an empty offload header.
        let mut report = vec![0; OFFLOAD_HEADER_BYTES];
        // The kernel refuses it if the device is down: then nothing waits for it.
        if self.reports.report(now, packet, mtu, &mut report) && self.tun.write(&[io::IoSlice::new(&report)]).is_err() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Destination {
    fn new(peer: Arc<Peer>, urgent: UrgentKinds) -> Self {
        let len_max = peer.connection.datagram_len_max().unwrap_or(0);
        let (outbox, urgency) = (Outbox::new(peer.rate), Urgency::new(urgent));
        Self { peer, outbox, urgency, len_max, is_blocked: false }
    }

    /// Sends a packet at once, on two paths, if it is urgent. Whether it is on its way.
    fn send_urgent(&mut self, now: impl FnOnce() -> units::Instant, flow: u16, packet: &Packet<'_>) -> bool {
        if !self.urgency.takes(now, packet, self.len_max.saturating_sub(ITEM_HEADER_BYTES)) {
            return false;
        }
        let Some(datagram) = self.outbox.pack_alone(flow, packet, self.len_max) else { return false };
        self.peer.counters.urgent.fetch_add(1, Ordering::Relaxed);
        if self.peer.connection.send_datagram_on(datagram.clone(), DatagramPaths::Copies(COPIES)).is_err() {
            // The connection has no space for it, or has ended. It has its number, so it goes with the others.
            self.outbox.put(flow, datagram);
        }
        true
    }

    /// Gives the connection as much as it takes.
    fn serve(&mut self, now: units::Instant, waker: &Waker) {
        if !self.is_blocked {
            self.send(now, waker);
        }
        if self.outbox.has_queued() {
            self.send_sparse(now);
        }
        let stats = self.outbox.stats();
        self.peer.counters.dropped.store(stats.dropped + stats.overflowed, Ordering::Relaxed);
        self.peer.counters.marked.store(stats.marked, Ordering::Relaxed);
        let queued_bytes = self.outbox.queued_bytes() + self.outbox.batch_bytes();
        self.peer.counters.queued_bytes.store(queued_bytes as u64, Ordering::Relaxed);
    }

    /// Sends packets of flows that send little before all that waits for space.
    fn send_sparse(&mut self, now: units::Instant) {
        let departed = self.peer.connection.datagrams_departed();
        while let Some((flow, datagram)) = self.outbox.pop_sparse(now, self.len_max, departed) {
            if self.peer.connection.send_datagram_on(datagram.clone(), DatagramPaths::Any).is_err() {
                // As with urgent packets.
                self.outbox.put(flow, datagram);
                return;
            }
        }
    }

    fn send(&mut self, now: units::Instant, waker: &Waker) {
        loop {
            let batch = self.outbox.fill(now, self.len_max);
            if batch.is_empty() {
                return;
            }
            match self.peer.connection.poll_send_datagrams(batch, waker) {
                Poll::Ready(Ok(count)) => self.outbox.on_taken(count),
                Poll::Pending => {
                    self.is_blocked = true;
                    return;
                }
                // The path's datagrams have become smaller since. The packet is lost; the next ones fit.
                Poll::Ready(Err(DatagramError::TooLarge { .. })) => {
                    batch.pop_front();
                }
                // The connection has ended: the peer is removed soon.
                Poll::Ready(Err(_)) => {
                    batch.clear();
                    return;
                }
            }
            self.len_max = self.peer.connection.datagram_len_max().unwrap_or(self.len_max);
        }
    }
}
