//! The place of a ticket's sender. A sender that comes back (killed, or on another network) takes over from its own
//! former connection, whose end we would otherwise learn of only by the idle timeout.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use net::MonotonicClock;
use units::Duration;

/// The former visits of a returning sender have this long, together, to let go of their files. Then it goes on without
/// them: a file that is held still fails alone.
pub(crate) const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Which visit of the ticket's sender is served.
pub(crate) struct Current {
    state: Mutex<State>,
    /// The holder changed.
    changed: Condvar,
    clock: MonotonicClock,
    timeout: Duration,
}

#[derive(Default)]
struct State {
    holder: Option<Holder>,
    /// Visits so far; the number of each is its turn.
    visits: u64,
}

struct Holder {
    number: u64,
    close: Box<dyn Fn() + Send>,
}

impl Current {
    /// A place that nobody holds; a visit waits at most `timeout` for the one before it.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), clock: MonotonicClock::start(), timeout }
    }

    /// Ends the former visits of the same sender, each by its own `close`, and takes the place; the new visit's number.
    /// None, after `close`, if a later visit has taken the place while we waited for it.
    pub(crate) fn take_over(&self, close: impl Fn() + Send + 'static) -> Option<u64> {
        let deadline = self.clock.now() + self.timeout;
        let mut state = self.lock();
        state.visits += 1;
        let number = state.visits;
        let mut told = 0;
        // The place may pass to another visit that waited beside us: that one has to go as well, if it came before us.
        while let Some(holder) = &state.holder {
            if holder.number > number {
                close();
                return None;
            }
            if holder.number > told {
                told = holder.number;
                (holder.close)();
            }
            let left = deadline.saturating_since(self.clock.now());
            if left.is_zero() {
                break;
            }
            let wait = self.changed.wait_timeout(state, left.into());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.holder = Some(Holder { number, close: Box::new(close) });
        self.changed.notify_all();
        Some(number)
    }

    /// The visit of this number has let go of its files. Nothing happens if it was given up on.
    pub(crate) fn release(&self, number: u64) {
        let mut state = self.lock();
        if state.holder.as_ref().is_some_and(|holder| holder.number == number) {
            state.holder = None;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver};

    use super::*;

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

    /// A visit in a thread of its own; what it got, and a message when it is closed.
    fn visit(current: &Arc<Current>) -> (Receiver<Option<u64>>, Receiver<()>) {
        let (closing, closed) = mpsc::channel();
        let (taking, taken) = mpsc::channel();
        let theirs = Arc::clone(current);
        #[expect(clippy::disallowed_methods, reason = "visits wait for each other")]
        std::thread::spawn(move || {
            let number = theirs.take_over(move || closing.send(()).unwrap_or_default());
            taking.send(number).unwrap_or_default();
        });
        (taken, closed)
    }

    #[test]
    fn whoever_comes_last_gets_the_place() {
        let current = Arc::new(Current::new(Duration::from_secs(60)));
        let (taken, first_closed) = visit(&current);
        let first = taken.recv_timeout(PATIENCE).unwrap().unwrap();
        let (second_taken, second_closed) = visit(&current);
        first_closed.recv_timeout(PATIENCE).unwrap();
        let (third_taken, third_closed) = visit(&current);
        // The third waits beside the second once it has told the first to go, as the second has.
        first_closed.recv_timeout(PATIENCE).unwrap();
        current.release(first);
        // Whichever of the two wakes first: the second goes, and the third has the place in the end.
        let second = second_taken.recv_timeout(PATIENCE).unwrap();
        second_closed.recv_timeout(PATIENCE).unwrap();
        if let Some(second) = second {
            current.release(second);
        }
        assert_eq!(third_taken.recv_timeout(PATIENCE), Ok(Some(3)));
        assert!(third_closed.try_recv().is_err(), "the third stays");
    }

    #[test]
    fn a_visit_that_does_not_go_is_given_up_on() {
        let current = Arc::new(Current::new(Duration::from_millis(50)));
        assert_eq!(current.take_over(|| {}), Some(1));
        assert_eq!(current.take_over(|| {}), Some(2), "after the timeout");
        current.release(1);
        assert!(current.lock().holder.is_some(), "a visit that was given up on does not release its successor");
        current.release(2);
        assert!(current.lock().holder.is_none());
    }
}
