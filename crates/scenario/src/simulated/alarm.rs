//! Waking processes of the simulation.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use sim::Sim;
use sim::kernel::TaskId;
use units::Instant;

/// Wakes a process.
#[derive(Default)]
pub(crate) struct Alarm {
    task: Cell<Option<TaskId>>,
    /// The earliest time it was asked to be woken at.
    at: Cell<Option<Instant>>,
}

impl Alarm {
    /// The process that runs now is the one to wake.
    pub(crate) fn claim(&self, sim: &Sim) {
        self.task.set(Some(sim.current_task()));
    }

    /// Wakes it now.
    pub(crate) fn ring(&self, sim: &Sim) {
        if let Some(task) = self.task.get() {
            sim.wake(task);
        }
    }

    /// Wakes it at `at`, at the latest.
    pub(crate) fn set(&self, sim: &Sim, at: Instant) {
        let (now, Some(task)) = (sim.now(), self.task.get()) else { return };
        let is_set = self.at.get().is_some_and(|set| set > now && set <= at);
        if !is_set {
            let at = at.max(now);
            self.at.set(Some(at));
            sim.wake_at(at, task);
        }
    }
}

/// Waits until somebody wakes the process, for whatever reason.
pub(crate) async fn pause() {
    let mut has_waited = false;
    poll_fn(|_| if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}
