//! Parts of a connection that other processors hold: batches in flight, leases to open them, and
//! its receive half.

use std::sync::Arc;

use units::Instant;

use super::cell::ConnectionKey;
use super::connection::Connection;
use super::{CellOf, Protocol};

/// Reference to a connection for workers.
pub struct ConnectionRef<P: Protocol> {
    /// Its key in its driver.
    pub key: ConnectionKey,
    /// Its cell, which detects that the key was reused for a later connection.
    pub cell: Arc<CellOf<P>>,
}

impl<P: Protocol> Clone for ConnectionRef<P> {
    fn clone(&self) -> Self {
        Self { key: self.key, cell: Arc::clone(&self.cell) }
    }
}

/// Identifier of the content of a plan of `P`.
pub type Receipt<P> = <<P as Protocol>::Connection as Connection<P>>::Receipt;

/// A batch between its plan and the network, or between the network and its connection.
///
/// `C` depends on the stage: the plan before it is sealed, the receipt of the plan after that, the
/// job of a received batch once it is opened, or the record that the crypto pool keeps.
pub struct InFlightBatch<P: Protocol, C = Receipt<P>> {
    /// Its connection.
    pub connection: ConnectionRef<P>,
    /// Its content at this stage.
    pub contents: C,
}

impl<P: Protocol, C: Clone> Clone for InFlightBatch<P, C> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), contents: self.contents.clone() }
    }
}

impl<P: Protocol, C> InFlightBatch<P, C> {
    /// Creates a batch of this connection.
    pub fn new(connection: ConnectionRef<P>, contents: C) -> Self {
        Self { connection, contents }
    }

    /// Converts the contents.
    pub(crate) fn map<D>(self, other: impl FnOnce(C) -> D) -> InFlightBatch<P, D> {
        InFlightBatch { connection: self.connection, contents: other(self.contents) }
    }
}

impl<P: Protocol> InFlightBatch<P, Arc<P::Plan>> {
    /// Returns the record of this plan after it is sealed: the receipt instead of the plan.
    pub(crate) fn sealed(&self) -> InFlightBatch<P> {
        InFlightBatch { connection: self.connection.clone(), contents: P::Connection::receipt(&self.contents) }
    }
}

/// The leases of a worker.
pub trait LeaseCache<P: Protocol>: Default {
    /// A lease, which opens batches of one path of a connection.
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

/// Lease cache of protocols without leases.
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

/// A detached receive half.
pub trait ReceiveHalf<P: Protocol> {
    /// Returns the cell of its connection. `None` once it was attached again.
    fn cell(&self) -> Option<Arc<CellOf<P>>>;

    /// Calls `each` with every route ID of its connection.
    fn for_each_route(&self, each: &mut dyn FnMut(P::RouteId));

    /// Processes a batch received from socket `socket` and delivers its data to the application.
    ///
    /// # Errors
    /// Returns the batch if it concerns more than the receive half.
    fn absorb(&mut self, now: Instant, socket: usize, batch: P::Batch) -> Result<(), P::Batch>;

    /// Processes an update of its connection. Returns true if its routes may have changed.
    fn handle_update(&mut self, now: Instant, update: P::HalfUpdate) -> bool;

    /// Wakes the readers of delivered data.
    fn wake_readers(&mut self);

    /// Returns whether there may be something to report.
    fn has_report(&self) -> bool;

    /// Returns whether a report is urgent. Other values are reported when the worker has no other
    /// input. A value that must be reported by some time becomes urgent at that time.
    fn is_urgent(&self, now: Instant) -> bool;

    /// Returns the number of unreported values.
    fn unreported(&self) -> usize;

    /// Returns the next report, if there is something to report.
    fn report(&mut self) -> Option<P::HalfReport>;
}

/// Update from a connection to its detached receive half.
pub trait HalfUpdate: Default {
    /// The type of the reports.
    type Report;

    /// Stores a processed report for reuse. The default frees it.
    fn set_spare(&mut self, report: Self::Report) {
        drop(report);
    }
}

/// Report from a detached receive half to its connection.
pub trait HalfReport {
    /// The type of the updates.
    type Update;

    /// Takes a processed update for reuse. By default there is none.
    fn take_spare(&mut self) -> Option<Self::Update> {
        None
    }
}
