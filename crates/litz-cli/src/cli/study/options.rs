//! The arguments of `litz study`, and checks of their combinations.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use studies::{Effort, Options};

/// Default number of replications of each point: enough for a useful interval, and few enough that
/// all studies take minutes.
const REPLICATIONS: u32 = 5;

/// The same with `--quick`: the minimum for a meaningful variance.
const REPLICATIONS_QUICK: u32 = 3;

/// More replications do not narrow the intervals visibly.
const REPLICATIONS_MAX: u32 = 1000;

/// Limit of `--threads`, beyond any machine in use.
const THREADS_MAX: u16 = 1024;

/// The end of the help texts of the commands that run nothing.
const READ_HELP: &str = "\
Exit status:
  0    done
  2    an error: bad arguments, an unknown name";

/// The end of the help text of `claims`.
const CLAIMS_HELP: &str = "\
A claim is a falsifiable statement of a paper. It is decided by running studies or models: it holds, is refuted, \
or is not decidable here. A refutation is a result, not an error.

Exit status:
  0    all claims were decided, whatever the verdicts
  2    an error: bad arguments, an unknown name
  130  interrupted";

/// The end of the help text.
pub(crate) const HELP: &str = "\
A study repeats an experiment of a paper in virtual time, without sockets and clocks. The same version, seed \
and options give the same result to the byte, on any number of threads. Each cell contains the paper's value, \
the value computed here with its interval, the difference, and whether it is within the tolerance. Cells to \
which a parameter was fitted are marked `fitted` and are no evidence. Parameters that the paper does not \
state are listed, with the results of other choices; --quick omits those results.

A claim is a falsifiable statement of a paper. `litz study claims` decides each by running studies or \
models: holds, refuted or not decidable here. A refutation is a result, not an error.

Exit status:
  0    all studies ran
  1    with --check: a cell is outside its tolerance, or a check does not hold
  2    an error: bad arguments, an unknown name, a file that cannot be written
  130  interrupted; studies that had finished are printed and written";

#[derive(Args, Debug)]
pub(crate) struct StudyOptions {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List the studies
    #[command(after_help = READ_HELP)]
    List {
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// Show what studies examine and assume, without running them
    #[command(after_help = READ_HELP)]
    Show {
        /// Names of studies, from `litz study list`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Run studies and print the papers' values, ours and the differences
    #[command(after_help = HELP)]
    Run {
        /// Names of studies, from `litz study list`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,

        #[command(flatten)]
        options: RunOptions,
    },
    /// Run all studies
    #[command(after_help = HELP)]
    All(RunOptions),
    /// Decide the papers' claims (holds, refuted or not decidable here) and print the evidence
    #[command(after_help = CLAIMS_HELP)]
    Claims {
        /// Names of claims, such as 002-03, or of documents, such as 002 [default: all]
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

    /// Also write the results into this folder, as ID.json, ID-table-N.csv, ID-curves-N.csv and
    /// ID-curves-N.svg; must exist
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// End with status 1 if a cell is outside its tolerance or a check does not hold
    #[arg(long)]
    pub(super) check: bool,
}

/// Conditions of the runs.
#[derive(Args, Debug)]
pub(super) struct ConditionOptions {
    /// Seed of all randomness
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Number of independent runs of each point [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPLICATIONS_MAX)))]
    replications: Option<u32>,

    /// Confidence level of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    confidence: f64,

    /// Repeat each point until the half-widths of the intervals of its throughput and delay are at
    /// most this percentage of their means, with at most 200 runs
    #[arg(long, value_name = "PERCENT")]
    precision: Option<f64>,

    /// Use short runs, for a first look
    #[arg(long)]
    quick: bool,

    /// Number of threads; it does not change the results [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,

    /// Print the result as one JSON object, in the format of docs/spec/study.md
    #[arg(long)]
    pub(super) json: bool,
}

impl ConditionOptions {
    /// Checks the arguments and returns the options of the runs.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn options(&self) -> Result<Options, String> {
        if !(50.0..=99.9).contains(&self.confidence) {
            return Err(format!("--confidence must be from 50 to 99.9 percent, not {}", self.confidence));
        }
        if let Some(percent) = self.precision.filter(|percent| !(0.1..=50.0).contains(percent)) {
            return Err(format!("--precision must be from 0.1 to 50 percent, not {percent}"));
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
    /// Checks that the output can be written.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn check_folder(&self) -> Result<(), String> {
        let Some(folder) = &self.out else { return Ok(()) };
        if !folder.is_dir() {
            return Err(format!("--out: there is no folder {}", folder.display()));
        }
        // Creates a temporary file, because permissions alone do not show whether this works.
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

    fn options(arguments: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from(["study"].iter().chain(arguments)).expect("well-formed");
        line.conditions.options()
    }

    #[test]
    fn percentages_become_fractions_and_invalid_ones_are_refused() {
        let precise = options(&["--precision", "5", "--confidence", "95"]).unwrap();
        assert_eq!((precise.precision, precise.confidence), (Some(0.05), 0.95));
        assert_eq!(options(&[]).unwrap().precision, None);
        for (arguments, name) in [(["--precision", "0"], "--precision"), (["--confidence", "100"], "--confidence")] {
            let error = options(&arguments).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
