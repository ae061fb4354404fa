//! The simulated world: the world in memory without the bytes.
//!
//! The protocol is the real one and so is every decision; what is done for each byte is not done. Rows of data packets are never
//! sealed ([`quic::Unsealed`]), payload is neither made nor checked, and so a run takes a sixth of the time. Packet for packet it is the
//! run in memory: `tests/simulated.rs` compares them for every shipped scenario.

use crate::memory::run::Run;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::world::{Order, Stages, Watch, World, WorldError};

/// The simulated world.
#[derive(Clone, Debug, Default)]
pub struct Simulated;

impl World for Simulated {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&mut self, scenario: &Scenario, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        let outcome = Run::new(scenario, order, Stages::Lengths)?.finish(watch)?;
        Ok(Outcome { world: self.name(), ..outcome })
    }
}
