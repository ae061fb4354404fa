//! Processors: instructions per second, cache misses, one task at a time.

use units::Duration;

use super::bus::Bus;
use super::config_error::ConfigError;
use super::memory::Memory;
use crate::kernel::Sim;
use crate::observe::ComponentReport;
use crate::resource::{Held, Resource};
use crate::stopwatch::Stopwatch;

/// The configuration of a processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorConfig {
    /// Millions of instructions per second.
    pub mips: f64,
    /// Instruction cache hit rate. Each miss fetches one word from memory.
    pub instruction_hits: f64,
    /// Data cache hit rate.
    pub data_hits: f64,
    /// Instructions of a context switch. Each [`Processor::run`] counts as one.
    pub context_switch_instructions: u64,
    /// Instructions to take an interrupt and return from it.
    pub interrupt_instructions: u64,
}

impl ProcessorConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let is_rate = self.mips.is_finite() && self.mips > 0.0;
        ConfigError::require(is_rate, "mips", || format!("{} is not a positive number", self.mips))?;
        for (key, share) in [("instruction_hits", self.instruction_hits), ("data_hits", self.data_hits)] {
            ConfigError::require((0.0..=1.0).contains(&share), key, || format!("{share} is not between 0 and 1"))?;
        }
        Ok(())
    }
}

/// Demand of an operation on the processor and its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of instructions.
    pub instructions: u64,
    /// Data words accessed one by one: headers, tables, stack.
    pub data_words: u64,
    /// Payload words that bypass the cache.
    pub stream_words: u64,
}

/// The memory of a processor or device, and the bus in between, if there is one.
#[derive(Clone)]
pub struct AttachedMemory {
    /// The bus; `None` if the memory is attached directly.
    pub bus: Option<Bus>,
    /// The memory.
    pub memory: Memory,
    /// Times every burst, including its bus transfer, if set.
    pub stopwatch: Option<Stopwatch>,
}

impl AttachedMemory {
    /// Reads or writes `words` words, burst by burst.
    pub async fn access(&self, words: u64) {
        for burst in self.memory.bursts(words) {
            match &self.stopwatch {
                Some(stopwatch) => stopwatch.time(self.burst(burst)).await,
                None => self.burst(burst).await,
            }
        }
    }

    async fn burst(&self, words: u64) {
        match &self.bus {
            Some(bus) => bus.access(&self.memory, words).await,
            None => self.memory.burst(words).await,
        }
    }
}

/// A processor. It stalls during memory accesses. Cheap to clone: all clones are the same
/// processor.
#[derive(Clone)]
pub struct Processor {
    sim: Sim,
    config: ProcessorConfig,
    memory: AttachedMemory,
    unit: Resource,
}

impl Processor {
    /// Creates a processor called `name` with memory `memory`.
    ///
    /// # Errors
    /// Fails if [`ProcessorConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: ProcessorConfig, memory: AttachedMemory) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { sim: sim.clone(), config, memory, unit: Resource::new(sim, name) })
    }

    /// Returns its memory.
    pub const fn memory(&self) -> &AttachedMemory {
        &self.memory
    }

    /// Performs `work` in first-come, first-served order.
    pub async fn run(&self, work: Work) {
        let held = self.unit.acquire().await;
        self.work(&held, self.config.context_switch_instructions, work).await;
    }

    /// Performs `work` before all other waiting work, after the current one.
    pub async fn interrupt(&self, work: Work) {
        let held = self.unit.acquire_urgently().await;
        self.work(&held, self.config.interrupt_instructions, work).await;
    }

    /// Waits for the processor and holds it, for a caller that accesses buses and memories itself.
    pub async fn acquire(&self) -> Held {
        self.unit.acquire().await
    }

    /// Returns the number of tasks present, including the current one.
    pub fn present(&self) -> u64 {
        self.unit.present()
    }

    /// Returns the execution time of `instructions` instructions without cache misses.
    pub fn compute_time(&self, instructions: u64) -> Duration {
        Duration::from_nanos((instructions as f64 * 1e3 / self.config.mips).round() as u64)
    }

    /// Returns the statistics since the end of the warm-up. A processor that stalls on its memory
    /// counts as busy.
    pub fn report(&self) -> ComponentReport {
        self.unit.report()
    }

    async fn work(&self, _held: &Held, extra_instructions: u64, work: Work) {
        let instructions = work.instructions + extra_instructions;
        self.sim.sleep(self.compute_time(instructions)).await;
        let fetched = instructions as f64 * (1.0 - self.config.instruction_hits);
        let missed = work.data_words as f64 * (1.0 - self.config.data_hits);
        self.memory.access((fetched + missed).round() as u64).await;
        self.memory.access(work.stream_words).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::hardware::MemoryConfig;

    const CONFIG: ProcessorConfig = ProcessorConfig {
        mips: 25.0,
        instruction_hits: 1.0,
        data_hits: 0.0,
        context_switch_instructions: 0,
        interrupt_instructions: 0,
    };

    fn time_of(config: ProcessorConfig, work: Work) -> u64 {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let memory = MemoryConfig { word_ns: 80, word_bits: 32, burst_words: 16, ports: 1 };
        let memory =
            AttachedMemory { bus: None, memory: Memory::new(&sim, "memory", memory).unwrap(), stopwatch: None };
        let processor = Processor::new(&sim, "processor", config, memory).unwrap();
        simulation.spawn(async move { processor.run(work).await });
        simulation.run();
        sim.now().as_nanos()
    }

    #[test]
    fn the_duration_of_work_is_instructions_plus_cache_misses() {
        let work = Work { instructions: 100, data_words: 50, stream_words: 30 };
        // 100 instructions of 40 ns, 50 + 30 words of 80 ns.
        assert_eq!(time_of(CONFIG, work), 4_000 + 6_400);
        assert_eq!(time_of(ProcessorConfig { data_hits: 0.5, ..CONFIG }, work), 4_000 + 4_400);
        assert_eq!(time_of(ProcessorConfig { instruction_hits: 0.9, ..CONFIG }, work), 4_000 + 6_400 + 800);
        assert_eq!(time_of(ProcessorConfig { context_switch_instructions: 10, ..CONFIG }, work), 4_400 + 6_400);
    }

    #[test]
    fn an_invalid_processor_is_rejected_by_key() {
        assert_eq!(ProcessorConfig { mips: 0.0, ..CONFIG }.validate().unwrap_err().key, "mips");
        assert_eq!(ProcessorConfig { mips: f64::NAN, ..CONFIG }.validate().unwrap_err().key, "mips");
        assert_eq!(ProcessorConfig { data_hits: 1.5, ..CONFIG }.validate().unwrap_err().key, "data_hits");
        assert_eq!(
            ProcessorConfig { instruction_hits: -0.1, ..CONFIG }.validate().unwrap_err().key,
            "instruction_hits"
        );
    }
}
