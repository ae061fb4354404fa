//! The driver's calls: routes, accepting, connecting and replies.

use std::sync::Arc;

use driver::protocol::{Begun, NoJobs};
use driver::{ConnectionKey, Protocol, Route};
use quic::{Addresses, Side};
use units::Instant;

use super::Quic;
use crate::application::{Connect, QuicApplication, QuicShared};
use crate::cells::connection::ConnectionCell;
use crate::connection::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveReport, ReceiveUpdate};
use crate::incoming::HeldAttempts;
use crate::leases::Leases;
use crate::packets::{NotBegun, OpenJob, Packets, Plan};
use crate::routing::LocalId;

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
        is_busy: bool,
    ) -> Begun<Self> {
        let remote = K::addresses(socket, &batch).remote;
        if self.held.is_some() {
            return self.hold(now, socket, batch, may_be_foreign);
        }
        match K::accept(&mut self.endpoint, now, socket, batch, may_be_foreign, is_busy) {
            Ok(quic) => {
                let cell = Arc::new(ConnectionCell::new(Arc::clone(shared), remote, Side::Server));
                Begun::Connection(Connection::new(quic, Arc::clone(&cell), self.observer.clone()), cell)
            }
            Err(NotBegun::Reply(answer)) => Begun::Reply(answer),
            Err(NotBegun::Foreign(batch)) => Begun::Foreign(batch),
            Err(NotBegun::Unknown) => Begun::Nothing,
        }
    }

    fn poll_decided(
        &mut self,
        now: Instant,
        shared: &Arc<QuicShared>,
        may_begin: bool,
    ) -> Option<(usize, Begun<Self>)> {
        self.decided(now, shared, may_begin)
    }

    fn poll_reply(&mut self, _now: Instant, out: &mut K::Sealed) -> Option<usize> {
        self.refuse_expired(out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.as_ref().and_then(HeldAttempts::timeout)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.on_timeout(now);
        }
    }

    fn refuse(&mut self, batch: &K::Batch, out: &mut K::Sealed) -> bool {
        K::refuse(&mut self.endpoint, batch, out)
    }

    fn reply(&mut self, now: Instant, _socket: usize, batch: &K::Batch, out: &mut K::Sealed) -> bool {
        K::reply(&mut self.endpoint, now, batch, out)
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
