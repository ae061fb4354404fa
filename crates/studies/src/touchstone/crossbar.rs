//! 004-crossbar: the counter-experiment, with gateways that reach every network unit instead of
//! only the neighbour's.

use units::{Duration, Rate};

use super::assumptions::MainFigure;
use super::experiment::{POLICIES, Point, label, measure};
use super::paper::{Case, Throughputs};
use super::setup::{Acknowledgements, Application, Interconnect, Network, Setup};
use super::table_5::NOTES;
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Crossbar;

/// Rate at which a packet of 2000 bytes takes 16 ns.
const AT_ONCE: Rate = Rate::from_mbps(1_000_000);

struct Variant {
    interconnect: Interconnect,
    policy: (Application, Network),
    acknowledgements: Acknowledgements,
    moves_take_no_time: bool,
}

/// Variants; the first one is the reference for the others.
const VARIANTS: [Variant; 6] = [
    Variant::new(Interconnect::Array, POLICIES[1]),
    Variant::new(Interconnect::Array, POLICIES[2]),
    Variant::new(Interconnect::Crossbar, POLICIES[2]),
    Variant { moves_take_no_time: true, ..Variant::new(Interconnect::Array, POLICIES[2]) },
    Variant { moves_take_no_time: true, ..Variant::new(Interconnect::Crossbar, POLICIES[2]) },
    Variant {
        moves_take_no_time: true,
        acknowledgements: Acknowledgements::Each,
        ..Variant::new(Interconnect::Crossbar, POLICIES[2])
    },
];

// Indices into `VARIANTS`.
const FIXED_NETWORK: usize = 0;
const ARRAY: usize = 1;
const CROSSBAR: usize = 2;
const CROSSBAR_AT_ONCE: usize = 4;
const CROSSBAR_FREE: usize = 5;

impl Variant {
    const fn new(interconnect: Interconnect, policy: (Application, Network)) -> Self {
        Self { interconnect, policy, acknowledgements: Acknowledgements::Cumulative, moves_take_no_time: false }
    }

    fn label(&self) -> String {
        let interconnect = match self.interconnect {
            Interconnect::Array => "linear array",
            Interconnect::Crossbar => "crossbar",
        };
        let window = match self.acknowledgements {
            Acknowledgements::Cumulative => "",
            Acknowledgements::Each => ", each acknowledgement frees its own window slot",
        };
        let moves = if self.moves_take_no_time { ", moves take no time" } else { "" };
        format!("{interconnect}, {}{moves}{window}", label(self.policy))
    }
}

fn setup(variant: &Variant, case: Case) -> Setup {
    let offered = Throughputs::table_6().offered_percent_of_capacity;
    let mut setup = Setup::new(offered, case).with(variant.policy.0, variant.policy.1);
    setup.interconnect = variant.interconnect;
    setup.assumed.acknowledgements = variant.acknowledgements;
    if variant.moves_take_no_time {
        (setup.assumed.link_rate, setup.assumed.link_hop) = (AT_ONCE, Duration::ZERO);
    }
    setup
}

impl Study for Crossbar {
    fn id(&self) -> &'static str {
        "004-crossbar"
    }

    fn title(&self) -> &'static str {
        "Touchstone-like machine at 87 %: is the linear array the cause of the adaptive network scheduler's loss?"
    }

    fn data(&self) -> &'static [&'static str] {
        &["004-table-6.toml", "004-touchstone.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&MainFigure {
            name: "crossbar, adaptive/adaptive, one overloaded, Mb/s".to_owned(),
            setup: setup(&VARIANTS[CROSSBAR], Case::OneOverloaded),
            figure: |point| point.mbps,
        })
    }

    fn run(&self, options: &Options) -> Outcome {
        let offered = Throughputs::table_6().offered_percent_of_capacity;
        let points: Vec<_> =
            VARIANTS.iter().map(|variant| Case::ALL.map(|case| measure(&setup(variant, case), options))).collect();
        let row = |(variant, points): (&Variant, &[Point; 4])| Row {
            label: variant.label(),
            cells: points.iter().map(|point| Cell::ours(point.mbps)).collect(),
        };
        let table = Table {
            title: format!("Throughput at {offered} % of the available capacity"),
            columns: Case::ALL.map(|case| Column::new(case.name(), "Mb/s")).to_vec(),
            rows: VARIANTS.iter().zip(&points).map(row).collect(),
        };
        Outcome {
            tables: vec![table],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&points),
            notes: [
                "The adaptive application scheduler still tries one queue after the other, as in the array; only the \
                 network scheduler reaches all six network units.",
                "The report attributes the loss to the linear array. In this model that is at most a part of it: \
                 with all units in reach the loss is larger over links of the real machine's speed, because all \
                 gateways choose the same unit at the same time and wait for its port. It is smaller, but not zero, \
                 if moves take no time. Another part is reordering, which vanishes when each acknowledgement frees \
                 its own window slot. The rest is caused by window slots and tokens that are spent on slow rings.",
            ]
            .iter()
            .chain(&NOTES)
            .map(|&note| note.to_owned())
            .collect(),
            ..Outcome::default()
        }
    }
}

/// Checks claim 004-21: in a machine with a full crossbar the loss must vanish.
fn checks(points: &[[Point; 4]]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (index, case) in Case::ALL.into_iter().enumerate().skip(2) {
        let mbps = |variant: usize| points[variant][index].mbps.mean;
        let fixed = mbps(FIXED_NETWORK);
        checks.push(Check::new(
            format!("{}: in the linear array the adaptive network scheduler loses", case.name()),
            mbps(ARRAY) < fixed,
            format!("{:.1} against {fixed:.1} Mb/s", mbps(ARRAY)),
        ));
        checks.push(Check::new(
            format!("{}: with a crossbar the loss vanishes", case.name()),
            mbps(CROSSBAR) >= fixed * 0.99,
            format!("{:.1} against {fixed:.1} Mb/s", mbps(CROSSBAR)),
        ));
        checks.push(Check::new(
            format!("{}: with a crossbar whose moves take no time the loss vanishes", case.name()),
            mbps(CROSSBAR_AT_ONCE) >= fixed * 0.99,
            format!("{:.1} against {fixed:.1} Mb/s", mbps(CROSSBAR_AT_ONCE)),
        ));
        checks.push(Check::new(
            format!("{}: it vanishes if, in addition, each acknowledgement frees its own window slot", case.name()),
            mbps(CROSSBAR_FREE) >= fixed * 0.99,
            format!("{:.1} against {fixed:.1} Mb/s", mbps(CROSSBAR_FREE)),
        ));
    }
    checks
}
