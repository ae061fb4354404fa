//! The rings between an I/O worker and its owner: commands in one direction, events and received
//! batches in the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::Waker;

use rtrb::{Consumer, Producer, PushError, RingBuffer};
use units::Instant;

use super::liveness::{HangLimit, Liveness, Progress};
use crate::in_flight::InFlightBatch;
use crate::protocol::{Batch, Protocol};

/// A batch that a worker has received for the driver.
pub(crate) struct Arrived<P: Protocol> {
    /// The index of its socket.
    pub(crate) socket: usize,
    pub(crate) batch: P::Batch,
    /// The job that opened it, if the worker has opened it.
    pub(crate) opened: Option<InFlightBatch<P, Box<P::OpenJob>>>,
}

/// Capacities of the rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingSizes {
    pub(crate) commands: usize,
    pub(crate) events: usize,
    pub(crate) arrivals: usize,
}

/// Wakes the other side once for several values.
#[derive(Debug)]
pub(crate) struct BatchedWaker {
    waker: Waker,
    is_due: bool,
}

impl BatchedWaker {
    fn new(waker: Waker) -> Self {
        Self { waker, is_due: false }
    }

    /// Requests that the next [`flush`](Self::flush) wakes the other side.
    pub(crate) fn note(&mut self) {
        self.is_due = true;
    }

    /// Wakes the other side if requested.
    pub(crate) fn flush(&mut self) {
        if std::mem::take(&mut self.is_due) {
            self.waker.wake_by_ref();
        }
    }

    /// Wakes the other side now.
    pub(crate) fn wake(&self) {
        self.waker.wake_by_ref();
    }
}

/// The owner's side. Dropping it ends the worker.
pub(crate) struct OwnerEnd<P: Protocol, C, E> {
    pub(crate) commands: Producer<C>,
    pub(crate) events: Consumer<E>,
    pub(crate) arrivals: Consumer<Arrived<P>>,
    pub(crate) worker: BatchedWaker,
    pub(crate) liveness: Liveness,
    /// Number of received packets that were dropped because `arrivals` was full.
    dropped: Arc<AtomicU64>,
}

/// The worker's side.
pub(crate) struct WorkerEnd<P: Protocol, C, E> {
    pub(crate) commands: Consumer<C>,
    pub(crate) events: Producer<E>,
    pub(crate) arrivals: Producer<Arrived<P>>,
    pub(crate) owner: BatchedWaker,
    pub(crate) progress: Arc<Progress>,
    dropped: Arc<AtomicU64>,
}

/// Creates both sides. `owner` and `worker` wake the two threads.
pub(crate) fn link<P: Protocol, C, E>(
    sizes: RingSizes,
    limit: HangLimit,
    now: Instant,
    owner: Waker,
    worker: Waker,
) -> (OwnerEnd<P, C, E>, WorkerEnd<P, C, E>) {
    let (commands, to_do) = RingBuffer::new(sizes.commands);
    let (sent_events, events) = RingBuffer::new(sizes.events);
    let (received, arrivals) = RingBuffer::new(sizes.arrivals);
    let progress = Arc::new(Progress::default());
    let liveness = Liveness::new(Arc::clone(&progress), limit, now);
    let (worker, owner) = (BatchedWaker::new(worker), BatchedWaker::new(owner));
    let dropped = Arc::<AtomicU64>::default();
    let owners = OwnerEnd { commands, events, arrivals, worker, liveness, dropped: Arc::clone(&dropped) };
    (owners, WorkerEnd { commands: to_do, events: sent_events, arrivals: received, owner, progress, dropped })
}

impl<P: Protocol, C, E> OwnerEnd<P, C, E> {
    /// Puts a command into its ring. The caller wakes the worker.
    ///
    /// # Panics
    /// If the ring is full.
    pub(crate) fn push(&mut self, command: C) {
        // Commands to a worker that has just ended are lost, like its other work.
        let is_taken = self.commands.push(command).is_ok();
        assert!(is_taken || self.commands.is_abandoned(), "the caller leaves space in the ring of commands");
        self.worker.note();
    }

    /// Returns whether there is an event or a batch to take.
    pub(crate) fn has_some(&self) -> bool {
        !self.events.is_empty() || !self.arrivals.is_empty()
    }

    /// Returns whether the next batch is from this socket.
    pub(crate) fn has_more_of(&self, socket: usize) -> bool {
        self.arrivals.peek().is_ok_and(|next| next.socket == socket)
    }

    /// Returns the number of received packets that were dropped because the ring was full.
    pub(crate) fn dropped_packets(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether the worker's thread has ended. The rings may still contain its events and
    /// batches.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_abandoned()
    }

    /// Returns whether the worker's thread has ended and the owner has taken all its events and
    /// batches.
    pub(crate) fn is_over(&self) -> bool {
        if !self.is_abandoned() {
            return false;
        }
        // After this fence, everything that the worker put into the rings before it ended is
        // visible.
        fence(Ordering::Acquire);
        !self.has_some()
    }

    /// Closes the ring of commands. The worker ends when it finds the ring closed.
    pub(crate) fn close(&mut self) {
        let (commands, _) = RingBuffer::new(1);
        self.commands = commands;
    }
}

impl<P: Protocol, C, E> Drop for OwnerEnd<P, C, E> {
    fn drop(&mut self) {
        self.close();
        self.liveness.end();
        self.worker.wake();
    }
}

impl<P: Protocol, C, E> WorkerEnd<P, C, E> {
    /// Puts an event into its ring. The next flush wakes the owner. Returns false if the ring is
    /// full and the owner has not ended.
    pub(crate) fn report(&mut self, event: E) -> bool {
        let is_taken = self.events.push(event).is_ok();
        self.owner.note();
        is_taken || self.events.is_abandoned()
    }

    /// Passes a batch to the owner. The next flush wakes the owner. If the ring is full, the batch
    /// is dropped and counted: to the peer, this is a loss in the network.
    pub(crate) fn pass_on(&mut self, arrival: Arrived<P>) {
        if let Err(PushError::Full(lost)) = self.arrivals.push(arrival) {
            self.dropped.fetch_add(lost.batch.packet_count() as u64, Ordering::Relaxed);
        }
        self.owner.note();
    }
}
