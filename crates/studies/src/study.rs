//! What a study is, and how it is asked to run.

use serde::Serialize;

use crate::outcome::{Assumption, Outcome};

/// How much time a run may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Enough to see that it works: seconds.
    Quick,
    /// Enough to compare with the paper: all studies together in ten minutes on two cores.
    Full,
}

/// How a study is run. The same options give the same outcome, on any number of threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// What all randomness comes from.
    pub seed: u64,
    /// Independent replications of each point.
    pub replications: u32,
    /// Of the intervals, between 0 and 1.
    pub confidence: f64,
    /// How long each replication is.
    pub effort: Effort,
    /// Threads that may work at once.
    pub threads: usize,
}

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

    /// What the paper does not say and was chosen, as far as that is known before it runs: without sensitivity.
    fn assumptions(&self) -> Vec<Assumption> {
        Vec::new()
    }

    /// Runs it.
    fn run(&self, options: &Options) -> Outcome;
}
