//! Waits until a descriptor is readable, a packet is due, or a request arrives.
//!
//! Packets are due with nanosecond precision, and epoll rounds up to milliseconds, so a separate
//! timer ends short sleeps.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use net::{FineTimer, MonotonicClock};
use units::{Duration, Instant};

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const FIRST_SOURCE_TOKEN: usize = 2;

/// Events returned by one call.
const EVENTS_MAX: usize = 128;

/// Longer sleeps do not use the precise timer: the wait ends early, and the rest is a short sleep.
const COARSE_THRESHOLD: Duration = Duration::from_millis(50);

/// Polls descriptors, the timer and the waker.
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
    timer: Option<FineTimer>,
    clock: MonotonicClock,
}

impl Poller {
    pub(crate) fn new(clock: MonotonicClock) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let timer = FineTimer::new()?;
        if let Some(timer) = &timer {
            poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        }
        Ok((Self { poll, events: Events::with_capacity(EVENTS_MAX), timer, clock }, waker))
    }

    pub(crate) const fn clock(&self) -> MonotonicClock {
        self.clock
    }

    /// Registers `descriptor`: [`wait`](Self::wait) then reports `source` each time new data
    /// becomes readable. The caller must read until nothing is left, or remember that there is
    /// more.
    pub(crate) fn watch(&self, source: usize, descriptor: RawFd) -> io::Result<()> {
        let token = Token(FIRST_SOURCE_TOKEN + source);
        self.poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)
    }

    /// Sleeps until `until`, whatever becomes readable in the meantime; returns at once if that
    /// time has passed.
    pub(crate) fn rest(&self, until: Instant) {
        let span = until.saturating_since(self.clock.now());
        if !span.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the thread of a link paces itself")]
            std::thread::sleep(span.into());
        }
    }

    /// Waits until `until`, or indefinitely if it is `None`, and reports the sources that became
    /// readable. May return early.
    pub(crate) fn wait(&mut self, until: Option<Instant>, ready: impl FnMut(usize)) -> io::Result<()> {
        let span = until.map(|until| until.saturating_since(self.clock.now()));
        let timeout = match span {
            Some(span)
                if !span.is_zero()
                    && span < COARSE_THRESHOLD
                    && self.timer.as_ref().is_some_and(|timer| timer.arm(span)) =>
            {
                None
            }
            Some(span) if span >= COARSE_THRESHOLD => Some(span.saturating_sub(COARSE_THRESHOLD / 2)),
            other => other,
        };
        match self.poll.poll(&mut self.events, timeout.map(Into::into)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            // After an interruption the list of events is from an earlier call.
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        self.events.iter().filter_map(|event| event.token().0.checked_sub(FIRST_SOURCE_TOKEN)).for_each(ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_end_within_a_millisecond() {
        let clock = MonotonicClock::start();
        let (mut poller, _waker) = Poller::new(clock).unwrap();
        let span = Duration::from_micros(300);
        // A busy machine may wake late occasionally, but not each time.
        let shortest = (0..50)
            .map(|_| {
                let start = clock.now();
                poller.wait(Some(start + span), |_| {}).unwrap();
                clock.now().saturating_since(start)
            })
            .min()
            .unwrap();
        assert!(shortest >= Duration::from_micros(250), "{shortest:?}");
        if cfg!(target_os = "linux") {
            assert!(shortest < Duration::from_micros(900), "{shortest:?}");
        }
    }

    #[test]
    fn a_waker_ends_an_indefinite_wait() {
        let clock = MonotonicClock::start();
        let (mut poller, waker) = Poller::new(clock).unwrap();
        waker.wake().unwrap();
        poller.wait(None, |_| {}).unwrap();
    }
}
