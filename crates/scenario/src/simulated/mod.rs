//! The world `sim`: the world `memory` without payload bytes, and optionally with simulated
//! processors.
//!
//! The protocol and all its decisions are the real ones; per-byte work is omitted. Packet runs are
//! never sealed ([`quic::Unsealed`]), and payload is neither generated nor checked, so a run takes
//! a fraction of the time. It sends the same packets as the world `memory`:
//! `tests/worlds/memory_and_sim.rs` compares them for every shipped scenario.
//!
//! With a [`Machine`], hosts have processors. Each task takes the time given by a profile, on the
//! thread given by the placement, which influences the times and batches in which packets are
//! planned.
//!
//! | module | contents |
//! |---|---|
//! | `costs` | the cost of each task, read from `litz profile --json` |
//! | `machine` | processors, threads, and the threads of each task under a placement |
//! | `pipeline` | the steps of batches, as the other processors of a driver |
//! | `processors`, `socket`, `host`, `run` | a run on simulated machines, as processes of the crate `sim` |

mod costs;
mod host;
mod machine;
mod pipeline;
mod processors;
mod run;
mod socket;

pub use costs::{Costs, End, PROFILE_BYTES_MAX, ProfileError, Task};
pub use driver::placement::{PROCESSORS_MAX, Placement};
pub use machine::Machine;
pub use run::{SimulatedRun, simulate, simulate_recorded, simulate_several};

use ::sim::Simulation;
use quic::JournalSource;

use crate::memory::turns::FreeRun;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::recording::{Recording, RecordingWriter};
use crate::world::{OnProgress, PayloadMode, RunPlan, World, WorldError};
use crate::zero_time::check_time;

/// The world `sim`.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// The simulated machines of the hosts. Without them, only links take time.
    pub machine: Option<Machine>,
}

impl Sim {
    /// Runs `scenario` once and records it. Recording does not change the run.
    ///
    /// # Errors
    /// Same errors as [`World::run`], and [`WorldError::Failed`] if the recording cannot be
    /// written.
    pub fn run_recorded(
        &self,
        scenario: &Scenario,
        plan: &RunPlan,
        recording: Recording,
        on_progress: OnProgress<'_>,
    ) -> Result<Outcome, WorldError> {
        if let Some(machine) = &self.machine {
            let simulated = simulate_recorded(scenario, plan, machine, Some(recording), on_progress)?;
            return Ok(simulated.outcome);
        }
        // This simulation has no processes. It owns the trace.
        let keeper = Simulation::new(plan.seed, 0);
        let mut free = new_free_run(scenario, plan, recording.journals.as_ref())?;
        free.run.record(Box::new(RecordingWriter::new(recording, scenario, &plan.paths, &keeper)?));
        free.go(on_progress)?;
        if let Some(recording) = free.run.take_recording() {
            recording.finish(free.run.now(), &keeper)?;
        }
        Ok(Outcome { world: self.name(), ..free.into_outcome() })
    }
}

/// Creates a run without processing cost, after checking that virtual time advances.
fn new_free_run(scenario: &Scenario, plan: &RunPlan, journals: Option<&JournalSource>) -> Result<FreeRun, WorldError> {
    let run = FreeRun::new(scenario, plan, PayloadMode::Lengths, [Placement::Thread; 2], journals)?;
    check_time(scenario, &plan.paths, None).map_err(WorldError::Unsuitable)?;
    Ok(run)
}

impl World for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&mut self, scenario: &Scenario, plan: &RunPlan, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        if let Some(machine) = &self.machine {
            return simulate(scenario, plan, machine, on_progress).map(|simulated| simulated.outcome);
        }
        let outcome = new_free_run(scenario, plan, None)?.finish(on_progress)?;
        Ok(Outcome { world: self.name(), ..outcome })
    }
}
