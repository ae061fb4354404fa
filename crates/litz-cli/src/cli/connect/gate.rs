//! Delays the threads that try candidates until their turn, and stops them when the connection is
//! made.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Open until it is closed; it stays closed.
#[derive(Default)]
pub(super) struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Waits for `span`; returns whether the gate is still open. Returns at once when it is closed.
    pub(super) fn wait(&self, span: Duration) -> bool {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_closed, span, |is_closed| !*is_closed);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Closes the gate: all waits, present and future, return at once.
    pub(super) fn close(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_wait_ends_after_its_time_or_when_the_gate_closes() {
        let gate = Arc::new(Gate::default());
        assert!(gate.wait(Duration::from_millis(1)));
        let theirs = Arc::clone(&gate);
        #[expect(clippy::disallowed_methods, reason = "a second thread waits at the gate")]
        let waiting = std::thread::spawn(move || theirs.wait(Duration::from_secs(3600)));
        gate.close();
        assert!(!waiting.join().unwrap());
        assert!(!gate.wait(Duration::from_secs(3600)));
    }
}
