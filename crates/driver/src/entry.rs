//! [`ConnectionEntry`]: a connection with its state in the driver's table.

use std::sync::Arc;

use units::{Duration, Instant};

use crate::protocol::{CellOf, Protocol};
use crate::shared::{Entered, HalfOpen};

/// First wait after the system refused a batch. Each consecutive refusal doubles it.
const REFUSED_WAIT_MIN: Duration = Duration::from_millis(5);
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

/// A connection in a driver's table.
pub(crate) struct ConnectionEntry<P: Protocol> {
    pub(crate) connection: P::Connection,
    pub(crate) cell: Arc<CellOf<P>>,
    /// The deadline that is registered in the driver's timers.
    pub(crate) deadline: Option<Instant>,
    /// Connections of a higher priority are visited first.
    pub(crate) priority: i32,
    /// Whether it is in the driver's run queue.
    pub(crate) is_scheduled: bool,
    /// A bit set of the full sockets whose queues it is in.
    pub(crate) awaits_space: u64,
    /// Count of a peer's connection during its handshake.
    pub(crate) half_open: Option<HalfOpen<P::Application>>,
    /// Count of the connection among those of the endpoint.
    _entered: Entered<P::Application>,
    /// The number of consecutive refused batches.
    refusals: u32,
    /// Time before which nothing is sent, because of refused batches.
    pub(crate) refused_until: Option<Instant>,
}

impl<P: Protocol> ConnectionEntry<P> {
    pub(crate) fn new(connection: P::Connection, cell: Arc<CellOf<P>>, entered: Entered<P::Application>) -> Self {
        Self {
            connection,
            cell,
            deadline: None,
            priority: 0,
            is_scheduled: false,
            awaits_space: 0,
            half_open: None,
            _entered: entered,
            refusals: 0,
            refused_until: None,
        }
    }

    /// Records that the system refused a batch and that it will not be sent. The wait doubles with
    /// each consecutive refusal, so that a lasting cause costs little.
    pub(crate) fn on_refused(&mut self, now: Instant) {
        let wait = REFUSED_WAIT_MIN * (1 << self.refusals.min(16));
        self.refused_until = Some(now + wait.min(REFUSED_WAIT_MAX));
        self.refusals += 1;
    }

    /// Records that the system accepted a batch.
    pub(crate) fn on_taken(&mut self) {
        self.refusals = 0;
        self.refused_until = None;
    }
}
