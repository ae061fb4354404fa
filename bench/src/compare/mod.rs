//! Runs contenders in turn, interleaved, keeps every figure, and reports which targets are met.

mod dips;
mod figures;
mod file;
pub mod machine;
pub mod process;
mod run;
pub mod statistics;
mod table;
mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::contender::{Failure, Name};
use crate::namespaces::Namespaces;
use crate::work::{Figures, Test, Timing};
use machine::Machine;
use run::{Case, Run};
use targets::Verdict;

pub use file::FileFigures;

/// Counted rounds of the tests that take long: their figures hardly vary.
const LONG_TEST_RUNS: usize = 3;
/// Seconds of the key-update test: long enough for some updates.
const KEY_UPDATE_TIME_S: f64 = 15.0;

/// The arguments of a run.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Counted rounds of each test
    #[arg(long, default_value_t = 7)]
    runs: usize,
    #[command(flatten)]
    timing: Timing,
    /// Only these tests
    #[arg(long, value_delimiter = ',')]
    tests: Vec<Test>,
    /// Only these contenders
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<Name>,
    /// MTUs of the bulk test
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 9000])]
    mtus: Vec<u16>,
    /// Connections of the idle test
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Let the kernel choose processors, instead of one processor for each side
    #[arg(long)]
    no_pin: bool,
    /// MiB of the file of the file test; three of them are in memory at a time
    #[arg(long, default_value_t = 2048)]
    file_mib: u64,
    /// The `litz` command; without it, the one in the folder of this program
    #[arg(long)]
    litz: Option<PathBuf>,
}

#[derive(Serialize)]
struct Results {
    date_unix: u64,
    commit: String,
    machine: Machine,
    versions: BTreeMap<String, String>,
    warm_up_s: f64,
    time_s: f64,
    pinned: bool,
    verdicts: Vec<Verdict>,
    failures: Vec<String>,
    runs: Vec<Run>,
}

impl Plan {
    /// The tests, each at its MTUs.
    fn cases(&self) -> Vec<Case> {
        let tests = if self.tests.is_empty() { Test::value_variants() } else { &self.tests[..] };
        let mut cases = Vec::new();
        for &test in tests {
            let mtus = if test == Test::Bulk { &self.mtus[..] } else { &[1500] };
            cases.extend(mtus.iter().map(|&mtu| Case { test, mtu }));
        }
        cases
    }

    /// Counted rounds of `test`.
    fn runs(&self, test: Test) -> usize {
        if is_long(test) { self.runs.min(LONG_TEST_RUNS) } else { self.runs }
    }

    /// Seconds counted in `test`.
    fn time(&self, test: Test) -> f64 {
        if test == Test::KeyUpdate { KEY_UPDATE_TIME_S } else { self.timing.time }
    }

    /// The time after which a process of `test` counts as hung.
    fn limit(&self, test: Test) -> Duration {
        let slack_s = if test.is_idle() { 300.0 } else { 30.0 };
        Duration::from_secs_f64(self.timing.warm_up + self.time(test) + slack_s)
    }

    /// The command that the file test runs.
    fn litz_command(&self) -> Result<PathBuf, Failure> {
        match &self.litz {
            Some(command) => Ok(command.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("litz")),
        }
    }

    /// The contenders that take part in `test`.
    fn contenders(&self, test: Test) -> Vec<Name> {
        let all = if self.contenders.is_empty() { Name::value_variants() } else { &self.contenders[..] };
        all.iter().copied().filter(|name| name.does(test)).collect()
    }
}

/// Neither a warm-up round nor many rounds.
const fn is_long(test: Test) -> bool {
    test.is_idle() || matches!(test, Test::KeyUpdate)
}

/// The rounds measured so far.
struct Session<'a> {
    plan: &'a Plan,
    file: Option<file::TestFile>,
    runs: Vec<Run>,
    failures: Vec<String>,
}

impl Session<'_> {
    /// All rounds of one case, contenders in turn.
    fn measure(&mut self, case: Case) {
        let counted = self.plan.runs(case.test);
        // One more round than counted: the first warms caches, clock frequencies and memory.
        let first = usize::from(is_long(case.test));
        for round in first..=counted {
            for contender in self.plan.contenders(case.test) {
                let load = machine::load();
                match self.one(contender, case) {
                    Ok((server, client)) if round > 0 => {
                        self.runs.push(Run { case, contender, round: round - 1, load, server, client });
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let failure = format!("{case}, {}, round {round}: {error}", run::value_name(&contender));
                        eprintln!("\n{failure}");
                        self.failures.push(failure);
                    }
                }
            }
            eprint!("\r{case}: round {round} of {counted}   ");
        }
        eprintln!();
    }

    fn one(&self, contender: Name, case: Case) -> Result<(Figures, Figures), Failure> {
        let Some(file) = self.file.as_ref().filter(|_| case.test == Test::File) else {
            return run::one(self.plan, contender, case);
        };
        let network = run::one(self.plan, contender, Case { test: Test::Bulk, ..case })?.0;
        let network_bps = network.goodput_bps.ok_or("the bulk test has no goodput")?;
        let file = Some(file.measure(network_bps)?);
        Ok((Figures::default(), Figures { file, ..Figures::default() }))
    }
}

/// Runs the plan, prints medians and verdicts, writes the raw results below `results`.
pub fn run(plan: &Plan, results: &Path) -> Result<(), Failure> {
    let namespaces = Namespaces::make()?;
    let machine = machine::describe();
    let cases = plan.cases();
    let file = match cases.iter().any(|case| case.test == Test::File) {
        true => Some(file::TestFile::make(plan.file_mib << 20, &plan.litz_command()?)?),
        false => None,
    };
    let mut session = Session { plan, file, runs: Vec::new(), failures: Vec::new() };
    for case in cases {
        namespaces.set_mtu(case.mtu)?;
        session.measure(case);
    }
    let Session { runs, failures, .. } = session;
    table::print(&runs);
    let verdicts = targets::evaluate(&runs);
    targets::print(&verdicts);
    for failure in &failures {
        println!("failed: {failure}");
    }
    let date_unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let results_file = results.join(format!("compare-{date_unix}.json"));
    let all = Results {
        date_unix,
        commit: machine::commit(),
        machine,
        versions: machine::versions()?,
        warm_up_s: plan.timing.warm_up,
        time_s: plan.timing.time,
        pinned: !plan.no_pin,
        verdicts,
        failures,
        runs,
    };
    std::fs::create_dir_all(results)?;
    std::fs::write(&results_file, serde_json::to_string_pretty(&all)? + "\n")?;
    println!("\nraw results: {}", results_file.display());
    Ok(())
}
