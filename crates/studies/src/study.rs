//! What a study is, and how it is asked to run.

use serde::Serialize;

use crate::choices::Choice;
use crate::outcome::{Assumption, Outcome};

/// How much time a run may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Enough to see that it works: seconds. What is assumed is stated and not tried otherwise.
    Quick,
    /// Enough to compare with the paper: all studies together in ten minutes on two cores.
    Full,
}

/// How a study is run. The same options give the same outcome, on any number of threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// What all randomness comes from.
    pub seed: u64,
    /// Independent replications of each point; with a precision the least of them.
    pub replications: u32,
    /// Of the intervals, between 0 and 1.
    pub confidence: f64,
    /// If given, replications of each point are added until the intervals of its main figures (throughput and delay, where it has
    /// both) reach at most this share of their means to each side, or [`PRECISE_RUNS_MAX`] were made. What is tried of assumptions
    /// stays at two.
    pub precision: Option<f64>,
    /// How long each replication is.
    pub effort: Effort,
    /// Threads that may work at once.
    pub threads: usize,
}

/// Replications of a point at most, however wide its interval still is.
pub const PRECISE_RUNS_MAX: u32 = 200;

/// An experiment of a paper, or the same experiment on today's code.
pub trait Study: Send + Sync {
    /// Its name on the command line, such as `004-table-2`: document, then table, figure or subject.
    fn id(&self) -> &'static str;

    /// What it is about, in a line.
    fn title(&self) -> &'static str;

    /// The files of `data/` it reads, by name.
    fn data(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the paper does not say and was chosen, and what else is tried.
    fn choices(&self) -> Vec<Choice> {
        Vec::new()
    }

    /// The same before it runs: without what others give.
    fn assumptions(&self) -> Vec<Assumption> {
        self.choices().iter().map(Choice::stated).collect()
    }

    /// Runs it.
    fn run(&self, options: &Options) -> Outcome;
}
