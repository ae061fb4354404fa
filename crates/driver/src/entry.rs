//! A connection with what its driver keeps about it.

use std::sync::Arc;

use units::{Duration, Instant};

use crate::protocol::{CellOf, Protocol};
use crate::shared::{Entered, HalfOpen};

/// How long nothing is sent after the system refused a batch, at first and at most.
const REFUSED_WAIT_MIN: Duration = Duration::from_millis(5);
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

/// A connection of a driver.
pub(crate) struct ConnectionEntry<P: Protocol> {
    pub(crate) connection: P::Connection,
    pub(crate) cell: Arc<CellOf<P>>,
    /// What the driver's timers hold for it.
    pub(crate) deadline: Option<Instant>,
    /// When the handshake has failed; none once it is complete.
    pub(crate) handshake_until: Option<Instant>,
    /// Connections of a higher priority are visited first.
    pub(crate) priority: i32,
    /// In the driver's run queue.
    pub(crate) is_scheduled: bool,
    /// In the queues of these sockets, which are full: bit by bit.
    pub(crate) awaits_room: u64,
    /// A peer's connection whose handshake goes on.
    pub(crate) half_open: Option<HalfOpen<P::Application>>,
    /// It counts among the connections of the endpoint.
    _entered: Entered<P::Application>,
    /// What the system last said when a batch was refused.
    pub(crate) last_send_error: Option<String>,
    /// Batches refused in a row, and until when nothing is sent because of them.
    refusals: u32,
    pub(crate) refused_until: Option<Instant>,
}

impl<P: Protocol> ConnectionEntry<P> {
    pub(crate) fn new(connection: P::Connection, cell: Arc<CellOf<P>>, entered: Entered<P::Application>) -> Self {
        Self {
            connection,
            cell,
            deadline: None,
            handshake_until: None,
            priority: 0,
            is_scheduled: false,
            awaits_room: 0,
            half_open: None,
            _entered: entered,
            last_send_error: None,
            refusals: 0,
            refused_until: None,
        }
    }

    /// The system refused a batch for good: waits longer each time, so that a lasting cause costs
    /// little.
    pub(crate) fn on_refused(&mut self, now: Instant) {
        let wait = REFUSED_WAIT_MIN * (1 << self.refusals.min(16));
        self.refused_until = Some(now + wait.min(REFUSED_WAIT_MAX));
        self.refusals += 1;
    }

    /// The system took a batch.
    pub(crate) fn on_taken(&mut self) {
        self.refusals = 0;
        self.refused_until = None;
    }
}
