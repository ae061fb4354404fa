//! Starting and stopping an engine, and waiting for it.

mod start;
mod steps;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use quic::session::SessionFactory;
use quic::{RateLimit, Side};
use units::{Duration, Instant};

pub use self::steps::{Given, Steps};

use crate::cells::ConnectionCell;
use crate::config::EngineConfig;
use crate::driver::{Driver, Tails};
use crate::error::{Closed, StartError};
use crate::halves::{self, SplitStats};
use crate::handle::ConnectionHandle;
use crate::inline::Inline;
use crate::meter::Costs;
use crate::placement::Placement;
use crate::shared::{AcceptOutcome, ConnectRequest, Shared};
use crate::socket::LiveSocket;
use crate::stage::{Figures, StageStats};
use crate::sync::{Parker, lock};

/// How long a closing engine waits for its goodbyes to leave. They leave within a turn unless a socket is full or the system
/// refuses them.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// Sockets of one driver, at most: as many as there are bits for those a connection waits for.
pub const SOCKETS_MAX: usize = 64;

/// A running engine. Clones are the same engine; it ends when [`stop`](Self::stop) is called.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

struct Core {
    /// At least one.
    seats: Vec<Seat>,
    /// Whose turn it is to begin a connection.
    next: AtomicUsize,
    placement: Placement,
    /// What other processors did, if there are any.
    figures: Option<Arc<Figures>>,
    /// What the receiver did, under `split`.
    halves: Option<Arc<halves::Figures>>,
}

/// What a connection asks for when it begins. The default asks for nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectOptions {
    /// The place of its socket among those the engine was started with; none: the first of the remote address's family.
    pub socket: Option<usize>,
    /// Which of the processors of [`Placement::Connection`] serves it, counted from zero; none: each in turn. Connections that
    /// come from peers are served by the processor whose socket they came to.
    pub processor: Option<usize>,
    /// See [`ConnectionHandle::set_priority`].
    pub priority: i32,
    /// See [`ConnectionHandle::set_rate`].
    pub rate: Option<RateLimit>,
}

/// A driver and its place.
struct Seat {
    shared: Arc<Shared>,
    placed: Placed,
}

/// Where a driver is.
enum Placed {
    Thread(Mutex<Option<JoinHandle<()>>>),
    Inline(Box<Inline>),
}

impl Engine {
    /// Starts an engine over `sockets`.
    ///
    /// Under [`Placement::Connection`] each processor has sockets of its own, as many as the others: first those of the first
    /// processor, then those of the second. An endpoint that accepts binds them to the same addresses with a shared port, so
    /// that its clients need not know; what then arrives at another processor's socket is passed on.
    ///
    /// # Errors
    /// If there is no socket, the configuration cannot work, or the system refuses a poll, a thread or randomness.
    pub fn start(config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, StartError> {
        Ok(Self { core: Arc::new(start::start(config, sockets)?) })
    }

    /// The first driver; the only one but under [`Placement::Connection`].
    fn first(&self) -> &Seat {
        &self.core.seats[0]
    }

    /// The driver that is in nobody's hands, under `inline`.
    fn inline(&self) -> Option<&Inline> {
        match &self.first().placed {
            Placed::Inline(inline) => Some(inline),
            Placed::Thread(_) => None,
        }
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
        self.connect_with(&ConnectOptions { socket, ..ConnectOptions::default() }, remote, server_name, factory)
    }

    /// As [`connect`](Self::connect), with what the connection asks for.
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
        let seats = &self.core.seats;
        if let Some(processor) = processor.filter(|processor| *processor >= seats.len()) {
            return Err(Closed::NoProcessor { processor, count: seats.len() });
        }
        let from = processor.unwrap_or_else(|| self.core.next.fetch_add(1, Ordering::Relaxed));
        // Who names a processor means it.
        let tries = if processor.is_some() { 1 } else { seats.len() };
        let mut refusal = Closed::EndpointClosed;
        // A driver that has died takes none; the others do.
        for at in 0..tries {
            let shared = &seats[(from + at) % seats.len()].shared;
            let cell = Arc::new(ConnectionCell::new(Arc::clone(shared), remote, Side::Client));
            {
                let mut state = cell.lock();
                state.todo.priority = Some(priority);
                state.rate = rate.map(Some);
            }
            let (server_name, factory) = (server_name.to_owned(), Arc::clone(&factory));
            match shared.push_connect(ConnectRequest { cell: Arc::clone(&cell), server_name, factory, socket }) {
                Ok(()) => {
                    self.kick(shared, Tails::Sent);
                    return Ok(ConnectionHandle::new(cell, self.clone()));
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The next connection of a client, in the order in which their handshakes were complete.
    ///
    /// # Errors
    /// If the engine does not listen, or is gone.
    pub fn poll_accept(&self, waker: &Waker) -> Poll<Result<ConnectionHandle, Closed>> {
        if !self.first().shared.limits.is_listening {
            return Poll::Ready(Err(Closed::Configuration("this endpoint accepts no connections".to_owned())));
        }
        match self.first().shared.poll_accept(waker) {
            AcceptOutcome::Connection(cell) => Poll::Ready(Ok(ConnectionHandle::new(cell, self.clone()))),
            AcceptOutcome::Stopped => Poll::Ready(Err(Closed::EndpointClosed)),
            AcceptOutcome::Pending => Poll::Pending,
        }
    }

    /// The addresses of the sockets, in the order in which they were given; of the first processor under
    /// [`Placement::Connection`].
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.first().shared.local_addrs
    }

    /// Connections that exist, those that are ending included.
    pub fn connection_count(&self) -> usize {
        self.first().shared.common.connection_count()
    }

    /// Where the drivers' time went so far; none unless the configuration asks to [`measure`](EngineConfig::measure).
    pub fn costs(&self) -> Option<Costs> {
        let read = |seat: &Seat| seat.shared.meter.as_ref().map(|meter| meter.read());
        self.core.seats.iter().map(read).reduce(|one, other| Some(one?.and(&other?)))?
    }

    /// Which processors run it.
    pub fn placement(&self) -> Placement {
        self.core.placement
    }

    /// What the processors beside the serial one did; none if there are none.
    pub fn stage_stats(&self) -> Option<StageStats> {
        self.core.figures.as_ref().map(|figures| figures.read())
    }

    /// What the receiver did; none but under [`Placement::Split`].
    pub fn split_stats(&self) -> Option<SplitStats> {
        self.core.halves.as_ref().map(|figures| figures.read())
    }

    /// The engine's clock now; deadlines for [`block_on`](Self::block_on) are on it.
    pub fn now(&self) -> Instant {
        self.first().shared.clock.now()
    }

    /// Work was published for a driver: wakes its thread, or does a turn of it.
    pub(crate) fn kick(&self, shared: &Shared, tails: Tails) {
        match &self.first().placed {
            Placed::Thread(_) => shared.waker.wake(),
            Placed::Inline(inline) => inline.kick(shared, tails),
        }
    }

    /// Sends what earlier calls left to later ones, because more was to be expected or because their turn was over. Where the
    /// engine has a thread of its own there is no such thing.
    pub fn flush(&self) {
        if let Placed::Inline(inline) = &self.first().placed {
            inline.flush(&self.first().shared);
        }
    }

    /// Waits until `poll` is ready; none if `deadline` comes first. `poll` gets a waker to leave behind when it is not.
    pub fn block_on<T>(&self, deadline: Option<Instant>, mut poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        let Seat { shared, placed } = self.first();
        if let Placed::Inline(inline) = placed {
            return inline.block_on(shared, deadline, &parker, &waker, &mut poll);
        }
        loop {
            if let Poll::Ready(value) = poll(&waker) {
                return Some(value);
            }
            if !parker.park(&shared.clock, deadline) {
                return None;
            }
        }
    }

    /// Closes all connections, waits for the goodbyes to leave (a second at most) and ends the drivers. Later calls do
    /// nothing.
    pub fn stop(&self) {
        self.core.seats.iter().for_each(|seat| seat.shared.stop());
        for Seat { shared, placed } in &self.core.seats {
            match placed {
                Placed::Thread(thread) => {
                    let thread = lock(thread).take();
                    if let Some(thread) = thread
                        && thread.join().is_err()
                    {
                        tracing::error!("an engine thread panicked");
                    }
                }
                Placed::Inline(inline) => inline.stop(shared),
            }
        }
    }
}

/// Nobody is left who could use the engine, and its owner has not stopped it: the threads end on their own.
impl Drop for Core {
    fn drop(&mut self) {
        self.seats.iter().for_each(|seat| seat.shared.stop());
    }
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
