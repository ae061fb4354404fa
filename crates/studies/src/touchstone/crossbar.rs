//! 004-crossbar: the counter-experiment. Gateways that reach every network unit, not the neighbour's only.

use super::experiment::{POLICIES, Point, assumptions, label, measure};
use super::paper::{Case, Throughputs};
use super::setup::{Application, Joined, Network, Setup};
use super::table_5::NOTES;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Crossbar;

const APPLICATION: (Application, Network) = POLICIES[1];
const BOTH: (Application, Network) = POLICIES[2];

impl Study for Crossbar {
    fn id(&self) -> &'static str {
        "004-crossbar"
    }

    fn title(&self) -> &'static str {
        "Touchstone-like machine at 87 %: is the linear array the cause of the adaptive network scheduler's loss?"
    }

    fn run(&self, options: &Options) -> Outcome {
        let offered = Throughputs::table_6().offered_percent_of_capacity;
        let setup = |joined, policy: (Application, Network), case| Setup {
            joined,
            ..Setup::new(offered, case).with(policy.0, policy.1)
        };
        let rows = [
            (Joined::Array, APPLICATION),
            (Joined::Array, BOTH),
            (Joined::Crossbar, APPLICATION),
            (Joined::Crossbar, BOTH),
        ];
        let points = rows.map(|(joined, policy)| Case::ALL.map(|case| measure(&setup(joined, policy, case), options)));
        let row = |((joined, policy), points): ((Joined, _), &[Point; 4])| Row {
            label: format!("{}, {}", name(joined), label(policy)),
            cells: points.iter().map(|point| Cell::ours(point.mbps)).collect(),
        };
        let table = Table {
            title: format!("Throughput at {offered} % of the available capacity"),
            columns: Case::ALL.map(|case| Column::new(case.name(), "Mb/s")).to_vec(),
            rows: rows.into_iter().zip(&points).map(row).collect(),
        };
        let headline = setup(Joined::Crossbar, BOTH, Case::OneOverloaded);
        Outcome {
            tables: vec![table],
            assumptions: assumptions(
                &headline,
                "crossbar, adaptive/adaptive, one overloaded, Mb/s",
                &|point| point.mbps,
                options,
            ),
            checks: checks(&points),
            notes: [
                "The adaptive application scheduler still asks one queue after the other, as in the array; what changes is that the \
                 network scheduler has all six network units in reach.",
            ]
            .iter()
            .chain(&NOTES)
            .map(|&note| note.to_owned())
            .collect(),
            ..Outcome::default()
        }
    }
}

const fn name(joined: Joined) -> &'static str {
    match joined {
        Joined::Array => "linear array",
        Joined::Crossbar => "crossbar",
    }
}

/// Claim 004-21: in a machine with a full crossbar the loss must vanish.
fn checks(points: &[[Point; 4]; 4]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (index, case) in Case::ALL.into_iter().enumerate().skip(2) {
        let [array, array_both, crossbar, crossbar_both] = [0, 1, 2, 3].map(|row| points[row][index].mbps.mean);
        checks.push(Check::new(
            format!("{}: in the linear array the adaptive network scheduler loses", case.name()),
            array_both < array,
            format!("{array_both:.1} against {array:.1} Mb/s"),
        ));
        checks.push(Check::new(
            format!("{}: with a crossbar the loss vanishes", case.name()),
            crossbar_both >= crossbar * 0.99,
            format!("{crossbar_both:.1} against {crossbar:.1} Mb/s"),
        ));
    }
    checks
}
