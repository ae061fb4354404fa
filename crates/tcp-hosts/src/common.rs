//! [`Common`]: the parts of a host that do not depend on its processors.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use driver::DriverLimits;
use sim::kernel::TaskId;
use sim::{Sim, wait_for_wake};
use tcp_driver::TcpShared;

use crate::costs::Costs;

/// Limits on the connections of a host.
pub(crate) const LIMITS: DriverLimits = DriverLimits { half_open_max: 1024, connections_max: 4096 };

/// Receiver of outgoing packets.
type Output = Box<dyn Fn(Bytes)>;

/// Parts of a host that do not depend on its processors.
pub(crate) struct Common {
    pub(crate) sim: Sim,
    pub(crate) shared: Arc<TcpShared>,
    pub(crate) costs: Costs,
    /// Application processes that wait for the driver.
    waiting: RefCell<Vec<TaskId>>,
    /// Destination of packets.
    output: RefCell<Option<Output>>,
}

impl Common {
    pub(crate) fn new(sim: &Sim, shared: Arc<TcpShared>, costs: Costs) -> Self {
        Self { sim: sim.clone(), shared, costs, waiting: RefCell::default(), output: RefCell::default() }
    }

    /// Passes each outgoing packet to `output`.
    pub(crate) fn set_output(&self, output: impl Fn(Bytes) + 'static) {
        self.output.replace(Some(Box::new(output)));
    }

    /// Waits in the process of an application until the driver has run.
    pub(crate) async fn wait(&self) {
        self.waiting.borrow_mut().push(self.sim.current_task());
        wait_for_wake().await;
    }

    /// Wakes applications to check whether they can continue.
    pub(crate) fn wake_applications(&self) {
        self.waiting.take().into_iter().for_each(|task| self.sim.wake(task));
    }

    /// Sends a packet.
    pub(crate) fn send(&self, packet: Bytes) {
        let output = self.output.borrow();
        output.as_ref().expect("a host that sends is connected")(packet);
    }
}
