//! Batches on their way through workers, and the connections they belong to.

use std::sync::Arc;

use crate::protocol::{CellOf, Connection, ConnectionKey, Protocol};

/// A connection as workers know it.
pub struct ConnectionRef<P: Protocol> {
    /// Its key in its driver.
    pub key: ConnectionKey,
    /// Tells it from a later connection of the same key.
    pub cell: Arc<CellOf<P>>,
}

impl<P: Protocol> Clone for ConnectionRef<P> {
    fn clone(&self) -> Self {
        Self { key: self.key, cell: Arc::clone(&self.cell) }
    }
}

/// What a plan of `P` held.
pub type Receipt<P> = <<P as Protocol>::Connection as Connection<P>>::Receipt;

/// A batch between its plan and the network, or between the network and its connection.
///
/// `C` is what is there of it: the plan before it is sealed, the receipt of the plan after that,
/// the job of an arrived batch once that is opened, or what the crypto pool keeps.
pub struct InFlightBatch<P: Protocol, C = Receipt<P>> {
    /// Whose it is.
    pub connection: ConnectionRef<P>,
    /// What is there of it.
    pub contents: C,
}

impl<P: Protocol, C: Clone> Clone for InFlightBatch<P, C> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), contents: self.contents.clone() }
    }
}

impl<P: Protocol, C> InFlightBatch<P, C> {
    /// A batch of this connection.
    pub fn new(connection: ConnectionRef<P>, contents: C) -> Self {
        Self { connection, contents }
    }

    /// The same batch, with other contents.
    pub(crate) fn map<D>(self, other: impl FnOnce(C) -> D) -> InFlightBatch<P, D> {
        InFlightBatch { connection: self.connection, contents: other(self.contents) }
    }
}

impl<P: Protocol> InFlightBatch<P, Arc<P::Plan>> {
    /// What remains of it when it is sealed.
    pub(crate) fn sealed(&self) -> InFlightBatch<P> {
        InFlightBatch { connection: self.connection.clone(), contents: P::Connection::receipt(&self.contents) }
    }
}
