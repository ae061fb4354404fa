//! Waits of processes for each other: [`ProcessWaker`] and [`Sequencer`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

use units::Instant;

use crate::kernel::{Sim, TaskId};

/// Wakes one process, now or at a time.
#[derive(Default)]
pub struct ProcessWaker {
    task: Cell<Option<TaskId>>,
    /// Earliest scheduled time.
    at: Cell<Option<Instant>>,
}

impl ProcessWaker {
    /// Registers the current process as the one to wake.
    pub fn register(&self, sim: &Sim) {
        self.task.set(Some(sim.current_task()));
    }

    /// Wakes the process now.
    pub fn wake(&self, sim: &Sim) {
        if let Some(task) = self.task.get() {
            sim.wake(task);
        }
    }

    /// Wakes the process at `at` at the latest.
    pub fn wake_at(&self, sim: &Sim, at: Instant) {
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
pub async fn wait_for_wake() {
    let mut has_waited = false;
    poll_fn(|_| if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// A queue whose members leave in the order in which they joined, whatever they do in between.
#[derive(Default)]
pub struct Sequencer {
    joined: Cell<u64>,
    left: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
}

impl Sequencer {
    /// Joins, and returns the position in the order.
    pub fn join(&self) -> u64 {
        let place = self.joined.get();
        self.joined.set(place + 1);
        place
    }

    /// Waits until all earlier members have left.
    pub async fn wait(&self, sim: &Sim, place: u64) {
        while self.left.get() < place {
            self.waiting.borrow_mut().push(sim.current_task());
            wait_for_wake().await;
        }
    }

    /// Leaves the queue. The caller must have [waited](Self::wait) for its turn.
    pub fn leave(&self, sim: &Sim) {
        self.left.set(self.left.get() + 1);
        self.waiting.borrow_mut().drain(..).for_each(|task| sim.wake(task));
    }
}
