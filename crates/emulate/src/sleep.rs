//! Sleeping until a descriptor is readable, a packet is due or somebody asks for something.
//!
//! A packet is due to the nanosecond, and epoll rounds up to milliseconds, so short sleeps end by a timer of their own.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use net::{FineTimer, MonotonicClock};
use units::{Duration, Instant};

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const SOURCES_FROM: usize = 2;

/// Events taken in one call.
const EVENTS_MAX: usize = 128;

/// Sleeps longer than this need no fine timer: the rounding to milliseconds only concerns a packet that far away, and the
/// rest of the way is slept again.
const COARSE_FROM: Duration = Duration::from_millis(50);

/// Waits for the operating system.
pub(crate) struct Sleeper {
    poll: Poll,
    events: Events,
    timer: Option<FineTimer>,
    clock: MonotonicClock,
}

impl Sleeper {
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

    /// Tells [`wait`](Self::wait) to name `source` each time when something new can be read from `descriptor`: whoever is
    /// told must read until nothing is left, or remember that something is.
    pub(crate) fn watch(&self, source: usize, descriptor: RawFd) -> io::Result<()> {
        let token = Token(SOURCES_FROM + source);
        self.poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)
    }

    /// Sleeps until `until` at the latest, without end if there is none, and names the sources that became readable. May wake
    /// early.
    pub(crate) fn wait(&mut self, until: Option<Instant>, ready: impl FnMut(usize)) -> io::Result<()> {
        let span = until.map(|until| until.saturating_since(self.clock.now()));
        let timeout = match span {
            Some(span)
                if !span.is_zero()
                    && span < COARSE_FROM
                    && self.timer.as_ref().is_some_and(|timer| timer.arm(span)) =>
            {
                None
            }
            Some(span) if span >= COARSE_FROM => Some(span.saturating_sub(COARSE_FROM / 2)),
            other => other,
        };
        match self.poll.poll(&mut self.events, timeout.map(Into::into)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            // Interrupted: what the list of events holds is of an earlier call.
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        self.events.iter().filter_map(|event| event.token().0.checked_sub(SOURCES_FROM)).for_each(ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_end_in_time_and_not_a_millisecond_later() {
        let clock = MonotonicClock::start();
        let (mut sleeper, _waker) = Sleeper::new(clock).unwrap();
        let span = Duration::from_micros(300);
        // A busy machine may wake us late now and then, but not each time.
        let shortest = (0..50)
            .map(|_| {
                let start = clock.now();
                sleeper.wait(Some(start + span), |_| {}).unwrap();
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
    fn a_wake_up_ends_a_sleep_without_end() {
        let clock = MonotonicClock::start();
        let (mut sleeper, waker) = Sleeper::new(clock).unwrap();
        waker.wake().unwrap();
        sleeper.wait(None, |_| {}).unwrap();
    }
}
