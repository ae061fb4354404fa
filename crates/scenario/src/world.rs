//! Where scenarios run.

use core::fmt;
use std::error::Error;

use units::{Duration, Instant};

use crate::model::Scenario;
use crate::outcome::Outcome;

/// One run that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Order {
    /// The paths that may be used, ascending, as indices into the scenario's; not empty.
    pub paths: Vec<usize>,
    /// Of everything that is random.
    pub seed: u64,
}

impl Order {
    /// Whether `scenario` can be run so.
    ///
    /// # Errors
    /// [`WorldError::Unsuitable`], naming the paths.
    pub fn validate(&self, scenario: &Scenario) -> Result<(), WorldError> {
        let count = scenario.paths.len();
        let is_ascending = self.paths.windows(2).all(|pair| pair[0] < pair[1]);
        match self.paths.last() {
            Some(last) if is_ascending && *last < count => Ok(()),
            _ => Err(WorldError::Unsuitable(format!(
                "paths {:?}: some of the {count} of the scenario are wanted, from 0, ascending",
                self.paths
            ))),
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The run's time.
    pub now: Instant,
    /// When it ends at the latest.
    pub duration: Duration,
    /// Application bytes delivered.
    pub delivered_bytes: u64,
}

/// Hears how far a run is, now and then; false stops it.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> bool;

/// How a run does what is done for every byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// As live: packets are sealed and opened, payload is made and checked.
    Bytes,
    /// Rows of packets are lengths and records, and payload is not looked at.
    Lengths,
}

/// Something that runs scenarios and measures them.
///
/// The same file, paths and checks mean the same in each; how exactly time, losses and processors come out is the world's
/// business.
pub trait World {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Runs `scenario` once.
    ///
    /// # Errors
    /// [`WorldError`] if it could not be run to its end. A connection that fails is no error but an outcome.
    fn run(&mut self, scenario: &Scenario, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError>;
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// Whoever watched did not want to go on.
    Stopped,
    /// The scenario cannot be run here, in words.
    Unsuitable(String),
    /// This world cannot be made, or broke down during the run: what and why, in words.
    Broken(String),
    /// Something is due again and again without time passing: a fault of this program.
    Spins {
        /// When.
        at: Instant,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Unsuitable(words) | Self::Broken(words) => f.write_str(words),
            Self::Spins { at } => write!(f, "something is due again and again at {at:?}: please report this"),
        }
    }
}

impl Error for WorldError {}
