//! Memories: so many nanoseconds a word, through one or more ports.

use units::Duration;

use crate::hardware::ConfigError;
use crate::{Facility, Report, Sim};

/// Words of the longest burst, so that one access keeps nobody waiting for ever.
pub const BURST_WORDS_MAX: u64 = 1 << 16;

/// A memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryConfig {
    /// Time for a word to be read or written, in nanoseconds.
    pub word_ns: u64,
    /// Bits of a word.
    pub word_bits: u64,
    /// Words that are read or written in one go, before another may have the port.
    pub burst_words: u64,
    /// Accesses that may be under way at once.
    pub ports: usize,
}

impl MemoryConfig {
    /// Whether such a memory can be.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.word_ns > 0, "word_ns", || "a word takes time".to_owned())?;
        ConfigError::require(self.word_bits > 0, "word_bits", || "a word has bits".to_owned())?;
        ConfigError::require((1..=BURST_WORDS_MAX).contains(&self.burst_words), "burst_words", || {
            format!("{} is not between 1 and {BURST_WORDS_MAX}", self.burst_words)
        })?;
        ConfigError::require(self.ports > 0, "ports", || "a memory without ports is never read".to_owned())
    }
}

/// A memory, first come, first served. Cheap to clone: all clones are the same memory.
#[derive(Clone)]
pub struct Memory {
    config: MemoryConfig,
    ports: Facility,
}

impl Memory {
    /// A memory called `name`.
    ///
    /// # Errors
    /// If [`MemoryConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: MemoryConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let ports = Facility::new(sim, name, config.ports);
        Ok(Self { config, ports })
    }

    /// Words that hold `bits` bits.
    pub const fn words(&self, bits: u64) -> u64 {
        bits.div_ceil(self.config.word_bits)
    }

    /// What it is made of.
    pub const fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// Reads or writes `words` words in one go, waiting for a port before.
    pub async fn burst(&self, words: u64) {
        self.ports.serve(Duration::from_nanos(self.config.word_ns) * words).await;
    }

    /// The lengths of the bursts that move `words` words: as equal as can be, none above the longest.
    pub fn bursts(&self, words: u64) -> impl Iterator<Item = u64> + use<> {
        let count = words.div_ceil(self.config.burst_words);
        (0..count).map(move |index| words * (index + 1) / count - words * index / count)
    }

    /// What was done since the warm-up ended. Customers are bursts.
    pub fn report(&self) -> Report {
        self.ports.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;

    const CONFIG: MemoryConfig = MemoryConfig { word_ns: 20, word_bits: 32, burst_words: 100, ports: 1 };

    #[test]
    fn bursts_move_every_word_once_and_none_is_too_long() {
        let simulation = Simulation::new(1, 0);
        let memory = Memory::new(&simulation.sim(), "memory", CONFIG).unwrap();
        for words in [0, 1, 99, 100, 101, 1125] {
            let bursts: Vec<u64> = memory.bursts(words).collect();
            assert_eq!(bursts.iter().sum::<u64>(), words);
            assert!(bursts.iter().all(|&burst| burst > 0 && burst <= 100), "{bursts:?}");
        }
        assert_eq!(memory.words(36_000), 1125);
    }

    #[test]
    fn a_memory_that_cannot_be_is_refused_by_name() {
        let key = |config: MemoryConfig| config.validate().unwrap_err().key;
        assert_eq!(key(MemoryConfig { word_ns: 0, ..CONFIG }), "word_ns");
        assert_eq!(key(MemoryConfig { word_bits: 0, ..CONFIG }), "word_bits");
        assert_eq!(key(MemoryConfig { burst_words: 0, ..CONFIG }), "burst_words");
        assert_eq!(key(MemoryConfig { ports: 0, ..CONFIG }), "ports");
    }
}
