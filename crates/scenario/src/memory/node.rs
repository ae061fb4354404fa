//! One host: an endpoint, its one connection, and what a driver does for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{
    Addresses, Connection, ConnectionKey, Endpoint, Event, PLAN_DATAGRAMS_MAX, PathId, Plan, ReceiveBuffer, Route,
    SecretSource, Side, seal,
};
use units::{Instant, Rng};

use super::network::Frame;
use crate::begin::transport_config;
use crate::model::Scenario;
use crate::world::WorldError;

/// The name that each endpoint gives its only connection.
const KEY: ConnectionKey = ConnectionKey(0);

pub(super) struct Node {
    pub(super) side: Side,
    endpoint: Endpoint,
    pub(super) connection: Option<Connection>,
    factory: Arc<dyn SessionFactory>,
    plan: Plan,
    sealed: Vec<u8>,
}

/// A datagram as it came; nothing is copied.
struct Arrived(Vec<u8>);

impl ReceiveBuffer for Arrived {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// The ends of a path as one side sees them: each path has a network, and a socket at each host, of its own.
fn addresses(path: usize, side: Side) -> Addresses {
    let end = |host, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, path as u8, host)), port);
    let (here, there) = match side {
        Side::Client => (end(1, 1000), end(2, 2000)),
        Side::Server => (end(2, 2000), end(1, 1000)),
    };
    Addresses { remote: there, local_ip: Some(here.ip()), socket: path as u16 }
}

impl Node {
    pub(super) fn new(scenario: &Scenario, side: Side, path_count: usize, rng: &Rng) -> Result<Self, WorldError> {
        let host = if side == Side::Client { 0 } else { 1 };
        let mut key = [0; 32];
        rng.split("secrets").fill(&mut key);
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, rng.split("sessions")));
        let listening = (side == Side::Server).then(|| factory.clone());
        let endpoint = Endpoint::new(transport_config(scenario, host, path_count), listening, SecretSource::new(&key))
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        Ok(Self { side, endpoint, connection: None, factory, plan: Plan::new(), sealed: Vec::new() })
    }

    /// The client begins, over this path.
    pub(super) fn connect(&mut self, now: Instant, path: usize) -> Result<(), WorldError> {
        let connection = self
            .endpoint
            .connect(now, self.factory.as_ref(), "b", addresses(path, Side::Client))
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        self.connection = Some(connection);
        self.apply_routes();
        Ok(())
    }

    /// Opens another path.
    pub(super) fn open_path(&mut self, now: Instant, path: usize, is_backup: bool) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.open_path(now, addresses(path, self.side), is_backup).map_err(|error| error.to_string())
    }

    /// Makes the path that the connection began on a backup.
    pub(super) fn set_first_backup(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.set_path_backup(now, PathId::ZERO, true);
        }
    }

    /// A datagram arrives.
    pub(super) fn receive(&mut self, now: Instant, frame: Frame) {
        let addresses = addresses(frame.path, self.side);
        match self.endpoint.route(&frame.bytes) {
            Route::Known(_) => {
                if let Some(connection) = &mut self.connection {
                    let len = frame.bytes.len();
                    connection.handle_datagrams(now, addresses, Arrived(frame.bytes), len);
                }
            }
            Route::First if self.connection.is_none() => {
                let datagram = BytesMut::from(&frame.bytes[..]);
                self.connection = self.endpoint.accept(now, addresses, datagram).ok();
            }
            Route::First | Route::UnknownVersion | Route::Unknown => {}
        }
        self.apply_routes();
    }

    fn apply_routes(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        while let Some(change) = connection.poll_route() {
            self.endpoint.apply(KEY, change);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.connection.as_mut()?.poll_event()
    }

    /// Sends everything that may leave now.
    pub(super) fn send(&mut self, now: Instant, mut emit: impl FnMut(Frame)) {
        let Some(connection) = &mut self.connection else { return };
        while connection.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut self.plan) {
            seal(&self.plan, &mut self.sealed);
            connection.handle_emitted(now, &self.plan.receipt());
            let Some(addresses) = self.plan.addresses else { continue };
            for datagram in self.sealed.chunks(self.plan.segment_size) {
                emit(Frame { path: usize::from(addresses.socket), bytes: datagram.to_vec() });
            }
        }
        self.apply_routes();
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.connection.as_ref()?.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }
}
