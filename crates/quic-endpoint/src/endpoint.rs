//! Endpoints: sockets, and the creation of connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use engine::{Costs, Placement, ReceiveWorkerStats, StartError, WorkerPoolStats};
use net::{DatagramSocket, UdpSocket, UdpSocketOptions};
use quic::PathId;
use quic::session::SessionFactory;
use quic::session::tls::{TlsClient, TlsServer, keys_for_measuring};
use quic_driver::error::Closed;

use crate::config::EndpointConfig;
use crate::connection::Connection;
use crate::connection::waiting::not_inline;
use crate::runtime::{
    ConnectOptions, ConnectionHandle, Engine, EngineConfig, Incoming, LiveSocket, ReplaceableSocket, SocketSwitch,
};

/// Errors of [`Endpoint::bind`] and [`Endpoint::with_sockets`].
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// A socket could not be opened. The message names the socket and a remedy.
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

/// Errors of connecting: the reasons for which connections end.
pub type ConnectError = Closed;

/// A set of UDP sockets and the connections on them.
///
/// Share it by reference or in an [`Arc`]. Dropping it closes every connection with code 0, waits
/// until the close frames are sent (at most a second) and ends its threads; unacknowledged data is
/// lost.
pub struct Endpoint {
    engine: Engine,
    /// Switches of the sockets that this endpoint opened, first processor first; empty if it was
    /// started on existing sockets.
    switches: Vec<SocketSwitch>,
}

impl Endpoint {
    /// Opens the sockets of `config` and starts the endpoint. Under [`Placement::Connection`] each
    /// processor has its own sockets. If the endpoint accepts connections, they share the same
    /// ports. If it only connects, each socket has its own port, so the configuration must not fix
    /// a port.
    ///
    /// # Errors
    /// If a socket cannot be opened, or the configuration is invalid.
    pub fn bind(config: EndpointConfig) -> Result<Self, BindError> {
        let drivers = config.placement.driver_count();
        let accepts = config.server_tls.is_some();
        let mut options = config.sockets.clone();
        let mut sockets: Vec<Box<dyn LiveSocket>> = Vec::with_capacity(options.len() * drivers);
        let mut switches = Vec::with_capacity(options.len() * drivers);
        for _ in 0..drivers {
            for options in &mut options {
                // Clients connect to one port, regardless of the processor that serves them. A
                // connecting endpoint has one port for each processor.
                options.reuse_port |= accepts && drivers > 1;
                let socket = UdpSocket::open(options).map_err(BindError::Socket)?;
                report_buffers(&socket, options);
                if options.reuse_port {
                    options.bind = socket
                        .local_addr()
                        .map_err(|error| BindError::Start(StartError::System("ask a socket for its address", error)))?;
                }
                let (socket, switch) = ReplaceableSocket::new(socket);
                switches.push(switch);
                sockets.push(Box::new(socket));
            }
        }
        let mut endpoint = Self::with_sockets(config, sockets)?;
        endpoint.switches = switches;
        Ok(endpoint)
    }

    /// Starts the endpoint on existing sockets; `config.sockets` is ignored. Under
    /// [`Placement::Connection`], every processor needs the same number of sockets; those of the
    /// first processor come first.
    ///
    /// # Errors
    /// If there is no socket, or the configuration is invalid.
    pub fn with_sockets(config: EndpointConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, BindError> {
        let server = config.server_tls.map(TlsServer::new).transpose();
        let server = server.map_err(|message| BindError::Start(StartError::Configuration(message)))?;
        let config = EngineConfig {
            placement: config.placement,
            cores: config.cores,
            seal_cost: if config.placement == Placement::Auto { seal_cost() } else { None },
            transport: config.transport,
            server: server.map(|server| Arc::new(server) as Arc<dyn SessionFactory>),
            reset_key: config.reset_key,
            address_tokens: config.address_tokens,
            address_validation: config.address_validation,
            incoming_max: config.incoming_max,
            accepts_early: config.accepts_early,
            connections_max: config.connections_max,
            half_open_max: config.half_open_max,
            outbox_bytes_max: config.outbox_bytes_max,
            inbox_bytes_max: config.inbox_bytes_max,
            message_len_max: config.message_len_max,
            busy_poll: config.busy_poll.into(),
            event_handler: config.event_handler,
            measure: config.measure,
        };
        let engine = Engine::start(config, sockets).map_err(BindError::Start)?;
        Ok(Self { engine, switches: Vec::new() })
    }

    /// Opens the socket with this index in [`EndpointConfig::sockets`] again, with other options:
    /// on another address, port or device. Connections continue. A server follows a client whose
    /// address changes; a client does not follow a server, so a server must keep its address. Under
    /// [`Placement::Connection`] the socket of each processor is opened again. Returns the new
    /// address; [`local_addrs`](Self::local_addrs) keeps the original one.
    ///
    /// # Errors
    /// If there is no such socket, the endpoint was started on existing sockets
    /// ([`with_sockets`](Self::with_sockets); pass a [`ReplaceableSocket`] there), or the socket
    /// cannot be opened. Nothing has changed then.
    pub fn rebind(&self, socket: usize, options: &UdpSocketOptions) -> Result<SocketAddr, BindError> {
        let sockets = self.local_addrs().len();
        let has_it = socket < sockets && !self.switches.is_empty();
        if !has_it {
            let message = format!("this endpoint has not opened a socket {socket}: it cannot open it again");
            return Err(BindError::Start(StartError::Configuration(message)));
        }
        let of_socket: Vec<&SocketSwitch> = self.switches.iter().skip(socket).step_by(sockets).collect();
        let mut opened = Vec::with_capacity(of_socket.len());
        for _ in &of_socket {
            opened.push(UdpSocket::open(options).map_err(BindError::Socket)?);
        }
        let address = opened[0].local_addr();
        for (switch, socket) in of_socket.into_iter().zip(opened) {
            switch.replace(socket);
        }
        address.map_err(|error| BindError::Start(StartError::System("ask a socket for its address", error)))
    }

    /// Connects to `remote` and waits for the handshake. `server_name` is the name that TLS
    /// verifies. Hosts identified by their keys accept any valid host name.
    ///
    /// # Errors
    /// If the peer did not answer in time, TLS failed, or the configuration is invalid.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        self.connect_with(&ConnectOptions::default(), remote, server_name, tls)
    }

    /// Connects like [`connect`](Self::connect), with a processor, a priority and a rate for the
    /// connection.
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect); also fails if there is no such socket or
    /// processor.
    pub fn connect_with(
        &self,
        options: &ConnectOptions,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        self.connected(self.begin(options, remote, server_name, tls)?)
    }

    /// Connects like [`connect`](Self::connect), from the socket with this index in
    /// [`EndpointConfig::sockets`]. Its path is the first one of a connection that may open more
    /// ([`Connection::open_path`]).
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect); also fails if there is no such socket.
    pub fn connect_from(
        &self,
        socket: usize,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        self.connect_with(&from_socket(socket), remote, server_name, tls)
    }

    /// Begins a connection and returns at once, so that requests can be sent in 0-RTT:
    /// [`Connection::open_bi_early`]. Everything else on it waits for the handshake, which
    /// [`Connection::connected`] reports.
    ///
    /// 0-RTT requires a client configuration with
    /// [`enable_early_data`](rustls::ClientConfig::enable_early_data), and an earlier connection
    /// with the same configuration to a server that accepts 0-RTT. Configurations of
    /// [`identity`](crate::identity) never enable it: see there.
    ///
    /// # Errors
    /// If the configuration is invalid, the endpoint is closed, or there is no such socket or
    /// processor. A peer that does not answer is an error of the connection, not of this call.
    pub fn connect_early(
        &self,
        options: &ConnectOptions,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        Ok(Connection::new(self.begin(options, remote, server_name, tls)?))
    }

    fn connected(&self, handle: ConnectionHandle) -> Result<Connection, ConnectError> {
        // No timeout is needed here, because the handshake has one.
        self.engine.block_on(None, |waker| handle.poll_connected(waker)).unwrap_or(Err(Closed::EndpointClosed))?;
        Ok(Connection::new(handle))
    }

    /// Asynchronous form of [`connect`](Self::connect).
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect); also fails under [`Placement::Inline`], which has
    /// no thread to run it.
    pub async fn connect_async(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        not_inline(&self.engine)?;
        Self::connected_async(self.begin(&ConnectOptions::default(), remote, server_name, tls)?).await
    }

    /// Asynchronous form of [`connect_with`](Self::connect_with).
    ///
    /// # Errors
    /// Same errors as [`connect_with`](Self::connect_with); also fails under [`Placement::Inline`].
    pub async fn connect_with_async(
        &self,
        options: &ConnectOptions,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        not_inline(&self.engine)?;
        Self::connected_async(self.begin(options, remote, server_name, tls)?).await
    }

    /// Asynchronous form of [`connect_from`](Self::connect_from).
    ///
    /// # Errors
    /// Same errors as [`connect_from`](Self::connect_from); also fails under [`Placement::Inline`].
    pub async fn connect_from_async(
        &self,
        socket: usize,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Connection, ConnectError> {
        not_inline(&self.engine)?;
        Self::connected_async(self.begin(&from_socket(socket), remote, server_name, tls)?).await
    }

    async fn connected_async(handle: ConnectionHandle) -> Result<Connection, ConnectError> {
        poll_fn(|context| handle.poll_connected(context.waker())).await?;
        Ok(Connection::new(handle))
    }

    fn begin(
        &self,
        options: &ConnectOptions,
        remote: SocketAddr,
        server_name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<ConnectionHandle, ConnectError> {
        let factory = TlsClient::new(tls).map_err(Closed::Configuration)?;
        self.engine.connect_with(options, remote, server_name, Arc::new(factory))
    }

    /// Returns the next incoming connection whose handshake is complete. Clients that fail the
    /// handshake are not reported.
    ///
    /// # Errors
    /// If this endpoint has no `server_tls`, or is closed.
    pub fn accept(&self) -> Result<Connection, Closed> {
        let accepted = self.engine.block_on(None, |waker| self.poll_accept(waker));
        accepted.unwrap_or(Err(Closed::EndpointClosed))
    }

    /// Like [`accept`](Self::accept), but returns `None` if no client connects within `timeout`.
    ///
    /// # Errors
    /// Same errors as [`accept`](Self::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Connection>, Closed> {
        let deadline = self.engine.now() + timeout.into();
        self.engine.block_on(Some(deadline), |waker| self.poll_accept(waker)).transpose()
    }

    /// Asynchronous form of [`accept`](Self::accept).
    ///
    /// # Errors
    /// Same errors as [`accept`](Self::accept); also fails under [`Placement::Inline`].
    pub async fn accept_async(&self) -> Result<Connection, Closed> {
        not_inline(&self.engine)?;
        poll_fn(|context| self.poll_accept(context.waker())).await
    }

    fn poll_accept(&self, waker: &Waker) -> Poll<Result<Connection, Closed>> {
        self.engine.poll_accept(waker).map_ok(Connection::new)
    }

    /// Returns the next client that wants to connect, before the handshake, if
    /// [`incoming_max`](EndpointConfig::incoming_max) is set: the application sees its address and
    /// accepts it, refuses it, or makes it prove its address first. [`accept`](Self::accept)
    /// returns the connection of an accepted client when the handshake is complete.
    ///
    /// ```
    /// # use quic_endpoint::{Endpoint, EndpointConfig, identity::{self, KeyPair}};
    /// # let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    /// # let server_tls = identity::server_config(&server_key, ["echo/1"])?;
    /// let config = EndpointConfig::loopback().with_server_tls(server_tls).with_incoming_max(100);
    /// let server = Endpoint::bind(config)?;
    /// # let address = server.local_addr();
    /// # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
    /// # let client = std::thread::spawn(move || {
    /// #     let client = Endpoint::bind(EndpointConfig::loopback()).unwrap();
    /// #     client.connect(address, "host", tls.config).unwrap().close(0, "done");
    /// # });
    /// let connection = loop {
    ///     let incoming = server.accept_incoming()?;
    ///     if !incoming.remote_address().ip().is_loopback() {
    ///         incoming.refuse();
    ///     } else if !incoming.is_validated() {
    ///         incoming.retry()?;
    ///     } else {
    ///         incoming.accept();
    ///         break server.accept()?;
    ///     }
    /// };
    /// # drop(connection);
    /// # client.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If this endpoint has no `server_tls` or no `incoming_max`, or is closed.
    pub fn accept_incoming(&self) -> Result<Incoming, Closed> {
        let incoming = self.engine.block_on(None, |waker| self.engine.poll_incoming(waker));
        incoming.unwrap_or(Err(Closed::EndpointClosed))
    }

    /// Like [`accept_incoming`](Self::accept_incoming), but returns `None` if no client comes
    /// within `timeout`.
    ///
    /// # Errors
    /// Same errors as [`accept_incoming`](Self::accept_incoming).
    pub fn accept_incoming_timeout(&self, timeout: Duration) -> Result<Option<Incoming>, Closed> {
        let deadline = self.engine.now() + timeout.into();
        self.engine.block_on(Some(deadline), |waker| self.engine.poll_incoming(waker)).transpose()
    }

    /// Asynchronous form of [`accept_incoming`](Self::accept_incoming).
    ///
    /// # Errors
    /// Same errors as [`accept_incoming`](Self::accept_incoming); also fails under
    /// [`Placement::Inline`].
    pub async fn accept_incoming_async(&self) -> Result<Incoming, Closed> {
        not_inline(&self.engine)?;
        poll_fn(|context| self.engine.poll_incoming(context.waker())).await
    }

    /// Returns the address of the first socket, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.engine.local_addrs()[0]
    }

    /// Returns the addresses of all sockets, in the order of the configuration.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.engine.local_addrs()
    }

    /// Returns the processor time per stage of the thread that runs the protocol, since the start;
    /// `None` unless the configuration sets [`measure`](EndpointConfig::measure). `litz profile`
    /// prints these values.
    pub fn costs(&self) -> Option<Costs> {
        self.engine.costs()
    }

    /// Returns counters of the worker threads; `None` under placements with one processor.
    pub fn worker_pool_stats(&self) -> Option<WorkerPoolStats> {
        self.engine.worker_pool_stats()
    }

    /// Returns counters of the receiving thread; `None` unless the placement is
    /// [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.engine.receive_worker_stats()
    }

    /// Returns the number of connections, including closing ones.
    pub fn connection_count(&self) -> usize {
        self.engine.connection_count()
    }

    /// Waits until no connection exists: closed connections have sent their close frames and waited
    /// for late packets of the peer (RFC 9000, section 10.2). Returns false if that takes longer
    /// than `timeout`. Connections in use end only if a side closes them.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = self.engine.now() + timeout.into();
        self.engine.block_on(Some(deadline), |waker| self.engine.poll_idle(waker)).is_some()
    }

    /// Waits like [`wait_idle`](Self::wait_idle), without a time limit.
    ///
    /// # Errors
    /// Under [`Placement::Inline`], which has no thread to run it.
    pub async fn wait_idle_async(&self) -> Result<(), Closed> {
        not_inline(&self.engine)?;
        poll_fn(|context| self.engine.poll_idle(context.waker())).await;
        Ok(())
    }

    /// Closes the endpoint, as dropping it does. Any thread may call it: every call that waits on
    /// the endpoint or its connections returns. Later calls do nothing.
    pub fn close(&self) {
        self.engine.stop();
    }
}

fn from_socket(socket: usize) -> ConnectOptions {
    ConnectOptions::default().with_socket(socket)
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

/// Returns the duration of sealing a packet of 1440 bytes on this machine with the preferred
/// cipher. Measured once, which takes some tens of microseconds.
fn seal_cost() -> Option<units::Duration> {
    static COST: OnceLock<Option<units::Duration>> = OnceLock::new();
    *COST.get_or_init(|| {
        let clock = net::MonotonicClock::start();
        let keys = keys_for_measuring()?.seal;
        let mut packet = vec![0; 1440];
        // The first runs fill the caches; the fastest of the others was not interrupted.
        let costs = (0..64).map(|number| {
            let begun = clock.now();
            std::hint::black_box(keys.packet.seal(PathId::ZERO, number, &[0; 16], &mut packet));
            clock.now().saturating_since(begun)
        });
        costs.min()
    })
}

/// Logs the socket buffers that the system granted, because small ones are the most common cause of
/// loss on a fast link.
fn report_buffers(socket: &UdpSocket, asked: &UdpSocketOptions) {
    let (send, recv) = socket.granted_buffers();
    tracing::info!(bind = %asked.bind, send_buffer_bytes = send, recv_buffer_bytes = recv, "socket open");
    if recv < asked.recv_buffer_bytes {
        let asked = asked.recv_buffer_bytes;
        tracing::warn!(asked, granted = recv, "small receive buffer: raise net.core.rmem_max for fast links");
    }
}
