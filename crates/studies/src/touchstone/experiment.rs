//! Replicated runs of setups, and tables of them.

use measure::Estimate;
use units::Duration;

use super::model::{Measured, run};
use super::paper::{Case, Throughputs};
use super::setup::{Application, Network, Setup};
use crate::outcome::{Cell, Check, Column, Row, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options};
use crate::warm_up;

/// The pairs of schedulers that the report compares, in the order of its rows.
pub(super) const POLICIES: [(Application, Network); 3] = [
    (Application::Fixed, Network::Fixed),
    (Application::Adaptive, Network::Fixed),
    (Application::Adaptive, Network::Adaptive),
];

/// Tolerance of the tables.
pub(super) const TOLERANCE: f64 = 0.10;

/// The figures of a setup over all replications.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) mbps: Estimate,
    pub(super) latency_us: Estimate,
    pub(super) interface_frames: Estimate,
    pub(super) moved: Estimate,
    pub(super) stopped: Estimate,
    /// Throughput by gateway.
    pub(super) gateway_mbps: Vec<Estimate>,
}

/// A figure of a point.
pub(super) type Figure<'a> = &'a dyn Fn(&Point) -> Estimate;

/// Warm-up of full runs.
const WARM_UP: Duration = Duration::from_millis(300);

/// Checks that it is long enough for `setups`, by the latencies of segments.
pub(super) fn warm_up_check(setups: &[Setup], options: &Options) -> Check {
    let few = Options { replications: 2, precision: None, ..*options };
    let mut all = Vec::new();
    for setup in setups {
        let whole = |seed, number| match run(setup, seed, number, Duration::ZERO, WARM_UP * 5) {
            Ok(measured) => measured.latencies_us,
            Err(error) => panic!("invalid machine of a study: {error}"),
        };
        all.extend(replicate(&few, whole, |_| Vec::new()).into_iter().map(|series| (WARM_UP, series)));
    }
    warm_up::check("latencies of segments", &all)
}

/// Runs `setup`.
pub(super) fn measure(setup: &Setup, options: &Options) -> Point {
    let (warm_up, span) = match options.effort {
        Effort::Quick => (Duration::from_millis(50), Duration::from_millis(150)),
        Effort::Full => (WARM_UP, Duration::from_secs(3)),
    };
    let one = |seed, number| match run(setup, seed, number, warm_up, span) {
        Ok(measured) => measured,
        Err(error) => panic!("invalid machine of a study: {error}"),
    };
    let runs = replicate(options, one, |run| vec![run.mbps, run.latency_us]);
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

/// All pairs of schedulers in all cases, at one offered load.
pub(super) struct Grid {
    /// Points by pair of schedulers, then by case.
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

    /// Returns the comparison with the report's table. `is_fitted` marks the cells that parameters
    /// were fitted to.
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

    /// Returns internal figures that explain the throughputs.
    pub(super) fn explained(&self) -> Table {
        let percent = |share: Estimate| Estimate {
            mean: share.mean * 100.0,
            plus_minus: share.plus_minus.map(|half| half * 100.0),
        };
        let figures: [(&str, &str, Figure<'_>); 4] = [
            ("latency from generator to acknowledgement", "us", &|point| point.latency_us),
            ("generators stopped", "%", &|point| percent(point.stopped)),
            ("packets moved to the neighbour's network unit", "%", &|point| percent(point.moved)),
            ("frames at the network units of a ring", "frames", &|point| point.interface_frames),
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
        Table { title: "Internal figures of the runs".to_owned(), columns, rows }
    }

    /// Checks an ordering of the report's table: `more` carries at least as much as `less` does.
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

/// Formats a pair of schedulers as a row's label.
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
