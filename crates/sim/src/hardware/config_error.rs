//! Errors in hardware configurations.

use std::fmt;

/// An invalid parameter, or one that contradicts others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The parameter's name, as in its structure or file.
    pub key: String,
    /// Reason why it is invalid, with the values.
    pub why: String,
}

impl ConfigError {
    /// Creates an error at `key` for the reason `why`.
    pub fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }

    /// Returns `Ok` if `holds` and this error otherwise.
    ///
    /// # Errors
    /// Fails if `holds` is false.
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
