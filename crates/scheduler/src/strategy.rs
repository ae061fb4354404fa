//! Strategies by name.

use core::fmt;
use core::str::FromStr;
use std::error::Error;

use crate::earliest::EarliestDelivery;
use crate::lowest_rtt::LowestRtt;
use crate::redundant::Redundant;
use crate::round_robin::RoundRobin;
use crate::scheduler::{PATHS_MAX, Scheduler};

/// A scheduling strategy. Parsed and displayed as `earliest`, `round-robin`, `lowest-rtt` or
/// `redundant:2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// Earliest expected arrival; see [`EarliestDelivery`].
    #[default]
    EarliestDelivery,
    /// Round robin; see [`RoundRobin`].
    RoundRobin,
    /// The lowest smoothed RTT; see [`LowestRtt`].
    LowestRtt,
    /// All stream data on several paths; see [`Redundant`].
    Redundant {
        /// Number of paths for each packet, including the first; 0 counts as 1.
        copies: u8,
    },
}

impl Strategy {
    /// Returns a new scheduler of this strategy, for one connection.
    pub fn build(self) -> Box<dyn Scheduler> {
        match self {
            Self::EarliestDelivery => Box::new(EarliestDelivery::new()),
            Self::RoundRobin => Box::new(RoundRobin::new()),
            Self::LowestRtt => Box::new(LowestRtt),
            Self::Redundant { copies } => Box::new(Redundant::new(copies)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarliestDelivery => f.write_str("earliest"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::LowestRtt => f.write_str("lowest-rtt"),
            Self::Redundant { copies } => write!(f, "redundant:{copies}"),
        }
    }
}

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    /// Fails for other names, and for a number of paths that is not 1 to [`PATHS_MAX`] in plain
    /// digits.
    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let fail = || ParseStrategyError { input: input.to_owned() };
        match input {
            "earliest" => Ok(Self::EarliestDelivery),
            "round-robin" => Ok(Self::RoundRobin),
            "lowest-rtt" => Ok(Self::LowestRtt),
            _ => {
                let number = input.strip_prefix("redundant:").ok_or_else(fail)?;
                let is_plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
                let copies: u8 = number.parse().map_err(|_| fail())?;
                let is_in_range = (1..=PATHS_MAX).contains(&usize::from(copies));
                if is_plain && is_in_range { Ok(Self::Redundant { copies }) } else { Err(fail()) }
            }
        }
    }
}

/// Error: the name is not a known strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseStrategyError {
    input: String,
}

impl fmt::Display for ParseStrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown scheduler {:?}: expected earliest, round-robin, lowest-rtt or redundant:N with N from 1 to \
             {PATHS_MAX}",
            self.input
        )
    }
}

impl Error for ParseStrategyError {}
