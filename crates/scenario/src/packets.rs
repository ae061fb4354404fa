//! Access to every datagram of a run as it leaves its host, for comparing two runs or writing a
//! capture.

use driver::Placement;

use crate::memory::turns::FreeRun;
use crate::model::Scenario;
use crate::outcome::Outcome;
pub use crate::seeds::{HostSeeds, host_seeds, link_rng};
pub use crate::sent_datagram::{DatagramSink, SentDatagram};
use crate::world::{OnProgress, PayloadMode, RunPlan, WorldError};

/// Runs `scenario` over link models in virtual time, like the worlds
/// [`Memory`](crate::memory::Memory) and [`Sim`](crate::simulated::Sim) without a machine, and
/// passes each datagram to `sink`. Packets that the run itself does not seal are sealed for the
/// sink, which then takes most of the time.
///
/// # Errors
/// Same errors as [`World::run`](crate::world::World::run).
pub fn run_with_sink(
    scenario: &Scenario,
    plan: &RunPlan,
    payload_mode: PayloadMode,
    sink: DatagramSink,
    on_progress: OnProgress<'_>,
) -> Result<Outcome, WorldError> {
    run_placed_with_sink(scenario, plan, payload_mode, [Placement::Thread; 2], sink, on_progress)
}

/// Does the same as [`run_with_sink`], with hosts that have the drivers and workers of these
/// placements (sending host first). Each processor takes its turns in a fixed order, and no turn
/// takes time.
///
/// # Errors
/// Same errors as [`World::run`](crate::world::World::run).
pub fn run_placed_with_sink(
    scenario: &Scenario,
    plan: &RunPlan,
    payload_mode: PayloadMode,
    placements: [Placement; 2],
    sink: DatagramSink,
    on_progress: OnProgress<'_>,
) -> Result<Outcome, WorldError> {
    let mut free = FreeRun::new(scenario, plan, payload_mode, placements, None)?;
    free.run.network.set_sink(sink);
    free.finish(on_progress)
}
