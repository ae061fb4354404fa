//! [`InFlightBatch`]: a batch that a worker processes, with its connection.

use std::sync::Arc;

use crate::protocol::{CellOf, Connection, ConnectionKey, Protocol};

/// Identifies a connection for workers.
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

/// Identifies the content of a plan of `P`.
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
    /// The record of this plan after it is sealed: the receipt instead of the plan.
    pub(crate) fn sealed(&self) -> InFlightBatch<P> {
        InFlightBatch { connection: self.connection.clone(), contents: P::Connection::receipt(&self.contents) }
    }
}
