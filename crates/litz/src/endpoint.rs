//! Endpoints: sockets, limits, and how connections begin.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use engine::{Closed, Costs, Engine, EngineConfig, LiveSocket, Placement, SplitStats, StageStats, StartError};
use net::{DatagramSocket, UdpSocket, UdpSocketOptions};
use quic::session::SessionFactory;
use quic::session::tls::{TlsClient, TlsServer, keys_for_measuring};
use quic::{PathId, TransportConfig};

use crate::connection::{Connection, not_inline};

/// What an endpoint is made of.
///
/// The limits bound its memory: a connection may hold about `transport.connection_window_max` received and
/// `transport.send_buffer_max` sent bytes, and each stream `inbox_bytes_max` and `outbox_bytes_max` on top.
#[derive(Clone)]
pub struct EndpointConfig {
    /// The sockets to open, for [`Endpoint::bind`]. Outgoing connections use the first one of the peer's address family.
    /// Default: one, any IPv4 address, any port.
    pub sockets: Vec<UdpSocketOptions>,
    /// Which processors run the protocol. Default: a thread of the endpoint.
    pub placement: Placement,
    /// Where the endpoint's threads stay, by the system's numbers of processors: the first has what is serial. Those for
    /// whom there is none go where the system puts them. Default: none.
    pub cores: Vec<usize>,
    /// How connections behave.
    pub transport: TransportConfig,
    /// TLS settings for connections that are accepted. Default none: this endpoint only connects.
    pub server_tls: Option<Arc<rustls::ServerConfig>>,
    /// Connections at a time, those that are ending included; more are refused. Default 1024.
    pub connections_max: usize,
    /// Clients in the handshake or waiting for `accept`; more are not answered until they try again. Default 128.
    pub half_open_max: usize,
    /// A handshake that takes longer has failed, on both sides. Default 10 s.
    pub handshake_timeout: Duration,
    /// Bytes that a sending stream holds before its writer waits; a single chunk may exceed it. Default 1 MiB.
    pub outbox_bytes_max: usize,
    /// Bytes that a receiving stream holds for its reader before the peer is held back. Default 1 MiB.
    pub inbox_bytes_max: usize,
    /// The largest message that is sent or taken, in bytes. Default 1 MiB.
    pub message_len_max: usize,
    /// How long a thread with nothing to do asks the system again and again before it sleeps: shorter round trips for a
    /// whole core. Default zero: sleep at once.
    pub busy_poll: Duration,
    /// Note where the time goes, for [`Endpoint::costs`]. Default no.
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
            connections_max: engine.connections_max,
            half_open_max: engine.half_open_max,
            handshake_timeout: engine.handshake_timeout.into(),
            outbox_bytes_max: engine.outbox_bytes_max,
            inbox_bytes_max: engine.inbox_bytes_max,
            message_len_max: engine.message_len_max,
            busy_poll: engine.busy_poll.into(),
            measure: engine.measure,
        }
    }
}

impl EndpointConfig {
    /// The defaults, on one socket at `address`.
    pub fn at(address: SocketAddr) -> Self {
        Self { sockets: vec![UdpSocketOptions::new(address)], ..Self::default() }
    }

    /// The defaults, on any port of this machine that only this machine can reach.
    pub fn loopback() -> Self {
        Self::at(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
    }
}

/// Why an endpoint could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// A socket could not be opened; says which, and what to do.
    Socket(net::OpenError),
    /// The engine could not be started.
    Start(StartError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket(error) => error.source(),
            Self::Start(error) => error.source(),
        }
    }
}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        match error {
            BindError::Socket(error) => Self::other(error),
            BindError::Start(error) => error.into(),
        }
    }
}

/// Why a connection was not made: the same as why one ends.
pub type ConnectError = Closed;

/// Sockets and the connections on them.
///
/// Shared by reference or in an [`Arc`]. Dropping it closes every connection with code 0, waits for the goodbyes to leave (a
/// second at most) and ends its thread; what was not acknowledged is lost.
pub struct Endpoint {
    engine: Engine,
}

impl Endpoint {
    /// Opens the sockets of `config` and starts. Under [`Placement::Connection`] each processor has sockets of its own: an
    /// endpoint that accepts has all of them on the same ports, one that only connects has ports for each, which is why it
    /// must not ask for a certain one.
    ///
    /// # Errors
    /// If a socket cannot be opened, or the configuration cannot work.
    pub fn bind(config: EndpointConfig) -> Result<Self, BindError> {
        let drivers = config.placement.driver_count();
        let accepts = config.server_tls.is_some();
        let mut options = config.sockets.clone();
        let mut sockets: Vec<Box<dyn LiveSocket>> = Vec::with_capacity(options.len() * drivers);
        for _ in 0..drivers {
            for options in &mut options {
                // Clients come to one port, whichever processor has them then. Who only connects has a port for each.
                options.reuse_port |= accepts && drivers > 1;
                let socket = UdpSocket::open(options).map_err(BindError::Socket)?;
                report_buffers(&socket, options);
                if options.reuse_port {
                    options.bind = socket
                        .local_addr()
                        .map_err(|error| BindError::Start(StartError::System("ask a socket for its address", error)))?;
                }
                sockets.push(Box::new(socket));
            }
        }
        Self::with_sockets(config, sockets)
    }

    /// Starts over sockets that exist; `config.sockets` is not used. Under [`Placement::Connection`] as many for each
    /// processor, first those of the first.
    ///
    /// # Errors
    /// If there is no socket, or the configuration cannot work.
    pub fn with_sockets(config: EndpointConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, BindError> {
        let server = config.server_tls.map(TlsServer::new).transpose();
        let server = server.map_err(|words| BindError::Start(StartError::Configuration(words)))?;
        let config = EngineConfig {
            placement: config.placement,
            cores: config.cores,
            seal_cost: if config.placement == Placement::Auto { seal_cost() } else { None },
            transport: config.transport,
            server: server.map(|server| Arc::new(server) as Arc<dyn SessionFactory>),
            connections_max: config.connections_max,
            half_open_max: config.half_open_max,
            handshake_timeout: config.handshake_timeout.into(),
            outbox_bytes_max: config.outbox_bytes_max,
            inbox_bytes_max: config.inbox_bytes_max,
            message_len_max: config.message_len_max,
            busy_poll: config.busy_poll.into(),
            measure: config.measure,
        };
        let engine = Engine::start(config, sockets).map_err(BindError::Start)?;
        Ok(Self { engine })
    }

    /// Connects to `remote` and waits for the handshake. `server_name` is what TLS asks for; hosts that are known by their
    /// keys take any name.
    ///
    /// # Errors
    /// Why there is no connection: nobody answered in time, TLS failed, the configuration cannot work.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        self.connected(self.begin(None, remote, server_name, tls)?)
    }

    /// As [`connect`](Self::connect), from the socket of this place among [`EndpointConfig::sockets`]: the first path of a
    /// connection that may have several ([`Connection::open_path`]).
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and if there is no such socket.
    pub fn connect_from(
        &self,
        socket: usize,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        self.connected(self.begin(Some(socket), remote, server_name, tls)?)
    }

    fn connected(&self, handle: engine::ConnectionHandle) -> Result<Connection, ConnectError> {
        // The handshake has a deadline of its own.
        self.engine.block_on(None, |waker| handle.poll_connected(waker)).unwrap_or(Err(Closed::EndpointClosed))?;
        Ok(Connection::new(handle))
    }

    /// As [`connect`](Self::connect).
    ///
    /// # Errors
    /// As [`connect`](Self::connect); and under [`Placement::Inline`], which has nothing that could run it.
    pub async fn connect_async(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        not_inline(&self.engine)?;
        Self::connected_async(self.begin(None, remote, server_name, tls)?).await
    }

    /// As [`connect_from`](Self::connect_from).
    ///
    /// # Errors
    /// As [`connect_from`](Self::connect_from); and under [`Placement::Inline`].
    pub async fn connect_from_async(
        &self,
        socket: usize,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        not_inline(&self.engine)?;
        Self::connected_async(self.begin(Some(socket), remote, server_name, tls)?).await
    }

    async fn connected_async(handle: engine::ConnectionHandle) -> Result<Connection, ConnectError> {
        poll_fn(|context| handle.poll_connected(context.waker())).await?;
        Ok(Connection::new(handle))
    }

    fn begin(
        &self,
        socket: Option<usize>,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<engine::ConnectionHandle, ConnectError> {
        let factory = TlsClient::new(tls).map_err(Closed::Configuration)?;
        self.engine.connect_from(socket, remote, server_name, Arc::new(factory))
    }

    /// The next connection of a client, its handshake complete. Clients that fail it are not heard of.
    ///
    /// # Errors
    /// If this endpoint has no `server_tls`, or is closed.
    pub fn accept(&self) -> Result<Connection, Closed> {
        let accepted = self.engine.block_on(None, |waker| self.poll_accept(waker));
        accepted.unwrap_or(Err(Closed::EndpointClosed))
    }

    /// As [`accept`](Self::accept); none if nobody comes within `timeout`.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Connection>, Closed> {
        let deadline = self.engine.now() + timeout.into();
        self.engine.block_on(Some(deadline), |waker| self.poll_accept(waker)).transpose()
    }

    /// As [`accept`](Self::accept).
    ///
    /// # Errors
    /// As [`accept`](Self::accept); and under [`Placement::Inline`].
    pub async fn accept_async(&self) -> Result<Connection, Closed> {
        not_inline(&self.engine)?;
        poll_fn(|context| self.poll_accept(context.waker())).await
    }

    fn poll_accept(&self, waker: &Waker) -> Poll<Result<Connection, Closed>> {
        self.engine.poll_accept(waker).map_ok(Connection::new)
    }

    /// The address of the first socket, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.engine.local_addrs()[0]
    }

    /// The addresses of all sockets, in the order of the configuration.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.engine.local_addrs()
    }

    /// Where the time of the processor that runs the protocol went so far; none unless the configuration asks to
    /// [`measure`](EndpointConfig::measure). `litz profile` shows what can be made of it.
    pub fn costs(&self) -> Option<Costs> {
        self.engine.costs()
    }

    /// What the processors beside the serial one did; none under the placements of one processor.
    pub fn stage_stats(&self) -> Option<StageStats> {
        self.engine.stage_stats()
    }

    /// What the receiver did; none but under [`Placement::Split`].
    pub fn split_stats(&self) -> Option<SplitStats> {
        self.engine.split_stats()
    }

    /// Connections that exist, those that are ending included.
    pub fn connection_count(&self) -> usize {
        self.engine.connection_count()
    }

    /// Closes the endpoint, as dropping it does, also from another thread: every call that waits on it or on its connections
    /// returns. Later calls do nothing.
    pub fn close(&self) {
        self.engine.stop();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("local_addrs", &self.local_addrs()).finish_non_exhaustive()
    }
}

/// Small socket buffers are the commonest reason for loss on a fast link, so what the system granted is told.
/// What sealing a packet of 1440 bytes takes here with the cipher that both ends prefer. Measured once, in some tens of
/// microseconds.
fn seal_cost() -> Option<units::Duration> {
    static COST: OnceLock<Option<units::Duration>> = OnceLock::new();
    *COST.get_or_init(|| {
        let clock = net::MonotonicClock::start();
        let keys = keys_for_measuring()?.seal;
        let mut packet = vec![0; 1440];
        // The first ones fill caches; of the others the quickest was not interrupted.
        let costs = (0..64).map(|number| {
            let begun = clock.now();
            std::hint::black_box(keys.packet.seal(PathId::ZERO, number, &[0; 16], &mut packet));
            clock.now().saturating_since(begun)
        });
        costs.min()
    })
}

fn report_buffers(socket: &UdpSocket, asked: &UdpSocketOptions) {
    let (send, recv) = socket.granted_buffers();
    tracing::info!(bind = %asked.bind, send_buffer_bytes = send, recv_buffer_bytes = recv, "socket open");
    if recv < asked.recv_buffer_bytes {
        let asked = asked.recv_buffer_bytes;
        tracing::warn!(asked, granted = recv, "small receive buffer: raise net.core.rmem_max for fast links");
    }
}
