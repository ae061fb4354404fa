//! The threads of one host, and the processors that they run on.

use std::cell::Cell;
use std::cmp::Reverse;
use std::ops::Range;

use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::machine::thread_role;
use crate::components::{Books, Component};

/// A host's threads. A thread does one thing at a time, in the order in which it was asked, and needs a processor for it.
pub(crate) struct Threads {
    sim: Sim,
    threads: Vec<Thread>,
    processors: Facility,
    hand_over: Duration,
}

struct Thread {
    /// Who has the thread has an item in here.
    turn: Store<()>,
    /// Work that was asked for and is not done, nanoseconds, and those who have the turn or wait for it.
    backlog_ns: Cell<u64>,
    asking: Cell<usize>,
    books: Cell<Books>,
    name: String,
}

/// What has to be done: by any of these threads, for so long.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) threads: Range<usize>,
    pub(crate) cost: Duration,
    /// Its name, for who looks on.
    pub(crate) what: &'static str,
}

/// A thread that does nothing else until it has done this, or is passed on.
pub(crate) struct Turn<'a> {
    threads: &'a Threads,
    thread: &'a Thread,
    asked: Instant,
}

impl Turn<'_> {
    /// Does `step`, whichever threads it names.
    pub(crate) async fn work(self, step: Step) {
        let Self { threads, thread, asked } = &self;
        let (sim, cost) = (&threads.sim, step.cost);
        if !cost.is_zero() {
            threads.processors.serve(cost).await;
            let done = sim.now();
            let begun = Instant::from_nanos(done.as_nanos() - cost.as_nanos());
            let mut books = thread.books.get();
            books.add(begun.saturating_since(*asked), cost);
            thread.books.set(books);
            sim.trace(|trace| trace.span(&thread.name, step.what, begun, done));
        }
        self.pass();
    }

    /// Gives the thread to who comes next.
    pub(crate) fn pass(self) {
        self.thread.turn.try_take().expect("who has the turn gives it back");
        self.thread.asking.set(self.thread.asking.get() - 1);
    }
}

impl Threads {
    pub(crate) fn new(sim: &Sim, host: &str, count: usize, processors: Facility, hand_over_ns: f64) -> Self {
        let thread = |number| {
            let name = format!("host {host}, thread {number}");
            Thread {
                turn: Store::new(sim, &name, 1).untraced(),
                backlog_ns: Cell::new(0),
                asking: Cell::new(0),
                books: Cell::default(),
                name: format!("{name} ({})", thread_role(number)),
            }
        };
        let hand_over = Duration::from_nanos(hand_over_ns.round() as u64);
        Self { sim: sim.clone(), threads: (0..count).map(thread).collect(), processors, hand_over }
    }

    /// Does `step` on the thread that has least to do; `from` is who did the step before, if anybody. If that was another thread and the
    /// chosen one has nothing else to do, it sleeps, and waking it takes time. Returns which thread it was.
    pub(crate) async fn run(&self, step: Step, from: Option<usize>) -> usize {
        // What a turn will be used for nobody knows yet, so those who wait are counted first. The first thread has what is serial, too:
        // others that are as busy go before it.
        let least = |thread: &usize| {
            let state = &self.threads[*thread];
            (state.asking.get(), state.backlog_ns.get(), Reverse(*thread))
        };
        let chosen = step.threads.clone().min_by_key(least).expect("every task has a thread");
        if step.cost.is_zero() {
            return chosen;
        }
        let thread = &self.threads[chosen];
        let wakes = from.is_some_and(|from| from != chosen) && thread.asking.get() == 0;
        let cost = if wakes { step.cost + self.hand_over } else { step.cost };
        thread.backlog_ns.set(thread.backlog_ns.get() + cost.as_nanos());
        self.turn(chosen).await.work(Step { cost, ..step }).await;
        thread.backlog_ns.set(thread.backlog_ns.get() - cost.as_nanos());
        chosen
    }

    /// Waits until this thread has nothing else to do: for what shows only then.
    pub(crate) async fn turn(&self, thread: usize) -> Turn<'_> {
        let (thread, asked) = (&self.threads[thread], self.sim.now());
        thread.asking.set(thread.asking.get() + 1);
        thread.turn.put(()).await;
        Turn { threads: self, thread, asked }
    }

    /// Processor time of each thread so far.
    pub(crate) fn busy(&self) -> Vec<Duration> {
        self.threads.iter().map(|thread| thread.books.get().busy).collect()
    }

    /// How busy each thread was until now. Who waits for a thread waits for the processor, too, that it then needs.
    pub(crate) fn components(&self) -> impl Iterator<Item = Component> {
        let now = self.sim.now();
        self.threads.iter().map(move |thread| {
            let books = thread.books.get();
            books.component("thread", thread.name.clone(), Some(books.utilisation(now)), now)
        })
    }
}
