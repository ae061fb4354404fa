//! What all handles of an engine and its driver share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use net::MonotonicClock;
use quic::session::SessionFactory;

use crate::cells::ConnectionCell;
use crate::meter::{Meter, Stage};
use crate::sync::{WakerSet, lock};
use crate::wake::EngineWaker;

/// Wishes to connect that the driver has not taken; it takes them within a turn.
const CONNECTS_WAITING_MAX: usize = 1024;

/// What handles need without asking the driver.
pub(crate) struct Shared {
    pub(crate) clock: MonotonicClock,
    pub(crate) waker: Arc<EngineWaker>,
    pub(crate) local_addrs: Vec<SocketAddr>,
    pub(crate) limits: Limits,
    /// Connections that exist.
    pub(crate) connection_count: AtomicUsize,
    /// Present if the owner wants to know where the time goes.
    pub(crate) meter: Option<Box<Meter>>,
    todo: Mutex<EngineTodo>,
    accepted: Mutex<Accepted>,
}

/// The limits that handles apply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) outbox_bytes_max: usize,
    pub(crate) inbox_bytes_max: usize,
    pub(crate) message_len_max: usize,
    pub(crate) is_listening: bool,
}

/// A wish to connect.
pub(crate) struct ConnectRequest {
    pub(crate) cell: Arc<ConnectionCell>,
    pub(crate) server_name: String,
    pub(crate) factory: Arc<dyn SessionFactory>,
    /// Which socket; none: the first of the remote address's family.
    pub(crate) socket: Option<usize>,
}

/// What the driver has to do.
#[derive(Default)]
pub(crate) struct EngineTodo {
    /// Connections with work, each once.
    pub(crate) dirty: Vec<Arc<ConnectionCell>>,
    pub(crate) connects: VecDeque<ConnectRequest>,
    /// Say goodbye to all and take no more.
    pub(crate) stopping: bool,
    /// The driver is gone.
    stopped: bool,
}

/// Connections of clients, ready for the application. Bounded by `half_open_max`: see the driver's admission.
#[derive(Default)]
struct Accepted {
    queue: VecDeque<Arc<ConnectionCell>>,
    wakers: WakerSet,
    stopped: bool,
}

/// What `accept` found.
pub(crate) enum AcceptOutcome {
    Connection(Arc<ConnectionCell>),
    Pending,
    Stopped,
}

impl Shared {
    pub(crate) fn new(
        clock: MonotonicClock,
        waker: Arc<EngineWaker>,
        local_addrs: Vec<SocketAddr>,
        limits: Limits,
        measure: bool,
    ) -> Self {
        Self {
            clock,
            waker,
            local_addrs,
            limits,
            connection_count: AtomicUsize::new(0),
            meter: measure.then(|| Box::new(Meter::new(clock))),
            todo: Mutex::default(),
            accepted: Mutex::default(),
        }
    }

    /// A stage of the driver ends; see [`Meter::lap`].
    pub(crate) fn lap(&self, stage: Stage) {
        if let Some(meter) = &self.meter {
            meter.lap(stage);
        }
    }

    /// Names a connection that has work. The caller wakes the driver.
    pub(crate) fn push_dirty(&self, cell: Arc<ConnectionCell>) {
        lock(&self.todo).dirty.push(cell);
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn push_connect(&self, request: ConnectRequest) -> Result<(), crate::error::Closed> {
        let mut todo = lock(&self.todo);
        if todo.stopped || todo.stopping {
            return Err(crate::error::Closed::EndpointClosed);
        }
        if todo.connects.len() >= CONNECTS_WAITING_MAX {
            return Err(crate::error::Closed::TooMany);
        }
        todo.connects.push_back(request);
        Ok(())
    }

    /// Moves the named connections into `dirty`, which is empty, and says whether to stop.
    pub(crate) fn take_dirty(&self, dirty: &mut Vec<Arc<ConnectionCell>>) -> bool {
        debug_assert!(dirty.is_empty());
        let mut todo = lock(&self.todo);
        std::mem::swap(&mut todo.dirty, dirty);
        todo.stopping
    }

    pub(crate) fn pop_connect(&self) -> Option<ConnectRequest> {
        lock(&self.todo).connects.pop_front()
    }

    /// True if the driver has something to do.
    pub(crate) fn has_todo(&self) -> bool {
        let todo = lock(&self.todo);
        !todo.dirty.is_empty() || !todo.connects.is_empty()
    }

    /// Asks the driver to end.
    pub(crate) fn stop(&self) {
        lock(&self.todo).stopping = true;
        self.waker.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.todo).stopping
    }

    /// The driver is gone: nobody waits for it any longer. What it had not taken is handed back.
    pub(crate) fn mark_stopped(&self) -> EngineTodo {
        let rest = {
            let mut todo = lock(&self.todo);
            let rest = std::mem::take(&mut *todo);
            todo.stopping = true;
            todo.stopped = true;
            rest
        };
        let wakers = {
            let mut accepted = lock(&self.accepted);
            accepted.stopped = true;
            accepted.wakers.take()
        };
        wakers.wake();
        rest
    }

    /// A client's connection is ready.
    pub(crate) fn push_accepted(&self, cell: Arc<ConnectionCell>) {
        let wakers = {
            let mut accepted = lock(&self.accepted);
            accepted.queue.push_back(cell);
            accepted.wakers.take()
        };
        wakers.wake();
    }

    pub(crate) fn accepted_len(&self) -> usize {
        lock(&self.accepted).queue.len()
    }

    pub(crate) fn poll_accept(&self, waker: &std::task::Waker) -> AcceptOutcome {
        let mut accepted = lock(&self.accepted);
        if let Some(cell) = accepted.queue.pop_front() {
            return AcceptOutcome::Connection(cell);
        }
        if accepted.stopped {
            return AcceptOutcome::Stopped;
        }
        accepted.wakers.add(waker);
        AcceptOutcome::Pending
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::Relaxed)
    }
}
