//! [`Engine`]: QUIC on threads and sockets: starting, stopping, connecting, accepting and waiting.

mod start;
mod stepped;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use driver::Flush;
use driver::crypto_pool::WorkerPoolStats;
use driver::placement::Placement;
use driver::receive_worker::ReceiveWorkerStats;
use driver::shared::AcceptOutcome;
use engine::{Costs, Drivers};
use quic::RateLimit;
use quic::session::SessionFactory;
use quic_driver::error::Closed;
use quic_driver::{Connect, IncomingQueue, QuicShared, Runtime};
use units::Instant;

pub use self::stepped::{SteppedEngine, SteppedEnv};

use super::device::QuicDevice;

/// A handle of a running engine. Clones refer to the same engine. It ends when [`stop`](Self::stop)
/// is called.
#[derive(Clone)]
pub struct Engine {
    drivers: Drivers<QuicDevice>,
    /// Queue of connection attempts that wait for decisions, if enabled.
    incoming: Option<Arc<IncomingQueue>>,
}

/// A connection of an engine.
pub type ConnectionHandle = quic_driver::ConnectionHandle<Engine>;

/// A client's attempt to connect, before the handshake.
pub type Incoming = quic_driver::IncomingHandle<Engine>;

/// Error of [`Incoming::retry`](quic_driver::IncomingHandle::retry) for a client that has already
/// proved its address.
pub type RetryError = quic_driver::RetryError<Engine>;

/// The sending side of a stream.
pub type SendHandle = quic_driver::SendHandle<Engine>;

/// The receiving side of a stream.
pub type RecvHandle = quic_driver::RecvHandle<Engine>;

/// A request for a new stream.
pub type PendingOpen = quic_driver::PendingOpen<Engine>;

/// The options of an outgoing connection.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The index of the local socket. `None` uses the first one of the remote address's family.
    pub socket: Option<usize>,
    /// The index of the processor under [`Placement::Connection`]. With `None`, connections use the
    /// processors in turn. A connection from a peer is served by the processor whose socket
    /// received its first packet.
    pub processor: Option<usize>,
    /// See [`ConnectionHandle::set_priority`](quic_driver::ConnectionHandle::set_priority).
    pub priority: i32,
    /// See [`ConnectionHandle::set_rate`](quic_driver::ConnectionHandle::set_rate).
    pub rate: Option<RateLimit>,
}

impl ConnectOptions {
    /// Sets [`socket`](Self::socket).
    #[must_use]
    pub fn with_socket(mut self, socket: impl Into<Option<usize>>) -> Self {
        self.socket = socket.into();
        self
    }

    /// Sets [`processor`](Self::processor).
    #[must_use]
    pub fn with_processor(mut self, processor: impl Into<Option<usize>>) -> Self {
        self.processor = processor.into();
        self
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`rate`](Self::rate).
    #[must_use]
    pub fn with_rate(mut self, rate: impl Into<Option<RateLimit>>) -> Self {
        self.rate = rate.into();
        self
    }
}

impl Engine {
    /// Begins a connection to `remote`. Wait with [`ConnectionHandle::poll_connected`].
    ///
    /// # Errors
    /// If the engine is stopping, or too many connections wait for the driver to begin them.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        factory: Arc<dyn SessionFactory>,
    ) -> Result<ConnectionHandle, Closed> {
        self.connect_from(None, remote, server_name, factory)
    }

    /// Connects like [`connect`](Self::connect), from the local socket with this index.
    ///
    /// # Errors
    /// Same errors as `connect`; also fails if there is no such socket.
    pub fn connect_from(
        &self,
        socket: Option<usize>,
        remote: SocketAddr,
        server_name: &str,
        factory: Arc<dyn SessionFactory>,
    ) -> Result<ConnectionHandle, Closed> {
        self.connect_with(&ConnectOptions { socket, ..ConnectOptions::default() }, remote, server_name, factory)
    }

    /// Connects like [`connect`](Self::connect), with options.
    ///
    /// # Errors
    /// Same errors as `connect`; also fails if there is no such socket or processor.
    pub fn connect_with(
        &self,
        options: &ConnectOptions,
        remote: SocketAddr,
        server_name: &str,
        factory: Arc<dyn SessionFactory>,
    ) -> Result<ConnectionHandle, Closed> {
        let ConnectOptions { socket, processor, priority, rate } = *options;
        if socket.is_some_and(|socket| socket >= self.local_addrs().len()) {
            return Err(Closed::NoSocket);
        }
        let count = self.drivers.count();
        if let Some(processor) = processor.filter(|processor| *processor >= count) {
            return Err(Closed::NoProcessor { processor, count });
        }
        self.drivers.begin(processor, |shared| {
            let connect = Connect { server_name: server_name.to_owned(), factory: Arc::clone(&factory) };
            ConnectionHandle::connect(self, shared, remote, connect, socket, (priority, rate))
        })
    }

    /// Returns the next connection from a client, in the order in which the handshakes completed.
    ///
    /// # Errors
    /// If the engine does not accept connections, or has stopped.
    pub fn poll_accept(&self, waker: &Waker) -> Poll<Result<ConnectionHandle, Closed>> {
        if !self.drivers.shared(0).limits.is_listening {
            return Poll::Ready(Err(Closed::Configuration("this endpoint accepts no connections".to_owned())));
        }
        match self.drivers.shared(0).poll_accept(waker) {
            AcceptOutcome::Connection(cell) => Poll::Ready(Ok(ConnectionHandle::from_accepted(cell, self.clone()))),
            AcceptOutcome::Stopped => Poll::Ready(Err(Closed::EndpointClosed)),
            AcceptOutcome::Pending => Poll::Pending,
        }
    }

    /// Returns the next attempt of a client to connect, if
    /// [`incoming_max`](crate::runtime::EngineConfig::incoming_max) is set.
    ///
    /// # Errors
    /// If the engine accepts clients without asking, or none at all, or has stopped.
    pub fn poll_incoming(&self, waker: &Waker) -> Poll<Result<Incoming, Closed>> {
        let is_listening = self.drivers.shared(0).limits.is_listening;
        let Some(queue) = self.incoming.as_ref().filter(|_| is_listening) else {
            let reason = "this endpoint does not ask about clients (incoming_max), or accepts none";
            return Poll::Ready(Err(Closed::Configuration(reason.to_owned())));
        };
        queue.poll_next(waker).map(|info| {
            let info = info.ok_or(Closed::EndpointClosed)?;
            let shared = Arc::clone(self.drivers.shared(info.driver));
            Ok(Incoming::new(self.clone(), shared, Arc::clone(queue), info))
        })
    }

    /// Returns the addresses of the sockets, by socket index. Under [`Placement::Connection`],
    /// those of the first processor.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.drivers.local_addrs()
    }

    /// Returns the number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.drivers.connection_count()
    }

    /// Waits until no connection exists, closing ones included.
    pub fn poll_idle(&self, waker: &Waker) -> Poll<()> {
        self.drivers.poll_idle(waker)
    }

    /// Returns time and traffic of the drivers so far. `None` unless
    /// [`measure`](crate::runtime::EngineConfig::measure) is set.
    pub fn costs(&self) -> Option<Costs> {
        self.drivers.costs()
    }

    /// Returns the placement of the engine. [`Placement::Auto`] has been resolved.
    pub fn placement(&self) -> Placement {
        self.drivers.placement()
    }

    /// Returns counters of the workers that encrypt and decrypt: the crypto pool of
    /// [`Placement::Packet`], or the path workers of [`Placement::Path`]. `None` under other
    /// placements.
    pub fn worker_pool_stats(&self) -> Option<WorkerPoolStats> {
        self.drivers.worker_pool_stats()
    }

    /// Returns counters of the receive worker. `None` unless the placement is [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.drivers.receive_worker_stats()
    }

    /// Returns the current time of the engine's clock. Deadlines of [`block_on`](Self::block_on)
    /// refer to it.
    pub fn now(&self) -> Instant {
        self.drivers.now()
    }

    /// Under [`Placement::Inline`], sends data that earlier calls have queued but not sent: corked
    /// data, and data that exceeded the limit of a turn. Has no effect under other placements,
    /// where the driver's thread sends it.
    pub fn flush(&self) {
        self.drivers.flush();
    }

    /// Waits until `poll` is ready. Returns `None` at `deadline`. `poll` receives the waker to
    /// register when it is not ready.
    pub fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.drivers.block_on(deadline, poll)
    }

    /// Closes all connections, waits at most a second until the last packets have left, and ends
    /// the drivers. Repeated calls have no effect.
    pub fn stop(&self) {
        if let Some(incoming) = &self.incoming {
            incoming.close();
        }
        self.drivers.stop();
    }
}

impl Runtime for Engine {
    fn kick(&self, shared: &QuicShared, flush: Flush) {
        self.drivers.kick(shared, flush);
    }

    fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        Self::block_on(self, deadline, poll)
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        Self::local_addrs(self)
    }
}
