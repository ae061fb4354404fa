//! [`Sleeper`]: waits in a poll for devices, a deadline or a waker.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use crate::busy_poll::BusyPoll;
use crate::clock::Clock;
use crate::device::{Device, Readiness};
use crate::live::ServedSocket;
use crate::wake::EngineWaker;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use net::FineTimer;
use units::{Duration, Instant};

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const HANDLER: Token = Token(2);
const SOCKETS_FROM: usize = 3;

/// Maximum number of events per call: at most one for each source.
const EVENTS_MAX: usize = 64;

/// Duration of a sleep below which the timer descriptor is used. epoll rounds timeouts up to
/// milliseconds, which pacing does not tolerate: a burst is due every few hundred microseconds.
const COARSE_FROM: Duration = Duration::from_millis(100);

/// A readiness event of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The index of the device.
    pub(crate) socket: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// A poll with a timer and a waker.
pub(crate) struct Sleeper {
    poll: Poll,
    events: Events,
    timer: Option<FineTimer>,
    /// Time at which the timer fires next.
    armed: Option<Instant>,
    clock: Clock,
    busy_poll: BusyPoll,
    waker: Arc<EngineWaker>,
}

impl Sleeper {
    /// Creates a sleeper and the waker that ends its sleep. It polls for `busy_poll` before each sleep.
    pub(crate) fn new(clock: Clock, busy_poll: Duration) -> io::Result<(Self, Waker)> {
        let (poll, waker) = crate::wake::poll_and_waker(WAKER)?;
        let timer = FineTimer::new()?;
        if let Some(timer) = &timer {
            poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        }
        let events = Events::with_capacity(EVENTS_MAX);
        let external = Waker::from(Arc::clone(&waker));
        Ok((Self { poll, events, timer, armed: None, clock, busy_poll: BusyPoll::new(busy_poll), waker }, external))
    }

    fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Registers the descriptor of an event handler. See [`has_handler_event`](Self::has_handler_event).
    pub(crate) fn watch_handler(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.registry().register(&mut SourceFd(&descriptor.as_raw_fd()), HANDLER, Interest::READABLE)
    }

    /// Registers a socket for the events needed now: readable if this thread receives from it,
    /// writable only while its send buffer is full. A UDP socket becomes writable with every packet
    /// that leaves, so that event would otherwise be continuous.
    pub(crate) fn watch<D: Device>(&self, index: usize, socket: &mut ServedSocket<D>) {
        if socket.receives {
            socket.socket.receive_here();
        }
        socket.socket.renew();
        let wanted = (socket.receives, socket.awaits_writable());
        let device = &mut socket.socket;
        let Readiness::Descriptor(descriptor) = device.readiness else { return };
        if wanted == device.watched {
            return;
        }
        let interest = match wanted {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let (mut source, token) = (SourceFd(&descriptor), Token(SOCKETS_FROM + index));
        let is_registered = device.watched != (false, false);
        let done = match interest {
            Some(interest) if is_registered => self.registry().reregister(&mut source, token, interest),
            Some(interest) => self.registry().register(&mut source, token, interest),
            None => self.registry().deregister(&mut source),
        };
        match done {
            Ok(()) => device.watched = wanted,
            Err(error) => tracing::error!(%error, "cannot register a socket with the poll"),
        }
    }

    /// Announces that the thread is about to sleep. It then checks for work once more and calls
    /// [`wait`](Self::wait) in any case. See [`SleepFlag`](crate::sleep_flag::SleepFlag).
    pub(crate) fn announce_sleep(&self) {
        self.waker.announce_sleep();
    }

    /// Sets the timer to `until`, or leaves an earlier setting. Returns false if there is no timer.
    fn arm(&mut self, now: Instant, until: Instant) -> bool {
        if self.armed.is_some_and(|armed| now < armed && armed <= until) {
            return true;
        }
        let done = self.timer.as_ref().is_some_and(|timer| timer.arm(until.saturating_since(now)));
        self.armed = done.then_some(until);
        done
    }

    /// Sleeps until an event or `until`, and returns the ready sockets. If `until` has passed, it
    /// polls without sleeping. May return early: a deadline that moves with each packet does not
    /// set the timer each time, because that is an exit to the hypervisor on a virtual machine.
    pub(crate) fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<impl Iterator<Item = Ready>> {
        let slept = self.sleep(now, until);
        self.waker.announce_awake();
        slept.map(|()| self.ready())
    }

    fn sleep(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        let (poll, events) = (&mut self.poll, &mut self.events);
        let polled = self.busy_poll.poll(&self.clock, now, until, || {
            poll_for(poll, events, Some(Duration::ZERO)).map(|()| !events.is_empty())
        })?;
        // The time spent on polling counts towards the deadline.
        let Some(now) = polled else { return Ok(()) };
        let timeout = match until.map(|until| (until, until.saturating_since(now))) {
            Some((until, span)) if !span.is_zero() && span < COARSE_FROM && self.arm(now, until) => None,
            other => other.map(|(_, span)| span),
        };
        poll_for(&mut self.poll, &mut self.events, timeout)
    }

    /// Returns whether the last [`wait`](Self::wait) has seen an event of the handler's descriptor.
    pub(crate) fn has_handler_event(&self) -> bool {
        self.events.iter().any(|event| event.token() == HANDLER)
    }

    fn ready(&self) -> impl Iterator<Item = Ready> {
        self.events.iter().filter(|event| event.token().0 >= SOCKETS_FROM).map(|event| Ready {
            socket: event.token().0 - SOCKETS_FROM,
            readable: event.is_readable() || event.is_error(),
            writable: event.is_writable() || event.is_error(),
        })
    }
}

/// Waits for events for at most `timeout`.
fn poll_for(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout.map(Into::into)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(busy_poll: Duration) -> (Sleeper, Waker, Clock) {
        let clock = Clock::start();
        let (sleeper, waker) = Sleeper::new(clock.clone(), busy_poll).unwrap();
        (sleeper, waker, clock)
    }

    #[test]
    fn busy_polling_does_not_extend_the_wait() {
        const SPAN: Duration = Duration::from_millis(40);
        let (mut sleeper, _waker, clock) = sleeper(SPAN);
        // A busy machine may wake the thread late, but not in every round.
        let in_time = (0..10).any(|_| {
            let start = clock.now();
            let _nothing = sleeper.wait(start, Some(start + SPAN)).unwrap().count();
            let waited = clock.now().saturating_since(start);
            assert!(waited >= SPAN, "{waited:?}");
            waited < SPAN * 3 / 2
        });
        assert!(in_time);
    }

    #[test]
    fn a_wake_up_ends_busy_polling() {
        let (mut sleeper, waker, clock) = sleeper(Duration::from_secs(60));
        sleeper.announce_sleep();
        waker.wake_by_ref();
        let start = clock.now();
        let _nothing = sleeper.wait(start, None).unwrap().count();
        assert!(clock.now().saturating_since(start) < Duration::from_secs(30));
    }
}
