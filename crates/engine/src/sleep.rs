//! Sleeping until a socket, a timer or a waker has something to do.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::clock::Clock;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use net::FineTimer;
use units::{Duration, Instant};

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const SOCKETS_FROM: usize = 2;

/// Events taken in one call: at most one a source.
const EVENTS_MAX: usize = 64;

/// Sleeps shorter than this use the fine timer. epoll rounds up to milliseconds: harmless to a sleep of a second, fatal to
/// pacing, where a burst is due every few hundred microseconds.
const COARSE_FROM: Duration = Duration::from_millis(100);

/// What a socket became while the driver slept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// Index of the socket.
    pub(crate) socket: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Waits for the operating system.
pub(crate) struct Sleeper {
    poll: Poll,
    events: Events,
    timer: Option<FineTimer>,
    /// When the timer fires.
    armed: Option<Instant>,
    clock: Clock,
    busy_poll: Duration,
}

impl Sleeper {
    /// A sleeper and what wakes it. It looks around for `busy_poll` before it sleeps.
    pub(crate) fn new(clock: Clock, busy_poll: Duration) -> io::Result<(Self, crate::wake::EngineWaker)> {
        let (poll, waker) = crate::wake::poll_and_waker(WAKER)?;
        let timer = FineTimer::new()?;
        if let Some(timer) = &timer {
            poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        }
        Ok((Self { poll, events: Events::with_capacity(EVENTS_MAX), timer, armed: None, clock, busy_poll }, waker))
    }

    fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Watches a socket for arrivals.
    pub(crate) fn add(&self, socket: usize, descriptor: RawFd) -> io::Result<()> {
        self.registry().register(&mut SourceFd(&descriptor), Token(SOCKETS_FROM + socket), Interest::READABLE)
    }

    /// Watches a socket for room to send too, or no longer: a UDP socket becomes writable with every packet that leaves, so
    /// it is watched only while it is full.
    pub(crate) fn watch_writable(&self, socket: usize, descriptor: RawFd, watch: bool) -> io::Result<()> {
        let interest = if watch { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.registry().reregister(&mut SourceFd(&descriptor), Token(SOCKETS_FROM + socket), interest)
    }

    /// As [`watch_writable`](Self::watch_writable), of a socket that is not watched for arrivals.
    pub(crate) fn watch_only_writable(&self, socket: usize, descriptor: RawFd, watch: bool) -> io::Result<()> {
        let mut source = SourceFd(&descriptor);
        if watch {
            self.registry().register(&mut source, Token(SOCKETS_FROM + socket), Interest::WRITABLE)
        } else {
            self.registry().deregister(&mut source)
        }
    }

    /// Makes the timer fire at `until` or before; false if it cannot.
    fn arm(&mut self, now: Instant, until: Instant) -> bool {
        if self.armed.is_some_and(|armed| now < armed && armed <= until) {
            return true;
        }
        let done = self.timer.as_ref().is_some_and(|timer| timer.arm(until.saturating_since(now)));
        self.armed = done.then_some(until);
        done
    }

    /// Sleeps until `until` at most, without end if there is none; only looks if that has come. May wake early: a deadline
    /// that moves on with each packet would otherwise set the timer anew each time, which is a trap into the hypervisor on
    /// a virtual machine.
    pub(crate) fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<impl Iterator<Item = Ready>> {
        if self.look_around(now, until)? {
            return Ok(self.ready());
        }
        // What was spent looking around is over: a deadline is met, not met that much later.
        let now = if self.busy_poll.is_zero() { now } else { self.clock.now() };
        let timeout = match until.map(|until| (until, until.saturating_since(now))) {
            Some((until, span)) if !span.is_zero() && span < COARSE_FROM && self.arm(now, until) => None,
            other => other.map(|(_, span)| span),
        };
        self.poll(timeout)?;
        Ok(self.ready())
    }

    /// Asks without sleeping, for the time that busy polling may take; true if there was something.
    fn look_around(&mut self, now: Instant, until: Option<Instant>) -> io::Result<bool> {
        let end = until.unwrap_or(Instant::FAR_FUTURE).min(now + self.busy_poll);
        let mut now = now;
        while now < end {
            self.poll(Some(Duration::ZERO))?;
            if !self.events.is_empty() {
                return Ok(true);
            }
            now = self.clock.now();
        }
        Ok(false)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout.map(Into::into)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn ready(&self) -> impl Iterator<Item = Ready> {
        self.events.iter().filter(|event| event.token().0 >= SOCKETS_FROM).map(|event| Ready {
            socket: event.token().0 - SOCKETS_FROM,
            readable: event.is_readable() || event.is_error(),
            writable: event.is_writable() || event.is_error(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(busy_poll: Duration) -> (Sleeper, crate::wake::EngineWaker, Clock) {
        let clock = Clock::start();
        let (sleeper, waker) = Sleeper::new(clock.clone(), busy_poll).unwrap();
        (sleeper, waker, clock)
    }

    #[test]
    fn looking_around_is_part_of_the_wait_and_not_added_to_it() {
        const SPAN: Duration = Duration::from_millis(40);
        let (mut sleeper, _waker, clock) = sleeper(SPAN);
        // A busy machine may wake us late now and then, but not each time.
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
    fn a_wake_up_ends_looking_around() {
        let (mut sleeper, waker, clock) = sleeper(Duration::from_secs(60));
        waker.announce_sleep();
        waker.wake();
        let start = clock.now();
        let _nothing = sleeper.wait(start, None).unwrap().count();
        assert!(clock.now().saturating_since(start) < Duration::from_secs(30));
    }
}
