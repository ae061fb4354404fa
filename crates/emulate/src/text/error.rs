//! Errors in the text of a link.

use core::fmt;
use core::str::FromStr;
use std::error::Error;

use super::{BACK, Item};
use netem::ConfigError;

/// An invalid link text. The message names the key, the given value and the permitted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTextError {
    /// The invalid item; `None` if the error concerns several.
    item: Option<String>,
    expected: String,
}

impl LinkTextError {
    /// Creates the error for settings that are valid alone but not together.
    pub(super) fn config(error: ConfigError) -> Self {
        let message = error.to_string();
        let key = match error {
            ConfigError::ZeroRate => "rate",
            ConfigError::RateAndTrace => "trace",
            ConfigError::Jitter => "jitter",
            ConfigError::BurstLoss => "bursts",
            ConfigError::ZeroReorderDelay => "reorder",
            ConfigError::QueueDelayWithoutRate => "queue",
            ConfigError::CoDel => "codel",
            ConfigError::Scheduled { .. } => "at",
            _ => return Self::whole(message),
        };
        Self { item: Some(key.to_owned()), expected: message }
    }

    pub(super) const fn whole(expected: String) -> Self {
        Self { item: None, expected }
    }
}

impl Item<'_> {
    pub(super) fn error(&self, expected: &str) -> LinkTextError {
        let back = if self.is_back { BACK } else { "" };
        let equals = if self.value.is_empty() { "" } else { "=" };
        let item = format!("{back}{}{equals}{}", self.key, self.value);
        LinkTextError { item: Some(item), expected: expected.to_owned() }
    }

    /// Parses the value as a quantity, whose error names the expected values.
    pub(super) fn quantity<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, LinkTextError> {
        self.value.parse().map_err(|error| self.error(&format!("{error}")))
    }
}

impl fmt::Display for LinkTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.item {
            Some(item) => write!(f, "`{item}`: {}", self.expected),
            None => f.write_str(&self.expected),
        }
    }
}

impl Error for LinkTextError {}
