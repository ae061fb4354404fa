//! The thread that takes packets from the TUN device and puts them into connections.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use bytes::Bytes;
use litz::DatagramError;
use net::MonotonicClock;
use net::tun::{TUN_BUFFER_BYTES, Tun, TunDevice};
use tunnel::{FlowQueues, Packer, PrefixMap};

use super::device::{DeviceCounters, parse_read};
use super::peers::{Peer, PeerId, Peers};
use super::terminate::terminator::Terminator;
use super::wake::WakeEvent;

/// Packets that are read before the connections are served.
const READS_PER_ROUND: usize = 32;

/// Datagrams that are given to a connection at a time, if it takes them: about what it sends with one
/// system call.
const BATCH_DATAGRAMS: usize = 64;

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
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let state = State {
            tun,
            peers,
            version: 0,
            routes: PrefixMap::new(),
            outboxes: BTreeMap::new(),
            wake: wake.clone(),
            waker: wake.waker(),
            stop: Arc::clone(&stop),
            counters,
            terminator,
            clock: MonotonicClock::start(),
            seed,
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
    outboxes: BTreeMap<PeerId, Outbox>,
    wake: WakeEvent,
    waker: Waker,
    stop: Arc<AtomicBool>,
    counters: Arc<DeviceCounters>,
    terminator: Arc<Terminator>,
    clock: MonotonicClock,
    seed: u64,
}

/// What waits for one peer.
struct Outbox {
    peer: Arc<Peer>,
    queue: FlowQueues,
    packer: Packer,
    /// Datagrams that the connection has not taken.
    batch: VecDeque<Bytes>,
    len_max: usize,
    /// The connection has no space; it wakes this thread.
    is_blocked: bool,
}

impl State {
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; TUN_BUFFER_BYTES];
        while !self.stop.load(Ordering::Acquire) {
            self.follow_peers();
            let mut reads = 0;
            while reads < READS_PER_ROUND {
                match self.tun.read(&mut buffer) {
                    Ok(len) => self.take(&mut buffer[..len]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                reads += 1;
            }
            let now = self.clock.now();
            for outbox in self.outboxes.values_mut() {
                outbox.serve(now, &self.waker);
            }
            if reads < READS_PER_ROUND {
                // A connection that has space wakes this thread, and so does a change of the peers.
                self.wake.wait(self.tun.as_fd(), None)?;
                self.outboxes.values_mut().for_each(|outbox| outbox.is_blocked = false);
            }
        }
        Ok(())
    }

    fn follow_peers(&mut self) {
        let version = self.peers.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let table = self.peers.table();
        self.outboxes.retain(|id, _| table.peers.contains_key(id));
        for (id, peer) in table.peers {
            self.outboxes.entry(id).or_insert_with(|| Outbox::new(peer));
        }
        self.routes = table.routes;
    }

    /// Takes a packet that was read, with its offload header.
    fn take(&mut self, bytes: &mut [u8]) {
        let Some(packet) = parse_read(bytes) else {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // Packets to addresses that no peer has: multicast that the kernel sends by itself, mostly.
        let outbox = self.routes.get(packet.inner.destination).and_then(|id| self.outboxes.get_mut(id));
        let Some(outbox) = outbox else { return };
        if self.terminator.takes(&packet, &outbox.peer) {
            return self.terminator.push(Bytes::copy_from_slice(bytes));
        }
        let counters = &outbox.peer.counters;
        counters.packets_in.fetch_add(1, Ordering::Relaxed);
        counters.bytes_in.fetch_add(packet.ip.len() as u64, Ordering::Relaxed);
        let flow = packet.inner.flow(self.seed);
        if outbox.is_blocked || !outbox.queue.is_empty() || outbox.batch.len() >= BATCH_DATAGRAMS {
            outbox.queue.push(self.clock.now(), flow, &packet);
        } else {
            outbox.packer.push(flow, &packet, outbox.len_max, &mut outbox.batch);
        }
    }
}

impl Outbox {
    fn new(peer: Arc<Peer>) -> Self {
        let len_max = peer.connection.datagram_len_max().unwrap_or(0);
        Self {
            peer,
            queue: FlowQueues::new(),
            packer: Packer::new(),
            batch: VecDeque::new(),
            len_max,
            is_blocked: false,
        }
    }

    /// Gives the connection as much as it takes.
    fn serve(&mut self, now: units::Instant, waker: &Waker) {
        if !self.is_blocked {
            self.send(now, waker);
        }
        let stats = self.queue.stats();
        self.peer.counters.dropped.store(stats.dropped + stats.overflowed, Ordering::Relaxed);
        self.peer.counters.marked.store(stats.marked, Ordering::Relaxed);
        self.peer.counters.queued_bytes.store(self.queue.bytes() as u64, Ordering::Relaxed);
    }

    fn send(&mut self, now: units::Instant, waker: &Waker) {
        loop {
            while self.batch.len() < BATCH_DATAGRAMS {
                let Some(queued) = self.queue.pop(now) else { break };
                self.packer.push(queued.flow(), &queued.packet(), self.len_max, &mut self.batch);
                self.queue.recycle(queued);
            }
            if self.queue.is_empty() {
                self.packer.flush(&mut self.batch);
            }
            if self.batch.is_empty() {
                return;
            }
            match self.peer.connection.poll_send_datagrams(&mut self.batch, waker) {
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    self.is_blocked = true;
                    return;
                }
                // The path's datagrams have become smaller since. The packet is lost; the next ones fit.
                Poll::Ready(Err(DatagramError::TooLarge { .. })) => {
                    self.batch.pop_front();
                }
                // The connection has ended: the peer is removed soon.
                Poll::Ready(Err(_)) => {
                    self.batch.clear();
                    return;
                }
            }
            self.len_max = self.peer.connection.datagram_len_max().unwrap_or(self.len_max);
        }
    }
}
