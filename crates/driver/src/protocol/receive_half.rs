//! [`ReceiveHalf`]: the receive half of a connection, detached to another processor.

use std::sync::Arc;

use units::Instant;

use super::{CellOf, Protocol};

/// A detached receive half.
pub trait ReceiveHalf<P: Protocol> {
    /// The cell of its connection. `None` once it was attached again.
    fn cell(&self) -> Option<Arc<CellOf<P>>>;

    /// Calls `each` with every route ID of its connection.
    fn for_each_route(&self, each: &mut dyn FnMut(P::RouteId));

    /// Processes a batch received from socket `socket` and delivers its data to the application.
    ///
    /// # Errors
    /// Returns the batch if it concerns more than the receive half.
    fn absorb(&mut self, now: Instant, socket: usize, batch: P::Batch) -> Result<(), P::Batch>;

    /// Processes an update of its connection. True if its routes may have changed.
    fn handle_update(&mut self, now: Instant, update: P::HalfUpdate) -> bool;

    /// Wakes the readers of delivered data.
    fn wake_readers(&mut self);

    /// Whether there may be something to report.
    fn has_findings(&self) -> bool;

    /// Whether there is something that must be reported at once.
    fn is_urgent(&self) -> bool;

    /// The number of unreported values.
    fn unreported(&self) -> usize;

    /// The next report, if there is something to report.
    fn report(&mut self) -> Option<P::HalfReport>;
}

/// Sent from a connection to its detached receive half.
pub trait HalfUpdate: Default {
    /// The type of the reports.
    type Report;

    /// Returns a processed report, to be reused. The default frees it.
    fn set_spare(&mut self, report: Self::Report) {
        drop(report);
    }
}

/// Sent from a detached receive half to its connection.
pub trait HalfReport {
    /// The type of the updates.
    type Update;

    /// Takes a processed update, to be reused. By default there is none.
    fn take_spare(&mut self) -> Option<Self::Update> {
        None
    }
}
