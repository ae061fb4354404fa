//! The world `memory`: two hosts in virtual time, connected by link models.
//!
//! ```text
//!   app ─ connection ─ socket 0 ══ path 0 ══ link "wifi" ══ socket 0 ─ connection ─ app
//!   (a)              └ socket 1 ══ path 1 ══ link "lte"  ══ socket 1 ┘              (b)
//! ```
//!
//! Driver, handles and protocol are those of a live run, with deterministic sessions in place of
//! TLS. Only the links take time. Equal scenarios, paths and seeds give byte-identical outcomes.
//! Each link draws from a generator derived from its own name, so other links do not change its
//! effect on its packets.
//!
//! | module | contents |
//! |---|---|
//! | `run` | a run: applications, links, measurements; independent of how its hosts run |
//! | `turns` | a run whose hosts have no processing cost |
//! | `host` | the drivers and workers of such a host, under each placement |
//! | `setup`, `addresses` | the parts of a host that do not depend on its processors |
//! | `env` | virtual time and sockets in memory, as the environment of a driver |
//! | `runtime`, `application` | how handles reach their driver; the application with its handles |
//! | `representation`, `lengths` | packets as bytes or as lengths |
//! | `network`, `datagram`, `accounting` | links, the datagrams on them, and checks that none is lost |

pub(crate) mod accounting;
pub(crate) mod addresses;
mod application;
pub(crate) mod datagram;
pub(crate) mod env;
mod host;
pub(crate) mod lengths;
pub(crate) mod network;
pub(crate) mod representation;
pub(crate) mod run;
pub(crate) mod runtime;
pub(crate) mod setup;
pub(crate) mod turns;

use driver::Placement;

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
        let run = turns::FreeRun::new(scenario, plan, PayloadMode::Bytes, [Placement::Thread; 2], None)?;
        check_time(scenario, &plan.paths, None).map_err(WorldError::Unsuitable)?;
        run.finish(on_progress)
    }
}

#[cfg(test)]
mod tests;
