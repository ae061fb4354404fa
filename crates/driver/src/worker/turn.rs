//! [`WorkerLoop`]: a worker's turns, independent of the thread that runs them.

use std::sync::Arc;

use units::{Duration, Instant};

use super::liveness::Progress;

/// A worker's turns. Implementations neither block nor sleep.
pub trait WorkerLoop {
    /// Processes the available work, up to a limit. A turn that is not due has no effect.
    fn turn(&mut self);

    /// Returns the time at which the next turn is due. Returns `now` if there is work already.
    /// Returns `None` if only the owner or an arrival can cause work.
    fn due_at(&self, now: Instant) -> Option<Instant>;

    /// Returns whether the owner has ended, which ends the worker.
    fn is_abandoned(&self) -> bool;

    /// Returns its count of turns.
    fn progress(&self) -> &Arc<Progress>;

    /// Recovers from a panic in a turn. Evicts the connection at fault and returns true, or returns
    /// false if the worker cannot continue.
    fn recover(&mut self) -> bool;

    /// Called before the worker waits, after it was awake for `awake`. If `is_idle`, no turn is
    /// due.
    fn on_rest(&mut self, awake: Duration, is_idle: bool) {
        let (_, _) = (awake, is_idle);
    }

    /// Counts a turn and runs it.
    fn counted_turn(&mut self) {
        self.progress().count_turn();
        self.turn();
    }
}
