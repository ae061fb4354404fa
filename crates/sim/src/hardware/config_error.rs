//! What is wrong with a machine's description.

use std::fmt;

/// A parameter that cannot be, or that contradicts others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The parameter's name, as in its structure or file.
    pub key: String,
    /// Why it cannot be, with the values.
    pub why: String,
}

impl ConfigError {
    /// `key` cannot be as it is, because of `why`.
    pub fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }

    /// `Ok` if `holds`, this error otherwise.
    ///
    /// # Errors
    /// If it does not hold.
    pub fn require(holds: bool, key: &str, why: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(key, why())) }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for ConfigError {}
