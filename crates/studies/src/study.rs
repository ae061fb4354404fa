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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Only claims look at these.
    const OF_CLAIMS: [&str; 2] = ["001-rates.toml", "claims.toml"];

    #[test]
    fn studies_name_the_files_of_facts_that_they_read_and_no_others() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let entries = folder.read_dir().expect("the crate has its data");
        let there: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().expect("a plain name")).collect();
        let mut named: BTreeSet<String> = OF_CLAIMS.map(str::to_owned).into();
        for study in crate::all() {
            assert!(!study.data().is_empty(), "{} names no file", study.id());
            for file in study.data() {
                assert!(file.starts_with(&study.id()[..3]), "{} reads {file} of another document", study.id());
                named.insert((*file).to_owned());
            }
        }
        assert_eq!(named, there);
    }
}
