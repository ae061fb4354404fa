//! Starting and stopping an engine, and waiting for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use net::{MonotonicClock, os_random};
use quic::session::SessionFactory;
use quic::{Endpoint, SecretSource, Side};
use units::{Duration, Instant};

use crate::cells::ConnectionCell;
use crate::config::EngineConfig;
use crate::driver::{Driver, DriverLimits, Others, Tails};
use crate::error::{Closed, StartError};
use crate::handle::ConnectionHandle;
use crate::inline::Inline;
use crate::meter::Costs;
use crate::placement::{PROCESSORS_MAX, Placement};
use crate::port::{NearPort, Port};
use crate::processor::{PathProcessor, Start};
use crate::shared::{AcceptOutcome, ConnectRequest, Limits, Shared};
use crate::sleep::Sleeper;
use crate::socket::LiveSocket;
use crate::stage::{Figures, Stage, StageStats};
use crate::sync::{Parker, lock};
use crate::wake::ArrivalWaker;

/// How long a closing engine waits for its goodbyes to leave. They leave within a turn unless a socket is full or the system
/// refuses them.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// Sockets of one engine, at most: as many as there are bits for those a connection waits for.
pub const SOCKETS_MAX: usize = 64;

/// A running engine. Clones are the same engine; it ends when [`stop`](Self::stop) is called.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

struct Core {
    shared: Arc<Shared>,
    placement: Placement,
    /// What other processors did, if there are any.
    figures: Option<Arc<Figures>>,
    placed: Placed,
}

/// Where the driver is.
enum Placed {
    Thread(Mutex<Option<JoinHandle<()>>>),
    Inline(Box<Inline>),
}

impl Engine {
    /// Starts an engine over `sockets`.
    ///
    /// # Errors
    /// If there is no socket, the configuration cannot work, or the system refuses a poll, a thread or randomness.
    pub fn start(config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, StartError> {
        if sockets.is_empty() {
            return Err(StartError::Configuration("an endpoint needs at least one socket".to_owned()));
        }
        if sockets.len() > SOCKETS_MAX {
            let words = format!("an endpoint takes at most {SOCKETS_MAX} sockets, not {}", sockets.len());
            return Err(StartError::Configuration(words));
        }
        if config.placement.thread_count() > PROCESSORS_MAX {
            let words = format!("an endpoint takes at most {PROCESSORS_MAX} processors, not {}", config.placement);
            return Err(StartError::Configuration(words));
        }
        let clock = MonotonicClock::start();
        let (sleeper, waker) =
            Sleeper::new(clock, config.busy_poll).map_err(|error| StartError::System("set up polling", error))?;
        let waker = Arc::new(waker);
        let mut local_addrs = Vec::with_capacity(sockets.len());
        for socket in &sockets {
            let local =
                socket.local_addr().map_err(|error| StartError::System("ask a socket for its address", error))?;
            local_addrs.push(local);
        }
        let limits = Limits {
            outbox_bytes_max: config.outbox_bytes_max,
            inbox_bytes_max: config.inbox_bytes_max,
            message_len_max: config.message_len_max,
            is_listening: config.server.is_some(),
        };
        let shared = Shared::new(clock, waker, local_addrs, limits, config.measure);
        let shared = Arc::new(shared);
        let (ports, others) = place(&config, clock, &shared, sockets)?;
        let mut key = [0; 32];
        os_random(&mut key).map_err(|error| StartError::System("get random bytes", error))?;
        let endpoint = Endpoint::new(config.transport, config.server, SecretSource::new(&key))
            .map_err(|error| StartError::Configuration(error.to_string()))?;
        let limits = DriverLimits {
            half_open_max: config.half_open_max,
            connections_max: config.connections_max,
            handshake_timeout: config.handshake_timeout,
        };
        let figures = others.stage.as_ref().map(|stage| Arc::clone(stage.figures()));
        let driver = Driver::new(Arc::clone(&shared), endpoint, ports, sleeper, others, limits)
            .map_err(|error| StartError::System("watch a socket", error))?;
        let placed = if config.placement.is_inline() {
            Placed::Inline(Box::new(Inline::new(driver)))
        } else {
            Placed::Thread(Mutex::new(Some(spawn(driver, config.cores.first().copied())?)))
        };
        Ok(Self { core: Arc::new(Core { shared, placement: config.placement, figures, placed }) })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.core.shared
    }

    /// Begins a connection to `remote`. Wait with [`ConnectionHandle::poll_connected`].
    ///
    /// # Errors
    /// If the engine is stopping, or too many are being begun.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        factory: Arc<dyn SessionFactory>,
    ) -> Result<ConnectionHandle, Closed> {
        self.connect_from(None, remote, server_name, factory)
    }

    /// As [`connect`](Self::connect), from the socket of this place among those the engine was started with.
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
        if socket.is_some_and(|socket| socket >= self.local_addrs().len()) {
            return Err(Closed::NoSocket);
        }
        let cell = Arc::new(ConnectionCell::new(Arc::clone(self.shared()), remote, Side::Client));
        let server_name = server_name.to_owned();
        self.shared().push_connect(ConnectRequest { cell: Arc::clone(&cell), server_name, factory, socket })?;
        self.kick(Tails::Sent);
        Ok(ConnectionHandle::new(cell, self.clone()))
    }

    /// The next connection of a client, in the order in which their handshakes were complete.
    ///
    /// # Errors
    /// If the engine does not listen, or is gone.
    pub fn poll_accept(&self, waker: &Waker) -> Poll<Result<ConnectionHandle, Closed>> {
        if !self.shared().limits.is_listening {
            return Poll::Ready(Err(Closed::Configuration("this endpoint accepts no connections".to_owned())));
        }
        match self.shared().poll_accept(waker) {
            AcceptOutcome::Connection(cell) => Poll::Ready(Ok(ConnectionHandle::new(cell, self.clone()))),
            AcceptOutcome::Stopped => Poll::Ready(Err(Closed::EndpointClosed)),
            AcceptOutcome::Pending => Poll::Pending,
        }
    }

    /// The addresses of the sockets, in the order in which they were given.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.core.shared.local_addrs
    }

    /// Connections that exist, those that are ending included.
    pub fn connection_count(&self) -> usize {
        self.core.shared.connection_count()
    }

    /// Where the driver's time went so far; none unless the configuration asks to [`measure`](EngineConfig::measure).
    pub fn costs(&self) -> Option<Costs> {
        self.core.shared.meter.as_ref().map(|meter| meter.read())
    }

    /// Which processors run it.
    pub fn placement(&self) -> Placement {
        self.core.placement
    }

    /// What the processors beside the serial one did; none if there are none.
    pub fn stage_stats(&self) -> Option<StageStats> {
        self.core.figures.as_ref().map(|figures| figures.read())
    }

    /// The engine's clock now; deadlines for [`block_on`](Self::block_on) are on it.
    pub fn now(&self) -> Instant {
        self.core.shared.clock.now()
    }

    /// Work was published for the driver: wakes its thread, or does a turn of it.
    pub(crate) fn kick(&self, tails: Tails) {
        match &self.core.placed {
            Placed::Thread(_) => self.core.shared.waker.wake(),
            Placed::Inline(inline) => inline.kick(&self.core.shared, tails),
        }
    }

    /// Sends what earlier calls left to later ones, because more was to be expected or because their turn was over. Where the
    /// engine has a thread of its own there is no such thing.
    pub fn flush(&self) {
        if let Placed::Inline(inline) = &self.core.placed {
            inline.flush(&self.core.shared);
        }
    }

    /// Waits until `poll` is ready; none if `deadline` comes first. `poll` gets a waker to leave behind when it is not.
    pub fn block_on<T>(&self, deadline: Option<Instant>, mut poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        if let Placed::Inline(inline) = &self.core.placed {
            return inline.block_on(&self.core.shared, deadline, &parker, &waker, &mut poll);
        }
        loop {
            if let Poll::Ready(value) = poll(&waker) {
                return Some(value);
            }
            if !parker.park(&self.core.shared.clock, deadline) {
                return None;
            }
        }
    }

    /// Closes all connections, waits for the goodbyes to leave (a second at most) and ends the driver. Later calls do
    /// nothing.
    pub fn stop(&self) {
        self.core.shared.stop();
        match &self.core.placed {
            Placed::Thread(thread) => {
                let thread = lock(thread).take();
                if let Some(thread) = thread
                    && thread.join().is_err()
                {
                    tracing::error!("the engine thread panicked");
                }
            }
            Placed::Inline(inline) => inline.stop(&self.core.shared),
        }
    }
}

/// Gives out sockets and processors, as the placement says.
fn place(
    config: &EngineConfig,
    clock: MonotonicClock,
    shared: &Shared,
    sockets: Vec<Box<dyn LiveSocket>>,
) -> Result<(Vec<Port>, Others), StartError> {
    let near = |socket, local| {
        Port::near(NearPort::new(socket, local, Arc::new(ArrivalWaker::new(Arc::clone(&shared.waker)))))
    };
    let cores = config.cores.get(1..).unwrap_or_default();
    let mut others = Others::default();
    if let Placement::Packet(count) = config.placement {
        let stage = Stage::start(count.saturating_sub(1), cores, clock, config.busy_poll, &shared.waker);
        others.stage = Some(stage.map_err(|error| StartError::System("start a worker", error))?);
    }
    let wanted = if let Placement::Path(count) = config.placement { count.max(1) } else { 1 };
    // Those who would have no socket are not needed.
    let count = wanted.min(sockets.len() + 1);
    // The driver has what belongs to all paths, so it serves a socket only if there are as many as processors.
    let spares_driver = usize::from(count > sockets.len());
    let mut ports = Vec::with_capacity(sockets.len());
    let mut given: Vec<Vec<_>> = (1..count).map(|_| Vec::new()).collect();
    for (index, socket) in sockets.into_iter().enumerate() {
        let local = shared.local_addrs[index];
        match ((index + spares_driver) % count).checked_sub(1) {
            None => ports.push(near(socket, local)),
            Some(processor) => {
                ports.push(Port::far(local, processor, socket.max_gso_segments().max(1)));
                given[processor].push((index, local, socket));
            }
        }
    }
    for (index, sockets) in given.into_iter().enumerate() {
        let start = Start {
            name: format!("litz-path-{}", index + 1),
            core: cores.get(index).copied(),
            clock,
            busy_poll: config.busy_poll,
            owner: Arc::clone(&shared.waker),
        };
        let processor = PathProcessor::start(start, sockets);
        others.processors.push(processor.map_err(|error| StartError::System("start a processor", error))?);
    }
    Ok((ports, others))
}

/// Nobody is left who could use the engine, and its owner has not stopped it: the thread ends on its own.
impl Drop for Core {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Gives the driver a thread of its own.
#[expect(clippy::disallowed_methods, reason = "this is where processors are given out")]
fn spawn(mut driver: Driver, core: Option<usize>) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name("litz-engine".to_owned())
        .spawn(move || {
            if let Some(core) = core
                && let Err(error) = net::processors::stay_on(core)
            {
                tracing::warn!(%error, core, "cannot stay on one processor");
            }
            while !driver.is_stopping() {
                let work = driver.turn(Tails::Sent);
                tracing::trace!(?work, "a turn");
                driver.wait(None);
            }
            run_to_the_end(&mut driver);
        })
        .map_err(|error| StartError::System("start the engine thread", error))
}

/// Says goodbye to all peers.
pub(crate) fn run_to_the_end(driver: &mut Driver) {
    let deadline = driver.now() + GOODBYE_TIME_MAX;
    loop {
        driver.turn(Tails::Sent);
        if driver.has_left() || driver.now() >= deadline {
            return;
        }
        driver.wait(Some(deadline));
    }
}
