//! The thread of a link: it runs a station, serves what others ask for, and sleeps.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use mio::Waker;
use net::MonotonicClock;
use netem::{Change, ConfigError, Link, Packet};
use units::{Duration, Instant};

use crate::sleep::Sleeper;
use crate::{Direction, LinkReport};

/// No sleep is shorter: what is due within it leaves together. At 1 Gb/s a full packet is due every 12 µs, and on a virtual
/// machine each sleep costs twice that in processor time, so without it one link would keep a processor busy, and a
/// real-time thread that does is stopped by Linux for 50 ms a second. Longer, and it would show in the delay.
const GRAIN: Duration = Duration::from_micros(20);

/// What moves the packets of one link.
pub(crate) trait Station: Send + 'static {
    /// Makes all descriptors known.
    fn start(&mut self, sleeper: &Sleeper) -> io::Result<()>;

    /// Something new can be read from this source.
    fn readable(&mut self, source: usize);

    /// A bounded amount of work: reads some packets and lets out some of those that are due. True if more can be read
    /// right now.
    ///
    /// # Errors
    /// If the link cannot go on, because its device is gone.
    fn turn(&mut self, sleeper: &Sleeper) -> io::Result<bool>;

    /// When the next packet is due.
    fn due(&self) -> Option<Instant>;

    /// Changes the settings of one direction as of `now`.
    fn change(&mut self, now: Instant, direction: OneWay, change: &Change) -> Result<(), ConfigError>;

    /// Where the server of a relay listens; nothing to others.
    fn set_server(&mut self, _server: SocketAddr) {}

    fn report(&self) -> LinkReport;
}

/// One of two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneWay {
    Forward,
    Backward,
}

/// Changes the settings of `link`, or leaves them as they are if they would describe no link.
pub(crate) fn change_link<P: Packet>(link: &mut Link<P>, now: Instant, change: &Change) -> Result<(), ConfigError> {
    let mut config = link.config().clone();
    change.apply(&mut config);
    config.validate()?;
    link.set_config(now, config);
    Ok(())
}

/// Something that the thread is asked for; the answer goes back.
enum Request {
    Change(Direction, Change, SyncSender<Result<(), ConfigError>>),
    Server(SocketAddr, SyncSender<()>),
    Report(SyncSender<LinkReport>),
}

/// Requests wait here. Whoever asks waits for the answer, so there are never more of them than threads that ask.
struct Inbox {
    state: Mutex<State>,
    has_requests: AtomicBool,
    stop: AtomicBool,
    waker: Waker,
}

enum State {
    /// The thread answers these.
    Runs(Vec<Request>),
    /// It answers no more: what came of the link, and why it ended before it was stopped.
    Ended(Box<LinkReport>, Option<Arc<io::Error>>),
}

/// Why a link could not be changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// What it would become is no link.
    Config(ConfigError),
    /// It has ended: its device is gone.
    Ended,
    /// There is no link with this number.
    NoLink {
        /// How many links there are.
        links: usize,
    },
}

/// A link with its thread. Dropping it stops the thread.
pub(crate) struct Worker {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(clock: MonotonicClock, mut station: impl Station) -> io::Result<Self> {
        let (mut sleeper, waker) = Sleeper::new(clock)?;
        let inbox = Arc::new(Inbox {
            state: Mutex::new(State::Runs(Vec::new())),
            has_requests: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waker,
        });
        station.start(&sleeper)?;
        let shared = Arc::clone(&inbox);
        let run = move || {
            take_precedence();
            let panicked = io::Error::other("the thread of an emulated link panicked");
            let mut ending = Ending { inbox: &shared, report: LinkReport::default(), error: Some(panicked) };
            let result = run(&mut station, &mut sleeper, &shared);
            ending.report = station.report();
            ending.error = result.err();
        };
        #[expect(clippy::disallowed_methods, reason = "an emulated link beside the engine: one thread, joined on drop")]
        let thread = std::thread::Builder::new().name("litz-link".into()).spawn(run)?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    pub(crate) fn change(&self, direction: Direction, change: Change) -> Result<(), ChangeError> {
        let answer = self.ask(|reply| Request::Change(direction, change, reply)).ok_or(ChangeError::Ended)?;
        answer.map_err(ChangeError::Config)
    }

    pub(crate) fn set_server(&self, server: SocketAddr) -> Result<(), ChangeError> {
        self.ask(|reply| Request::Server(server, reply)).ok_or(ChangeError::Ended)
    }

    /// The report, also after the end, and why it ended by itself if it did.
    pub(crate) fn report(&self) -> (LinkReport, Option<Arc<io::Error>>) {
        if let Some(report) = self.ask(Request::Report) {
            return (report, None);
        }
        match &*self.inbox.state() {
            State::Ended(report, error) => ((**report).clone(), error.clone()),
            // It ends between two looks.
            State::Runs(_) => Default::default(),
        }
    }

    /// Whether the link has ended by itself.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.inbox.state(), State::Ended(..))
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        self.inbox.stop.store(true, Ordering::Release);
        // It can only fail if the descriptor is gone, and then the thread has ended.
        let _woken = self.inbox.waker.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its state says so.
            let _joined = thread.join();
        }
    }

    /// Asks and waits for the answer; none if the thread has ended.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        match &mut *self.inbox.state() {
            State::Runs(requests) => requests.push(request(reply)),
            State::Ended(..) => return None,
        }
        self.inbox.has_requests.store(true, Ordering::Release);
        self.inbox.waker.wake().ok()?;
        answer.recv().ok()
    }
}

/// Says that the thread has ended, however it does. With the requests go the answers that others wait for.
struct Ending<'a> {
    inbox: &'a Inbox,
    report: LinkReport,
    error: Option<io::Error>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let report = Box::new(std::mem::take(&mut self.report));
        *self.inbox.state() = State::Ended(report, self.error.take().map(Arc::new));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the system to run this thread before those whose packets it carries: what waits for a processor is late, on a
/// busy machine by ten milliseconds. Only an administrator gets it; otherwise the thread waits its turn.
fn take_precedence() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };

    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy) {
        tracing::debug!(?error, "the emulated link runs at ordinary priority");
    }
}

fn run(station: &mut impl Station, sleeper: &mut Sleeper, inbox: &Inbox) -> io::Result<()> {
    loop {
        let has_more = station.turn(sleeper)?;
        if inbox.has_requests.swap(false, Ordering::Acquire) {
            serve(station, sleeper.clock().now(), inbox);
        }
        if inbox.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let due = station.due();
        let until = if has_more { Some(Instant::ZERO) } else { due.map(|due| due.max(sleeper.clock().now() + GRAIN)) };
        // Also looks for new arrivals if a packet is due already: neither direction may keep the other waiting.
        sleeper.wait(until, |source| station.readable(source))?;
    }
}

fn serve(station: &mut impl Station, now: Instant, inbox: &Inbox) {
    let requests = match &mut *inbox.state() {
        State::Runs(requests) => std::mem::take(requests),
        State::Ended(..) => return,
    };
    for request in requests {
        // Nobody waits for the answer any more if sending it fails.
        match request {
            Request::Change(direction, change, reply) => {
                let result = direction.ways().iter().try_for_each(|&way| station.change(now, way, &change));
                let _sent = reply.send(result);
            }
            Request::Server(server, reply) => {
                station.set_server(server);
                let _sent = reply.send(());
            }
            Request::Report(reply) => {
                let _sent = reply.send(station.report());
            }
        }
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Ended => f.write_str("the emulated link has ended: its device is gone"),
            Self::NoLink { links } => write!(f, "there is no such link: there are {links}, counted from zero"),
        }
    }
}

impl std::error::Error for ChangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Ended | Self::NoLink { .. } => None,
        }
    }
}
