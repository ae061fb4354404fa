//! The processors of a host, and which of its work each does.

use std::cell::{Cell, RefCell};

use driver::worker::WorkerLoop;
use sim::kernel::TaskId;
use sim::{Resource, Sim};
use units::Instant;

use crate::device::HostClock;

/// The processors of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processors {
    /// One does all work.
    One,
    /// One receives, from the interrupt to the application that reads, and one sends: the placement
    /// `split`, as on the Parallel Protocol Engine.
    ReceiveAndSend,
}

/// A processor, and the process that takes turns on it.
pub(crate) struct Processor {
    sim: Sim,
    pub(crate) unit: Resource,
    /// The time on it. In a turn it is ahead of the simulation's.
    pub(crate) clock: HostClock,
    process: Cell<Option<TaskId>>,
}

/// The processor that receives, if it is another one than the driver's.
pub(crate) struct Receiving {
    pub(crate) processor: Processor,
    pub(crate) worker: RefCell<Box<dyn WorkerLoop>>,
}

impl Processor {
    pub(crate) fn new(sim: &Sim, name: &str) -> Self {
        Self { sim: sim.clone(), unit: Resource::new(sim, name), clock: HostClock::default(), process: Cell::new(None) }
    }

    /// The current process takes the turns.
    pub(crate) fn register(&self) {
        self.process.set(Some(self.sim.current_task()));
    }

    /// There may be something to do.
    pub(crate) fn wake(&self) {
        if let Some(process) = self.process.get() {
            self.sim.wake(process);
        }
    }

    /// There is something to do at this time.
    pub(crate) fn wake_at(&self, at: Instant) {
        if let Some(process) = self.process.get() {
            self.sim.wake_at(at, process);
        }
    }
}
