//! Buses that connect processors, memories and devices.

use units::{Duration, Rate};

use super::config_error::ConfigError;
use super::memory::Memory;
use crate::facility::Facility;
use crate::join;
use crate::kernel::Sim;
use crate::observe::ComponentReport;
use crate::resource::Resource;

/// Use of the bus while a memory works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transactions {
    /// The requester holds the bus until the transfer is complete. Memory and bus work in parallel.
    Held,
    /// The bus is released while the memory works. Words are transferred as the memory delivers
    /// them.
    Split,
    /// Split, one word at a time: each word is requested after the previous one has arrived,
    /// without overlap.
    Single,
}

/// A bus.
#[derive(Clone, Debug, PartialEq)]
pub struct BusConfig {
    /// Transfer rate in bits per second.
    pub rate: Rate,
    /// Bits per cycle.
    pub width_bits: u64,
    /// Use of the bus while a memory works.
    pub transactions: Transactions,
    /// Cycles per word under [`Transactions::Single`], including the transfer itself: arbitration,
    /// address, data.
    pub single_cycles: u64,
}

impl BusConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(!self.rate.is_zero(), "rate", || "must not be zero".to_owned())?;
        ConfigError::require(self.width_bits > 0, "width_bits", || "must not be zero".to_owned())?;
        ConfigError::require(self.single_cycles > 0, "single_cycles", || "must be at least one cycle".to_owned())
    }

    /// Returns the time to transfer `words` words of `word_bits` bits, without arbitration.
    fn time_for(&self, words: u64, word_bits: u64) -> Duration {
        let cycles = (words * word_bits).div_ceil(self.width_bits);
        let bits = match self.transactions {
            Transactions::Held | Transactions::Split => cycles * self.width_bits,
            Transactions::Single => cycles * self.width_bits * self.single_cycles,
        };
        Duration::from_nanos((u128::from(bits) * 1_000_000_000).div_ceil(u128::from(self.rate.as_bps())) as u64)
    }
}

/// A first-come, first-served bus. Cheap to clone: all clones are the same bus.
#[derive(Clone)]
pub struct Bus {
    sim: Sim,
    config: BusConfig,
    lines: Lines,
}

#[derive(Clone)]
enum Lines {
    /// Held until the memory is done; the time is not known in advance.
    Exclusive(Resource),
    Shared(Facility),
}

impl Bus {
    /// Creates a bus called `name`.
    ///
    /// # Errors
    /// Fails if [`BusConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: BusConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let lines = match config.transactions {
            Transactions::Held => Lines::Exclusive(Resource::new(sim, name)),
            Transactions::Split | Transactions::Single => Lines::Shared(Facility::new(sim, name, 1)),
        };
        Ok(Self { sim: sim.clone(), config, lines })
    }

    /// Reads or writes `words` words of `memory` over this bus, burst by burst.
    pub async fn access(&self, memory: &Memory, words: u64) {
        for burst in memory.bursts(words) {
            let span = self.config.time_for(burst, memory.config().word_bits);
            match &self.lines {
                Lines::Exclusive(lines) => {
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

    /// Copies `words` words from one memory to another over this bus, in bursts of the source.
    /// Words are written as they are read, except under [`Transactions::Single`].
    pub async fn copy(&self, from: &Memory, to: &Memory, words: u64) {
        for burst in from.bursts(words) {
            let span = self.config.time_for(burst, from.config().word_bits);
            match &self.lines {
                Lines::Exclusive(lines) => {
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

    /// Returns the statistics since the end of the warm-up.
    pub fn report(&self) -> ComponentReport {
        match &self.lines {
            Lines::Exclusive(lines) => lines.report(),
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

    /// Completion times of two readers, each reading 100 words of its own memory at 80 ns per word;
    /// a word crosses the bus in 40 ns.
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
    fn a_held_bus_waits_for_the_memory_and_a_split_bus_does_not() {
        assert_eq!(ends(Transactions::Held), [8_000, 16_000]);
        // Both memories work in parallel. The second reader's words follow the first reader's on
        // the bus.
        assert_eq!(ends(Transactions::Split), [8_000, 8_000]);
        // Three cycles of 40 ns per word, then 80 ns. One reader has no overlap, but the other uses
        // the bus meanwhile.
        assert_eq!(ends(Transactions::Single), [20_000, 32_000]);
    }

    #[test]
    fn an_invalid_bus_is_rejected_by_key() {
        let config = BusConfig { rate: Rate::ZERO, width_bits: 32, transactions: Transactions::Held, single_cycles: 1 };
        assert_eq!(config.validate().unwrap_err().key, "rate");
        let rate = Rate::from_mbps(1);
        assert_eq!(BusConfig { rate, width_bits: 0, ..config.clone() }.validate().unwrap_err().key, "width_bits");
        assert_eq!(BusConfig { rate, single_cycles: 0, ..config }.validate().unwrap_err().key, "single_cycles");
    }
}
