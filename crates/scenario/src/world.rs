//! The interface of a world: a place where scenarios run.

use core::fmt;
use std::error::Error;

use units::{Duration, Instant};

use crate::model::Scenario;
use crate::outcome::Outcome;

/// One run of a scenario: its paths and its seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunPlan {
    /// The paths that the connection may use: ascending indices into the scenario's paths; not
    /// empty.
    pub paths: Vec<usize>,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl RunPlan {
    /// Checks that `scenario` has these paths.
    ///
    /// # Errors
    /// Returns [`WorldError::Unsuitable`], naming the paths.
    pub fn validate(&self, scenario: &Scenario) -> Result<(), WorldError> {
        let count = scenario.paths.len();
        let is_ascending = self.paths.windows(2).all(|pair| pair[0] < pair[1]);
        match self.paths.last() {
            Some(last) if is_ascending && *last < count => Ok(()),
            _ => Err(WorldError::Unsuitable(format!(
                "paths {:?}: expected ascending indices of the scenario's {count} paths, from 0",
                self.paths
            ))),
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The time of the run.
    pub now: Instant,
    /// The maximum duration of the run.
    pub duration: Duration,
    /// Application bytes delivered.
    pub delivered_bytes: u64,
}

/// Callback that receives the progress of a run at intervals. Returning false stops the run.
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress) -> bool;

/// Treatment of payload in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadMode {
    /// Like in a live run: packets are sealed and opened; payload is generated and checked.
    Bytes,
    /// Packet runs are lengths and records; payload is neither generated nor checked.
    Lengths,
}

/// Runs scenarios and measures them.
///
/// A file, its paths and its checks mean the same in every world. Each world determines how exactly
/// it reproduces time, losses and processors.
pub trait World {
    /// Returns the name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Runs `scenario` once.
    ///
    /// # Errors
    /// Returns a [`WorldError`] if the run could not be completed. A failed connection is an
    /// outcome, not an error.
    fn run(&mut self, scenario: &Scenario, plan: &RunPlan, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError>;
}

/// Reason why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// The progress callback stopped the run.
    Stopped,
    /// The world does not support the scenario; holds the reason.
    Unsuitable(String),
    /// The world could not be set up, or failed during the run; holds the reason.
    Failed(String),
    /// Events recur without end at one virtual time. This is a bug in the simulator.
    Livelock {
        /// The virtual time.
        at: Instant,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Unsuitable(message) | Self::Failed(message) => f.write_str(message),
            Self::Livelock { at } => {
                write!(f, "livelock: virtual time does not advance beyond {at:?}: please report this bug")
            }
        }
    }
}

impl Error for WorldError {}
