//! The simulated world: the world in memory without the bytes.
//!
//! The protocol is the real one and so is every decision; what is done for each byte is not done. Rows of data packets are never
//! sealed ([`quic::Unsealed`]), payload is neither made nor checked, and so a run takes a sixth of the time. Packet for packet it is the
//! run in memory: `tests/simulated.rs` compares them for every shipped scenario.
//!
//! With a [`Machine`] hosts have processors too, and everything that a host does takes the time that a profile of a machine says, on the
//! thread that a placement gives it. What is planned when, and how much of it together, depends on it then.
//!
//! | module | what |
//! |---|---|
//! | `costs` | what tasks cost, read from `litz profile --json` |
//! | `machine` | processors, threads, and which of them a placement gives what |
//! | `processors`, `socket`, `host`, `run`, `alarm` | a run on machines, by processes of the crate `sim` |

mod alarm;
mod costs;
mod host;
mod machine;
mod processors;
mod run;
mod socket;

pub use crate::placement::{PROCESSORS_MAX, Placement};
pub use costs::{Costs, End, PROFILE_BYTES_MAX, ProfileError, Task};
pub use machine::Machine;
pub use run::{Simulated, simulate, simulate_recorded, simulate_several};

use ::sim::Simulation;

use crate::memory::run::Run;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::tape::{Recording, Tape};
use crate::timeless::check_time;
use crate::world::{Order, Stages, Watch, World, WorldError};

/// The simulated world.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// What the hosts are; without, nothing but links takes time.
    pub machine: Option<Machine>,
}

impl Sim {
    /// Runs `scenario` once and writes down what happens, which changes nothing of it.
    ///
    /// # Errors
    /// As [`World::run`], and [`WorldError::Broken`] if it cannot be written.
    pub fn run_recorded(
        &self,
        scenario: &Scenario,
        order: &Order,
        recording: Recording,
        watch: Watch<'_>,
    ) -> Result<Outcome, WorldError> {
        if let Some(machine) = &self.machine {
            let simulated = simulate_recorded(scenario, order, machine, Some(recording), watch)?;
            return Ok(simulated.outcome);
        }
        // Nothing is simulated in it: it keeps the trace.
        let keeper = Simulation::new(order.seed, 0);
        let mut run = new_run(scenario, order, None)?;
        run.record(Box::new(Tape::new(recording, scenario, &order.paths, &keeper)?));
        run.go(watch)?;
        if let Some(tape) = run.take_tape() {
            tape.finish(run.now, &keeper)?;
        }
        let inside = run.inside();
        Ok(Outcome { world: self.name(), ..run.into_outcome(inside) })
    }
}

/// A run in which time passes.
fn new_run(scenario: &Scenario, order: &Order, costs: Option<&Costs>) -> Result<Run, WorldError> {
    let run = Run::new(scenario, order, Stages::Lengths)?;
    check_time(scenario, &order.paths, costs).map_err(WorldError::Unsuitable)?;
    Ok(run)
}

impl World for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&mut self, scenario: &Scenario, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        if let Some(machine) = &self.machine {
            return simulate(scenario, order, machine, watch).map(|simulated| simulated.outcome);
        }
        let outcome = new_run(scenario, order, None)?.finish(watch)?;
        Ok(Outcome { world: self.name(), ..outcome })
    }
}
