//! Several links at once: Litz compared with Multipath TCP, TCP over the best link, and noq, in one
//! run.
//!
//! | module | what it holds |
//! |---|---|
//! | `case` | links, workloads, targets |
//! | `contender` | the contenders |
//! | `world` | namespaces, links, kernel settings for TCP and Multipath TCP |
//! | `side`, `arrivals` | the two processes of a run: their arguments, counters and reports |
//! | `litz`, `tcp`, `noq` | the contenders |
//! | `run`, `failover` | one run |
//! | `figures`, `targets`, `table`, `plot` | results |

mod arrivals;
mod case;
mod contender;
mod failover;
mod figures;
mod litz;
#[cfg(feature = "noq")]
mod noq;
mod plot;
mod run;
mod side;
mod table;
mod targets;
mod tcp;
mod world;

use std::collections::BTreeMap;
use std::path::Path;

use ::litz::units::Rng;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::compare::machine::{self, Machine};
use crate::contender::Failure;
use case::Case;
use contender::{Contender, Controller};
use run::{Row, Run};
use targets::{FailedRound, Verdict};

pub use side::{Drive, Serve, drive, serve};

/// The arguments of a run.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Only these cases
    #[arg(long = "case", num_args = 1.., value_delimiter = ',')]
    cases: Vec<Case>,
    /// Only these contenders
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    contenders: Vec<Contender>,
    /// Only these congestion controllers
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    controllers: Vec<Controller>,
    /// Rounds: each contender runs once in each, in random order
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds of sending, except where a case has a time of its own
    #[arg(long, default_value_t = 10.0)]
    time: f64,
    /// Only these links of each case, counted from zero: shares are still of the capacity of all
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    links: Vec<usize>,
    /// Seed of the order in which contenders run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Results<'a> {
    date_unix: u64,
    commit: String,
    machine: &'a Machine,
    versions: BTreeMap<String, String>,
    seed: u64,
    warm_up_s: f64,
    time_s: f64,
    links: &'a [usize],
    verdicts: &'a [Verdict],
    failures: &'a [FailedRound],
    runs: &'a [Run],
}

impl Plan {
    fn cases(&self) -> &[Case] {
        if self.cases.is_empty() { Case::value_variants() } else { &self.cases }
    }

    /// The links that `row` uses, the best one first.
    fn links(&self, case: Case, row: Row) -> Vec<usize> {
        let all = case.lines().len();
        let mut links: Vec<usize> =
            (0..all).filter(|link| self.links.is_empty() || self.links.contains(link)).collect();
        links.truncate(row.contender.links(all));
        links
    }

    fn rows(&self, case: Case) -> Vec<Row> {
        let contenders = if self.contenders.is_empty() { case.contenders() } else { self.contenders.clone() };
        let controllers =
            if self.controllers.is_empty() { Controller::value_variants() } else { &self.controllers[..] };
        let of = |contender| controllers.iter().map(move |&controller| Row { contender, controller });
        contenders.into_iter().flat_map(of).collect()
    }
}

/// Runs the plan, prints the results, and writes raw results and plots below `results`.
pub fn run(plan: &Plan, results: &Path) -> Result<(), Failure> {
    remove_on_signal()?;
    let machine = machine::describe();
    let mut rng = Rng::from_seed(plan.seed);
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    for &case in plan.cases() {
        measure(plan, case, &mut rng, &mut runs, &mut failures);
    }
    table::print(&runs);
    let verdicts = targets::evaluate(&runs, &failures);
    targets::print(&verdicts);
    for failure in &failures {
        let FailedRound { case, row, round, error } = failure;
        println!("failed: {}, {row}, round {}: {error}", run::name(case), round + 1);
    }
    let date_unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let all = Results {
        date_unix,
        commit: machine::commit(),
        machine: &machine,
        versions: machine::versions()?,
        seed: plan.seed,
        warm_up_s: side::WARM_UP_S,
        time_s: plan.time,
        links: &plan.links,
        verdicts: &verdicts,
        failures: &failures,
        runs: &runs,
    };
    std::fs::create_dir_all(results)?;
    let file = results.join(format!("multipath-{date_unix}.json"));
    std::fs::write(&file, serde_json::to_string(&all)? + "\n")?;
    println!("\nraw results: {}", file.display());
    plot::draw(&runs, results, date_unix)?;
    if runs.is_empty() && !failures.is_empty() {
        return Err("nothing was measured".into());
    }
    Ok(())
}

/// All rounds of one case.
fn measure(plan: &Plan, case: Case, rng: &mut Rng, runs: &mut Vec<Run>, failures: &mut Vec<FailedRound>) {
    for round in 0..plan.runs {
        let mut rows = plan.rows(case);
        shuffle(&mut rows, rng);
        for (place, row) in rows.into_iter().enumerate() {
            let label = format!("{}, round {} of {}, {row}", run::name(&case), round + 1, plan.runs);
            match run::one(case, row, &plan.links(case, row), case.time_s().unwrap_or(plan.time)) {
                Ok(measured) => {
                    eprintln!("{label}: {}", measured.figures.describe());
                    for note in &measured.sent.notes {
                        eprintln!("    {note}");
                    }
                    runs.push(Run { round, place, ..measured });
                }
                Err(error) => {
                    eprintln!("{label}: {error}");
                    failures.push(FailedRound { case, row, round, error: error.to_string() });
                }
            }
        }
    }
}

/// All orders are equally likely (Fisher-Yates).
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// Removes namespaces and processes when the run is interrupted.
fn remove_on_signal() -> Result<(), Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            world::remove();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
