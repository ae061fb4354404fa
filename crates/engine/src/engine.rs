//! [`Engine`]: starting, stopping, connecting, accepting and waiting.

mod start;
mod steps;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use driver::Flush;
use driver::crypto_pool::{PoolCounters, WorkerPoolStats};
use driver::placement::Placement;
use driver::receive_worker::{ReceiveWorkerCounters, ReceiveWorkerStats};
use driver::shared::AcceptOutcome;
use driver::sync::lock;
use quic::RateLimit;
use quic::session::SessionFactory;
use quic_driver::{Connect, IncomingQueue, QuicShared, Runtime};
use units::Instant;

pub use self::steps::{SteppedEngine, SteppedEnv};

use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::error::{Closed, StartError};
use crate::inline::Inline;
use crate::meter::{Costs, Meter};
use crate::parker::Parker;
use crate::socket::LiveSocket;

pub use driver::SOCKETS_MAX;

/// A handle of a running engine. Clones refer to the same engine. It ends when [`stop`](Self::stop)
/// is called.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

/// A connection of an engine.
pub type ConnectionHandle = quic_driver::ConnectionHandle<Engine>;

/// A client's attempt to connect, before the handshake.
pub type Incoming = quic_driver::IncomingHandle<Engine>;

/// [`Incoming::retry`](quic_driver::IncomingHandle::retry) of a client that has proved its address.
pub type RetryError = quic_driver::RetryError<Engine>;

/// The sending side of a stream.
pub type SendHandle = quic_driver::SendHandle<Engine>;

/// The receiving side of a stream.
pub type RecvHandle = quic_driver::RecvHandle<Engine>;

/// A request for a new stream.
pub type PendingOpen = quic_driver::PendingOpen<Engine>;

struct Core {
    /// At least one driver.
    drivers: Vec<DriverHandle>,
    clock: Clock,
    /// The driver that begins the next connection, modulo their number.
    next: AtomicUsize,
    placement: Placement,
    /// The counters of the crypto pool or the path workers, if there are any.
    counters: Option<Arc<PoolCounters>>,
    /// The counters of the receive worker, under `split`.
    receive_worker_counters: Option<Arc<ReceiveWorkerCounters>>,
    /// Where attempts to connect wait for decisions, if they do.
    incoming: Option<Arc<IncomingQueue>>,
}

/// The options of an outgoing connection.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The index of the local socket. `None` uses the first one of the remote address's family.
    pub socket: Option<usize>,
    /// The index of the processor under [`Placement::Connection`]. `None` uses each in turn. A
    /// connection from a peer is served by the processor whose socket received its first packet.
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

/// A driver, as seen by handles.
struct DriverHandle {
    shared: Arc<QuicShared>,
    meter: Option<Arc<Meter>>,
    host: Host,
}

/// Where a driver runs.
enum Host {
    Thread(Mutex<Option<JoinHandle<()>>>),
    Inline(Box<Inline>),
}

impl Engine {
    /// Starts an engine over `sockets`.
    ///
    /// Under [`Placement::Connection`] each processor has the same number of sockets of its own:
    /// first those of the first processor, then those of the second. An endpoint that accepts
    /// connections binds them to the same addresses with `SO_REUSEPORT`, so that clients use one
    /// address. A packet received from another processor's socket is passed to the right one.
    ///
    /// # Errors
    /// If there is no socket, the configuration is invalid, or the system refuses a poll, a thread
    /// or random bytes.
    pub fn start(config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, StartError> {
        Ok(Self { core: Arc::new(start::start(config, sockets)?) })
    }

    /// The first driver. There are others only under [`Placement::Connection`].
    fn first(&self) -> &DriverHandle {
        &self.core.drivers[0]
    }

    /// The driver that callers run, if the placement is `inline`.
    fn inline(&self) -> Option<&Inline> {
        match &self.first().host {
            Host::Inline(inline) => Some(inline),
            Host::Thread(_) => None,
        }
    }

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

    /// As [`connect`](Self::connect), from the local socket with this index.
    ///
    /// # Errors
    /// As `connect`, and if there is no such socket.
    pub fn connect_from(
        &self,
        socket: Option<usize>,
        remote: SocketAddr,
        server_name: &str,
        factory: Arc<dyn SessionFactory>,
    ) -> Result<ConnectionHandle, Closed> {
        self.connect_with(&ConnectOptions { socket, ..ConnectOptions::default() }, remote, server_name, factory)
    }

    /// As [`connect`](Self::connect), with options.
    ///
    /// # Errors
    /// As `connect`, and if there is no such socket or processor.
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
        let drivers = &self.core.drivers;
        if let Some(processor) = processor.filter(|processor| *processor >= drivers.len()) {
            return Err(Closed::NoProcessor { processor, count: drivers.len() });
        }
        let from = processor.unwrap_or_else(|| self.core.next.fetch_add(1, Ordering::Relaxed));
        // A requested processor is not replaced by another one.
        let tries = if processor.is_some() { 1 } else { drivers.len() };
        let mut refusal = Closed::EndpointClosed;
        // A driver that has failed refuses; try the others.
        for at in 0..tries {
            let shared = &drivers[(from + at) % drivers.len()].shared;
            let connect = Connect { server_name: server_name.to_owned(), factory: Arc::clone(&factory) };
            match ConnectionHandle::connect(self, shared, remote, connect, socket, (priority, rate)) {
                Ok(connection) => return Ok(connection),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The next connection from a client, in the order in which the handshakes completed.
    ///
    /// # Errors
    /// If the engine does not accept connections, or has stopped.
    pub fn poll_accept(&self, waker: &Waker) -> Poll<Result<ConnectionHandle, Closed>> {
        if !self.first().shared.limits.is_listening {
            return Poll::Ready(Err(Closed::Configuration("this endpoint accepts no connections".to_owned())));
        }
        match self.first().shared.poll_accept(waker) {
            AcceptOutcome::Connection(cell) => Poll::Ready(Ok(ConnectionHandle::from_accepted(cell, self.clone()))),
            AcceptOutcome::Stopped => Poll::Ready(Err(Closed::EndpointClosed)),
            AcceptOutcome::Pending => Poll::Pending,
        }
    }

    /// The next attempt of a client to connect, if [`incoming_max`](EngineConfig::incoming_max) is set.
    ///
    /// # Errors
    /// If the engine accepts clients without asking, or none at all, or has stopped.
    pub fn poll_incoming(&self, waker: &Waker) -> Poll<Result<Incoming, Closed>> {
        let drivers = &self.core.drivers;
        let Some(queue) = self.core.incoming.as_ref().filter(|_| drivers[0].shared.limits.is_listening) else {
            let reason = "this endpoint does not ask about clients (incoming_max), or accepts none";
            return Poll::Ready(Err(Closed::Configuration(reason.to_owned())));
        };
        queue.poll_next(waker).map(|info| {
            let info = info.ok_or(Closed::EndpointClosed)?;
            let shared = Arc::clone(&drivers[info.driver].shared);
            Ok(Incoming::new(self.clone(), shared, Arc::clone(queue), info))
        })
    }

    /// The addresses of the sockets, by socket index. Under [`Placement::Connection`], those of the
    /// first processor.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.first().shared.local_addrs
    }

    /// The number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.first().shared.common.connection_count()
    }

    /// Waits until no connection exists, closing ones included.
    pub fn poll_idle(&self, waker: &Waker) -> Poll<()> {
        self.first().shared.common.poll_idle(waker)
    }

    /// Time and traffic of the drivers so far. `None` unless [`measure`](EngineConfig::measure) is
    /// set.
    pub fn costs(&self) -> Option<Costs> {
        let read = |driver: &DriverHandle| driver.meter.as_ref().map(|meter| meter.read());
        self.core.drivers.iter().map(read).reduce(|one, other| Some(one?.and(&other?)))?
    }

    /// The placement of the engine. [`Placement::Auto`] has been resolved.
    pub fn placement(&self) -> Placement {
        self.core.placement
    }

    /// Counters of the workers that encrypt and decrypt: the crypto pool of [`Placement::Packet`],
    /// or the path workers of [`Placement::Path`]. `None` under other placements.
    pub fn worker_pool_stats(&self) -> Option<WorkerPoolStats> {
        self.core.counters.as_ref().map(|counters| counters.read())
    }

    /// Counters of the receive worker. `None` unless the placement is [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.core.receive_worker_counters.as_ref().map(|counters| counters.read())
    }

    /// The current time of the engine's clock. Deadlines of [`block_on`](Self::block_on) refer to
    /// it.
    pub fn now(&self) -> Instant {
        self.core.clock.now()
    }

    /// Lets the driver of `shared` process new requests: wakes its thread, or runs a turn of it.
    pub(crate) fn kick(&self, shared: &QuicShared, flush: Flush) {
        match &self.first().host {
            Host::Thread(_) => shared.wake(),
            Host::Inline(inline) => inline.kick(shared, flush),
        }
    }

    /// Under [`Placement::Inline`], sends data that earlier calls have queued but not sent: data
    /// that was waiting for more, and data that exceeded the limit of a turn. Has no effect under
    /// other placements, where the driver's thread sends it.
    pub fn flush(&self) {
        if let Host::Inline(inline) = &self.first().host {
            inline.flush(&self.first().shared);
        }
    }

    /// Waits until `poll` is ready. Returns `None` at `deadline`. `poll` gets the waker to register
    /// when it is not ready.
    pub fn block_on<T>(&self, deadline: Option<Instant>, mut poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        let DriverHandle { shared, host, .. } = self.first();
        if let Host::Inline(inline) = host {
            return inline.block_on(shared, deadline, &parker, &waker, &mut poll);
        }
        loop {
            if let Poll::Ready(value) = poll(&waker) {
                return Some(value);
            }
            if !parker.park(&self.core.clock, deadline) {
                return None;
            }
        }
    }

    /// Closes all connections, waits at most a second until the last packets have left, and ends
    /// the drivers. Repeated calls have no effect.
    pub fn stop(&self) {
        self.core.drivers.iter().for_each(|driver| driver.shared.stop());
        if let Some(incoming) = &self.core.incoming {
            incoming.close();
        }
        for DriverHandle { shared, host, .. } in &self.core.drivers {
            match host {
                Host::Thread(thread) => {
                    let thread = lock(thread).take();
                    if let Some(thread) = thread
                        && thread.join().is_err()
                    {
                        tracing::error!("an engine thread panicked");
                    }
                }
                Host::Inline(inline) => inline.stop(shared),
            }
        }
    }
}

/// If the last handle is dropped without [`Engine::stop`], the threads end on their own.
impl Drop for Core {
    fn drop(&mut self) {
        self.drivers.iter().for_each(|driver| driver.shared.stop());
    }
}

impl Runtime for Engine {
    fn kick(&self, shared: &QuicShared, flush: Flush) {
        Self::kick(self, shared, flush);
    }

    fn block_on<T>(&self, deadline: Option<Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        Self::block_on(self, deadline, poll)
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        Self::local_addrs(self)
    }
}
