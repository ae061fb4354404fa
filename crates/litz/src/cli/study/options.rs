//! The arguments of `litz study`, and what they mean together.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use studies::{Effort, Options};

/// Replications of each point: enough for an interval that means something, and for all studies in minutes.
const REPLICATIONS: u32 = 5;

/// With `--quick`: the fewest whose spread says anything.
const REPLICATIONS_QUICK: u32 = 3;

/// More narrow no interval that a reader could still see.
const REPLICATIONS_MAX: u32 = 1000;

/// More threads than any machine of ours has.
const THREADS_MAX: u16 = 1024;

/// For the end of the help text.
pub(crate) const HELP: &str = "\
A study is an experiment of a paper, run again in virtual time: no sockets, no clock. The same version, seed and options
give the same result to the byte, on any number of threads. Each cell has what the paper prints, what came out here
with its interval, the difference, and whether that is within the tolerance; cells that a parameter was chosen for say
`fitted` and prove nothing. What the paper does not say is listed with what other choices would give; with --quick it
is listed alone.

A claim is a statement of a paper that can be wrong. `litz study claims` decides each by running studies or models:
holds, refuted or not decidable here. A refutation is a result, not an error.

Exit status:
  0    everything ran
  1    with --check: a cell is outside its tolerance, or a check does not hold
  2    an error: bad arguments, an unknown name, a file that cannot be written
  130  interrupted; studies that had ended are printed and kept";

#[derive(Args, Debug)]
pub(crate) struct StudyOptions {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List the studies
    List {
        /// One JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// See what studies are about and what they assume; nothing is run
    Show {
        /// Names of studies, as `litz study list` has them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Run studies and print paper, ours and difference
    #[command(after_help = HELP)]
    Run {
        /// Names of studies, as `litz study list` has them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,

        #[command(flatten)]
        options: RunOptions,
    },
    /// Run all studies
    #[command(after_help = HELP)]
    All(RunOptions),
    /// Decide the papers' claims: holds, refuted or not decidable here, with the numbers
    #[command(after_help = HELP)]
    Claims {
        /// Names of claims such as 002-03, or of documents such as 002 [default: all]
        #[arg(value_name = "ID")]
        ids: Vec<String>,

        #[command(flatten)]
        conditions: ConditionOptions,
    },
}

#[derive(Args, Debug)]
pub(super) struct RunOptions {
    #[command(flatten)]
    pub(super) conditions: ConditionOptions,

    /// Keep the results in this folder too, as ID.json, ID-table-N.csv, ID-curves-N.csv and ID-curves-N.svg; must exist
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// End with status 1 if a cell is outside its tolerance or a check does not hold
    #[arg(long)]
    pub(super) check: bool,
}

/// How to run.
#[derive(Args, Debug)]
pub(super) struct ConditionOptions {
    /// What all randomness comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Independent runs of each point [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPLICATIONS_MAX)))]
    replications: Option<u32>,

    /// Of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    confidence: f64,

    /// Add runs of each point until the intervals of its throughput and delay are at most this many percent of their means wide to each
    /// side, 200 runs at most
    #[arg(long, value_name = "PERCENT")]
    precision: Option<f64>,

    /// Short runs: a first look
    #[arg(long)]
    quick: bool,

    /// Threads that work at once; their number changes no result [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,

    /// The result as one JSON object, in the format of docs/spec/study.md
    #[arg(long)]
    pub(super) json: bool,
}

impl ConditionOptions {
    /// How studies are run.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn options(&self) -> Result<Options, String> {
        if !(50.0..=99.9).contains(&self.confidence) {
            return Err(format!("--confidence takes 50 to 99.9 percent, not {}", self.confidence));
        }
        if let Some(percent) = self.precision.filter(|percent| !(0.1..=50.0).contains(percent)) {
            return Err(format!("--precision takes 0.1 to 50 percent, not {percent}"));
        }
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Options {
            seed: self.seed,
            replications: self.replications.unwrap_or(if self.quick { REPLICATIONS_QUICK } else { REPLICATIONS }),
            confidence: self.confidence / 100.0,
            precision: self.precision.map(|percent| percent / 100.0),
            effort: if self.quick { Effort::Quick } else { Effort::Full },
            threads: self.threads.map_or_else(processors, usize::from),
        })
    }
}

impl RunOptions {
    /// Whether what was asked for can be written.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn check_folder(&self) -> Result<(), String> {
        let Some(folder) = &self.out else { return Ok(()) };
        if !folder.is_dir() {
            return Err(format!("--out needs a folder that exists: {}", folder.display()));
        }
        // A file that is gone at once: permissions alone do not tell.
        let probe = tempfile::Builder::new().prefix(".litz-study-").tempfile_in(folder);
        probe.map(drop).map_err(|error| format!("--out: cannot write into {}: {error}", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        conditions: ConditionOptions,
    }

    fn options(words: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from(["study"].iter().chain(words)).expect("well-formed");
        line.conditions.options()
    }

    #[test]
    fn percentages_become_shares_and_impossible_ones_are_refused_by_name() {
        let precise = options(&["--precision", "5", "--confidence", "95"]).unwrap();
        assert_eq!((precise.precision, precise.confidence), (Some(0.05), 0.95));
        assert_eq!(options(&[]).unwrap().precision, None);
        for (words, name) in [(["--precision", "0"], "--precision"), (["--confidence", "100"], "--confidence")] {
            let error = options(&words).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
