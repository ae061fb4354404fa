//! The work of a parallel stage: a batch to seal, or one to open.

use std::sync::Arc;

use quic::{OpenJob, Plan, ReceiveBuffer, seal};

use crate::receive::Arrived;

/// One batch for a processor. It shares nothing with the connection it is of.
pub(crate) enum Job {
    /// The plan is shared with the one who made it, who can have it sealed again: the same plan gives the same bytes.
    Seal {
        plan: Arc<Plan>,
        sealed: Vec<u8>,
    },
    Open {
        open: Box<OpenJob>,
        batch: Arrived,
    },
}

impl Job {
    pub(crate) fn run(&mut self) {
        match self {
            Self::Seal { plan, sealed } => seal(plan, sealed),
            Self::Open { open, batch } => open.open(batch.bytes_mut()),
        }
    }
}
