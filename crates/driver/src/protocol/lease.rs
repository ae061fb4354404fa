//! [`LeaseCache`]: the leases with which a worker opens batches where they are received.

use super::Protocol;
use crate::in_flight::InFlightBatch;

/// The leases of a worker.
pub trait LeaseCache<P: Protocol>: Default {
    /// Opens batches of one path of a connection.
    type Lease;

    /// Adds a lease.
    fn insert(&mut self, lease: Self::Lease);

    /// Drops expired leases.
    fn sweep(&mut self);

    /// Opens a batch received from socket `socket`, if a lease covers all of it.
    fn open(
        &mut self,
        socket: usize,
        batch: &mut P::Batch,
        spare: impl FnOnce() -> Box<P::OpenJob>,
    ) -> Option<InFlightBatch<P, Box<P::OpenJob>>>;
}

/// For protocols without leases.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLeases;

impl<P: Protocol> LeaseCache<P> for NoLeases {
    type Lease = std::convert::Infallible;

    fn insert(&mut self, lease: Self::Lease) {
        match lease {}
    }

    fn sweep(&mut self) {}

    fn open(
        &mut self,
        _socket: usize,
        _batch: &mut P::Batch,
        _spare: impl FnOnce() -> Box<P::OpenJob>,
    ) -> Option<InFlightBatch<P, Box<P::OpenJob>>> {
        None
    }
}
