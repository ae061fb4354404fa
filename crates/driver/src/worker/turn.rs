//! What a worker does, independent of the thread that does it.

use std::sync::Arc;

use units::{Duration, Instant};

use super::Progress;

/// The turns of a worker. Implementations neither block nor sleep.
pub trait WorkerLoop {
    /// Does what there is to do, up to a bound. A turn that is not due does nothing.
    fn turn(&mut self);

    /// When the next turn is due; `now` if there is work already, none if only the owner or an
    /// arrival can bring some.
    fn due_at(&self, now: Instant) -> Option<Instant>;

    /// Whether the owner is gone, which ends the worker.
    fn is_abandoned(&self) -> bool;

    /// Its turns, counted.
    fn progress(&self) -> &Arc<Progress>;

    /// The last turn panicked. Evicts the connection at fault and returns true, or returns false if
    /// the worker cannot go on.
    fn recover(&mut self) -> bool;

    /// The worker was awake for `awake` and is about to rest; `is_idle` says that no turn is due.
    fn on_rest(&mut self, awake: Duration, is_idle: bool) {
        let (_, _) = (awake, is_idle);
    }

    /// Counts a turn and does it.
    fn counted_turn(&mut self) {
        self.progress().count_turn();
        self.turn();
    }
}
