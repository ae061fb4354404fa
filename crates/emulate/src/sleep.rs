//! Sleeping until a descriptor is readable, a packet is due or somebody asks for something.
//!
//! A packet is due to the nanosecond, and epoll rounds up to milliseconds, so short sleeps end by a timer of their own.

use std::io;
use std::os::fd::RawFd;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use net::MonotonicClock;
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
    timer: fine::Timer,
    clock: MonotonicClock,
}

impl Sleeper {
    pub(crate) fn new(clock: MonotonicClock) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let timer = fine::Timer::new(poll.registry(), TIMER)?;
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
            Some(span) if !span.is_zero() && span < COARSE_FROM && self.timer.arm(span) => None,
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

/// A timer of nanoseconds.
#[cfg(target_os = "linux")]
mod fine {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use units::Duration;

    pub(super) struct Timer(OwnedFd);

    impl Timer {
        pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            // Watched for edges, so nobody has to read it: each expiry is an edge of its own.
            registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Self(descriptor))
        }

        /// Ends the sleep that follows after `span`, which is not zero; replaces what was armed before. False if it cannot.
        pub(super) fn arm(&self, span: Duration) -> bool {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let nanos = span.as_nanos();
            let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value }).is_ok()
        }
    }
}

/// Elsewhere sleeps are rounded to milliseconds.
#[cfg(not(target_os = "linux"))]
mod fine {
    use std::io;

    use mio::{Registry, Token};
    use units::Duration;

    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn arm(&self, _span: Duration) -> bool {
            false
        }
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
