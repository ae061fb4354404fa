//! The messages between the driver and a path worker.

use std::sync::Arc;

use units::Instant;

use crate::in_flight::InFlightBatch;
use crate::protocol::{LeaseCache, Protocol};
use crate::socket::SendError;

/// A lease, with which workers open batches.
pub(crate) type LeaseOf<P> = <<P as Protocol>::Leases as LeaseCache<P>>::Lease;

/// A command of the driver.
pub enum PathWorkerCommand<P: Protocol> {
    /// Seal this plan and send it.
    Send(InFlightBatch<P, Arc<P::Plan>>),
    /// Open the batches of a path with this lease.
    Lease(Box<LeaseOf<P>>),
    /// Send these packets, if the socket has space.
    Reply {
        /// The socket.
        socket: usize,
        /// The packets.
        packets: P::Sealed,
    },
    /// Receive from the sockets, because the processor that received from them has ended.
    Receive,
    /// Report when all of the first `plans` plans have been sent.
    Finish {
        /// The number of plans.
        plans: u64,
    },
}

/// An event that a worker reports about its plans.
pub enum PathWorkerEvent<P: Protocol> {
    /// A batch is being sent.
    Emitted {
        /// The batch.
        batch: InFlightBatch<P, Arc<P::Plan>>,
        /// The time.
        at: Instant,
    },
    /// A batch that was reported as sent but waited for socket space is being sent.
    EmittedLate {
        /// The batch.
        batch: InFlightBatch<P>,
        /// The time.
        at: Instant,
    },
    /// A batch that was reported as sent will not be sent.
    Refused {
        /// The batch.
        batch: InFlightBatch<P>,
        /// The time of the error.
        at: Instant,
        /// The error.
        error: SendError,
    },
    /// All of the first `plans` plans were sent.
    Finished {
        /// The number of plans.
        plans: u64,
    },
}
