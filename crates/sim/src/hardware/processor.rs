//! Processors: instructions per second, caches that miss, one thing at a time.

use units::Duration;

use crate::hardware::{Bus, ConfigError, Memory};
use crate::resource::{Held, Resource};
use crate::{Report, Sim, Watch};

/// A processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorConfig {
    /// Millions of instructions per second.
    pub mips: f64,
    /// Share of the instructions that its cache holds. The others are fetched from memory, a word each.
    pub instruction_hits: f64,
    /// Share of the data words that its cache holds.
    pub data_hits: f64,
    /// Instructions to go on with another process. Each [`Processor::run`] counts as one.
    pub context_switch_instructions: u64,
    /// Instructions to take an interrupt and return from it.
    pub interrupt_instructions: u64,
}

impl ProcessorConfig {
    /// Whether such a processor can be.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let is_rate = self.mips.is_finite() && self.mips > 0.0;
        ConfigError::require(is_rate, "mips", || format!("{} is no speed", self.mips))?;
        for (key, share) in [("instruction_hits", self.instruction_hits), ("data_hits", self.data_hits)] {
            ConfigError::require((0.0..=1.0).contains(&share), key, || format!("{share} is not between 0 and 1"))?;
        }
        Ok(())
    }
}

/// What an operation takes of a processor and of the memory behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Instructions.
    pub instructions: u64,
    /// Words of data that they refer to, one by one: headers, tables, stack.
    pub data_words: u64,
    /// Words that are streamed past the cache: payload.
    pub stream_words: u64,
}

/// Where a processor's words are: a memory, and the bus on the way if there is one.
#[derive(Clone)]
pub struct Home {
    /// The bus on the way; `None` for a memory of the processor's own.
    pub bus: Option<Bus>,
    /// The memory.
    pub memory: Memory,
    /// Times every burst, with its way over the bus, if that is wanted.
    pub watch: Option<Watch>,
}

impl Home {
    /// Reads or writes `words` words, burst by burst.
    pub async fn access(&self, words: u64) {
        for burst in self.memory.bursts(words) {
            match &self.watch {
                Some(watch) => watch.time(self.burst(burst)).await,
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

/// A processor. It waits for its memory. Cheap to clone: all clones are the same processor.
#[derive(Clone)]
pub struct Processor {
    sim: Sim,
    config: ProcessorConfig,
    home: Home,
    unit: Resource,
}

impl Processor {
    /// A processor called `name` whose words are in `home`.
    ///
    /// # Errors
    /// If [`ProcessorConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: ProcessorConfig, home: Home) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { sim: sim.clone(), config, home, unit: Resource::new(sim, name) })
    }

    /// Where its words are.
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Does `work` when it is this one's turn.
    pub async fn run(&self, work: Work) {
        let held = self.unit.acquire().await;
        self.work(&held, self.config.context_switch_instructions, work).await;
    }

    /// Does `work` before all that is not urgent, after what it does now.
    pub async fn interrupt(&self, work: Work) {
        let held = self.unit.acquire_urgently().await;
        self.work(&held, self.config.interrupt_instructions, work).await;
    }

    /// Waits for its turn and keeps the processor, for what it does itself with buses and memories.
    pub async fn acquire(&self) -> Held {
        self.unit.acquire().await
    }

    /// What is waiting or being done.
    pub fn present(&self) -> u64 {
        self.unit.present()
    }

    /// The time of so many instructions that miss no cache.
    pub fn compute_time(&self, instructions: u64) -> Duration {
        Duration::from_nanos((instructions as f64 * 1e3 / self.config.mips).round() as u64)
    }

    /// What was done since the warm-up ended. A processor that waits for its memory counts as busy.
    pub fn report(&self) -> Report {
        self.unit.report()
    }

    async fn work(&self, _held: &Held, extra_instructions: u64, work: Work) {
        let instructions = work.instructions + extra_instructions;
        self.sim.sleep(self.compute_time(instructions)).await;
        let fetched = instructions as f64 * (1.0 - self.config.instruction_hits);
        let missed = work.data_words as f64 * (1.0 - self.config.data_hits);
        self.home.access((fetched + missed).round() as u64).await;
        self.home.access(work.stream_words).await;
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
        let home = Home { bus: None, memory: Memory::new(&sim, "memory", memory).unwrap(), watch: None };
        let processor = Processor::new(&sim, "processor", config, home).unwrap();
        simulation.spawn(async move { processor.run(work).await });
        simulation.run();
        sim.now().as_nanos()
    }

    #[test]
    fn work_takes_its_instructions_and_what_misses_the_caches() {
        let work = Work { instructions: 100, data_words: 50, stream_words: 30 };
        // 100 at 40 ns, 50 + 30 words at 80 ns.
        assert_eq!(time_of(CONFIG, work), 4_000 + 6_400);
        assert_eq!(time_of(ProcessorConfig { data_hits: 0.5, ..CONFIG }, work), 4_000 + 4_400);
        assert_eq!(time_of(ProcessorConfig { instruction_hits: 0.9, ..CONFIG }, work), 4_000 + 6_400 + 800);
        assert_eq!(time_of(ProcessorConfig { context_switch_instructions: 10, ..CONFIG }, work), 4_400 + 6_400);
    }

    #[test]
    fn a_processor_that_cannot_be_is_refused_by_name() {
        assert_eq!(ProcessorConfig { mips: 0.0, ..CONFIG }.validate().unwrap_err().key, "mips");
        assert_eq!(ProcessorConfig { mips: f64::NAN, ..CONFIG }.validate().unwrap_err().key, "mips");
        assert_eq!(ProcessorConfig { data_hits: 1.5, ..CONFIG }.validate().unwrap_err().key, "data_hits");
        assert_eq!(
            ProcessorConfig { instruction_hits: -0.1, ..CONFIG }.validate().unwrap_err().key,
            "instruction_hits"
        );
    }
}
