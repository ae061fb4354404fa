//! The threads of one host, and the processors that they run on.

use std::cell::Cell;
use std::ops::Range;

use sim::{Facility, Sim, Store};
use units::Duration;

/// A host's threads. A thread does one thing at a time, in the order in which it was asked, and needs a processor for it.
pub(crate) struct Threads {
    threads: Vec<Thread>,
    processors: Facility,
    hand_over: Duration,
}

struct Thread {
    /// Who has the thread has an item in here.
    turn: Store<()>,
    /// Work that was asked for and is not done, nanoseconds.
    backlog_ns: Cell<u64>,
    busy_ns: Cell<u64>,
}

/// What has to be done: by any of these threads, for so long.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) threads: Range<usize>,
    pub(crate) cost: Duration,
}

impl Threads {
    pub(crate) fn new(sim: &Sim, host: &str, count: usize, processors: Facility, hand_over_ns: f64) -> Self {
        let thread = |number| Thread {
            turn: Store::new(sim, &format!("host {host}, thread {number}"), 1),
            backlog_ns: Cell::new(0),
            busy_ns: Cell::new(0),
        };
        let hand_over = Duration::from_nanos(hand_over_ns.round() as u64);
        Self { threads: (0..count).map(thread).collect(), processors, hand_over }
    }

    /// Does `step` on the thread that has least to do; `from` is who did the step before, if anybody. If that was another thread and the
    /// chosen one has nothing else to do, it sleeps, and waking it takes time. Returns which thread it was.
    pub(crate) async fn run(&self, step: Step, from: Option<usize>) -> usize {
        let least = |thread: &usize| self.threads[*thread].backlog_ns.get();
        let chosen = step.threads.min_by_key(least).expect("every task has a thread");
        if step.cost.is_zero() {
            return chosen;
        }
        let thread = &self.threads[chosen];
        let wakes = from.is_some_and(|from| from != chosen) && thread.backlog_ns.get() == 0;
        let cost = if wakes { step.cost + self.hand_over } else { step.cost };
        thread.backlog_ns.set(thread.backlog_ns.get() + cost.as_nanos());
        thread.turn.put(()).await;
        self.processors.serve(cost).await;
        thread.turn.try_take().expect("who has the turn gives it back");
        thread.backlog_ns.set(thread.backlog_ns.get() - cost.as_nanos());
        thread.busy_ns.set(thread.busy_ns.get() + cost.as_nanos());
        chosen
    }

    /// Processor time of each thread so far.
    pub(crate) fn busy(&self) -> Vec<Duration> {
        self.threads.iter().map(|thread| Duration::from_nanos(thread.busy_ns.get())).collect()
    }
}
