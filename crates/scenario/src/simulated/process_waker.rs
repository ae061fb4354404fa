//! Wakes processes of the simulation, now or at a time.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use sim::Sim;
use sim::kernel::TaskId;
use units::Instant;

/// Wakes one process.
#[derive(Default)]
pub(crate) struct ProcessWaker {
    task: Cell<Option<TaskId>>,
    /// The earliest scheduled time.
    at: Cell<Option<Instant>>,
}

impl ProcessWaker {
    /// Registers the current process as the one to wake.
    pub(crate) fn register(&self, sim: &Sim) {
        self.task.set(Some(sim.current_task()));
    }

    /// Wakes the process now.
    pub(crate) fn wake(&self, sim: &Sim) {
        if let Some(task) = self.task.get() {
            sim.wake(task);
        }
    }

    /// Wakes the process at `at` at the latest.
    pub(crate) fn wake_at(&self, sim: &Sim, at: Instant) {
        let (now, Some(task)) = (sim.now(), self.task.get()) else { return };
        let is_set = self.at.get().is_some_and(|set| set > now && set <= at);
        if !is_set {
            let at = at.max(now);
            self.at.set(Some(at));
            sim.wake_at(at, task);
        }
    }
}

/// Waits until the process is woken. Wake-ups may be spurious.
pub(crate) async fn wait_for_wake() {
    let mut has_waited = false;
    poll_fn(|_| if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}
