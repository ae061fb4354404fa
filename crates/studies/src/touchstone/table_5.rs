//! 004-table-5: schedulers at low load.

use super::assumptions::MainFigure;
use super::experiment::{Grid, POLICIES, measure, warm_up_check};
use super::paper::{Case, Throughputs};
use super::setup::{Application, Network, Setup};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Check, Outcome};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Table5;

/// Notes on parameters, common to all studies of this machine.
pub(super) const NOTES: [&str; 4] = [
    "Six parameters (distribution of the load, message, HIGH, LOW, target rotation time, threshold of the network \
     scheduler) were fitted to the fixed/fixed rows of Tables 5 and 6 and to three more cells of Table 6 \
     (adaptive/fixed, uniform; adaptive/adaptive, no background and two overloaded). Those cells are marked; all \
     others are results. The rules of the model (generators stopped by a full queue, treatment of messages, meaning \
     of acknowledgements) were chosen with both tables known.",
    "Bit errors and the time of stop and start signals are not modelled; the assumptions show their effect.",
    "Generators are open-loop while they run: the load of a stopped one is lost, as in the tables, whose \
     fixed rows carry far less than the offered load.",
    "Throughput counts acknowledged data; latency is the time from a segment's generation to its acknowledgement.",
];

/// Fixed schedulers.
const FIXED: (Application, Network) = POLICIES[0];
/// The adaptive application scheduler alone.
const APPLICATION: (Application, Network) = POLICIES[1];
/// Both adaptive.
const BOTH: (Application, Network) = POLICIES[2];

/// Returns whether parameters were fitted to this row's cells: the fixed/fixed rows of both tables.
pub(super) fn is_fixed(policy: (Application, Network)) -> bool {
    policy == FIXED
}

impl Study for Table5 {
    fn id(&self) -> &'static str {
        "004-table-5"
    }

    fn title(&self) -> &'static str {
        "Touchstone-like machine at 37 % of its capacity: fixed and adaptive schedulers, idle and overloaded rings"
    }

    fn data(&self) -> &'static [&'static str] {
        &["004-table-5.toml", "004-touchstone.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&main_figure(&Throughputs::table_5()))
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughputs::table_5();
        let grid = Grid::run(paper.offered_percent_of_capacity, options);
        let main_figure = main_figure(&paper).setup;
        Outcome {
            tables: vec![grid.compared(&paper, &|policy, _| is_fixed(policy)), grid.explained()],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&grid, &main_figure, options),
            notes: NOTES.map(str::to_owned).to_vec(),
            ..Outcome::default()
        }
    }
}

fn main_figure(paper: &Throughputs) -> MainFigure {
    MainFigure {
        name: "fixed/fixed, no background, Mb/s".to_owned(),
        setup: Setup::new(paper.offered_percent_of_capacity, Case::Quiet),
        figure: |point| point.mbps,
    }
}

fn checks(grid: &Grid, main_figure: &Setup, options: &Options) -> Vec<Check> {
    let mut checks = Vec::new();
    for pair in Case::ALL.windows(2) {
        let statement = format!("fixed/fixed: {} carries at least as much as {}", pair[0].name(), pair[1].name());
        checks.push(grid.ordered(&statement, (FIXED, pair[0]), (FIXED, pair[1])));
    }
    for case in Case::ALL {
        let statement = format!("{}: adaptive/fixed carries more than fixed/fixed", case.name());
        checks.push(grid.ordered(&statement, (APPLICATION, case), (FIXED, case)));
        let [one, both] = [APPLICATION, BOTH].map(|policy| grid.at(policy, case).mbps.mean);
        let statement = format!("{}: the adaptive network scheduler changes little (2 %)", case.name());
        checks.push(Check::new(statement, (both / one - 1.0).abs() < 0.02, format!("{one:.1} and {both:.1} Mb/s")));
    }
    let busiest = Throughputs::table_6().offered_percent_of_capacity;
    let setups = [FIXED, APPLICATION, BOTH].map(|policy| Setup::new(busiest, Case::Uniform).with(policy.0, policy.1));
    checks.push(warm_up_check(&setups, options));
    let share = |policy, case| grid.at(policy, case).mbps.mean / grid.at(policy, Case::Quiet).mbps.mean;
    let kept = [APPLICATION, FIXED].map(|policy| share(policy, Case::TwoOverloaded));
    checks.push(Check::new(
        "adaptive application scheduling keeps its throughput with two channels overloaded, and fixed scheduling \
         loses a quarter or more",
        kept[0] > 0.90 && kept[1] < 0.75,
        format!("{:.0} % and {:.0} % of the throughput without background", kept[0] * 100.0, kept[1] * 100.0),
    ));
    let mut even = main_figure.clone();
    even.assumed.share_ratio = 1.0;
    let even = measure(&even, options).mbps.mean;
    let uneven = grid.at(FIXED, Case::Quiet).mbps.mean;
    checks.push(Check::new(
        "fixed scheduling loses both by bursts and by uneven generators",
        even < main_figure.offered_mbps * 0.95 && even > uneven,
        format!(
            "{even:.1} Mb/s with even generators, {uneven:.1} with uneven ones, of {:.1} offered",
            main_figure.offered_mbps
        ),
    ));
    checks
}
