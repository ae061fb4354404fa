//! The world `memory`: two hosts in virtual time, connected by link models.
//!
//! ```text
//!   app ─ connection ─ socket 0 ══ path 0 ══ link "wifi" ══ socket 0 ─ connection ─ app
//!   (a)              └ socket 1 ══ path 1 ══ link "lte"  ══ socket 1 ┘              (b)
//! ```
//!
//! The protocol is the real one, with deterministic sessions in place of TLS. Only the links take
//! time. Equal scenarios, paths and seeds give byte-identical outcomes. Each link draws from a
//! generator derived from its own name, so other links do not change what it does to its packets.

pub(crate) mod accounting;
mod calls;
mod cells;
pub(crate) mod datagram;
mod joined;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod run;
mod turns;

use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::world::{OnProgress, PayloadMode, RunPlan, World, WorldError};
use crate::zero_time::check_time;

/// The world `memory`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl World for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn run(&mut self, scenario: &Scenario, plan: &RunPlan, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        let run = run::Run::new(scenario, plan, PayloadMode::Bytes)?;
        check_time(scenario, &plan.paths, None).map_err(WorldError::Unsuitable)?;
        run.finish(on_progress)
    }
}

#[cfg(test)]
mod tests;
