//! Connection attempts that wait for the application's decision.
//!
//! ```text
//!   driver: HeldAttempts ── IncomingInfo ──▶ IncomingQueue ──▶ application
//!                        ◀──── Decision ────               ◀──
//! ```
//!
//! A driver keeps the packets of its attempts. The application gets a description of each, and
//! returns its decision by number. An attempt without a decision is refused after a timeout.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use driver::sync::{WakerSet, lock};
use quic::{Addresses, ConnectionId, Incoming};
use units::{Duration, Instant};

/// The application's decision about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Begin the handshake.
    Accept,
    /// Refuse the client with an answer.
    Refuse,
    /// Require the client to prove its address first and to try again.
    Retry,
    /// Drop the attempt without an answer.
    Ignore,
}

/// Description of an attempt for the application.
#[derive(Debug, Clone, Copy)]
pub struct IncomingInfo {
    /// The driver that keeps its packets.
    pub driver: usize,
    /// Its number at that driver.
    pub number: u64,
    /// The addresses of its first packet.
    pub addresses: Addresses,
    /// Whether the client has proved its address.
    pub is_validated: bool,
    /// Destination connection ID of the client's first packet.
    pub original_destination: ConnectionId,
}

/// Attempts that the application has not taken, and its decisions that the drivers have not taken.
/// The queue is bounded by the attempts that the drivers hold: each is in it once.
pub struct IncomingQueue {
    state: Mutex<QueueState>,
}

struct QueueState {
    waiting: VecDeque<IncomingInfo>,
    wakers: WakerSet,
    /// Decisions by driver.
    decisions: Vec<VecDeque<(u64, Decision)>>,
    /// Number of running drivers. `None` once the queue is closed.
    drivers: Option<usize>,
}

impl IncomingQueue {
    /// Creates the queue of an endpoint with this number of drivers.
    pub fn new(drivers: usize) -> Self {
        let decisions = (0..drivers).map(|_| VecDeque::new()).collect();
        let wakers = WakerSet::default();
        Self { state: Mutex::new(QueueState { waiting: VecDeque::new(), wakers, decisions, drivers: Some(drivers) }) }
    }

    /// Returns the attempt that has waited longest, or `None` once the queue is closed.
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

    /// Decides on an attempt. The caller calls [`note_decision`](driver::Shared::note_decision) of
    /// its driver and wakes it.
    pub fn decide(&self, info: &IncomingInfo, decision: Decision) {
        lock(&self.state).decisions[info.driver].push_back((info.number, decision));
    }

    /// Closes the queue: no more attempts are taken.
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

    /// Removes an attempt that ended without a decision.
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

/// Attempts of one driver that wait for a decision.
pub struct HeldAttempts {
    pub(crate) queue: Arc<IncomingQueue>,
    pub(crate) driver: usize,
    pub(crate) attempts_max: usize,
    lifetime: Duration,
    /// Attempts by number, which is also the order in which they expire.
    pub(crate) attempts: BTreeMap<u64, Held>,
    next: u64,
    pub(crate) expired: VecDeque<Incoming>,
}

impl HeldAttempts {
    /// Creates the attempts of driver `driver`: at most `attempts_max`, each for `lifetime`, or
    /// without limit if that is zero.
    pub fn new(queue: Arc<IncomingQueue>, driver: usize, attempts_max: usize, lifetime: Duration) -> Self {
        let (attempts, expired) = (BTreeMap::new(), VecDeque::new());
        Self { queue, driver, attempts_max, lifetime, attempts, next: 0, expired }
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.attempts.values().next().map(|held| held.until).filter(|until| *until != Instant::FAR_FUTURE)
    }

    /// Marks attempts without a decision for refusal.
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
