//! What can be set on a link.

use core::fmt;
use std::error::Error;

use units::{Duration, Rate, Ratio};

/// The settings of one direction of a link. The default is a perfect wire: no limit, no delay, no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// What the line carries, [`overhead_bytes`](Self::overhead_bytes) included. `None` is a line that takes no time.
    /// Default: `None`.
    pub rate: Option<Rate>,
    /// From the moment the last bit has left until it arrives. Default: zero.
    ///
    /// A shorter delay set during a run lets later packets overtake earlier ones, as a shorter route does.
    pub delay: Duration,
    /// Share of packets that vanish. They vanish behind the line, so they have used it. Default: none.
    pub loss: Ratio,
    /// Share of packets that arrive later than their turn, by [`reorder_by`](Self::reorder_by). Default: none.
    pub reorder: Ratio,
    /// How much later a reordered packet arrives. Default: zero.
    pub reorder_by: Duration,
    /// Share of packets that arrive twice. The copy is made behind the line and does not use it; it may be corrupted or
    /// reordered like any other. Default: none.
    pub duplicate: Ratio,
    /// Share of packets that arrive with a fault in them. Default: none.
    pub corrupt: Ratio,
    /// Bytes that may wait for the line, overhead included, without the packet that is on it. Default: 1 MiB, which is
    /// 84 ms at 100 Mb/s. A packet that finds too little room is dropped.
    pub queue_bytes: u64,
    /// Bytes that each packet costs on the line above its own length: 28 for IPv4 and UDP around a UDP payload, 0 where
    /// packets carry their headers. Default: 0.
    pub overhead_bytes: u64,
}

/// Why a [`LinkConfig`] describes no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rate is zero, so the first packet would stay on the line for ever. To cut a link, set its loss to one.
    ZeroRate,
    /// Packets shall be reordered by no time at all, so the fault would never show.
    ReorderedByNothing,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            loss: Ratio::ZERO,
            reorder: Ratio::ZERO,
            reorder_by: Duration::ZERO,
            duplicate: Ratio::ZERO,
            corrupt: Ratio::ZERO,
            queue_bytes: 1 << 20,
            overhead_bytes: 0,
        }
    }
}

impl LinkConfig {
    /// Whether these settings describe a link.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.rate.is_some_and(Rate::is_zero) {
            return Err(ConfigError::ZeroRate);
        }
        if !self.reorder.is_zero() && self.reorder_by.is_zero() {
            return Err(ConfigError::ReorderedByNothing);
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroRate => "the rate of a link must exceed zero: to cut the link, set its loss to 1",
            Self::ReorderedByNothing => {
                "some packets shall be reordered, but by no time: set how much later they arrive"
            }
        })
    }
}

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_link() {
        assert_eq!(LinkConfig::default().validate(), Ok(()));
    }

    #[test]
    fn settings_without_a_meaning_are_refused_in_words() {
        let stopped = LinkConfig { rate: Some(Rate::ZERO), ..LinkConfig::default() };
        assert_eq!(stopped.validate(), Err(ConfigError::ZeroRate));
        let idle = LinkConfig { reorder: Ratio::ONE, ..LinkConfig::default() };
        assert_eq!(idle.validate(), Err(ConfigError::ReorderedByNothing));
        assert!(ConfigError::ZeroRate.to_string().contains("loss to 1"));
    }
}
