//! A transputer: one processor that runs processes of two priorities, one at a time.
//!
//! Processes of low priority run in turn, each until it waits. Those of high priority run as soon as they have work, and who was
//! interrupted goes on where it was. Time slices are left out: no process of a protocol works for as long as one lasts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use crate::kernel::{Sim, TaskId};
use crate::observe::{Ledger, Observed, Report};

/// Who goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Runs when nothing of high priority can; first come, first served.
    Low,
    /// Interrupts what is of low priority, never what is of high.
    High,
}

/// A processor. Cheap to clone: all clones are the same processor.
#[derive(Clone)]
pub struct Transputer {
    inner: Rc<Inner>,
}

/// A process that has its place on one processor. Cheap to clone.
#[derive(Clone)]
pub struct Process {
    processor: Rc<Inner>,
    priority: Priority,
    index: usize,
    books: Rc<Books>,
}

/// What one process has done.
#[derive(Default)]
struct Books {
    worked_ns: Cell<u64>,
    times: Cell<u64>,
}

struct Inner {
    sim: Sim,
    name: String,
    /// What it costs to go on with another process than the last one.
    switch: Duration,
    state: RefCell<State>,
}

struct State {
    running: Option<Running>,
    low: VecDeque<Job>,
    high: VecDeque<Job>,
    /// The process that ran last.
    last: Option<usize>,
    next_ticket: u64,
    processes: usize,
    books: Vec<Rc<Books>>,
    ledger: Ledger,
    busy_ns: u128,
}

#[derive(Clone, Copy)]
struct Job {
    ticket: u64,
    task: TaskId,
    process: usize,
    priority: Priority,
    arrived: Instant,
    remaining: Duration,
    has_begun: bool,
}

struct Running {
    job: Job,
    since: Instant,
    /// When changing to its process is over and its own work begins.
    works_from: Instant,
    until: Instant,
}

impl Transputer {
    /// A processor called `name` that takes `switch` to change from a process to another.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, switch: Duration) -> Self {
        let state = State {
            running: None,
            low: VecDeque::new(),
            high: VecDeque::new(),
            last: None,
            next_ticket: 0,
            processes: 0,
            books: Vec::new(),
            ledger: Ledger::default(),
            busy_ns: 0,
        };
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), switch, state: RefCell::new(state) });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// A new process with its place here.
    pub fn process(&self, priority: Priority) -> Process {
        let mut state = self.inner.state.borrow_mut();
        let (index, books) = (state.processes, Rc::new(Books::default()));
        state.processes += 1;
        state.books.push(Rc::clone(&books));
        Process { processor: Rc::clone(&self.inner), priority, index, books }
    }

    /// What was done since the warm-up ended. A customer is a stretch of work that a process asked for.
    pub fn report(&self) -> Report {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl Process {
    /// Works for `work` on the processor, waiting for it as its priority demands. Changing processes is not part of `work`.
    pub async fn run(&self, work: Duration) {
        if work.is_zero() {
            return;
        }
        let processor = &*self.processor;
        let ticket = processor.join(self, work);
        let guard = Guard { processor, ticket };
        poll_fn(|_| if processor.is_done(ticket) { Poll::Ready(()) } else { Poll::Pending }).await;
        // The end is in the books already.
        std::mem::forget(guard);
        self.books.worked_ns.set(self.books.worked_ns.get() + work.as_nanos());
        self.books.times.set(self.books.times.get() + 1);
    }

    /// Whether both have their place on one processor.
    pub fn is_beside(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.processor, &other.processor)
    }

    /// What it has worked since the warm-up ended.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.books.worked_ns.get())
    }

    /// How many stretches of work it has done since the warm-up ended.
    pub fn times(&self) -> u64 {
        self.books.times.get()
    }
}

impl Inner {
    fn join(&self, process: &Process, work: Duration) -> u64 {
        let now = self.sim.now();
        let mut state = self.state.borrow_mut();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let job = Job {
            ticket,
            task: self.sim.current_task(),
            process: process.index,
            priority: process.priority,
            arrived: now,
            remaining: work,
            has_begun: false,
        };
        state.ledger.arrive(now);
        match process.priority {
            Priority::Low => state.low.push_back(job),
            Priority::High => {
                state.high.push_back(job);
                state.interrupt(now);
            }
        }
        self.dispatch(&mut state, now);
        ticket
    }

    /// True once the work is done; then the next one has the processor.
    fn is_done(&self, ticket: u64) -> bool {
        let now = self.sim.now();
        let mut state = self.state.borrow_mut();
        let ended = state.running.as_ref().is_some_and(|running| running.job.ticket == ticket && now >= running.until);
        if ended {
            self.leave(&mut state, now);
        }
        ended
    }

    /// Who runs leaves the processor for good.
    fn leave(&self, state: &mut State, now: Instant) {
        let Some(running) = state.running.take() else { return };
        state.busy_ns += u128::from(now.saturating_since(running.since).as_nanos());
        state.ledger.depart(now, running.job.arrived);
        self.dispatch(state, now);
    }

    /// Gives an idle processor to who is next.
    fn dispatch(&self, state: &mut State, now: Instant) {
        if state.running.is_some() {
            return;
        }
        let Some(mut job) = state.high.pop_front().or_else(|| state.low.pop_front()) else { return };
        if !job.has_begun {
            job.has_begun = true;
            state.ledger.begin(now.saturating_since(job.arrived));
        }
        let switch = if state.last == Some(job.process) { Duration::ZERO } else { self.switch };
        state.last = Some(job.process);
        let works_from = now + switch;
        let until = works_from + job.remaining;
        self.sim.wake_at(until, job.task);
        state.running = Some(Running { job, since: now, works_from, until });
    }
}

impl State {
    /// Takes the processor from work of low priority, which goes on later, before all others of its kind.
    fn interrupt(&mut self, now: Instant) {
        // At its end nothing is left to go on with: its process is about to leave.
        let can = |running: &mut Running| running.job.priority == Priority::Low && running.until > now;
        let Some(Running { mut job, since, works_from, .. }) = self.running.take_if(can) else { return };
        self.busy_ns += u128::from(now.saturating_since(since).as_nanos());
        // Changing to it, even in part, has to be done again.
        job.remaining = job.remaining.saturating_sub(now.saturating_since(works_from));
        self.low.push_front(job);
    }
}

/// Takes work back that nobody waits for any more.
struct Guard<'a> {
    processor: &'a Inner,
    ticket: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let (processor, ticket) = (self.processor, self.ticket);
        let now = processor.sim.now();
        let mut state = processor.state.borrow_mut();
        if state.running.as_ref().is_some_and(|running| running.job.ticket == ticket) {
            processor.leave(&mut state, now);
            return;
        }
        let State { low, high, ledger, .. } = &mut *state;
        for queue in [low, high] {
            if let Some(index) = queue.iter().position(|job| job.ticket == ticket) {
                let job = queue.remove(index).expect("it was found there");
                ledger.depart(now, job.arrived);
            }
        }
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.ledger.reset(now);
        state.busy_ns = 0;
        if let Some(running) = &mut state.running {
            running.since = now;
        }
        for books in &state.books {
            books.worked_ns.set(0);
            books.times.set(0);
        }
    }

    fn report(&self, now: Instant) -> Report {
        let state = self.state.borrow();
        let running = state
            .running
            .as_ref()
            .map_or(0, |running| now.min(running.until).saturating_since(running.since).as_nanos());
        state.ledger.report(&self.name, now, Some(1), state.busy_ns + u128::from(running))
    }
}

#[cfg(test)]
mod tests;
