//! Setups run as often as asked, and tables of them.

use measure::Estimate;
use sim::replicate::Replications;
use units::Duration;

use super::model::{Measured, run};
use super::paper::{Case, Throughputs};
use super::setup::{Application, Network, Setup};
use crate::outcome::{Assumption, Cell, Check, Column, Row, Sensitivity, Table};
use crate::study::{Effort, Options};

/// The pairs of schedulers that the document compares, in the order of its rows.
pub(super) const POLICIES: [(Application, Network); 3] = [
    (Application::Fixed, Network::Fixed),
    (Application::Adaptive, Network::Fixed),
    (Application::Adaptive, Network::Adaptive),
];

/// What a table of this document is promised to be within.
pub(super) const TOLERANCE: f64 = 0.10;

/// Replications of what is asked for sensitivity: two give an interval.
const SENSITIVITY_RUNS_MAX: u32 = 2;

/// A setup's figures over all replications.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) mbps: Estimate,
    pub(super) latency_us: Estimate,
    pub(super) interface_frames: Estimate,
    pub(super) moved: Estimate,
    pub(super) stopped: Estimate,
    /// By gateway.
    pub(super) gateway_mbps: Vec<Estimate>,
}

/// Which figure of a point.
pub(super) type Figure<'a> = &'a dyn Fn(&Point) -> Estimate;

/// Runs `setup`.
pub(super) fn measure(setup: &Setup, options: &Options) -> Point {
    let (warm_up, span) = match options.effort {
        Effort::Quick => (Duration::from_millis(50), Duration::from_millis(150)),
        Effort::Full => (Duration::from_millis(300), Duration::from_secs(3)),
    };
    let replications = Replications {
        confidence: options.confidence,
        threads: options.threads,
        ..Replications::new(options.seed, u64::from(options.replications.max(1)))
    };
    let runs = replications.run(|seed, number| run(setup, seed, number, warm_up, span));
    let estimate = |figure: &dyn Fn(&Measured) -> f64| {
        Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>(), options.confidence)
    };
    Point {
        mbps: estimate(&|run| run.mbps),
        latency_us: estimate(&|run| run.latency_us),
        interface_frames: estimate(&|run| run.interface_frames),
        moved: estimate(&|run| run.moved),
        stopped: estimate(&|run| run.stopped),
        gateway_mbps: (0..setup.gateways).map(|index| estimate(&|run| run.gateway_mbps[index])).collect(),
    }
}

/// Every pair of schedulers in every case, at so much of the capacity.
pub(super) struct Grid {
    /// By pair of schedulers, then by case.
    points: Vec<Vec<Point>>,
}

impl Grid {
    pub(super) fn run(offered_percent_of_capacity: f64, options: &Options) -> Self {
        let point = |(application, network), case| {
            measure(&Setup::new(offered_percent_of_capacity, case).with(application, network), options)
        };
        let row = |policy| Case::ALL.iter().map(|&case| point(policy, case)).collect();
        Self { points: POLICIES.into_iter().map(row).collect() }
    }

    pub(super) fn at(&self, policy: (Application, Network), case: Case) -> &Point {
        let row = POLICIES.iter().position(|&other| other == policy).expect("one of the three");
        let column = Case::ALL.iter().position(|&other| other == case).expect("one of the four");
        &self.points[row][column]
    }

    /// The document's table beside it. `is_fitted` tells which cells parameters were chosen by.
    pub(super) fn compared(
        &self,
        paper: &Throughputs,
        is_fitted: &dyn Fn((Application, Network), Case) -> bool,
    ) -> Table {
        let row = |policy| {
            let cell = |&case: &Case| {
                let (application, network) = policy;
                let printed = paper.mbps(application, network, case);
                let cell = Cell::compared(printed, self.at(policy, case).mbps, TOLERANCE);
                if is_fitted(policy, case) { cell.fitted() } else { cell }
            };
            Row { label: label(policy), cells: Case::ALL.iter().map(cell).collect() }
        };
        Table {
            title: format!("Throughput at {} % of the available capacity", paper.offered_percent_of_capacity),
            columns: Case::ALL.map(|case| Column::new(case.name(), "Mb/s")).to_vec(),
            rows: POLICIES.into_iter().map(row).collect(),
        }
    }

    /// What the runs were like: what explains the throughputs.
    pub(super) fn explained(&self) -> Table {
        let percent = |share: Estimate| Estimate {
            mean: share.mean * 100.0,
            plus_minus: share.plus_minus.map(|half| half * 100.0),
        };
        let figures: [(&str, &str, Figure<'_>); 4] = [
            ("from generator to acknowledgement", "us", &|point| point.latency_us),
            ("generators stopped", "%", &|point| percent(point.stopped)),
            ("packets moved to the neighbour's network unit", "%", &|point| percent(point.moved)),
            ("frames at a ring's network units", "frames", &|point| point.interface_frames),
        ];
        let mut rows = Vec::new();
        for (title, unit, figure) in figures {
            for policy in POLICIES {
                rows.push(Row {
                    label: format!("{}: {title}, {unit}", label(policy)),
                    cells: Case::ALL.iter().map(|&case| Cell::ours(figure(self.at(policy, case)))).collect(),
                });
            }
        }
        let columns = Case::ALL.map(|case| Column::new(case.name(), "")).to_vec();
        Table { title: "What the runs were like".to_owned(), columns, rows }
    }

    /// An ordering that the document's table shows and ours must: `more` carries at least what `less` does.
    pub(super) fn ordered(
        &self,
        statement: &str,
        more: ((Application, Network), Case),
        less: ((Application, Network), Case),
    ) -> Check {
        let [more, less] = [more, less].map(|(policy, case)| self.at(policy, case).mbps.mean);
        Check::new(statement, more >= less, format!("{more:.1} against {less:.1} Mb/s"))
    }
}

/// As a row's label.
pub(super) fn label((application, network): (Application, Network)) -> String {
    let application = match application {
        Application::Fixed => "fixed",
        Application::Adaptive => "adaptive",
    };
    let network = match network {
        Network::Fixed => "fixed",
        Network::Adaptive => "adaptive",
    };
    format!("{application}/{network}")
}

/// What was assumed, and what `figure` of `setup` becomes with other values.
pub(super) fn assumptions(setup: &Setup, name: &str, figure: Figure<'_>, options: &Options) -> Vec<Assumption> {
    let options = Options { replications: options.replications.min(SENSITIVITY_RUNS_MAX), ..*options };
    let sensitivity = |(value, change): super::assumptions::Other| Sensitivity {
        value: value.to_owned(),
        figure: name.to_owned(),
        ours: figure(&measure(&changed(setup, change), &options)),
    };
    super::assumptions::all()
        .into_iter()
        .map(|choice| Assumption {
            key: choice.key.to_owned(),
            value: choice.value,
            reason: choice.reason.to_owned(),
            sensitivity: choice.others.into_iter().map(sensitivity).collect(),
        })
        .collect()
}

fn changed(setup: &Setup, change: fn(&mut Setup)) -> Setup {
    let mut setup = setup.clone();
    change(&mut setup);
    setup
}
