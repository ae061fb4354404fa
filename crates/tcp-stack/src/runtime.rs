//! [`TcpRuntime`]: the engine, as seen by the handles of a stack.

use std::task::{Poll, Waker};
use std::time::Duration;

use driver::Flush;
use driver::placement::Placement;
use engine::Drivers;
use tcp_driver::{Closed, Runtime, TcpShared};

use crate::device::IpDevice;

/// The engine, as seen by the handles.
#[derive(Clone)]
pub(crate) struct TcpRuntime(Drivers<IpDevice>);

impl Runtime for TcpRuntime {
    fn kick(&self, shared: &TcpShared, flush: Flush) {
        self.0.kick(shared, flush);
    }

    fn block_on<T>(&self, deadline: Option<units::Instant>, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.0.block_on(deadline, poll)
    }
}

impl TcpRuntime {
    pub(crate) fn new(drivers: &Drivers<IpDevice>) -> Self {
        Self(drivers.clone())
    }

    /// Returns the time on the drivers' clock after `wait`.
    pub(crate) fn deadline_after(&self, wait: Duration) -> units::Instant {
        self.0.now() + wait.into()
    }

    /// Checks that the driver has a thread, as asynchronous calls require.
    pub(crate) fn can_async(&self) -> Result<(), Closed> {
        match self.0.placement() {
            Placement::Inline => Err(Closed::Configuration(
                "asynchronous calls need a stack with a thread, but the placement is Inline: use the blocking \
                 calls or another placement"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }
}
