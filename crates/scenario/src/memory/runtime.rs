//! [`VirtualRuntime`]: how the handles of a simulated host reach its driver.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use driver::Flush;
use quic_driver::{QuicShared, Runtime};
use units::Instant;

/// A driver that runs inside the calls of its handles, as under the placement `inline`.
pub(crate) trait InlineDriver {
    /// Runs turns until no request is left.
    fn run_turns(&self, flush: Flush);
}

/// The runtime of simulated hosts.
#[derive(Clone)]
pub(crate) struct VirtualRuntime {
    /// Runs turns in the calls of the handles. Without it, the owner of the host runs a turn when
    /// one is due.
    pub(crate) inline: Option<Rc<dyn InlineDriver>>,
    pub(crate) local_addrs: Rc<[SocketAddr]>,
}

impl Runtime for VirtualRuntime {
    fn kick(&self, _shared: &QuicShared, flush: Flush) {
        if let Some(driver) = &self.inline {
            driver.run_turns(flush);
        }
    }

    fn block_on<T>(&self, _deadline: Option<Instant>, _poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        unreachable!("a simulated application does not block");
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }
}
