//! The real end of the connection, which does the handshake before a script replaces it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::BytesMut;
use net::MonotonicClock;
use quic::session::tls::TlsServer;
use quic::{Addresses, Connection, Endpoint, PLAN_DATAGRAMS_MAX, Plan, SecretSource, Strategy, TransportConfig, seal};

use crate::cipher::Tls;
use crate::script::{ScriptKeys, ScriptedPeer, into_script};

/// Credit that is never exhausted: flow control is not measured.
pub const UNLIMITED: u64 = 1 << 60;

/// The port of the first path at both ends; the other paths use the following ports.
const PORT: u16 = 4433;

/// Returns the script's address on a path (from the documentation block of RFC 5737).
pub fn peer_addr(path: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PORT + path)
}

/// Returns the measured end's address on a path.
pub fn local_addr(path: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), PORT + path)
}

/// Returns the transport configuration of both ends: unlimited windows, datagrams of `size` bytes,
/// and this many paths. Zero disables multipath.
pub fn transport(size: usize, max_paths: u32) -> TransportConfig {
    TransportConfig::default()
        .with_stream_window(UNLIMITED)
        .with_stream_window_max(UNLIMITED)
        .with_connection_window(2 * UNLIMITED)
        .with_connection_window_max(2 * UNLIMITED)
        .with_datagram_size(size)
        .with_max_paths(max_paths)
        // All paths are alike, so there is nothing to estimate.
        .with_scheduler(Strategy::RoundRobin)
}

/// A server in the handshake.
pub struct Peer {
    endpoint: Endpoint,
    connection: Option<Connection>,
    clock: MonotonicClock,
    plan: Plan,
}

impl Peer {
    /// Creates a server waiting for a client.
    ///
    /// # Errors
    /// Fails if the configuration is invalid or the system provides no randomness.
    pub fn new(tls: &Tls, size: usize, max_paths: u32) -> Result<Self, String> {
        let mut secret = [0; 32];
        net::os_random(&mut secret).map_err(|error| format!("cannot get random bytes: {error}"))?;
        let factory = Arc::new(TlsServer::new(Arc::clone(&tls.server))?);
        let endpoint = Endpoint::new(transport(size, max_paths), Some(factory), SecretSource::new(&secret));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        Ok(Self { endpoint, connection: None, clock: MonotonicClock::start(), plan: Plan::new() })
    }

    /// Processes a batch that the client sent on a path.
    ///
    /// # Errors
    /// Fails if the batch begins no connection.
    pub fn handle(&mut self, path: u16, batch: &[u8], stride: usize) -> Result<(), String> {
        let from = Addresses { socket: path, ..Addresses::of(local_addr(path)) };
        let now = self.clock.now();
        for datagram in batch.chunks(stride.max(1)) {
            let bytes = BytesMut::from(datagram);
            match &mut self.connection {
                None => {
                    let begun = self.endpoint.accept(now, from, bytes, None, false);
                    self.connection = Some(begun.map_err(|error| format!("the handshake did not begin: {error}"))?);
                }
                Some(connection) => connection.handle_datagrams(now, from, bytes, datagram.len()),
            }
        }
        Ok(())
    }

    /// Runs the timers and passes all outgoing batches to `send`: path, batch, and the size of its
    /// datagrams.
    pub fn poll(&mut self, mut send: impl FnMut(u16, Vec<u8>, usize)) {
        let Some(connection) = &mut self.connection else { return };
        let now = self.clock.now();
        connection.handle_timeout(now);
        // There is one connection, so routes do not matter, and a failure shows in later calls.
        while connection.poll_route().is_some() {}
        while connection.poll_event().is_some() {}
        while connection.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut self.plan) {
            let mut sealed = Vec::new();
            seal(&self.plan, &mut sealed);
            connection.handle_emitted(now, &self.plan.receipt());
            let path = self.plan.addresses.map_or(0, |addresses| addresses.socket);
            send(path, sealed, self.plan.segment_size);
        }
    }

    /// Returns whether both ends are at rest after the handshake, and `paths` paths are active.
    pub fn can_become_script(&mut self, paths: usize) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.can_dismantle(paths))
    }

    /// Becomes a script; returns `None` unless it [can](Self::can_become_script).
    pub fn into_script(self, paths: usize) -> Option<(ScriptKeys, Vec<ScriptedPeer>)> {
        into_script(self.connection?, paths)
    }
}
