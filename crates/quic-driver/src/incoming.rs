//! Connection attempts that wait for a decision of the application.
//!
//! ```text
//!   driver: HeldAttempts ── IncomingInfo ──▶ IncomingQueue ──▶ application
//!                        ◀──── Decision ────               ◀──
//! ```
//!
//! A driver keeps the packets of its attempts. The application gets a description of each, and its
//! decision comes back by number. An attempt without a decision is refused after a while.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use driver::sync::{WakerSet, lock};
use quic::{Addresses, ConnectionId, Incoming};
use units::{Duration, Instant};

/// What the application decides about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The handshake begins.
    Accept,
    /// The client is told that it is refused.
    Refuse,
    /// The client must prove its address first, and comes again.
    Retry,
    /// The client gets no answer.
    Ignore,
}

/// An attempt, for the application.
#[derive(Debug, Clone, Copy)]
pub struct IncomingInfo {
    /// The driver that keeps its packets.
    pub driver: usize,
    /// Its number there.
    pub number: u64,
    /// The addresses of its first packet.
    pub addresses: Addresses,
    /// Whether the client has proved its address.
    pub is_validated: bool,
    /// The destination of the first packet that the client sent.
    pub original_destination: ConnectionId,
}

/// The attempts that the application has not taken, and its decisions that the drivers have not taken.
/// Bounded by the attempts that the drivers hold: each is in it once.
pub struct IncomingQueue {
    state: Mutex<QueueState>,
}

struct QueueState {
    waiting: VecDeque<IncomingInfo>,
    wakers: WakerSet,
    /// By driver.
    decisions: Vec<VecDeque<(u64, Decision)>>,
    /// The number of running drivers. None once the queue is closed.
    drivers: Option<usize>,
}

impl IncomingQueue {
    /// The queue of an endpoint with this number of drivers.
    pub fn new(drivers: usize) -> Self {
        let decisions = (0..drivers).map(|_| VecDeque::new()).collect();
        let wakers = WakerSet::default();
        Self { state: Mutex::new(QueueState { waiting: VecDeque::new(), wakers, decisions, drivers: Some(drivers) }) }
    }

    /// The attempt that waits for longest, or none once the queue is closed.
    pub fn poll_next(&self, waker: &Waker) -> Poll<Option<IncomingInfo>> {
        let mut state = lock(&self.state);
        if state.drivers.is_none_or(|drivers| drivers == 0) {
            return Poll::Ready(None);
        }
        if let Some(info) = state.waiting.pop_front() {
            return Poll::Ready(Some(info));
        }
        state.wakers.add(waker);
        Poll::Pending
    }

    /// Decides about an attempt. The caller calls [`note_decision`](driver::Shared::note_decision)
    /// of its driver and wakes it.
    pub fn decide(&self, info: &IncomingInfo, decision: Decision) {
        lock(&self.state).decisions[info.driver].push_back((info.number, decision));
    }

    /// Nobody takes attempts any more.
    pub fn close(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            state.drivers = None;
            state.waiting.clear();
            state.wakers.take()
        };
        wakers.wake();
    }

    fn push(&self, info: IncomingInfo) {
        let wakers = {
            let mut state = lock(&self.state);
            state.waiting.push_back(info);
            state.wakers.take()
        };
        wakers.wake();
    }

    pub(crate) fn pop_decision(&self, driver: usize) -> Option<(u64, Decision)> {
        lock(&self.state).decisions[driver].pop_front()
    }

    /// The attempt is over without a decision.
    fn remove(&self, driver: usize, number: u64) {
        lock(&self.state).waiting.retain(|info| (info.driver, info.number) != (driver, number));
    }

    fn on_driver_end(&self, driver: usize) {
        let wakers = {
            let mut state = lock(&self.state);
            state.waiting.retain(|info| info.driver != driver);
            state.drivers = state.drivers.map(|drivers| drivers.saturating_sub(1));
            if state.drivers == Some(0) { state.wakers.take() } else { WakerSet::default() }
        };
        wakers.wake();
    }
}

pub(crate) struct Held {
    pub(crate) incoming: Incoming,
    until: Instant,
}

/// The attempts of one driver that wait for a decision.
pub struct HeldAttempts {
    pub(crate) queue: Arc<IncomingQueue>,
    pub(crate) driver: usize,
    pub(crate) attempts_max: usize,
    lifetime: Duration,
    /// By number, which is also the order in which they expire.
    pub(crate) attempts: BTreeMap<u64, Held>,
    next: u64,
    pub(crate) expired: VecDeque<Incoming>,
}

impl HeldAttempts {
    /// Those of driver `driver`: at most `attempts_max`, each for `lifetime`, or without limit if that
    /// is zero.
    pub fn new(queue: Arc<IncomingQueue>, driver: usize, attempts_max: usize, lifetime: Duration) -> Self {
        let (attempts, expired) = (BTreeMap::new(), VecDeque::new());
        Self { queue, driver, attempts_max, lifetime, attempts, next: 0, expired }
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.attempts.values().next().map(|held| held.until).filter(|until| *until != Instant::FAR_FUTURE)
    }

    /// Attempts without a decision are to be refused.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        while let Some(first) = self.attempts.first_entry().filter(|first| first.get().until <= now) {
            let (number, held) = first.remove_entry();
            self.queue.remove(self.driver, number);
            self.expired.push_back(held.incoming);
        }
    }

    pub(crate) fn add(&mut self, now: Instant, incoming: Incoming) {
        let number = self.next;
        self.next += 1;
        let info = IncomingInfo {
            driver: self.driver,
            number,
            addresses: incoming.addresses(),
            is_validated: incoming.is_validated(),
            original_destination: incoming.original_destination(),
        };
        let until = if self.lifetime.is_zero() { Instant::FAR_FUTURE } else { now + self.lifetime };
        self.attempts.insert(number, Held { incoming, until });
        self.queue.push(info);
    }
}

impl Drop for HeldAttempts {
    fn drop(&mut self) {
        self.queue.on_driver_end(self.driver);
    }
}
