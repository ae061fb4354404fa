//! The threads of one host, and the processors that they run on.

use std::cell::Cell;
use std::cmp::Reverse;
use std::ops::Range;

use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::machine::thread_role;
use crate::components::{Component, ServiceStats};

/// A host's threads. A thread executes one step at a time, in the order of requests, and needs a
/// processor for it.
pub(crate) struct Threads {
    sim: Sim,
    threads: Vec<Thread>,
    processors: Facility,
    wake_time: Duration,
}

struct Thread {
    /// Store that contains an item while the thread is acquired.
    owner: Store<()>,
    /// Requested work that is not completed, in nanoseconds, and the number of owners and waiters.
    backlog_ns: Cell<u64>,
    waiters: Cell<usize>,
    service: Cell<ServiceStats>,
    name: String,
}

/// A unit of work: the threads that may execute it, and its duration.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) threads: Range<usize>,
    pub(crate) cost: Duration,
    /// The name in traces.
    pub(crate) what: &'static str,
}

/// An acquired thread. It is released after executing a step.
pub(crate) struct AcquiredThread<'a> {
    threads: &'a Threads,
    thread: &'a Thread,
    asked: Instant,
}

impl AcquiredThread<'_> {
    /// Executes `step` on this thread, regardless of the threads that `step` names.
    pub(crate) async fn execute(self, step: Step) {
        let Self { threads, thread, asked } = &self;
        let (sim, cost) = (&threads.sim, step.cost);
        if !cost.is_zero() {
            threads.processors.serve(cost).await;
            let done = sim.now();
            let begun = Instant::from_nanos(done.as_nanos() - cost.as_nanos());
            let mut service = thread.service.get();
            service.add(begun.saturating_since(*asked), cost);
            thread.service.set(service);
            sim.trace(|trace| trace.span(&thread.name, step.what, begun, done));
        }
        self.release();
    }

    /// Releases the thread to the next waiter.
    pub(crate) fn release(self) {
        self.thread.owner.try_take().expect("the thread was acquired");
        self.thread.waiters.set(self.thread.waiters.get() - 1);
    }
}

impl Threads {
    pub(crate) fn new(sim: &Sim, host: &str, count: usize, processors: Facility, wake_ns: f64) -> Self {
        let thread = |number| {
            let name = format!("host {host}, thread {number}");
            Thread {
                owner: Store::new(sim, &name, 1).untraced(),
                backlog_ns: Cell::new(0),
                waiters: Cell::new(0),
                service: Cell::default(),
                name: format!("{name} ({})", thread_role(number)),
            }
        };
        let wake_time = Duration::from_nanos(wake_ns.round() as u64);
        Self { sim: sim.clone(), threads: (0..count).map(thread).collect(), processors, wake_time }
    }

    /// Executes `step` on the least loaded of its threads, and returns that thread. `from` is the
    /// thread of the previous step, if any. If it is another thread and the chosen one is idle,
    /// waking it takes time.
    pub(crate) async fn run(&self, step: Step, from: Option<usize>) -> usize {
        // The work of waiters is not known yet, so compare their number first. The first thread
        // also has the serial work, so prefer others that are equally loaded.
        let least = |thread: &usize| {
            let state = &self.threads[*thread];
            (state.waiters.get(), state.backlog_ns.get(), Reverse(*thread))
        };
        let chosen = step.threads.clone().min_by_key(least).expect("every task has a thread");
        if step.cost.is_zero() {
            return chosen;
        }
        let thread = &self.threads[chosen];
        let wakes = from.is_some_and(|from| from != chosen) && thread.waiters.get() == 0;
        let cost = if wakes { step.cost + self.wake_time } else { step.cost };
        thread.backlog_ns.set(thread.backlog_ns.get() + cost.as_nanos());
        self.acquire(chosen).await.execute(Step { cost, ..step }).await;
        thread.backlog_ns.set(thread.backlog_ns.get() - cost.as_nanos());
        chosen
    }

    /// Waits for exclusive use of this thread, for work that is unknown until then.
    pub(crate) async fn acquire(&self, thread: usize) -> AcquiredThread<'_> {
        let (thread, asked) = (&self.threads[thread], self.sim.now());
        thread.waiters.set(thread.waiters.get() + 1);
        thread.owner.put(()).await;
        AcquiredThread { threads: self, thread, asked }
    }

    /// Returns the processor time of each thread so far.
    pub(crate) fn busy(&self) -> Vec<Duration> {
        self.threads.iter().map(|thread| thread.service.get().busy).collect()
    }

    /// Returns the statistics of each thread until now. Waiting times include the wait for a
    /// processor.
    pub(crate) fn components(&self) -> impl Iterator<Item = Component> {
        let now = self.sim.now();
        self.threads.iter().map(move |thread| {
            let service = thread.service.get();
            service.component("thread", thread.name.clone(), Some(service.utilisation(now)), now)
        })
    }
}
