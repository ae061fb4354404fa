//! Transputers: processors that run processes of two priorities, one at a time.
//!
//! Low-priority processes run in turn, each until it waits. High-priority processes preempt them as
//! soon as they have work; the preempted process then resumes. Time slices are not modelled: no
//! protocol process runs for as long as one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use crate::kernel::{Sim, TaskId};
use crate::observe::{Accounting, ComponentReport, Observed};

/// Scheduling priority of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Runs when no high-priority process can run; first come, first served.
    Low,
    /// Preempts low-priority processes, never high-priority ones.
    High,
}

/// A processor. Cheap to clone: all clones are the same processor.
#[derive(Clone)]
pub struct Transputer {
    inner: Rc<Inner>,
}

/// A process placed on one processor. Cheap to clone.
#[derive(Clone)]
pub struct Process {
    processor: Rc<Inner>,
    priority: Priority,
    index: usize,
    stats: Rc<ProcessStats>,
}

/// Statistics of one process.
#[derive(Default)]
struct ProcessStats {
    worked_ns: Cell<u64>,
    times: Cell<u64>,
}

struct Inner {
    sim: Sim,
    name: String,
    /// Cost of switching to another process than the last one.
    switch: Duration,
    state: RefCell<TransputerState>,
}

struct TransputerState {
    running: Option<Running>,
    low: VecDeque<Job>,
    high: VecDeque<Job>,
    /// The process that ran last.
    last: Option<usize>,
    next_ticket: u64,
    processes: usize,
    stats: Vec<Rc<ProcessStats>>,
    accounting: Accounting,
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
    /// Time at which the switch to its process is complete and its own work starts.
    works_from: Instant,
    until: Instant,
}

impl Transputer {
    /// Creates a processor called `name` that takes `switch` for each change of process.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, switch: Duration) -> Self {
        let state = TransputerState {
            running: None,
            low: VecDeque::new(),
            high: VecDeque::new(),
            last: None,
            next_ticket: 0,
            processes: 0,
            stats: Vec::new(),
            accounting: Accounting::default(),
            busy_ns: 0,
        };
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), switch, state: RefCell::new(state) });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Creates a process on this processor.
    pub fn process(&self, priority: Priority) -> Process {
        let mut state = self.inner.state.borrow_mut();
        let (index, stats) = (state.processes, Rc::new(ProcessStats::default()));
        state.processes += 1;
        state.stats.push(Rc::clone(&stats));
        Process { processor: Rc::clone(&self.inner), priority, index, stats }
    }

    /// Returns the statistics since the end of the warm-up. A customer is one call of
    /// [`Process::run`].
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl Process {
    /// Works for `work` on the processor, after waiting for it according to the priority. The
    /// process switch is not part of `work`.
    pub async fn run(&self, work: Duration) {
        if work.is_zero() {
            return;
        }
        let processor = &*self.processor;
        let ticket = processor.submit(self, work);
        let guard = Guard { processor, ticket };
        poll_fn(|_| if processor.is_done(ticket) { Poll::Ready(()) } else { Poll::Pending }).await;
        // `is_done` has already recorded the end.
        std::mem::forget(guard);
        self.stats.worked_ns.set(self.stats.worked_ns.get() + work.as_nanos());
        self.stats.times.set(self.stats.times.get() + 1);
    }

    /// Returns whether both processes are on the same processor.
    pub fn is_on_same_processor(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.processor, &other.processor)
    }

    /// Returns the work done since the end of the warm-up.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.stats.worked_ns.get())
    }

    /// Returns the number of completed calls of [`run`](Self::run) since the end of the warm-up.
    pub fn times(&self) -> u64 {
        self.stats.times.get()
    }
}

impl Inner {
    fn submit(&self, process: &Process, work: Duration) -> u64 {
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
        state.accounting.arrive(now);
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

    /// Returns true once the work is done; the next job is then dispatched.
    fn is_done(&self, ticket: u64) -> bool {
        let now = self.sim.now();
        let mut state = self.state.borrow_mut();
        let ended = state.running.as_ref().is_some_and(|running| running.job.ticket == ticket && now >= running.until);
        if ended {
            self.leave(&mut state, now);
        }
        ended
    }

    /// Removes the running job from the processor.
    fn leave(&self, state: &mut TransputerState, now: Instant) {
        let Some(running) = state.running.take() else { return };
        state.busy_ns += u128::from(now.saturating_since(running.since).as_nanos());
        state.accounting.depart(now, running.job.arrived);
        self.dispatch(state, now);
    }

    /// Assigns an idle processor to the next job.
    fn dispatch(&self, state: &mut TransputerState, now: Instant) {
        if state.running.is_some() {
            return;
        }
        let Some(mut job) = state.high.pop_front().or_else(|| state.low.pop_front()) else { return };
        if !job.has_begun {
            job.has_begun = true;
            state.accounting.begin(now.saturating_since(job.arrived));
        }
        let switch = if state.last == Some(job.process) { Duration::ZERO } else { self.switch };
        state.last = Some(job.process);
        let works_from = now + switch;
        let until = works_from + job.remaining;
        self.sim.wake_at(until, job.task);
        state.running = Some(Running { job, since: now, works_from, until });
    }
}

impl TransputerState {
    /// Preempts low-priority work. It resumes later, before all other low-priority jobs.
    fn interrupt(&mut self, now: Instant) {
        // A job at its end has nothing left to resume: its process is about to remove it.
        let can = |running: &mut Running| running.job.priority == Priority::Low && running.until > now;
        let Some(Running { mut job, since, works_from, .. }) = self.running.take_if(can) else { return };
        self.busy_ns += u128::from(now.saturating_since(since).as_nanos());
        // A process switch, even a partial one, is repeated.
        job.remaining = job.remaining.saturating_sub(now.saturating_since(works_from));
        self.low.push_front(job);
    }
}

/// Removes work whose future is dropped.
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
        let TransputerState { low, high, accounting, .. } = &mut *state;
        for queue in [low, high] {
            if let Some(index) = queue.iter().position(|job| job.ticket == ticket) {
                let job = queue.remove(index).expect("the index was just found");
                accounting.depart(now, job.arrived);
            }
        }
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.accounting.reset(now);
        state.busy_ns = 0;
        if let Some(running) = &mut state.running {
            running.since = now;
        }
        for stats in &state.stats {
            stats.worked_ns.set(0);
            stats.times.set(0);
        }
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let state = self.state.borrow();
        let running = state
            .running
            .as_ref()
            .map_or(0, |running| now.min(running.until).saturating_since(running.since).as_nanos());
        state.accounting.report(&self.name, now, Some(1), state.busy_ns + u128::from(running))
    }
}

#[cfg(test)]
mod tests;
