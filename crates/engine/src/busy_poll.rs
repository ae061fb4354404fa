//! [`BusyPoll`]: polling before a sleep, so that early arrivals are served without a wake-up.

use std::thread;

use units::{Duration, Instant};

use crate::clock::Clock;

/// Duration of a yield above which the processor was shared with a computing thread: the scheduler
/// gave that thread a good part of its slice. Threads that serve the same packets need less.
const YIELD_MAX: Duration = Duration::from_micros(500);

/// Time after such a yield during which there is no polling, because it would only take the
/// processor from others.
const PAUSE: Duration = Duration::from_millis(200);

/// Polls for a time before each sleep, and lets other threads run in between.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    span: Duration,
    resumes_at: Instant,
}

impl BusyPoll {
    /// Creates a poller that polls for `span` before each sleep. Zero disables polling.
    pub(crate) const fn new(span: Duration) -> Self {
        Self { span, resumes_at: Instant::ZERO }
    }

    /// Calls `has_event` until it returns true, `until` is reached or the time for polling is over.
    /// Returns the time at which a sleep begins, or `None` if there was an event. `now` is the time
    /// of `clock`.
    ///
    /// # Errors
    /// The error of `has_event`.
    pub(crate) fn poll<E>(
        &mut self,
        clock: &Clock,
        mut now: Instant,
        until: Option<Instant>,
        mut has_event: impl FnMut() -> Result<bool, E>,
    ) -> Result<Option<Instant>, E> {
        if now < self.resumes_at {
            return Ok(Some(now));
        }
        let end = until.unwrap_or(Instant::FAR_FUTURE).min(now + self.span);
        while now < end {
            if has_event()? {
                return Ok(None);
            }
            let yielded_at = clock.now();
            thread::yield_now();
            now = clock.now();
            if self.is_unwelcome(yielded_at, now) {
                break;
            }
        }
        Ok(Some(now))
    }

    /// Handles a yield that lasted from `yielded_at` to `now`. Returns whether to sleep rather than
    /// to continue polling.
    fn is_unwelcome(&mut self, yielded_at: Instant, now: Instant) -> bool {
        let is_long = now.saturating_since(yielded_at) > YIELD_MAX;
        if is_long {
            self.resumes_at = now + PAUSE;
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::ManualClock;

    const SPAN: Duration = Duration::from_micros(100);
    const STEP: Duration = Duration::from_micros(10);

    /// Returns the number of queries for events by a poll, if each takes `step` and the event
    /// occurs at `event_at`; and its result.
    fn polls(until: Option<Instant>, event_at: usize) -> (usize, Option<Instant>) {
        let manual = ManualClock::new();
        let clock = Clock::Manual(manual.clone());
        let mut count = 0;
        let slept = BusyPoll::new(SPAN).poll(&clock, clock.now(), until, || {
            count += 1;
            manual.set(manual.now() + STEP);
            Ok::<_, Infallible>(count == event_at)
        });
        (count, slept.unwrap_or_else(|never| match never {}))
    }

    #[test]
    fn polling_ends_with_its_time_with_the_deadline_or_with_an_event() {
        assert_eq!(polls(None, usize::MAX), (10, Some(Instant::ZERO + SPAN)));
        assert_eq!(polls(Some(Instant::ZERO + STEP * 3), usize::MAX), (3, Some(Instant::ZERO + STEP * 3)));
        assert_eq!(polls(Some(Instant::ZERO), usize::MAX), (0, Some(Instant::ZERO)));
        assert_eq!(polls(None, 4), (4, None));
    }

    #[test]
    fn a_thread_that_computes_ends_polling_for_a_while() {
        let mut busy_poll = BusyPoll::new(SPAN);
        let end = Instant::ZERO + YIELD_MAX;
        assert!(!busy_poll.is_unwelcome(Instant::ZERO, end));
        assert!(busy_poll.is_unwelcome(Instant::ZERO, end + STEP));
        for (now, asks) in [(end + PAUSE, false), (end + STEP + PAUSE, true)] {
            let (manual, mut asked) = (ManualClock::new(), false);
            manual.set(now);
            let slept = busy_poll.poll(&Clock::Manual(manual), now, None, || {
                asked = true;
                Ok::<_, Infallible>(true)
            });
            assert_eq!((asked, slept), (asks, Ok((!asks).then_some(now))));
        }
    }
}
