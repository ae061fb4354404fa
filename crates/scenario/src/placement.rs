//! The number of threads of a simulated host under each placement.

use driver::Placement;

/// The thread counts of a placement on a simulated host. [`Placement::Auto`] has none, because it
/// inspects a real machine; [`Machine::validate`](crate::simulated::Machine::validate) refuses it.
pub(crate) trait ThreadCounts {
    /// Threads of a host, including the application's.
    fn host_thread_count(self) -> usize;

    /// Threads that seal and open.
    fn stage_count(self) -> usize;
}

impl ThreadCounts for Placement {
    fn host_thread_count(self) -> usize {
        match self {
            Self::Inline => 1,
            // A scenario has one connection, which runs on one of the driver threads.
            Self::Connection(_) => 2,
            placement => 1 + placement.thread_count().max(1),
        }
    }

    fn stage_count(self) -> usize {
        match self {
            Self::Packet(count) | Self::Path(count) => count.max(1),
            _ => 1,
        }
    }
}
