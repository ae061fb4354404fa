//! Waits for the peer's credit, which must end if the transfer is cancelled.
//!
//! A write blocks for as long as the peer reads nothing, and opening a stream blocks until the peer
//! permits it. Neither checks the cancel token; closing the connection ends both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::link::{CancelToken, Link};
use super::queue::{Popped, Queue};

/// Waits of the threads of one transfer.
pub(crate) struct PeerWaits {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Closed when the transfer no longer needs the watch.
    over: Queue<()>,
}

impl PeerWaits {
    pub(crate) fn new() -> Self {
        Self { begun: AtomicU64::new(0), ended: AtomicU64::new(0), over: Queue::new(1) }
    }

    /// Runs `wait`, which the peer may block.
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let outcome = wait();
        self.ended.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    /// Runs the watching thread: closes `link` if `cancel` is set and a wait does not end. After a
    /// wait that ends, the transfer sees the token itself, and notifies the peer.
    pub(crate) fn watch(&self, cancel: &CancelToken, link: &dyn Link) {
        let mut ended_before = 0;
        let mut ticks = 0;
        while matches!(self.over.pop_timeout(TICK), Popped::Timeout) {
            let (begun, ended) = (self.begun.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst));
            let is_stuck = cancel.is_cancelled() && begun != ended && ended == ended_before;
            ended_before = ended;
            ticks = if is_stuck { ticks + 1 } else { 0 };
            if ticks >= STUCK_TICKS {
                link.close("cancelled");
                return;
            }
        }
    }

    /// Ends the watch.
    pub(crate) fn end_watch(&self) {
        self.over.close();
    }
}

/// Interval of the checks.
const TICK: Duration = Duration::from_millis(50);

/// Duration of a stuck wait: two seconds, the time that a peer has to read a Stop.
const STUCK_TICKS: u32 = 40;
