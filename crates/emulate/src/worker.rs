//! The thread of a link: runs its packet I/O, serves requests, and sleeps.

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

use super::report::LinkReport;
use super::running::Direction;
use crate::poller::Poller;

/// Largest number of simultaneous links, because each has its own thread.
pub const LINKS_MAX: usize = 64;

/// Shortest sleep: packets due within it leave together. At 1 Gb/s a full packet is due every 12
/// µs, and on a virtual machine each sleep costs twice that in processor time. Without this minimum
/// one link would fully load a processor, and Linux stops a real-time thread that does so for 50 ms
/// per second. A longer minimum would be visible in the delay.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// The packet I/O of one link.
pub(crate) trait LinkIo: Send + 'static {
    /// Shortest time from the beginning of a turn to the wait that follows it: input and due packets
    /// of this time are handled together by the next turn. Zero handles each as it comes.
    const TURN_MIN: Duration;

    /// Registers all descriptors.
    fn start(&mut self, poller: &Poller) -> io::Result<()>;

    /// Handles new readable data from this source.
    fn readable(&mut self, source: usize);

    /// Does a bounded amount of work: reads some packets and sends some of the due ones. Returns
    /// true if more can be read now.
    ///
    /// # Errors
    /// Fails if the link cannot continue because its device was removed.
    fn turn(&mut self, poller: &Poller) -> io::Result<bool>;

    /// Returns the time of the next due packet.
    fn due(&self) -> Option<Instant>;

    /// Changes the settings of one direction at `now`.
    fn change(&mut self, now: Instant, direction: SingleDirection, change: &Change) -> Result<(), ConfigError>;

    /// Sets the address of a relay's server; does nothing for other links.
    fn set_server(&mut self, _server: SocketAddr) {}

    fn report(&self) -> LinkReport;
}

/// One of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleDirection {
    Forward,
    Backward,
}

/// Changes the settings of `link`, or leaves them unchanged if the result would be invalid.
pub(crate) fn change_link<P: Packet>(link: &mut Link<P>, now: Instant, change: &Change) -> Result<(), ConfigError> {
    let mut config = link.config().clone();
    change.apply(&mut config);
    config.validate()?;
    link.set_config(now, config);
    Ok(())
}

/// A request to the thread, with a channel for the answer.
enum Request {
    Change(Direction, Change, SyncSender<Result<(), ConfigError>>),
    Server(SocketAddr, SyncSender<()>),
    Report(SyncSender<LinkReport>),
}

/// Pending requests. A requesting thread waits for the answer, so there are at most as many
/// requests as requesting threads.
struct Inbox {
    state: Mutex<InboxState>,
    has_requests: AtomicBool,
    stop: AtomicBool,
    waker: Waker,
}

enum InboxState {
    /// The thread is running and answers these requests.
    Runs(Vec<Request>),
    /// The thread has ended: the final report, and the error if it was not stopped.
    Ended(Box<LinkReport>, Option<Arc<io::Error>>),
}

/// A failed change of a link.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// The changed settings would be invalid.
    Config(ConfigError),
    /// The link has ended because its device was removed.
    Ended,
    /// There is no link with this index.
    NoLink {
        /// Number of links.
        links: usize,
    },
}

/// A link with its thread. Dropping it stops the thread.
pub(crate) struct Worker {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(clock: MonotonicClock, mut link_io: impl LinkIo) -> io::Result<Self> {
        let (mut poller, waker) = Poller::new(clock)?;
        let inbox = Arc::new(Inbox {
            state: Mutex::new(InboxState::Runs(Vec::new())),
            has_requests: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waker,
        });
        link_io.start(&poller)?;
        let shared = Arc::clone(&inbox);
        let run = move || {
            raise_priority();
            let panicked = io::Error::other("the thread of an emulated link panicked");
            let mut guard = EndGuard { inbox: &shared, report: LinkReport::default(), error: Some(panicked) };
            let mut turns = 0;
            let result = run(&mut link_io, &mut poller, &shared, &mut turns);
            guard.report = LinkReport { turns, ..link_io.report() };
            guard.error = result.err();
        };
        #[expect(clippy::disallowed_methods, reason = "one thread per emulated link, joined on drop")]
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

    /// Returns the report, even after the end, with the error if the link ended by itself.
    pub(crate) fn report(&self) -> (LinkReport, Option<Arc<io::Error>>) {
        if let Some(report) = self.ask(Request::Report) {
            return (report, None);
        }
        match &*self.inbox.state() {
            InboxState::Ended(report, error) => ((**report).clone(), error.clone()),
            // The thread ended between the two checks.
            InboxState::Runs(_) => Default::default(),
        }
    }

    /// Returns whether the link has ended by itself.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.inbox.state(), InboxState::Ended(..))
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.inbox.stop.store(true, Ordering::Release);
        // This fails only if the descriptor is closed, and then the thread has ended.
        let _woken = self.inbox.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic is recorded in the worker's state.
            let _joined = thread.join();
        }
    }

    /// Sends a request and waits for the answer; returns `None` if the thread has ended.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        match &mut *self.inbox.state() {
            InboxState::Runs(requests) => requests.push(request(reply)),
            InboxState::Ended(..) => return None,
        }
        self.inbox.has_requests.store(true, Ordering::Release);
        self.inbox.waker.wake().ok()?;
        answer.recv().ok()
    }
}

/// Records the end of the thread, in whatever way it ends. Dropping the pending requests ends the
/// waits for their answers.
struct EndGuard<'a> {
    inbox: &'a Inbox,
    report: LinkReport,
    error: Option<io::Error>,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let report = Box::new(std::mem::take(&mut self.report));
        *self.inbox.state() = InboxState::Ended(report, self.error.take().map(Arc::new));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests real-time priority, so that the thread runs before those whose packets it carries: on a
/// busy machine waiting for a processor can take ten milliseconds. This needs a privilege; without
/// it the thread runs at ordinary priority.
fn raise_priority() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };

    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy) {
        tracing::debug!(?error, "the emulated link runs at ordinary priority");
    }
}

/// Takes turns until stopped, and counts them.
fn run<L: LinkIo>(link_io: &mut L, poller: &mut Poller, inbox: &Inbox, turns: &mut u64) -> io::Result<()> {
    loop {
        *turns += 1;
        let begun = poller.clock().now();
        let has_more = link_io.turn(poller)?;
        if inbox.has_requests.swap(false, Ordering::Acquire) {
            serve(link_io, poller.clock().now(), inbox, *turns);
        }
        if inbox.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let until = if has_more {
            Some(Instant::ZERO)
        } else {
            poller.rest(begun + L::TURN_MIN);
            let earliest = if L::TURN_MIN.is_zero() { poller.clock().now() + SLEEP_MIN } else { Instant::ZERO };
            link_io.due().map(|due| due.max(earliest))
        };
        // Checks for new input even if a packet is already due, so that neither direction delays
        // the other.
        poller.wait(until, |source| link_io.readable(source))?;
    }
}

fn serve(link_io: &mut impl LinkIo, now: Instant, inbox: &Inbox, turns: u64) {
    let requests = match &mut *inbox.state() {
        InboxState::Runs(requests) => std::mem::take(requests),
        InboxState::Ended(..) => return,
    };
    for request in requests {
        // Sending the answer fails if the requester no longer waits.
        match request {
            Request::Change(direction, change, reply) => {
                let result =
                    direction.single_directions().iter().try_for_each(|&single| link_io.change(now, single, &change));
                let _sent = reply.send(result);
            }
            Request::Server(server, reply) => {
                link_io.set_server(server);
                let _sent = reply.send(());
            }
            Request::Report(reply) => {
                let _sent = reply.send(LinkReport { turns, ..link_io.report() });
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
