//! What goes between the driver and a path worker.

use std::sync::Arc;

use units::Instant;

use crate::in_flight::InFlightBatch;
use crate::protocol::{LeaseCache, Protocol};
use crate::socket::SendError;

/// What workers open batches with.
pub(crate) type LeaseOf<P> = <<P as Protocol>::Leases as LeaseCache<P>>::Lease;

/// From the driver.
pub enum PathWorkerCommand<P: Protocol> {
    /// Seal this plan and send it.
    Send(InFlightBatch<P, Arc<P::Plan>>),
    /// Open with this what arrives on a path.
    Lease(Box<LeaseOf<P>>),
    /// Send this, if there is room.
    Reply {
        /// The socket.
        socket: usize,
        /// What to send.
        packets: P::Sealed,
    },
    /// Tell when all of the first `plans` plans have left.
    Finish {
        /// How many.
        plans: u64,
    },
}

/// From the worker, about what it was given.
pub enum PathWorkerEvent<P: Protocol> {
    /// A batch leaves now.
    Emitted {
        /// The batch.
        batch: InFlightBatch<P, Arc<P::Plan>>,
        /// When.
        at: Instant,
    },
    /// A batch that was reported as leaving had to wait for room, and leaves now.
    EmittedLate {
        /// The batch.
        batch: InFlightBatch<P>,
        /// When.
        at: Instant,
    },
    /// A batch that was reported as leaving will never leave.
    Refused {
        /// The batch.
        batch: InFlightBatch<P>,
        /// When that turned out.
        at: Instant,
        /// Why.
        error: SendError,
    },
    /// All of the first `plans` plans have left.
    Finished {
        /// How many.
        plans: u64,
    },
}
