//! What the threads wait at that try the ways to a receiver: their turn, or the word that it is over.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Open until it is closed, for good.
#[derive(Default)]
pub(super) struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Waits for `span`; true if the gate is open then. Returns at once when it is closed.
    pub(super) fn wait(&self, span: Duration) -> bool {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_closed, span, |is_closed| !*is_closed);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Lets everybody go who waits, and everybody who comes.
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
    fn who_waits_goes_when_it_is_closed_or_when_it_is_his_turn() {
        let gate = Arc::new(Gate::default());
        assert!(gate.wait(Duration::from_millis(1)));
        let theirs = Arc::clone(&gate);
        #[expect(clippy::disallowed_methods, reason = "somebody waits at the gate")]
        let waiting = std::thread::spawn(move || theirs.wait(Duration::from_secs(3600)));
        gate.close();
        assert!(!waiting.join().unwrap());
        assert!(!gate.wait(Duration::from_secs(3600)));
    }
}
