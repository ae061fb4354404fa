//! The processors of a host, and the assignment of its work to them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use sim::kernel::TaskId;
use sim::resource::Held;
use sim::{ProcessWaker, Resource, Sim, wait_for_wake};
use units::{Duration, Instant};

use crate::device::HostClock;

/// The processors of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processors {
    /// One processor does all work, in turns.
    One,
    /// One processor receives, from the interrupt to the application that reads, and one sends: the
    /// placement `split`, as on the Parallel Protocol Engine.
    ReceiveAndSend,
    /// The first processor has the connections and the interface. All do connection-independent
    /// work: the placement `packet(n)`, after Nahum et al. 1996.
    Packet(usize),
    /// Four processors: separate ones for the interface and the connections, in each direction, as
    /// on the Parallel Protocol Engine.
    Pipeline,
}

/// A processor that takes turns, and the process that performs them.
pub(crate) struct Processor {
    pub(crate) unit: Resource,
    /// Time on this processor. In a turn it is ahead of the simulation's.
    pub(crate) clock: HostClock,
    pub(crate) process: ProcessWaker,
}

impl Processor {
    pub(crate) fn new(sim: &Sim, name: &str) -> Self {
        Self { unit: Resource::new(sim, name), clock: HostClock::default(), process: ProcessWaker::default() }
    }
}

/// Processors that perform single steps.
pub(crate) struct Pool {
    sim: Sim,
    units: Vec<Resource>,
    /// Processes with a step for any processor; those with the first kind of step come first.
    waiting: [RefCell<VecDeque<TaskId>>; 2],
}

/// Processor of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// This processor, before steps for any.
    This(usize),
    /// Any processor.
    Any(Kind),
}

/// Kinds of steps for any processor. The first precedes the second: packets that have begun to
/// leave or arrive continue before others begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Packet,
    Record,
}

impl Pool {
    pub(crate) fn new(sim: &Sim, name: &str, count: usize) -> Self {
        let unit = |number| Resource::new(sim, &format!("{name}, processor {number}"));
        Self { sim: sim.clone(), units: (0..count).map(unit).collect(), waiting: Default::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.units.len()
    }

    /// Performs a step. A step without cost is done at once.
    pub(crate) async fn run(&self, on: On, time: Duration) {
        if time.is_zero() {
            return;
        }
        let held = match on {
            On::This(number) => self.units[number].acquire_urgently().await,
            On::Any(kind) => self.acquire_any(kind).await,
        };
        self.sim.sleep(time).await;
        drop(held);
        self.wake_next();
    }

    /// Performs a step of an application on this processor, after the host's own work there.
    pub(crate) async fn run_last(&self, number: usize, time: Duration) {
        if time.is_zero() {
            return;
        }
        let held = self.units[number].acquire().await;
        self.sim.sleep(time).await;
        drop(held);
        self.wake_next();
    }

    async fn acquire_any(&self, kind: Kind) -> Held {
        let own = self.sim.current_task();
        let line = &self.waiting[kind as usize];
        line.borrow_mut().push_back(own);
        loop {
            if self.next() == Some(own) {
                if self.idle().is_none() && self.units[0].present() == 0 {
                    // Work that only the first processor can do and that is also due now comes
                    // first.
                    self.sim.yield_now().await;
                }
                let first = self.units.first().filter(|unit| unit.present() == 0);
                if self.next() == Some(own)
                    && let Some(unit) = self.idle().or(first)
                {
                    line.borrow_mut().pop_front();
                    let held = unit.acquire().await;
                    // Another processor may be idle, too.
                    self.wake_next();
                    return held;
                }
            }
            wait_for_wake().await;
        }
    }

    /// Returns an idle processor without other work.
    fn idle(&self) -> Option<&Resource> {
        self.units[1..].iter().find(|unit| unit.present() == 0)
    }

    fn next(&self) -> Option<TaskId> {
        self.waiting.iter().find_map(|line| line.borrow().front().copied())
    }

    fn wake_next(&self) {
        if let Some(next) = self.next() {
            self.sim.wake(next);
        }
    }
}

/// Counter of turns at one time, to detect an endless loop.
#[derive(Default)]
pub(crate) struct Stall {
    last: Cell<Instant>,
    turns: Cell<u32>,
}

/// Number of turns at one virtual time that counts as a livelock.
const STALLED_TURNS_MAX: u32 = 100_000;

impl Stall {
    /// Counts a turn.
    ///
    /// # Panics
    /// Panics if there were too many at this time.
    pub(crate) fn count(&self, now: Instant) {
        let turns = if now > self.last.replace(now) { 0 } else { self.turns.get() + 1 };
        self.turns.set(turns);
        assert!(turns < STALLED_TURNS_MAX, "a processor is busy without end at {now:?}");
    }
}
