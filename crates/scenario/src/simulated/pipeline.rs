//! The packets of a simulation with processors: unsealed, as planned by the driver.

use std::rc::Rc;

use driver::Protocol;
use driver::pipeline::{Carrier, Pipeline, Planned};
use quic_driver::Quic;

use crate::memory::datagram::InFlightBatch;
use crate::memory::lengths::{Lengths, Spares};

/// The protocol of simulated hosts with processors.
type LengthsQuic = Quic<Lengths>;

/// The other processors of a simulated host's driver. Each path has a worker of its own.
pub(crate) type QuicPipeline = Pipeline<LengthsQuic, UnsealedPlans>;

/// A planned batch.
pub(crate) type PlannedBatch = Planned<LengthsQuic, UnsealedPlans>;

/// Takes plans as they are, and reuses their memory.
#[derive(Default)]
pub(crate) struct UnsealedPlans {
    spares: Spares,
}

impl Carrier<LengthsQuic> for UnsealedPlans {
    type Packets = Rc<InFlightBatch>;

    fn carry(&mut self, worker: usize, plan: &mut <LengthsQuic as Protocol>::Plan) -> Rc<InFlightBatch> {
        self.spares.filled(|batch| batch.fill(worker, &mut plan.plan))
    }
}
