//! The world in memory: two hosts in virtual time, connected by link models.
//!
//! ```text
//!   app ─ connection ─ socket 0 ══ path 0 ══ link "wifi" ══ socket 0 ─ connection ─ app
//!   (a)              └ socket 1 ══ path 1 ══ link "lte"  ══ socket 1 ┘              (b)
//! ```
//!
//! The protocol is the real one, with deterministic sessions in place of TLS; nothing costs time but the links. The same
//! scenario, paths and seed give the same outcome to the byte. Links draw from generators of their own names, so a link
//! does to its packets what it would do if the others were not there.

pub(crate) mod books;
mod calls;
mod cells;
pub(crate) mod frame;
mod joined;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod run;
mod turns;

use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::timeless::check_time;
use crate::world::{Order, Stages, Watch, World, WorldError};

/// The world in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl World for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn run(&mut self, scenario: &Scenario, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        let run = run::Run::new(scenario, order, Stages::Bytes)?;
        check_time(scenario, &order.paths, None).map_err(WorldError::Unsuitable)?;
        run.finish(watch)
    }
}

#[cfg(test)]
mod tests;
