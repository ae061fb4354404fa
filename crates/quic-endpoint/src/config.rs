//! The configuration of an endpoint.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use engine::{EventHandler, Placement};
use net::UdpSocketOptions;
use quic::{AddressValidation, TransportConfig};

use crate::runtime::EngineConfig;

/// The configuration of an endpoint.
///
/// The limits bound its memory: a connection may hold about `transport.connection_window_max`
/// received and `transport.send_buffer_max` sent bytes, and each stream `inbox_bytes_max` and
/// `outbox_bytes_max` on top.
///
/// More fields may be added: begin with [`default`](Self::default), [`at`](Self::at) or
/// [`loopback`](Self::loopback), and set others with the `with_` methods or by assignment.
///
/// ```
/// use quic_endpoint::{EndpointConfig, Placement};
///
/// let config = EndpointConfig::loopback().with_placement(Placement::Split);
/// let config = config.with_connections_max(10);
/// assert_eq!(config.connections_max, 10);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// The sockets to open, for [`Endpoint::bind`](crate::Endpoint::bind). Outgoing connections use
    /// the first one of the peer's address family. Default: one, any IPv4 address, any port.
    pub sockets: Vec<UdpSocketOptions>,
    /// Threads that run the protocol. Default: one thread of the endpoint.
    pub placement: Placement,
    /// Processors to pin the endpoint's threads to, by the system's processor numbers: the first
    /// one is for the serial work. Threads beyond the list are not pinned. Default: none.
    pub cores: Vec<usize>,
    /// Transport parameters and behaviour of connections.
    pub transport: TransportConfig,
    /// TLS settings for incoming connections. Default: none, which makes an endpoint that only
    /// connects.
    pub server_tls: Option<Arc<rustls::ServerConfig>>,
    /// The key of stateless reset tokens, a secret. An endpoint that restarts with the same key
    /// tells the peers of connections it has lost, so that they need not wait for their idle
    /// timeout (RFC 9000, section 10.3). Anyone who knows the key can end the endpoint's
    /// connections. Default: none, and the endpoint sends no resets; it recognises resets from
    /// peers in any case.
    pub reset_key: Option<[u8; 32]>,
    /// Whether connections begin with a validated address if an earlier one to the same server did
    /// (RFC 9000, section 8.1.3): servers give their clients a token for the next connection, and
    /// clients keep tokens in memory and present them when they connect to the same name and
    /// address again. This saves such clients a round trip while the server validates the addresses
    /// of others. A server with a [`reset_key`](Self::reset_key) accepts its tokens after a
    /// restart, too. A token is valid for a day and for one connection. The token lets a server
    /// recognise a client that has changed its address; set this to false where that is unwanted.
    /// Default: true.
    pub address_tokens: bool,
    /// Condition under which a client must prove, before its connection begins, that it receives
    /// packets at its address. Default: while half of [`half_open_max`](Self::half_open_max) is
    /// used.
    pub address_validation: AddressValidation,
    /// Maximum number of clients, for each thread that serves connections, that wait for the
    /// application's decision before their handshake: see
    /// [`Endpoint::accept_incoming`](crate::Endpoint::accept_incoming). Further clients are
    /// refused. A client waits for at most [`TransportConfig::handshake_timeout`] and is then
    /// refused. While this is not zero, [`address_validation`](Self::address_validation) has no
    /// effect: the application decides by [`Incoming::retry`](crate::Incoming::retry). Default:
    /// zero, which begins handshakes without asking.
    pub incoming_max: usize,
    /// Whether [`accept`](crate::Endpoint::accept) returns the connection of a client as soon as a
    /// stream of it has arrived in 0-RTT. It matters only if
    /// [`server_tls`](Self::server_tls) takes 0-RTT
    /// ([`max_early_data_size`](rustls::ServerConfig::max_early_data_size) of `u32::MAX`, sessions
    /// in memory, no ticketer).
    ///
    /// The application then receives requests, and may answer them, before the client has proved
    /// its presence: check [`RecvStream::may_be_replayed`](crate::RecvStream::may_be_replayed)
    /// before any action that must not happen twice.
    /// [`Connection::peer_identity`](crate::Connection::peer_identity) is empty until
    /// [`Connection::connected`](crate::Connection::connected). Default: false; the connection is
    /// returned when the handshake is complete, so that a replayed first flight never reaches the
    /// application, and a request in 0-RTT is answered no sooner than any other.
    pub accepts_early: bool,
    /// The maximum number of connections at a time, including closing ones; further ones are
    /// refused. Default: 1024.
    pub connections_max: usize,
    /// The maximum number of clients in the handshake or waiting for `accept`. Packets of further
    /// clients are dropped until they retry. Default: 128.
    pub half_open_max: usize,
    /// Bytes that a sending stream buffers before its writer waits; a single chunk may exceed it.
    /// Default: 1 MiB.
    pub outbox_bytes_max: usize,
    /// Bytes that a receiving stream buffers for its reader before flow control stops the peer.
    /// Default: 1 MiB.
    pub inbox_bytes_max: usize,
    /// The maximum length of a message in either direction, in bytes. Default: 1 MiB.
    pub message_len_max: usize,
    /// Time for which an idle thread polls before it sleeps. Polling shortens round trips and
    /// occupies a core while packets arrive at shorter intervals than this. Other threads run in
    /// between; for 200 ms after one that computes, the thread sleeps at once. Default: zero, which
    /// sleeps at once.
    pub busy_poll: Duration,
    /// Handler that the first thread serving connections calls when the handler's descriptor is
    /// readable. Default: none.
    pub event_handler: Option<Arc<dyn EventHandler>>,
    /// Whether to measure processor time per stage, for
    /// [`Endpoint::costs`](crate::Endpoint::costs). Default: false.
    pub measure: bool,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            sockets: vec![UdpSocketOptions::default()],
            placement: engine.placement,
            cores: engine.cores,
            transport: engine.transport,
            server_tls: None,
            reset_key: engine.reset_key,
            address_tokens: true,
            address_validation: engine.address_validation,
            incoming_max: engine.incoming_max,
            accepts_early: engine.accepts_early,
            connections_max: engine.connections_max,
            half_open_max: engine.half_open_max,
            outbox_bytes_max: engine.outbox_bytes_max,
            inbox_bytes_max: engine.inbox_bytes_max,
            message_len_max: engine.message_len_max,
            busy_poll: engine.busy_poll.into(),
            event_handler: engine.event_handler,
            measure: engine.measure,
        }
    }
}

impl EndpointConfig {
    /// Returns the default configuration with one socket bound to `address`.
    pub fn at(address: SocketAddr) -> Self {
        Self { sockets: vec![UdpSocketOptions::new(address)], ..Self::default() }
    }

    /// Returns the default configuration with one socket on the IPv4 loopback address, at a port
    /// that the system chooses.
    pub fn loopback() -> Self {
        Self::at(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
    }

    /// Sets [`sockets`](Self::sockets).
    #[must_use]
    pub fn with_sockets(mut self, sockets: Vec<UdpSocketOptions>) -> Self {
        self.sockets = sockets;
        self
    }

    /// Sets [`placement`](Self::placement).
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets [`cores`](Self::cores).
    #[must_use]
    pub fn with_cores(mut self, cores: Vec<usize>) -> Self {
        self.cores = cores;
        self
    }

    /// Sets [`transport`](Self::transport).
    #[must_use]
    pub fn with_transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// Sets [`server_tls`](Self::server_tls).
    #[must_use]
    pub fn with_server_tls(mut self, server_tls: impl Into<Option<Arc<rustls::ServerConfig>>>) -> Self {
        self.server_tls = server_tls.into();
        self
    }

    /// Sets [`address_validation`](Self::address_validation).
    #[must_use]
    pub fn with_address_validation(mut self, when: AddressValidation) -> Self {
        self.address_validation = when;
        self
    }

    /// Sets [`reset_key`](Self::reset_key).
    #[must_use]
    pub fn with_reset_key(mut self, reset_key: impl Into<Option<[u8; 32]>>) -> Self {
        self.reset_key = reset_key.into();
        self
    }

    /// Sets [`address_tokens`](Self::address_tokens).
    #[must_use]
    pub fn with_address_tokens(mut self, address_tokens: bool) -> Self {
        self.address_tokens = address_tokens;
        self
    }

    /// Sets [`incoming_max`](Self::incoming_max).
    #[must_use]
    pub fn with_incoming_max(mut self, incoming_max: usize) -> Self {
        self.incoming_max = incoming_max;
        self
    }

    /// Sets [`accepts_early`](Self::accepts_early).
    #[must_use]
    pub fn with_accepts_early(mut self, accepts_early: bool) -> Self {
        self.accepts_early = accepts_early;
        self
    }

    /// Sets [`connections_max`](Self::connections_max).
    #[must_use]
    pub fn with_connections_max(mut self, connections_max: usize) -> Self {
        self.connections_max = connections_max;
        self
    }

    /// Sets [`half_open_max`](Self::half_open_max).
    #[must_use]
    pub fn with_half_open_max(mut self, half_open_max: usize) -> Self {
        self.half_open_max = half_open_max;
        self
    }

    /// Sets [`outbox_bytes_max`](Self::outbox_bytes_max).
    #[must_use]
    pub fn with_outbox_bytes_max(mut self, outbox_bytes_max: usize) -> Self {
        self.outbox_bytes_max = outbox_bytes_max;
        self
    }

    /// Sets [`inbox_bytes_max`](Self::inbox_bytes_max).
    #[must_use]
    pub fn with_inbox_bytes_max(mut self, inbox_bytes_max: usize) -> Self {
        self.inbox_bytes_max = inbox_bytes_max;
        self
    }

    /// Sets [`message_len_max`](Self::message_len_max).
    #[must_use]
    pub fn with_message_len_max(mut self, message_len_max: usize) -> Self {
        self.message_len_max = message_len_max;
        self
    }

    /// Sets [`busy_poll`](Self::busy_poll).
    #[must_use]
    pub fn with_busy_poll(mut self, busy_poll: Duration) -> Self {
        self.busy_poll = busy_poll;
        self
    }

    /// Sets [`event_handler`](Self::event_handler).
    #[must_use]
    pub fn with_event_handler(mut self, event_handler: Arc<dyn EventHandler>) -> Self {
        self.event_handler = Some(event_handler);
        self
    }

    /// Sets [`measure`](Self::measure).
    #[must_use]
    pub fn with_measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }
}
