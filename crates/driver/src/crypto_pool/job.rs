//! [`PoolJob`]: a plan to seal, a batch to open, or a job on absorbed data.

use std::sync::Arc;

use crate::offload::JobOutput;
use crate::protocol::{Job, OpenJob, Plan, Protocol};

/// Work for a worker. It shares no state with its connection.
pub(crate) enum PoolJob<P: Protocol> {
    /// The driver keeps a reference to the plan, so that it can be sealed again with the same
    /// result.
    Seal {
        plan: Arc<P::Plan>,
        packets: P::Sealed,
    },
    Open {
        job: Box<P::OpenJob>,
        batch: P::Batch,
    },
    /// The driver keeps a reference to the job, so that it can be run again.
    Run {
        job: Arc<P::Job>,
        output: JobOutput<P>,
    },
}

/// The length of most packets of a plan.
const PACKET_BYTES: usize = 1_500;

impl<P: Protocol> PoolJob<P> {
    /// Returns its work, in bytes that a fast cipher decrypts in the same time.
    pub(crate) fn work_bytes(&self) -> usize {
        match self {
            Self::Seal { plan, .. } => PACKET_BYTES * plan.packet_count(),
            Self::Open { job, batch } => job.work_bytes(batch),
            Self::Run { job, .. } => job.work_bytes(),
        }
    }

    pub(crate) fn run(&mut self) {
        match self {
            Self::Seal { plan, packets } => plan.seal(packets),
            Self::Open { job, batch } => job.open(batch),
            Self::Run { job, output } => job.run(output),
        }
    }
}
