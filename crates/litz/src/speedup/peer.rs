//! The other end of the connection: real for the handshake, then a script.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::BytesMut;
use net::MonotonicClock;
use quic::session::tls::TlsServer;
use quic::{
    Addresses, Connection, Endpoint, PLAN_DATAGRAMS_MAX, Plan, ScriptKeys, ScriptedPeer, SecretSource, TransportConfig,
    seal,
};

use scheduler::Strategy;

use super::cipher::Tls;

/// Credit that is never used up: flow control is not what is measured.
pub(crate) const ENDLESS: u64 = 1 << 60;

/// The port of the first path at both ends; those of the others follow.
const PORT: u16 = 4433;

/// Where the script is on a path, for those who need an address (RFC 5737: nobody's).
pub(crate) fn peer_addr(path: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PORT + path)
}

/// Where the measured end is on a path.
pub(crate) fn local_addr(path: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), PORT + path)
}

/// How both ends behave: windows that hold nobody back, datagrams of `size` bytes, so many paths; zero does not speak of paths.
pub(crate) fn transport(size: usize, max_paths: u32) -> TransportConfig {
    TransportConfig {
        stream_window: ENDLESS,
        stream_window_max: ENDLESS,
        connection_window: 2 * ENDLESS,
        connection_window_max: 2 * ENDLESS,
        datagram_size: size,
        max_paths,
        // All paths are alike, so there is nothing to estimate.
        scheduler: Strategy::RoundRobin,
        ..TransportConfig::default()
    }
}

/// A server whose handshake goes on.
pub(crate) struct Peer {
    endpoint: Endpoint,
    connection: Option<Connection>,
    clock: MonotonicClock,
    plan: Plan,
}

impl Peer {
    /// Waits for a client.
    ///
    /// # Errors
    /// In words, if the configuration cannot work or the system gives no randomness.
    pub(crate) fn new(tls: &Tls, size: usize, max_paths: u32) -> Result<Self, String> {
        let mut secret = [0; 32];
        net::os_random(&mut secret).map_err(|error| format!("cannot get random bytes: {error}"))?;
        let factory = Arc::new(TlsServer::new(Arc::clone(&tls.server))?);
        let endpoint = Endpoint::new(transport(size, max_paths), Some(factory), SecretSource::new(&secret));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        Ok(Self { endpoint, connection: None, clock: MonotonicClock::start(), plan: Plan::new() })
    }

    /// Takes a batch that the client sent on a path.
    ///
    /// # Errors
    /// In words, if it begins no connection.
    pub(crate) fn handle(&mut self, path: u16, batch: &[u8], stride: usize) -> Result<(), String> {
        let from = Addresses { socket: path, ..Addresses::of(local_addr(path)) };
        let now = self.clock.now();
        for datagram in batch.chunks(stride.max(1)) {
            let bytes = BytesMut::from(datagram);
            match &mut self.connection {
                None => {
                    let begun = self.endpoint.accept(now, from, bytes);
                    self.connection = Some(begun.map_err(|error| format!("the handshake did not begin: {error}"))?);
                }
                Some(connection) => connection.handle_datagrams(now, from, bytes, datagram.len()),
            }
        }
        Ok(())
    }

    /// Does what is due and hands out what is to be said: path, batch, and the size of its datagrams.
    pub(crate) fn poll(&mut self, mut say: impl FnMut(u16, Vec<u8>, usize)) {
        let Some(connection) = &mut self.connection else { return };
        let now = self.clock.now();
        connection.handle_timeout(now);
        // There is one connection, so nothing is to be routed, and its end shows in what follows.
        while connection.poll_route().is_some() {}
        while connection.poll_event().is_some() {}
        while connection.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut self.plan) {
            let mut sealed = Vec::new();
            seal(&self.plan, &mut sealed);
            connection.handle_emitted(now, &self.plan.receipt());
            let path = self.plan.addresses.map_or(0, |addresses| addresses.socket);
            say(path, sealed, self.plan.segment_size);
        }
    }

    /// Both ends are at rest after the handshake, and so many paths work.
    pub(crate) fn can_become_script(&mut self, paths: usize) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.can_become_script(paths))
    }

    /// Goes on as a script; none unless it [can](Self::can_become_script).
    pub(crate) fn into_script(self, paths: usize) -> Option<(ScriptKeys, Vec<ScriptedPeer>)> {
        self.connection?.into_script(paths)
    }
}
