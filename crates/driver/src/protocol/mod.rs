//! The traits that a transport protocol implements so that a driver can run its connections.
//!
//! ```text
//!   Protocol     one per driver: routes received packets, begins connections, answers other packets
//!   Connection   one per connection: its serial part and the state of its handles
//!   Plan         packets to be sent; sealing it needs no connection, so any processor can do it
//!   OpenJob      opens a batch; this needs no connection either
//!   Job          work on absorbed data, such as a cipher above a byte stream; any processor can do it
//!   Batch        packets received together from one socket
//!   Sealed       encrypted packets that are sent together through one socket
//! ```
//!
//! Batches and sealed packets are types of the protocol: bytes for real packets, or lengths in a
//! simulation that needs no bytes.

pub(crate) mod cell;
mod connection;
mod job;
mod offloaded;
mod packets;

use std::sync::Arc;

use units::Instant;

pub use self::cell::{Cell, ConnectionKey, EndReason, Place};
pub use self::connection::{Connection, EventSummary, Served, SocketsLost};
pub use self::job::{Job, NoJobs};
pub use self::offloaded::{
    ConnectionRef, HalfReport, HalfUpdate, InFlightBatch, LeaseCache, NoLeases, Receipt, ReceiveHalf,
};
pub use self::packets::{Batch, OpenJob, Plan};
use crate::shared::{Application, Shared};

/// Reason why the driver drops a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchDrop {
    /// The limit of connections or handshakes is reached, or the driver is ending.
    Limit,
    /// Too many batches wait for the driver that has its connection.
    QueueFull,
    /// Its connection has ended.
    Ended,
}

/// A transport protocol: its state for one driver that belongs to no connection, such as the table
/// of routes.
pub trait Protocol: Sized {
    /// A connection with the state of its handles.
    type Connection: Connection<Self>;
    /// The types that handles and drivers exchange.
    type Application: Application;
    /// Packets received together from one socket.
    type Batch: Batch;
    /// Packets to be sent.
    type Plan: Plan<Sealed = Self::Sealed>;
    /// Encrypted packets that are sent together through one socket.
    type Sealed: Default + Clone;
    /// A job that opens a batch.
    type OpenJob: OpenJob<Batch = Self::Batch>;
    /// Work on data that the serial part has absorbed. [`NoJobs`] if there is no such work.
    type Job: Job;
    /// A worker's leases, which it uses to open batches where they are received.
    type Leases: LeaseCache<Self>;
    /// The receive half of a connection, with its delivery to the application, on another
    /// processor.
    type ReceiveHalf: ReceiveHalf<Self>;
    /// Report from a detached receive half to its connection.
    type HalfReport: HalfReport<Update = Self::HalfUpdate>;
    /// Update from a connection to its detached receive half.
    type HalfUpdate: HalfUpdate<Report = Self::HalfReport>;
    /// Part of a packet that identifies its connection without a lookup.
    type RouteId: Ord + Clone;

    /// Returns the destination of the front of `batch`, and the number of bytes from the front that
    /// have it. The number is never zero unless the batch is empty.
    fn route(&self, batch: &Self::Batch) -> (usize, Route);

    /// Returns the route ID of the packets at the front of a batch, and the number of bytes from
    /// the front that have it. `None` if only [`route`](Self::route) can determine the route.
    fn route_id(batch: &Self::Batch) -> Option<(usize, Self::RouteId)>;

    /// Returns whether the first packet of a batch is still routed to this connection. The driver
    /// calls this only for batches that were opened with a lease.
    fn leads_to(&self, batch: &Self::Batch, key: ConnectionKey) -> bool {
        self.route(batch).1 == Route::Known(key)
    }

    /// Returns a function for the work on received batches that needs neither a connection nor
    /// routes. Another processor may run it before a batch is routed; it marks completed work in
    /// the batch. `None` if there is no such work.
    fn verify(&self) -> Option<Verify<Self>> {
        None
    }

    /// Returns the driver, of `count` drivers of one endpoint, for a batch that is
    /// [unknown](Route::Unknown) to this one.
    fn shard_of(&self, batch: &Self::Batch, count: usize) -> Option<usize>;

    /// Handles the drop of a batch that the protocol has routed, but no connection has taken. The
    /// protocol may count it.
    fn note_dropped(&self, reason: BatchDrop) {
        let _ = reason;
    }

    /// Takes a batch routed as [`Route::Fragment`] that was received from socket `socket`. Returns
    /// the whole batch if this was the last missing part; its route is no fragment.
    fn reassemble(&mut self, now: Instant, socket: usize, batch: Self::Batch) -> Option<Self::Batch> {
        let _ = (now, socket, batch);
        None
    }

    /// Begins a connection for the application, from socket `socket`. Returns `None` if the
    /// protocol refuses; it has then closed the cell.
    fn connect(
        &mut self,
        now: Instant,
        request: <Self::Application as Application>::Connect,
        cell: &Arc<CellOf<Self>>,
        socket: usize,
    ) -> Option<Self::Connection>;

    /// Takes a batch that may begin a peer's connection. With `may_be_foreign`, another driver may
    /// have its connection, and a batch that begins none here is returned. `is_busy` says that so
    /// many peers are in the handshake that the protocol should verify their addresses first, if it
    /// can.
    fn accept(
        &mut self,
        now: Instant,
        shared: &Arc<Shared<Self::Application>>,
        socket: usize,
        batch: Self::Batch,
        may_be_foreign: bool,
        is_busy: bool,
    ) -> Begun<Self>;

    /// Returns the next decision of the application about a peer's batch that
    /// [`accept`](Self::accept) has [held](Begun::Held), with the socket of the batch. Called after
    /// [`Shared::note_decision`]. A connection begins only if `may_begin`.
    fn poll_decided(
        &mut self,
        now: Instant,
        shared: &Arc<Shared<Self::Application>>,
        may_begin: bool,
    ) -> Option<(usize, Begun<Self>)> {
        let _ = (now, shared, may_begin);
        None
    }

    /// Writes the answer to a batch that may begin a peer's connection while no more are admitted.
    /// Returns false if there is none: the peer retries.
    fn refuse(&mut self, batch: &Self::Batch, out: &mut Self::Sealed) -> bool {
        let _ = (batch, out);
        false
    }

    /// Writes the answer to a batch routed as [`Route::Reply`] that was received from socket
    /// `socket`. Returns false if there is none, or none yet: see [`poll_reply`](Self::poll_reply).
    fn reply(&mut self, now: Instant, socket: usize, batch: &Self::Batch, out: &mut Self::Sealed) -> bool;

    /// Drops the references of packets that a socket has taken, and keeps their memory for reuse.
    fn release(packets: &mut Self::Sealed) {
        let _ = packets;
    }

    /// Applies changes of a connection's routes. Called after each call that may change them.
    fn update_routes(&mut self, key: ConnectionKey, connection: &mut Self::Connection);

    /// Removes all routes to a connection that is being removed.
    fn forget(&mut self, key: ConnectionKey);

    /// Returns the next due packet of the protocol itself, and its socket. The driver calls this
    /// after [`handle_timeout`](Self::handle_timeout) until there is none.
    fn poll_reply(&mut self, now: Instant, out: &mut Self::Sealed) -> Option<usize> {
        let _ = (now, out);
        None
    }

    /// Returns the next timeout of the protocol itself.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles a timeout of the protocol itself. Early calls have no effect.
    fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }
}

/// See [`Protocol::verify`].
pub type Verify<P> = Arc<dyn Fn(&mut <P as Protocol>::Batch) + Send + Sync>;

/// The result of [`Protocol::accept`].
pub enum Begun<P: Protocol> {
    /// A connection, with the cell of its handles.
    Connection(P::Connection, Arc<CellOf<P>>),
    /// No connection yet. This answer is sent, and another packet of the peer may begin one.
    Reply(P::Sealed),
    /// The application decides whether a connection begins: see [`Protocol::poll_decided`].
    Held,
    /// The batch begins no connection here and may belong to another driver.
    Foreign(P::Batch),
    /// The batch begins no connection.
    Nothing,
}

/// The destination of the packets at the front of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// This connection.
    Known(ConnectionKey),
    /// The packets may begin a connection: see [`Protocol::accept`].
    Begins,
    /// The packets belong to no connection and are answered: see [`Protocol::reply`].
    Reply,
    /// The packets are parts of larger ones: see [`Protocol::reassemble`].
    Fragment,
    /// The packets belong to no connection of this driver. Another driver of the endpoint may have
    /// it: see [`Protocol::shard_of`].
    Unknown,
}

/// The state that the handles of a connection of `P` share with its driver.
pub type CellOf<P> = <<P as Protocol>::Application as Application>::Cell;
