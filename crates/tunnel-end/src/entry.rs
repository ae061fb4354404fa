//! [`Entry`]: takes packets from the TUN device and puts them into connections.
//!
//! The thread of a driver reads the device: no other thread is woken for a packet then. It is the driver of the
//! connections, or that of the stack for terminated connections if most packets are for it. On a host with many
//! processors, a thread of the entry reads what is much, and the driver sends meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, ThreadId};

use bytes::Bytes;
use net::tun::{MalformedPacket, OFFLOAD_HEADER_BYTES, Segments, TUN_BUFFER_BYTES, Tun, TunDevice};
use net::{BufferPool, MonotonicClock};
use tunnel::intake::Fate;
use tunnel::mtu::{Reports, clamp_segment_size, is_too_large};
use tunnel::{Packet, PacketHead, PrefixMap};
use units::{Duration, Instant};

use super::destination::{Destination, Flows};
use super::device::{DeviceCounters, ReadPacket, len_without_padding, parse_read};
use super::device_events::{DeviceEvents, DeviceReader};
use super::peers::{PeerId, Peers};
use super::terminate::terminator::Terminator;
use super::wake::WakeEvent;

/// Packets that are read before the connections are served.
const READS_PER_ROUND: usize = 32;

/// Bytes after which a round ends. Meanwhile, the driver's thread receives nothing.
const ROUND_BYTES_MAX: usize = 256 << 10;

/// After a round with more than the driver's thread should read, the entry's goes on to read for so long.
const BULK_TIME: Duration = Duration::from_millis(5);

/// So many packets in a row for the other driver let that read.
const OTHERS_MAX: u32 = 8;

/// Shorter packets for our TCP are copied, so that an acknowledgement does not keep 64 KiB alive.
const COPY_BELOW: usize = 16 << 10;

/// A thread that takes packets from a device. It ends when this is dropped.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    /// In the threads of drivers.
    _readers: Vec<Arc<dyn DeviceReader>>,
    thread: Option<JoinHandle<()>>,
}

/// What an entry begins with.
pub(crate) struct EntryParts {
    pub(crate) tun: Tun,
    pub(crate) peers: Arc<Peers>,
    /// Wakes the thread after a change of the peers.
    pub(crate) wake: WakeEvent,
    pub(crate) counters: Arc<DeviceCounters>,
    pub(crate) terminator: Arc<Terminator>,
    /// Numbers the flows.
    pub(crate) seed: u64,
    pub(crate) flows: Flows,
    /// Announces packets to the threads of drivers: that of the connections, and that of the stack.
    pub(crate) events: [Arc<DeviceEvents>; 2],
    /// Bytes that the driver's thread reads at a time.
    pub(crate) in_place_bytes_max: usize,
}

impl Entry {
    /// Starts the thread.
    pub(crate) fn start(parts: EntryParts) -> Self {
        let EntryParts { tun, peers, wake, counters, terminator, seed, flows, events, in_place_bytes_max } = parts;
        let space = Arc::new(Space { is_due: AtomicBool::new(false), driver: Mutex::new(None), wake });
        let clock = peers.clock();
        let state = State {
            tun: tun.clone(),
            peers,
            version: 0,
            routes: PrefixMap::new(),
            destinations: BTreeMap::new(),
            waker: Arc::clone(&space).into(),
            counters,
            terminator,
            clock,
            round: 0,
            seed,
            flows,
            reports: Reports::default(),
            memory: BufferPool::new(TUN_BUFFER_BYTES),
            buffer: vec![0; TUN_BUFFER_BYTES],
            reader: Reader::Thread,
            is_broken: false,
            suited: Suited { driver: Driver::Connections, others: 0 },
            bulk_until: Instant::ZERO,
            in_place_bytes_max,
        };
        let shared = Arc::new(Shared { state: Mutex::new(Some(state)), space, stop: AtomicBool::new(false), events });
        let mut readers = Vec::new();
        for driver in [Driver::Connections, Driver::Stack] {
            let reader: Arc<dyn DeviceReader> = Arc::new(DriverReader { shared: Arc::clone(&shared), driver });
            shared.events_of(driver).attach(tun.clone(), Arc::downgrade(&reader));
            readers.push(reader);
        }
        let reads = Arc::clone(&shared);
        #[expect(clippy::disallowed_methods, reason = "this is above the engine: one thread for the device")]
        let thread = std::thread::spawn(move || {
            if let Err(error) = reads.run(&tun) {
                tracing::error!(%error, "the TUN device cannot be read any more");
            }
        });
        Self { shared, _readers: readers, thread: Some(thread) }
    }

    /// Whether the thread has ended: the device is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.space.wake.wake();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
        self.shared.events.iter().for_each(|events| events.detach());
        // A driver's thread may hold the rest for a moment. It must not be the one that ends the stack.
        let state = self.shared.lock().ok().and_then(|mut state| state.take());
        drop(state);
    }
}

/// What the threads that read use.
struct Shared {
    /// None at the end.
    state: Mutex<Option<State>>,
    space: Arc<Space>,
    stop: AtomicBool,
    events: [Arc<DeviceEvents>; 2],
}

/// Tells that a connection has space again, and that packets wait to be read.
struct Space {
    /// The driver's thread has something to do.
    is_due: AtomicBool,
    /// The thread of a driver that reads, or has read.
    driver: Mutex<Option<ThreadId>>,
    /// Wakes the entry's thread.
    wake: WakeEvent,
}

impl Space {
    fn lock(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the thread of the driver that reads.
    fn is_here(&self) -> bool {
        *self.lock() == Some(this_thread())
    }
}

impl Wake for Space {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_here() {
            // It looks before it sleeps.
            self.is_due.store(true, Ordering::Release);
        } else {
            self.wake.wake();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "which thread wakes decides whether a system call is needed, nothing else"
)]
fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// The thread that reads the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    /// The entry's.
    Thread,
    /// That of a driver, when a packet is announced to it.
    Driver(Driver),
}

/// A driver whose thread reads the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    /// That of the connections to peers.
    Connections,
    /// That of the stack for terminated connections.
    Stack,
}

/// The driver for which the packets are, mostly.
struct Suited {
    driver: Driver,
    /// The last packets that were for the other one.
    others: u32,
}

impl Suited {
    /// A packet is for this one.
    fn note(&mut self, driver: Driver) {
        self.others = if driver == self.driver { 0 } else { self.others + 1 };
        if self.others >= OTHERS_MAX {
            *self = Self { driver, others: 0 };
        }
    }
}

impl Shared {
    /// # Errors
    /// If a thread that read the device has panicked.
    fn lock(&self) -> io::Result<MutexGuard<'_, Option<State>>> {
        self.state.lock().map_err(|_| io::Error::other("another thread that read it has panicked"))
    }

    /// Reads until it is stopped, but for the times when the driver's thread reads.
    fn run(&self, tun: &Tun) -> io::Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            let mut guard = self.lock()?;
            let Some(state) = guard.as_mut() else { break };
            state.follow_peers();
            if state.may_leave_to_driver() {
                // Also to the one that had it before: an event that came while another thread held the lock is lost.
                let driver = match state.reader {
                    Reader::Driver(driver) => driver,
                    Reader::Thread => state.suited.driver,
                };
                state.reader = Reader::Driver(driver);
                // What woke this thread may be space in a connection of another driver.
                state.serve();
                // The thread of the driver needs the lock.
                drop(guard);
                self.events_of(driver).arm()?;
                self.space.wake.wait(None, None)?;
                self.unblock()?;
                continue;
            }
            if let Reader::Driver(driver) = state.reader {
                self.leave_to(Reader::Thread, driver, state)?;
            }
            let has_more = state.do_round()?.has_more;
            if has_more {
                if state.is_blocked() && self.space.wake.take() {
                    // The host sends without a pause, so this thread never waits.
                    state.unblock();
                }
                continue;
            }
            let timeout = state.next_departure();
            drop(guard);
            // A connection that has space wakes this thread, and so does a change of the peers.
            self.space.wake.wait(Some(tun.as_fd()), timeout)?;
            self.unblock()?;
        }
        Ok(())
    }

    fn unblock(&self) -> io::Result<()> {
        if let Some(state) = self.lock()?.as_mut() {
            state.unblock();
        }
        Ok(())
    }

    fn events_of(&self, driver: Driver) -> &DeviceEvents {
        &self.events[match driver {
            Driver::Connections => 0,
            Driver::Stack => 1,
        }]
    }

    /// After `driver`, another reads.
    fn leave_to(&self, next: Reader, driver: Driver, state: &mut State) -> io::Result<()> {
        state.reader = next;
        // Its thread, which has registered the waker, may look no more.
        *self.space.lock() = None;
        state.unblock();
        self.events_of(driver).disarm()
    }

    /// Reads in the thread of `driver`.
    fn read_in_place(&self, driver: Driver) {
        // Also after a panic here, which the thread finds.
        let mut thread = WakeThread { wake: &self.space.wake, is_needed: true };
        // Another thread has it for a moment. The event is lost, so the entry's thread has it announced again. What is due
        // stays so.
        let Ok(mut guard) = self.state.try_lock() else { return };
        let Some(state) = guard.as_mut().filter(|state| state.reader == Reader::Driver(driver)) else {
            thread.is_needed = false;
            return;
        };
        *self.space.lock() = Some(this_thread());
        if self.space.is_due.swap(false, Ordering::AcqRel) {
            state.unblock();
        }
        state.follow_peers();
        let round = state.do_round();
        // The entry's thread meets the error again, and ends.
        state.is_broken |= round.is_err();
        let next = if state.may_leave_to_driver() { Reader::Driver(state.suited.driver) } else { Reader::Thread };
        if next == Reader::Driver(driver) {
            if round.is_ok_and(|round| round.has_more) {
                self.space.is_due.store(true, Ordering::Release);
            }
            thread.is_needed = false;
            return;
        }
        let left = self.leave_to(next, driver, state);
        drop(guard);
        let changed = match next {
            Reader::Driver(other) => left.and_then(|()| self.events_of(other).arm()),
            Reader::Thread => left,
        };
        match changed {
            Ok(()) => thread.is_needed = next == Reader::Thread,
            // The thread meets it, too, when it changes them.
            Err(error) => tracing::warn!(%error, "the events of the TUN device cannot be changed"),
        }
    }
}

/// Wakes the entry's thread at the end of a call in another, if that is needed.
struct WakeThread<'a> {
    wake: &'a WakeEvent,
    is_needed: bool,
}

impl Drop for WakeThread<'_> {
    fn drop(&mut self) {
        if self.is_needed {
            self.wake.wake();
        }
    }
}

/// Reads in the thread of a driver.
struct DriverReader {
    shared: Arc<Shared>,
    driver: Driver,
}

impl DeviceReader for DriverReader {
    fn is_due(&self) -> bool {
        let space = &self.shared.space;
        space.is_due.load(Ordering::Acquire) && space.is_here()
    }

    fn read_in_place(&self) {
        self.shared.read_in_place(self.driver);
    }
}

struct State {
    tun: Tun,
    peers: Arc<Peers>,
    version: u64,
    routes: PrefixMap<PeerId>,
    destinations: BTreeMap<PeerId, Destination>,
    waker: Waker,
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
    buffer: Vec<u8>,
    reader: Reader,
    /// The device cannot be read any more.
    is_broken: bool,
    suited: Suited,
    /// The entry's thread reads at least until then.
    bulk_until: Instant,
    in_place_bytes_max: usize,
}

/// What a round has read.
struct Round {
    bytes: usize,
    /// More may be there.
    has_more: bool,
}

impl State {
    /// Reads packets, and gives the connections what they take.
    fn do_round(&mut self) -> io::Result<Round> {
        self.round += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read(&mut buffer);
        self.buffer = buffer;
        let round = read?;
        self.serve();
        if round.bytes > self.in_place_bytes_max {
            self.bulk_until = self.clock.now() + BULK_TIME;
        }
        Ok(round)
    }

    /// Gives the connections what they take.
    fn serve(&mut self) {
        let now = self.clock.now();
        for destination in self.destinations.values_mut() {
            destination.serve(now, self.round, &self.waker);
        }
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Round> {
        let mut bytes = 0;
        for _ in 0..READS_PER_ROUND {
            match self.tun.read(buffer) {
                Ok(len) => {
                    bytes += len;
                    // A full batch leaves before more is read: what is read meanwhile would only wait here.
                    if self.take(buffer, len) || bytes >= ROUND_BYTES_MAX {
                        return Ok(Round { bytes, has_more: true });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Round { bytes, has_more: false }),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Round { bytes, has_more: true })
    }

    /// Whether the driver's thread may read: it has connections, no packet waits for a rate, and there is not too much
    /// to read. To pin flows takes answers of the driver, for which its thread cannot wait.
    fn may_leave_to_driver(&self) -> bool {
        let now = self.clock.now();
        let waits = |to: &Destination| {
            to.outboxes.blocked_until().is_some()
                || (to.outboxes.waiting_bytes() > 0 && self.in_place_bytes_max < ROUND_BYTES_MAX)
        };
        !self.is_broken
            && !self.flows.pins
            && !self.destinations.is_empty()
            && now >= self.bulk_until
            && !self.destinations.values().any(waits)
    }

    fn is_blocked(&self) -> bool {
        self.destinations.values().any(|to| to.outboxes.is_blocked())
    }

    /// How long until packets that wait for their rate may leave: zero if they may by now.
    fn next_departure(&self) -> Option<std::time::Duration> {
        let next = self.destinations.values().filter_map(|to| to.outboxes.blocked_until()).min()?;
        Some(next.saturating_since(self.clock.now()).into())
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
        let len = len_without_padding(&buffer[..len]);
        let (fate, is_full) = match parse_read(&mut buffer[..len]) {
            Some(ReadPacket::Whole(head)) => self.route(buffer, len, &head),
            Some(ReadPacket::ToCut) => match Segments::new(&buffer[..len]) {
                Ok(segments) => return self.take_segments(&segments),
                Err(MalformedPacket) => (Fate::Malformed, false),
            },
            None => (Fate::Malformed, false),
        };
        self.counters.intake.on_read();
        self.counters.intake.on_fate(fate);
        is_full
    }

    /// Takes the packets of a super-packet that the tunnel does not pass on as one.
    fn take_segments(&mut self, segments: &Segments<'_>) -> bool {
        let (mut memory, mut is_full) = (Vec::new(), false);
        for index in 0..segments.len() {
            let mut packet = segments.segment(index, memory);
            packet.finish_checksum();
            memory = packet.into_buffer();
            let len = memory.len();
            is_full |= self.take(&mut memory, len);
        }
        is_full
    }

    /// Passes a packet of `len` bytes, with its offload header, on to where it belongs. Returns what has become of it, and
    /// whether a connection has a full batch now that it may take.
    fn route(&mut self, buffer: &mut Vec<u8>, len: usize, read: &PacketHead) -> (Fate, bool) {
        let to = self.routes.get(read.inner.destination).and_then(|id| self.destinations.get_mut(id));
        let Some(to) = to else { return (Fate::NoPeer, false) };
        if self.terminator.takes(&read.with(&buffer[OFFLOAD_HEADER_BYTES..len]), &to.peer) {
            self.suited.note(Driver::Stack);
            self.terminator.push(own(&self.memory, buffer, len));
            return (Fate::Terminated, false);
        }
        self.suited.note(Driver::Connections);
        to.ask_len_max(self.round);
        let ip = &mut buffer[OFFLOAD_HEADER_BYTES..len];
        let _changed = clamp_segment_size(ip, &read.inner, read.is_partial, to.peer.mtu);
        let packet = read.with(ip);
        let counters = &to.peer.counters;
        if is_too_large(&packet, to.peer.mtu) {
            counters.too_large.fetch_add(1, Ordering::Relaxed);
            let (now, mtu) = (self.clock.now(), to.peer.mtu);
            self.report_size(now, mtu, &packet);
            return (Fate::TooLarge, false);
        }
        counters.packets_in.fetch_add(1, Ordering::Relaxed);
        counters.bytes_in.fetch_add(packet.ip.len() as u64, Ordering::Relaxed);
        let flow = packet.inner.flow(self.seed);
        if to.send_urgent(|| self.clock.now(), flow, &packet) {
            return (Fate::Carried, false);
        }
        let place = OFFLOAD_HEADER_BYTES..len;
        (Fate::Carried, to.outboxes.take(|| self.clock.now(), flow, buffer, place, read, to.len_max))
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
