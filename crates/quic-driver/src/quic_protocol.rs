//! [`Quic`]: the implementation of [`driver::Protocol`] for QUIC.

use std::marker::PhantomData;
use std::sync::Arc;

use driver::protocol::{Begun, NoJobs};
use driver::{Application, ConnectionKey, Protocol, Route, Shared};
use quic::session::SessionFactory;
use quic::{Addresses, Endpoint, Event, Side};
use units::Instant;

use crate::cells::ConnectionCell;
use crate::connection::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveReport, ReceiveUpdate};
use crate::leases::Leases;
use crate::packets::{OpenJob, Packets, Plan};
use crate::routing::LocalId;

/// The application-facing types of QUIC connections.
#[derive(Debug, Clone, Copy)]
pub struct QuicApplication;

impl Application for QuicApplication {
    type Cell = ConnectionCell;
    type Connect = Connect;
    type Limits = Limits;
}

/// The state that a QUIC driver shares with all handles of its connections.
pub type QuicShared = Shared<QuicApplication>;

/// Limits of the queues between handles and the driver.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that a stream's outbox holds until the connection takes them. A writer waits while the
    /// outbox is full.
    pub outbox_bytes_max: usize,
    /// Bytes that a stream's inbox holds for its reader. While it is full, received bytes stay in
    /// the connection and use up the peer's flow-control credit.
    pub inbox_bytes_max: usize,
    /// The length of the longest message that is sent or accepted.
    pub message_len_max: usize,
    /// Received chunks of a stream shorter than this are copied out of their receive buffer, so
    /// that a slow reader keeps no whole buffers alive: [`COMPACT_BELOW`](crate::COMPACT_BELOW), or
    /// 0 if there are no receive buffers.
    pub compact_below: usize,
    /// Whether connections from peers are accepted.
    pub is_listening: bool,
}

/// The parameters of an outgoing connection.
pub struct Connect {
    /// The server name for TLS.
    pub server_name: String,
    /// Creates the TLS session.
    pub factory: Arc<dyn SessionFactory>,
}

/// Called with each event of every connection, before the handles are notified.
pub type EventObserver = Arc<dyn Fn(Instant, &Event) + Send + Sync>;

/// QUIC with packets of representation `K`.
pub struct Quic<K> {
    endpoint: Endpoint,
    observer: Option<EventObserver>,
    packets: PhantomData<fn() -> K>,
}

impl<K> Quic<K> {
    /// The protocol instance of one driver.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, observer: None, packets: PhantomData }
    }

    /// Passes the events of all connections to `observer`, in addition to their handles.
    #[must_use]
    pub fn with_observer(self, observer: Option<EventObserver>) -> Self {
        Self { observer, ..self }
    }
}

impl<K: Packets> Protocol for Quic<K> {
    type Connection = Connection<K>;
    type Application = QuicApplication;
    type Batch = K::Batch;
    type Plan = Plan<K>;
    type Sealed = K::Sealed;
    type OpenJob = OpenJob<K>;
    type Job = NoJobs;
    type Leases = Leases;
    type ReceiveHalf = Box<DetachedReceiveHalf>;
    type HalfReport = Box<ReceiveReport>;
    type HalfUpdate = Box<ReceiveUpdate>;
    type RouteId = LocalId;

    fn route(&self, batch: &K::Batch) -> (usize, Route) {
        K::route(&self.endpoint, batch)
    }

    fn route_id(batch: &K::Batch) -> Option<(usize, LocalId)> {
        K::local_id(batch)
    }

    fn leads_to(&self, batch: &K::Batch, key: ConnectionKey) -> bool {
        K::leads_to(&self.endpoint, batch, key)
    }

    fn shard_of(&self, batch: &K::Batch, count: usize) -> Option<usize> {
        K::shard_of(batch, count)
    }

    fn connect(
        &mut self,
        now: Instant,
        request: Connect,
        cell: &Arc<ConnectionCell>,
        socket: usize,
    ) -> Option<Connection<K>> {
        let addresses = Addresses { socket: socket as u16, ..Addresses::of(cell.remote) };
        match self.endpoint.connect(now, &*request.factory, &request.server_name, addresses) {
            Ok(quic) => Some(Connection::new(quic, Arc::clone(cell), self.observer.clone())),
            Err(error) => {
                cell.close(error.into(), None);
                None
            }
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        shared: &Arc<QuicShared>,
        socket: usize,
        batch: K::Batch,
        may_be_foreign: bool,
    ) -> Begun<Self> {
        let remote = K::addresses(socket, &batch).remote;
        match K::accept(&mut self.endpoint, now, socket, batch, may_be_foreign) {
            Ok(quic) => {
                let cell = Arc::new(ConnectionCell::new(Arc::clone(shared), remote, Side::Server));
                Begun::Connection(Connection::new(quic, Arc::clone(&cell), self.observer.clone()), cell)
            }
            Err(Some(batch)) => Begun::Foreign(batch),
            Err(None) => Begun::Nothing,
        }
    }

    fn reply(&mut self, _now: Instant, _socket: usize, batch: &K::Batch, out: &mut K::Sealed) -> bool {
        K::reply(&mut self.endpoint, batch, out)
    }

    fn update_routes(&mut self, key: ConnectionKey, connection: &mut Connection<K>) {
        while let Some(change) = connection.quic.poll_route() {
            self.endpoint.apply(quic::ConnectionKey(key.0), change);
        }
    }

    fn forget(&mut self, key: ConnectionKey) {
        self.endpoint.forget(quic::ConnectionKey(key.0));
    }
}
