//! Buses: what processors, memories and devices of a machine have in common.

use units::{Duration, Rate};

use crate::hardware::{ConfigError, Memory};
use crate::resource::Resource;
use crate::{Facility, Report, Sim, join};

/// What happens on the bus while a memory works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transactions {
    /// Who asks keeps the bus until all is moved; memory and bus work at the same time.
    Held,
    /// Who asks gives the bus free while the memory works; words go over the bus as the memory has them.
    Split,
    /// Split, and word by word: a word is asked for when the one before is there, nothing overlaps.
    Single,
}

/// A bus.
#[derive(Clone, Debug, PartialEq)]
pub struct BusConfig {
    /// Bits per second while words are moved.
    pub rate: Rate,
    /// Bits that it moves in a cycle.
    pub width_bits: u64,
    /// What happens while a memory works.
    pub transactions: Transactions,
    /// Cycles of a word under [`Transactions::Single`], its own included: to be granted the bus, to name the address.
    pub single_cycles: u64,
}

impl BusConfig {
    /// Whether such a bus can be.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(!self.rate.is_zero(), "rate", || "a bus without a rate moves nothing".to_owned())?;
        ConfigError::require(self.width_bits > 0, "width_bits", || "a bus has lines".to_owned())?;
        ConfigError::require(self.single_cycles > 0, "single_cycles", || "a word takes its own cycle".to_owned())
    }

    /// The time in which `words` words of `word_bits` bits cross it, without asking.
    fn time_for(&self, words: u64, word_bits: u64) -> Duration {
        let cycles = (words * word_bits).div_ceil(self.width_bits);
        let bits = match self.transactions {
            Transactions::Held | Transactions::Split => cycles * self.width_bits,
            Transactions::Single => cycles * self.width_bits * self.single_cycles,
        };
        Duration::from_nanos((u128::from(bits) * 1_000_000_000).div_ceil(u128::from(self.rate.as_bps())) as u64)
    }
}

/// A bus, first come, first served. Cheap to clone: all clones are the same bus.
#[derive(Clone)]
pub struct Bus {
    sim: Sim,
    config: BusConfig,
    lines: Lines,
}

#[derive(Clone)]
enum Lines {
    /// Kept until the memory is done: for how long is not known beforehand.
    Kept(Resource),
    Shared(Facility),
}

impl Bus {
    /// A bus called `name`.
    ///
    /// # Errors
    /// If [`BusConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: BusConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let lines = match config.transactions {
            Transactions::Held => Lines::Kept(Resource::new(sim, name)),
            Transactions::Split | Transactions::Single => Lines::Shared(Facility::new(sim, name, 1)),
        };
        Ok(Self { sim: sim.clone(), config, lines })
    }

    /// Reads or writes `words` words of `memory` over this bus, burst by burst.
    pub async fn access(&self, memory: &Memory, words: u64) {
        for burst in memory.bursts(words) {
            let span = self.config.time_for(burst, memory.config().word_bits);
            match &self.lines {
                Lines::Kept(lines) => {
                    let _held = lines.acquire().await;
                    join(memory.burst(burst), self.sim.sleep(span)).await;
                }
                Lines::Shared(lines) if self.config.transactions == Transactions::Split => {
                    join(memory.burst(burst), lines.serve(span)).await;
                }
                Lines::Shared(lines) => {
                    lines.serve(span).await;
                    memory.burst(burst).await;
                }
            }
        }
    }

    /// Moves `words` words from one memory to another over this bus, burst by burst of the first. What is read is written as it
    /// comes, except under [`Transactions::Single`].
    pub async fn copy(&self, from: &Memory, to: &Memory, words: u64) {
        for burst in from.bursts(words) {
            let span = self.config.time_for(burst, from.config().word_bits);
            match &self.lines {
                Lines::Kept(lines) => {
                    let _held = lines.acquire().await;
                    join(join(from.burst(burst), to.burst(burst)), self.sim.sleep(span)).await;
                }
                Lines::Shared(lines) if self.config.transactions == Transactions::Split => {
                    join(join(from.burst(burst), to.burst(burst)), lines.serve(span)).await;
                }
                Lines::Shared(lines) => {
                    from.burst(burst).await;
                    lines.serve(span).await;
                    to.burst(burst).await;
                }
            }
        }
    }

    /// What was done since the warm-up ended.
    pub fn report(&self) -> Report {
        match &self.lines {
            Lines::Kept(lines) => lines.report(),
            Lines::Shared(lines) => lines.report(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::Simulation;
    use crate::hardware::MemoryConfig;

    /// When two that each read 100 words of a memory of their own at 80 ns a word are done; a word crosses the bus in 40 ns.
    fn ends(transactions: Transactions) -> Vec<u64> {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let config = BusConfig { rate: Rate::from_mbps(800), width_bits: 32, transactions, single_cycles: 3 };
        let bus = Bus::new(&sim, "bus", config).unwrap();
        let ends = Rc::new(RefCell::new(Vec::new()));
        for index in 0..2 {
            let config = MemoryConfig { word_ns: 80, word_bits: 32, burst_words: 100, ports: 1 };
            let memory = Memory::new(&sim, &format!("memory {index}"), config).unwrap();
            let (sim, bus, ends) = (sim.clone(), bus.clone(), Rc::clone(&ends));
            simulation.spawn(async move {
                bus.access(&memory, 100).await;
                ends.borrow_mut().push(sim.now().as_nanos());
            });
        }
        simulation.run();
        ends.take()
    }

    #[test]
    fn a_held_bus_waits_for_the_memory_and_a_split_one_does_not() {
        assert_eq!(ends(Transactions::Held), [8_000, 16_000]);
        // Both memories work at once; the second's words cross behind the first's.
        assert_eq!(ends(Transactions::Split), [8_000, 8_000]);
        // Three cycles of 40 ns a word, then 80 ns: nothing overlaps for one, but the other has the bus meanwhile.
        assert_eq!(ends(Transactions::Single), [20_000, 32_000]);
    }

    #[test]
    fn a_bus_that_cannot_be_is_refused_by_name() {
        let config = BusConfig { rate: Rate::ZERO, width_bits: 32, transactions: Transactions::Held, single_cycles: 1 };
        assert_eq!(config.validate().unwrap_err().key, "rate");
        let rate = Rate::from_mbps(1);
        assert_eq!(BusConfig { rate, width_bits: 0, ..config.clone() }.validate().unwrap_err().key, "width_bits");
        assert_eq!(BusConfig { rate, single_cycles: 0, ..config }.validate().unwrap_err().key, "single_cycles");
    }
}
