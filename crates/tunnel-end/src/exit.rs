//! [`Exit`]: takes packets out of a connection and writes them to the TUN device.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use net::MonotonicClock;
use quic_endpoint::{Closed, PathState, ReceivedDatagram};
use tunnel::inner::Inner;
use tunnel::meter::Meter;
use tunnel::mtu::exceeds;
use tunnel::{Arrived, Sink, Unpacker};
use units::{Duration, Instant};

use super::device::Writer;
use super::in_place_bytes_max;
use super::peers::Peer;

/// How often the paths of a connection are looked at, while packets come. A path that has just opened carries
/// few until then.
const PATHS_INTERVAL: Duration = Duration::from_millis(50);

/// Takes packets out of the connection of one peer. A thread [runs](Self::run) it. The thread of the connection's
/// driver, when it wakes it, writes few packets by itself.
pub struct Exit {
    peer: Arc<Peer>,
    clock: MonotonicClock,
    state: Mutex<State>,
    /// The thread has something to do.
    is_due: Mutex<bool>,
    due: Condvar,
    /// Bytes of datagrams that the driver's thread writes to the device itself. Where more have arrived, the driver goes
    /// on receiving meanwhile.
    in_place_bytes_max: usize,
}

/// What both threads use.
struct State {
    writer: Writer,
    unpacker: Unpacker,
    paths_at: Instant,
    /// Datagrams that wait to be unpacked.
    received: Vec<ReceivedDatagram>,
    /// When the thread wakes by itself.
    wakes_at: Option<Instant>,
    closed: Option<Closed>,
}

impl Exit {
    /// Of a peer. Packets above the rate of what may come from it are dropped.
    pub fn new(peer: &Arc<Peer>, writer: Writer) -> Arc<Self> {
        let clock = peer.meters.clock;
        let state = State {
            unpacker: Unpacker::with_udp_runs(writer.takes_udp_super_packets()),
            writer,
            paths_at: clock.now(),
            received: Vec::new(),
            wakes_at: None,
            closed: None,
        };
        let (state, is_due) = (Mutex::new(state), Mutex::new(false));
        let in_place_bytes_max = in_place_bytes_max();
        Arc::new(Self { peer: Arc::clone(peer), clock, state, is_due, due: Condvar::new(), in_place_bytes_max })
    }

    /// Writes packets until the connection ends; returns why.
    pub fn run(self: &Arc<Self>) -> Closed {
        let waker = Waker::from(Arc::clone(self));
        loop {
            let mut state = self.lock();
            let now = self.clock.now();
            if now >= state.paths_at {
                state.paths_at = now + PATHS_INTERVAL;
                follow_paths(&self.peer, &mut state.unpacker);
            }
            self.serve(&mut state, &waker, usize::MAX);
            if let Some(closed) = &state.closed {
                return closed.clone();
            }
            let wakes_at = state.unpacker.timeout();
            state.wakes_at = wakes_at;
            drop(state);
            self.wait(wakes_at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something for the thread to do.
    fn wait(&self, until: Option<Instant>) {
        let mut is_due = self.is_due.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_due {
            is_due = match until.map(|at| at.saturating_since(self.clock.now())) {
                None => self.due.wait(is_due).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.due.wait_timeout(is_due, left.into()).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *is_due = false;
    }

    fn wake_thread(&self) {
        let was_due = std::mem::replace(&mut *self.is_due.lock().unwrap_or_else(PoisonError::into_inner), true);
        if !was_due {
            self.due.notify_one();
        }
    }

    /// Writes what has arrived, and registers `waker` for what comes next. Whether that is left to the thread: more than
    /// `bytes_max` have arrived, or the connection has ended.
    fn serve(&self, state: &mut State, waker: &Waker, bytes_max: usize) -> bool {
        loop {
            let arrived = {
                let receive = pin!(self.peer.connection.recv_datagrams_async(&mut state.received));
                receive.poll(&mut Context::from_waker(waker))
            };
            match arrived {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(closed)) => {
                    // What was left to the thread before the connection ended.
                    state.write(&self.peer, self.clock.now());
                    state.closed = Some(closed);
                    return true;
                }
                Poll::Pending if state.received.is_empty() => {
                    state.handle_timeout(&self.peer, self.clock.now());
                    return false;
                }
                Poll::Pending => {}
            }
            let bytes: usize = state.received.iter().map(|datagram| datagram.data.len()).sum();
            if bytes > bytes_max {
                return true;
            }
            state.write(&self.peer, self.clock.now());
        }
    }
}

/// Datagrams have arrived, says a thread of the connection's driver. It holds no locks.
impl Wake for Exit {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_due = match self.state.try_lock() {
            Ok(mut state) => {
                let waker = Waker::from(Arc::clone(self));
                let is_due = self.serve(&mut state, &waker, self.in_place_bytes_max);
                let timeout = state.unpacker.timeout();
                let is_late = timeout.is_some_and(|at| state.wakes_at.is_none_or(|wakes| at < wakes));
                // The driver answers which paths there are, so its thread cannot wait for that.
                is_due || is_late || self.clock.now() >= state.paths_at
            }
            // The thread serves it, and may have looked for more already. Or it has panicked.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => true,
        };
        if is_due {
            self.wake_thread();
        }
    }
}

impl State {
    /// Writes what was received.
    fn write(&mut self, peer: &Peer, now: Instant) {
        let mut sink = PeerSink { peer, writer: &mut self.writer, policer: peer.meters.inward.as_deref(), now };
        for datagram in self.received.drain(..) {
            self.unpacker.push(now, datagram.path.0 as usize, datagram.data, &mut sink);
        }
        self.unpacker.handle_timeout(now, &mut sink);
        self.unpacker.flush(&mut sink);
        publish(peer, &self.unpacker);
    }

    /// Writes what has waited too long for earlier packets.
    fn handle_timeout(&mut self, peer: &Peer, now: Instant) {
        if self.unpacker.timeout().is_some_and(|at| at <= now) {
            self.write(peer, now);
        }
    }
}

/// Tells the order on which paths packets may come.
fn follow_paths(peer: &Peer, unpacker: &mut Unpacker) {
    let stats = peer.connection.stats();
    peer.paths.set(&stats.paths);
    let open = stats.paths.iter().filter(|path| path.state == PathState::Active);
    unpacker.set_open_paths(open.map(|path| (path.id.0 as usize, path.round_trip)));
}

fn publish(peer: &Peer, unpacker: &Unpacker) {
    let (counters, stats, order) = (&peer.counters, unpacker.stats(), unpacker.order_stats());
    for (counter, value) in [
        (&counters.packets_out, stats.packets),
        (&counters.bytes_out, stats.bytes),
        (&counters.spoofed, stats.spoofed),
        (&counters.malformed, stats.malformed),
        (&counters.incomplete, stats.incomplete),
        (&counters.held, order.held),
        (&counters.lost, order.lost),
        (&counters.expired, order.expired),
        (&counters.late, order.late),
        (&counters.duplicates, order.dropped),
        (&counters.wait_us, unpacker.order().wait().as_micros()),
    ] {
        counter.store(value, Ordering::Relaxed);
    }
}

struct PeerSink<'a> {
    peer: &'a Peer,
    writer: &'a mut Writer,
    policer: Option<&'a Meter>,
    now: Instant,
}

impl Sink for PeerSink<'_> {
    fn allows(&self, inner: &Inner) -> bool {
        self.peer.allows(inner)
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        if exceeds(packet, self.peer.mtu) {
            self.peer.counters.too_large_out.fetch_add(packet.packets as u64, Ordering::Relaxed);
            return;
        }
        let is_over = self.policer.is_some_and(|policer| !policer.admits(self.now, packet.data_bytes()));
        if is_over {
            self.peer.counters.over_rate.fetch_add(packet.packets as u64, Ordering::Relaxed);
            return;
        }
        self.writer.write(packet);
    }
}
