//! Protocol-independent parts of a connection that handles and drivers know: its [`Cell`], its key
//! and place, and the reason why it ends.

use std::net::SocketAddr;

/// The state that the handles of a connection share with the driver.
pub trait Cell {
    /// Returns the place of the connection. It is set once, when the driver adds the connection to
    /// its table.
    fn place(&self) -> &std::sync::OnceLock<Place>;

    /// Returns the peer's address. Its address family determines the socket that a connection
    /// begins at.
    fn remote(&self) -> SocketAddr;

    /// Closes the cell because the connection does not begin.
    fn refuse(&self, reason: EndReason);

    /// Returns the queue in which a peer's connection waits to be accepted. There is one,
    /// [`FIRST_QUEUE`](crate::shared::FIRST_QUEUE), unless the protocol
    /// [opens](crate::shared::Common::open_queue) others.
    fn accept_queue(&self) -> u64 {
        crate::shared::FIRST_QUEUE
    }
}

/// Place of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its key in its driver.
    pub key: ConnectionKey,
    /// Its local address, if known.
    pub local: SocketAddr,
}

/// Identifies a connection of one driver. A key is reused after its connection is removed. Code
/// that keeps a key across turns also keeps the connection's cell, to detect reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u32);

/// Reason why a driver ends a connection or refuses to begin one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The endpoint was closed.
    EndpointClosed,
    /// The processor that ran the connection or its last path has failed.
    ProcessorGone,
    /// The limit of connections is reached.
    TooMany,
    /// No socket has the address family of the remote address.
    NoSocket,
}
