//! Processes and virtual time.
//!
//! A process is an async function. It waits by awaiting the operations of this crate
//! ([`Sim::sleep`], a facility, a store). While it waits, the kernel takes the next calendar entry,
//! which consists of a time and a process, and resumes that process. There is one thread and there
//! are no wakers. Every future of this crate tolerates spurious polls.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use units::{Duration, Instant};

use crate::calendar::Calendar;
use crate::observe::{ComponentReport, Observed};
use crate::stream::Stream;
use crate::trace::Trace;

/// A process of this simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(u32);

type Process = Pin<Box<dyn Future<Output = ()>>>;

/// One run of a model: owns its processes and drops them at its end.
pub struct Simulation {
    sim: Sim,
}

/// A handle to the run, held by processes and components. Cheap to clone.
#[derive(Clone)]
pub struct Sim {
    kernel: Rc<Kernel>,
}

struct Kernel {
    now: Cell<Instant>,
    calendar: RefCell<Calendar<TaskId>>,
    /// Processes that are resumed at the present time. Calendar entries for the present time are
    /// older and come first.
    ready: RefCell<VecDeque<TaskId>>,
    /// `None` while a process runs, and after its end.
    processes: RefCell<Vec<Option<Process>>>,
    /// Slots of processes that have ended.
    vacant: RefCell<Vec<TaskId>>,
    current: Cell<Option<TaskId>>,
    components: RefCell<BTreeMap<String, Rc<dyn Observed>>>,
    seed: u64,
    run: u64,
    events: Cell<u64>,
    stopped: Cell<bool>,
    /// True while a trace is recorded. A run without a trace pays only for this check.
    is_traced: Cell<bool>,
    trace: RefCell<Option<Trace>>,
}

impl Simulation {
    /// Creates run number `run` under `seed`, at time zero, without processes.
    pub fn new(seed: u64, run: u64) -> Self {
        let kernel = Kernel {
            now: Cell::default(),
            calendar: RefCell::new(Calendar::new()),
            ready: RefCell::default(),
            processes: RefCell::default(),
            vacant: RefCell::default(),
            current: Cell::default(),
            components: RefCell::default(),
            seed,
            run,
            events: Cell::new(0),
            stopped: Cell::new(false),
            is_traced: Cell::new(false),
            trace: RefCell::new(None),
        };
        Self { sim: Sim { kernel: Rc::new(kernel) } }
    }

    /// Returns a handle for processes and components.
    pub fn sim(&self) -> Sim {
        self.sim.clone()
    }

    /// Starts a process. It is first polled when the simulation next runs.
    pub fn spawn(&self, process: impl Future<Output = ()> + 'static) -> TaskId {
        self.sim.spawn(process)
    }

    /// Runs until no events are left or a process calls [`Sim::stop`].
    pub fn run(&mut self) {
        self.run_to(Instant::from_nanos(u64::MAX));
    }

    /// Runs all events up to and including `until` and sets the time to `until`, unless a process
    /// calls [`Sim::stop`] first.
    pub fn run_until(&mut self, until: Instant) {
        self.run_to(until);
        let kernel = &self.sim.kernel;
        if !kernel.stopped.get() {
            kernel.now.set(kernel.now.get().max(until));
        }
    }

    fn run_to(&self, until: Instant) {
        let kernel = &*self.sim.kernel;
        kernel.stopped.set(false);
        while !kernel.stopped.get() {
            let Some(task) = kernel.next(until) else { break };
            kernel.events.set(kernel.events.get() + 1);
            kernel.resume(task);
        }
    }

    /// Ends the warm-up: resets the statistics of all components.
    pub fn reset_statistics(&self) {
        let now = self.sim.now();
        for component in self.sim.kernel.components.borrow().values() {
            component.reset(now);
        }
    }

    /// Returns the statistics of every component since the end of the warm-up, sorted by name.
    ///
    /// # Panics
    /// Panics if a component violates Little's law.
    pub fn reports(&self) -> Vec<ComponentReport> {
        let now = self.sim.now();
        self.sim.kernel.components.borrow().values().map(|component| component.report(now)).collect()
    }

    /// Returns how often processes were resumed.
    pub fn events(&self) -> u64 {
        self.sim.kernel.events.get()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // The kernel owns processes and components, and those hold handles to the kernel. Clear
        // both to break the reference cycle. Their destructors may use the kernel, so it must not
        // be borrowed while they run.
        let processes = std::mem::take(&mut *self.sim.kernel.processes.borrow_mut());
        drop(processes);
        let components = std::mem::take(&mut *self.sim.kernel.components.borrow_mut());
        drop(components);
    }
}

impl Sim {
    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.kernel.now.get()
    }

    /// Starts a process at the present time, after all events already scheduled for this time.
    pub fn spawn(&self, process: impl Future<Output = ()> + 'static) -> TaskId {
        let kernel = &*self.kernel;
        let process: Process = Box::pin(process);
        let vacant = kernel.vacant.borrow_mut().pop();
        let mut processes = kernel.processes.borrow_mut();
        let task = match vacant {
            Some(task) => {
                processes[task.0 as usize] = Some(process);
                task
            }
            None => {
                processes.push(Some(process));
                TaskId(u32::try_from(processes.len() - 1).expect("four billion processes do not fit into memory"))
            }
        };
        self.wake(task);
        task
    }

    /// Waits for `span`.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Waits until `at`; returns at once if `at` is in the past.
    pub async fn sleep_until(&self, at: Instant) {
        let mut scheduled = false;
        poll_fn(|_| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !scheduled {
                scheduled = true;
                self.wake_at(at, self.current_task());
            }
            Poll::Pending
        })
        .await;
    }

    /// Lets all other events of the present time run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|_| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            self.wake(self.current_task());
            Poll::Pending
        })
        .await;
    }

    /// Resumes `task` at the present time, after all events already scheduled for this time.
    pub fn wake(&self, task: TaskId) {
        self.kernel.ready.borrow_mut().push_back(task);
    }

    /// Resumes `task` at `at`, or at the present time if `at` is in the past.
    pub fn wake_at(&self, at: Instant, task: TaskId) {
        if at <= self.now() {
            self.wake(task);
        } else {
            self.kernel.calendar.borrow_mut().schedule(at, task);
        }
    }

    /// Returns the process that is running.
    ///
    /// # Panics
    /// Panics if no process is running: futures of this crate may be awaited only in its processes.
    pub fn current_task(&self) -> TaskId {
        self.kernel.current.get().expect("awaited in a process of this simulation")
    }

    /// Returns the random stream called `name` of this run.
    pub fn stream(&self, name: &str) -> Stream {
        Stream::new(self.kernel.seed, self.kernel.run, name)
    }

    /// Stops the run after the current event. It can be continued later.
    pub fn stop(&self) {
        self.kernel.stopped.set(true);
    }

    /// Calls `record` with the trace, if one is being recorded.
    pub fn trace(&self, record: impl FnOnce(&mut Trace)) {
        if self.kernel.is_traced.get() {
            self.record_cold(record);
        }
    }

    /// Kept out of line so that runs without a trace stay fast.
    #[cold]
    #[inline(never)]
    fn record_cold(&self, record: impl FnOnce(&mut Trace)) {
        if let Some(trace) = &mut *self.kernel.trace.borrow_mut() {
            record(trace);
        }
    }

    /// Returns true if the run is recorded.
    pub fn is_traced(&self) -> bool {
        self.kernel.is_traced.get()
    }

    /// Starts recording into `trace`, or stops recording. Returns the previous trace.
    pub(crate) fn set_trace(&self, trace: Option<Trace>) -> Option<Trace> {
        self.kernel.is_traced.set(trace.is_some());
        self.kernel.trace.replace(trace)
    }

    /// Registers a component under a unique name so that its statistics are reset and reported with
    /// all others.
    ///
    /// # Panics
    /// Panics if the name is taken.
    pub fn register(&self, name: &str, component: Rc<dyn Observed>) {
        let before = self.kernel.components.borrow_mut().insert(name.to_owned(), component);
        assert!(before.is_none(), "two components are called {name}");
    }
}

impl Kernel {
    /// Takes the next process to resume, not later than `until`, and advances the time to its
    /// entry.
    fn next(&self, until: Instant) -> Option<TaskId> {
        let now = self.now.get();
        if self.ready.borrow().is_empty() {
            let (at, task) = self.calendar.borrow_mut().pop_until(until)?;
            debug_assert!(at >= now, "time never goes backwards");
            self.now.set(at);
            return Some(task);
        }
        if now > until {
            return None;
        }
        // Calendar entries for the present time are older than the ready queue.
        if let Some((_, task)) = self.calendar.borrow_mut().pop_until(now) {
            return Some(task);
        }
        self.ready.borrow_mut().pop_front()
    }

    fn resume(&self, task: TaskId) {
        let index = task.0 as usize;
        // The process may have ended while a calendar entry for it was pending.
        let Some(mut process) = self.processes.borrow_mut()[index].take() else { return };
        self.current.set(Some(task));
        let outcome = process.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.current.set(None);
        if outcome.is_pending() {
            self.processes.borrow_mut()[index] = Some(process);
        } else {
            self.vacant.borrow_mut().push(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_wait_for_virtual_time_and_equal_times_keep_their_order() {
        let mut simulation = Simulation::new(1, 0);
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, span) in [("a", 30), ("b", 10), ("c", 30)] {
            let (sim, log) = (simulation.sim(), Rc::clone(&log));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(span)).await;
                log.borrow_mut().push((name, sim.now().as_nanos()));
                sim.sleep(Duration::from_nanos(span)).await;
                log.borrow_mut().push((name, sim.now().as_nanos()));
            });
        }
        simulation.run_until(Instant::from_nanos(45));
        assert_eq!(*log.borrow(), [("b", 10), ("b", 20), ("a", 30), ("c", 30)]);
        assert_eq!(simulation.sim().now().as_nanos(), 45);
        simulation.run();
        assert_eq!(simulation.sim().now().as_nanos(), 60);
    }

    #[test]
    fn a_process_woken_now_runs_after_all_events_already_due_now() {
        let mut simulation = Simulation::new(1, 0);
        let log = Rc::new(RefCell::new(Vec::new()));
        for name in ["first", "second"] {
            let (sim, log) = (simulation.sim(), Rc::clone(&log));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(10)).await;
                let (child, seen) = (sim.clone(), Rc::clone(&log));
                sim.spawn(async move {
                    seen.borrow_mut().push(format!("child of {name}"));
                    child.sleep(Duration::ZERO).await;
                    child.yield_now().await;
                    seen.borrow_mut().push(format!("child of {name} again"));
                });
                log.borrow_mut().push(name.to_owned());
                sim.stop();
            });
        }
        // A run stopped between two events of one time continues there.
        for _ in 0..3 {
            simulation.run_until(Instant::from_nanos(10));
        }
        let expected =
            ["first", "second", "child of first", "child of second", "child of first again", "child of second again"];
        assert_eq!(*log.borrow(), expected);
    }

    #[test]
    fn a_run_that_is_dropped_drops_its_processes() {
        let alive = Rc::new(());
        let simulation = Simulation::new(1, 0);
        let (sim, inside) = (simulation.sim(), Rc::clone(&alive));
        simulation.spawn(async move {
            sim.sleep(Duration::from_secs(1)).await;
            drop(inside);
        });
        drop(simulation);
        assert_eq!(Rc::strong_count(&alive), 1);
    }

    #[test]
    fn a_stopped_run_can_be_continued() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        simulation.spawn(async move {
            for _ in 0..3 {
                sim.sleep(Duration::from_nanos(10)).await;
                sim.stop();
            }
        });
        simulation.run();
        assert_eq!(simulation.sim().now().as_nanos(), 10);
        simulation.run_until(Instant::from_nanos(1000));
        assert_eq!(simulation.sim().now().as_nanos(), 20);
    }

    #[test]
    #[should_panic(expected = "two components are called desk")]
    fn duplicate_component_names_are_refused() {
        let simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let _first = crate::Facility::new(&sim, "desk", 1);
        let _second = crate::Facility::new(&sim, "desk", 1);
    }
}
