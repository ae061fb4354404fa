//! Memories: nanoseconds per word, one or more ports.

use units::Duration;

use super::config_error::ConfigError;
use crate::facility::Facility;
use crate::kernel::Sim;
use crate::observe::ComponentReport;

/// Maximum burst length in words, so that one access does not block the others for long.
pub const BURST_WORDS_MAX: u64 = 1 << 16;

/// The configuration of a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryConfig {
    /// Nanoseconds to read or write a word.
    pub word_ns: u64,
    /// Bits per word.
    pub word_bits: u64,
    /// Words that are read or written in one burst, before another access may use the port.
    pub burst_words: u64,
    /// Number of simultaneous accesses.
    pub ports: usize,
}

impl MemoryConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.word_ns > 0, "word_ns", || "must not be zero".to_owned())?;
        ConfigError::require(self.word_bits > 0, "word_bits", || "must not be zero".to_owned())?;
        ConfigError::require((1..=BURST_WORDS_MAX).contains(&self.burst_words), "burst_words", || {
            format!("{} is not between 1 and {BURST_WORDS_MAX}", self.burst_words)
        })?;
        ConfigError::require(self.ports > 0, "ports", || "must not be zero".to_owned())
    }
}

/// A first-come, first-served memory. Cheap to clone: all clones are the same memory.
#[derive(Clone)]
pub struct Memory {
    config: MemoryConfig,
    ports: Facility,
}

impl Memory {
    /// Creates a memory called `name`.
    ///
    /// # Errors
    /// Fails if [`MemoryConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: MemoryConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let ports = Facility::new(sim, name, config.ports);
        Ok(Self { config, ports })
    }

    /// Returns the number of words that hold `bits` bits.
    pub const fn words(&self, bits: u64) -> u64 {
        bits.div_ceil(self.config.word_bits)
    }

    /// Returns the configuration.
    pub const fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// Reads or writes `words` words in one burst, after waiting for a port.
    pub async fn burst(&self, words: u64) {
        self.ports.serve(Duration::from_nanos(self.config.word_ns) * words).await;
    }

    /// Returns the lengths of the bursts for `words` words: as equal as possible, none above the
    /// maximum.
    pub fn bursts(&self, words: u64) -> impl Iterator<Item = u64> + use<> {
        let count = words.div_ceil(self.config.burst_words);
        (0..count).map(move |index| words * (index + 1) / count - words * index / count)
    }

    /// Returns the statistics since the end of the warm-up. Customers are bursts.
    pub fn report(&self) -> ComponentReport {
        self.ports.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;

    const CONFIG: MemoryConfig = MemoryConfig { word_ns: 20, word_bits: 32, burst_words: 100, ports: 1 };

    #[test]
    fn bursts_cover_every_word_and_respect_the_maximum() {
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
    fn an_invalid_memory_is_rejected_by_key() {
        let key = |config: MemoryConfig| config.validate().unwrap_err().key;
        assert_eq!(key(MemoryConfig { word_ns: 0, ..CONFIG }), "word_ns");
        assert_eq!(key(MemoryConfig { word_bits: 0, ..CONFIG }), "word_bits");
        assert_eq!(key(MemoryConfig { burst_words: 0, ..CONFIG }), "burst_words");
        assert_eq!(key(MemoryConfig { ports: 0, ..CONFIG }), "ports");
    }
}
