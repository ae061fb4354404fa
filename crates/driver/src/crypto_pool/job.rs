//! The work of a crypto pool: a batch to seal, one to open, or a job on what a connection has
//! absorbed.

use std::sync::Arc;

use crate::offload::JobOutput;
use crate::protocol::{Job, OpenJob, Plan, Protocol};

/// One batch or job for a worker. It shares nothing with the connection it belongs to.
pub(crate) enum PoolJob<P: Protocol> {
    /// The plan is shared with the driver, which can have it sealed again: the same plan gives the
    /// same packets.
    Seal {
        plan: Arc<P::Plan>,
        packets: P::Sealed,
    },
    Open {
        job: Box<P::OpenJob>,
        batch: P::Batch,
    },
    /// The job is shared with the driver, which can have it done again.
    Run {
        job: Arc<P::Job>,
        output: JobOutput<P>,
    },
}

impl<P: Protocol> PoolJob<P> {
    pub(crate) fn run(&mut self) {
        match self {
            Self::Seal { plan, packets } => plan.seal(packets),
            Self::Open { job, batch } => job.open(batch),
            Self::Run { job, output } => job.run(output),
        }
    }
}
