//! The [`Study`] trait and the options of a run.

use serde::Serialize;

use crate::choices::Choice;
use crate::outcome::{Assumption, Outcome};

/// Length of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Seconds, to see that a study works. Assumptions are stated, and their alternatives are not
    /// evaluated.
    Quick,
    /// Long enough to compare with the paper: ten minutes for all studies on two cores.
    Full,
}

/// Options of a run. The same options give the same outcome on any number of threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// The seed of all randomness.
    pub seed: u64,
    /// Independent replications of each point; the minimum if a precision is given.
    pub replications: u32,
    /// Confidence level of the intervals, between 0 and 1.
    pub confidence: f64,
    /// If given, replications of each point are added until the half-widths of the intervals of its
    /// main figures (throughput and delay, where it has both) are at most this fraction of their
    /// means, or [`PRECISE_RUNS_MAX`] runs were made. Alternatives of assumptions always use two
    /// replications.
    pub precision: Option<f64>,
    /// Length of each replication.
    pub effort: Effort,
    /// Maximum number of threads.
    pub threads: usize,
}

/// Maximum number of replications of a point.
pub const PRECISE_RUNS_MAX: u32 = 200;

/// An experiment of a paper, or the same experiment with our own code.
pub trait Study: Send + Sync {
    /// Returns its ID on the command line, such as `004-table-2`: the number of the paper, then
    /// table, figure or subject.
    fn id(&self) -> &'static str;

    /// Returns its title, in one line.
    fn title(&self) -> &'static str;

    /// Returns the files of `data/` that it reads.
    fn data(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the parameters that the paper does not give, with alternatives.
    fn choices(&self) -> Vec<Choice> {
        Vec::new()
    }

    /// Returns the assumptions before a run, without results of alternatives.
    fn assumptions(&self) -> Vec<Assumption> {
        self.choices().iter().map(Choice::without_alternatives).collect()
    }

    /// Runs the study.
    fn run(&self, options: &Options) -> Outcome;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Data files used only by claims.
    const OF_CLAIMS: [&str; 1] = ["claims.toml"];

    #[test]
    fn studies_list_the_data_files_that_they_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let entries = folder.read_dir().expect("the crate has its data");
        let there: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().expect("a plain name")).collect();
        let mut named: BTreeSet<String> = OF_CLAIMS.map(str::to_owned).into();
        for study in crate::all() {
            assert!(!study.data().is_empty(), "{} names no file", study.id());
            for file in study.data() {
                assert!(file.starts_with(&study.id()[..3]), "{} reads {file} of another paper", study.id());
                named.insert((*file).to_owned());
            }
        }
        assert_eq!(named, there);
    }
}
