//! Takeover by a ticket's sender. A sender that reconnects (after a restart or a change of network)
//! takes over from its own earlier connection, which would otherwise end only by the idle timeout.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use litz::Connection;
use net::MonotonicClock;
use transfer::{Authoriser, CLOSE_CODE, Proof, ProofContext, Refusal};
use units::Duration;

/// How long the earlier attempts of a reconnecting sender have, together, to release their files.
/// Then the new attempt continues; only a file that is still locked fails.
pub(crate) const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The attempt of the ticket's sender that is being served.
pub(crate) struct ActiveAttempt {
    state: Mutex<TakeoverState>,
    /// Signalled when the holder changes.
    changed: Condvar,
    clock: MonotonicClock,
    timeout: Duration,
}

#[derive(Default)]
struct TakeoverState {
    holder: Option<Holder>,
    /// Number of attempts so far, which numbers the next one.
    attempts: u64,
}

struct Holder {
    number: u64,
    close: Box<dyn Fn() + Send>,
}

impl ActiveAttempt {
    /// No attempt is active; a new one waits at most `timeout` for its predecessor.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), clock: MonotonicClock::start(), timeout }
    }

    /// Ends the earlier attempts of the same sender, each by its own `close`, and makes this one
    /// the holder; returns its number. None, after `close`, if a later attempt became the holder
    /// meanwhile.
    pub(crate) fn take_over(&self, close: impl Fn() + Send + 'static) -> Option<u64> {
        let deadline = self.clock.now() + self.timeout;
        let mut state = self.lock();
        state.attempts += 1;
        let number = state.attempts;
        let mut last_seen = 0;
        // Another waiting attempt may become the holder. It has to end too if it is older than this
        // one.
        while let Some(holder) = &state.holder {
            if holder.number > number {
                close();
                return None;
            }
            if holder.number > last_seen {
                last_seen = holder.number;
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

    /// The attempt of this number has released its files. Has no effect after its timeout.
    pub(crate) fn release(&self, number: u64) {
        let mut state = self.lock();
        if state.holder.as_ref().is_some_and(|holder| holder.number == number) {
            state.holder = None;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TakeoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An authoriser that records whether it authorised the sender, and that lets the ticket's sender
/// take over from its own earlier connection.
pub(crate) struct TakeoverAuthoriser<'a> {
    pub(crate) inner: Box<dyn Authoriser>,
    pub(crate) connection: Connection,
    pub(crate) current: Option<&'a ActiveAttempt>,
    pub(crate) let_in: bool,
    /// The number of this attempt in `current`.
    pub(crate) attempt: Option<u64>,
}

impl Authoriser for TakeoverAuthoriser<'_> {
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        let answer = self.inner.authorise(context, proof)?;
        self.let_in = true;
        if let Some(current) = self.current {
            let connection = self.connection.clone();
            // Without a number, a later attempt has taken over. This connection is closed, so its
            // next operation fails.
            self.attempt = current.take_over(move || connection.close(CLOSE_CODE, "the sender has reconnected"));
        }
        Ok(answer)
    }

    fn complete(&mut self) -> Result<(), String> {
        self.inner.complete()
    }

    fn release(&mut self) -> Result<(), String> {
        self.inner.release()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver};

    use super::*;

    const TEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

    /// An attempt on its own thread; returns its result, and a message when it is closed.
    fn attempt(current: &Arc<ActiveAttempt>) -> (Receiver<Option<u64>>, Receiver<()>) {
        let (closing, closed) = mpsc::channel();
        let (taking, taken) = mpsc::channel();
        let theirs = Arc::clone(current);
        #[expect(clippy::disallowed_methods, reason = "attempts wait for each other")]
        std::thread::spawn(move || {
            let number = theirs.take_over(move || closing.send(()).unwrap_or_default());
            taking.send(number).unwrap_or_default();
        });
        (taken, closed)
    }

    #[test]
    fn the_latest_attempt_becomes_the_holder() {
        let current = Arc::new(ActiveAttempt::new(Duration::from_secs(60)));
        let (taken, first_closed) = attempt(&current);
        let first = taken.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
        let (second_taken, second_closed) = attempt(&current);
        first_closed.recv_timeout(TEST_TIMEOUT).unwrap();
        let (third_taken, third_closed) = attempt(&current);
        // Once the third has closed the first, as the second has, both wait.
        first_closed.recv_timeout(TEST_TIMEOUT).unwrap();
        current.release(first);
        // Whichever wakes first, the second ends and the third becomes the holder.
        let second = second_taken.recv_timeout(TEST_TIMEOUT).unwrap();
        second_closed.recv_timeout(TEST_TIMEOUT).unwrap();
        if let Some(second) = second {
            current.release(second);
        }
        assert_eq!(third_taken.recv_timeout(TEST_TIMEOUT), Ok(Some(3)));
        assert!(third_closed.try_recv().is_err(), "the third stays");
    }

    #[test]
    fn an_attempt_that_does_not_end_is_abandoned_after_the_timeout() {
        let current = Arc::new(ActiveAttempt::new(Duration::from_millis(50)));
        assert_eq!(current.take_over(|| {}), Some(1));
        assert_eq!(current.take_over(|| {}), Some(2), "after the timeout");
        current.release(1);
        assert!(current.lock().holder.is_some(), "an abandoned attempt does not release its successor");
        current.release(2);
        assert!(current.lock().holder.is_none());
    }
}
