//! The other end of the connection: real for the handshake, then a script.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use net::MonotonicClock;
use quic::session::tls::TlsServer;
use quic::{
    Addresses, Connection, Endpoint, PLAN_DATAGRAMS_MAX, Plan, ScriptedPeer, SecretSource, TransportConfig, seal,
};

use super::cipher::Tls;

/// Credit that is never used up: flow control is not what is measured.
pub(crate) const ENDLESS: u64 = 1 << 60;

/// Where the script is, for those who need an address (RFC 5737: nobody's).
pub(crate) const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)), 4433);

/// Where the measured end is.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 4433);

/// How both ends behave: windows that hold nobody back, datagrams of `size` bytes.
pub(crate) fn transport(size: usize) -> TransportConfig {
    TransportConfig {
        stream_window: ENDLESS,
        stream_window_max: ENDLESS,
        connection_window: 2 * ENDLESS,
        connection_window_max: 2 * ENDLESS,
        datagram_size: size,
        // Scripts do not speak multipath.
        max_paths: 0,
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
    pub(crate) fn new(tls: &Tls, size: usize) -> Result<Self, String> {
        let mut secret = [0; 32];
        net::os_random(&mut secret).map_err(|error| format!("cannot get random bytes: {error}"))?;
        let factory = Arc::new(TlsServer::new(Arc::clone(&tls.server))?);
        let endpoint = Endpoint::new(transport(size), Some(factory), SecretSource::new(&secret));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        Ok(Self { endpoint, connection: None, clock: MonotonicClock::start(), plan: Plan::new() })
    }

    /// Takes a batch of the client.
    ///
    /// # Errors
    /// In words, if it begins no connection.
    pub(crate) fn handle(&mut self, batch: &[u8], stride: usize) -> Result<(), String> {
        let (now, from) = (self.clock.now(), Addresses::of(LOCAL));
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

    /// Does what is due and hands out what is to be said, batch by batch with the size of a datagram.
    pub(crate) fn poll(&mut self, mut say: impl FnMut(Vec<u8>, usize)) {
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
            say(sealed, self.plan.segment_size);
        }
    }

    /// Both ends are at rest after the handshake.
    pub(crate) fn can_become_script(&mut self) -> bool {
        self.connection.as_mut().is_some_and(Connection::can_become_script)
    }

    /// Goes on as a script; none unless it [can](Self::can_become_script).
    pub(crate) fn into_script(self) -> Option<ScriptedPeer> {
        self.connection?.into_script()
    }
}
