//! How many processors and rings 300 Mb/s take, and what fails without stopping it.

use units::Duration;

use super::config::{Config, Failure};
use super::paper::{Kind, paper};
use super::runs::{Point, ours, point, shown, throughput_and_delay};
use crate::outcome::{Column, Plot, Row, Series, Table};
use crate::{Cell, Check, Effort, Options, Outcome, Study};

/// Processors and rings for the goal.
pub(super) struct Least;
/// What fails.
pub(super) struct Failures;

/// Processors and rings of the grid: quick runs have what the checks need.
const fn counts(effort: Effort) -> &'static [usize] {
    match effort {
        Effort::Quick => &[1, 3, 4, 5, 6],
        Effort::Full => &[1, 2, 3, 4, 5, 6, 7, 8],
    }
}

/// Throughput by processors and rings.
struct Grid {
    kind: Kind,
    counts: &'static [usize],
    /// A row for each number of processors.
    throughputs: Vec<Vec<measure::Estimate>>,
}

impl Study for Least {
    fn id(&self) -> &'static str {
        "004-least"
    }

    fn title(&self) -> &'static str {
        "The fewest processors and rings that carry 300 Mb/s"
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            notes: vec![
                "Six rings are the least here too. Of processors three nearly do: what a fourth adds is small, as the rings are the limit."
                    .to_owned(),
            ],
            ..Outcome::default()
        };
        for kind in [Kind::TwoBus, Kind::OneBus] {
            let grid = Grid::new(kind, options);
            outcome.tables.push(grid.table());
            outcome.plots.push(grid.plot());
            outcome.checks.extend(grid.checks());
        }
        outcome
    }
}

impl Grid {
    fn new(kind: Kind, options: &Options) -> Self {
        let counts = counts(options.effort);
        let of = |protocol_processors: usize, interfaces: usize| {
            let measured = Duration::from_millis(200);
            point(options, &Config { protocol_processors, interfaces, measured, ..Config::new(kind) }).throughput
        };
        let row = |&processors: &usize| counts.iter().map(|&interfaces| of(processors, interfaces)).collect();
        Self { kind, counts, throughputs: counts.iter().map(row).collect() }
    }

    fn at(&self, processors: usize, interfaces: usize) -> f64 {
        let place = |count: usize| self.counts.iter().position(|&at| at == count).expect("one of the grid");
        self.throughputs[place(processors)][place(interfaces)].mean
    }

    fn checks(&self) -> [Check; 4] {
        let (goal, name) = (paper().common.goal_mbps, self.kind.name());
        let enough = |mbps: f64| mbps > 0.97 * goal;
        let (whole, fewer_processors, fewer_rings) = (self.at(4, 6), self.at(3, 6), self.at(4, 5));
        let shares: Vec<f64> =
            self.counts.iter().map(|&count| self.at(count, count) / (count as f64 * self.at(1, 1))).collect();
        let linear = self.counts.iter().zip(&shares).all(|(&count, share)| count > 5 || (share - 1.0).abs() < 0.15);
        [
            Check::new(
                format!("{name}: 4 processors and 6 rings carry about {goal:.0} Mb/s (97 %)"),
                enough(whole),
                format!("{whole:.0} Mb/s"),
            ),
            Check::new(format!("{name}: 5 rings are too few"), !enough(fewer_rings), format!("{fewer_rings:.0} Mb/s")),
            Check::new(
                format!("{name}: 3 processors are too few"),
                !enough(fewer_processors),
                format!("{fewer_processors:.0} Mb/s"),
            ),
            Check::new(
                format!("{name}: as many processors as rings scale linearly up to 5 of each (within 15 %)"),
                linear,
                format!("{:?} of each: {shares:.2?} of linear", self.counts),
            ),
        ]
    }

    fn table(&self) -> Table {
        let row = |(count, row): (&usize, &Vec<measure::Estimate>)| Row {
            label: format!("processors: {count}"),
            cells: row.iter().map(|&estimate| Cell::ours(estimate)).collect(),
        };
        Table {
            title: format!("{}: throughput, uniform load", self.kind.name()),
            columns: self.counts.iter().map(|rings| Column::new(&format!("rings: {rings}"), "Mb/s")).collect(),
            rows: self.counts.iter().zip(&self.throughputs).map(row).collect(),
        }
    }

    fn plot(&self) -> Plot {
        let series = |(count, row): (&usize, &Vec<measure::Estimate>)| Series {
            name: format!("processors: {count}"),
            points: self.counts.iter().zip(row).map(|(&rings, &estimate)| (rings as f64, estimate)).collect(),
        };
        Plot {
            title: format!("{}: throughput by rings", self.kind.name()),
            x: Column::new("rings", ""),
            y: Column::new("throughput", "Mb/s"),
            series: self.counts.iter().zip(&self.throughputs).map(series).collect(),
        }
    }
}

impl Study for Failures {
    fn id(&self) -> &'static str {
        "004-failures"
    }

    fn title(&self) -> &'static str {
        "Processors and channels that fail while data are sent"
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            notes: vec![
                "A processor that fails takes its connection with it: its segments go back to the application's scheduler. A ring that fails \
                 takes no more packets, and those before it go elsewhere; the frame in its interface still leaves, as no timers \
                 are active."
                    .to_owned(),
                "Throughput is from the failure on. The serial machine has one of each, so either failure ends it.".to_owned(),
            ],
            ..Outcome::default()
        };
        for kind in [Kind::OneBus, Kind::TwoBus] {
            let of = |processors: usize, interfaces: usize| {
                let failure = Failure { processors, interfaces };
                point(options, &Config { failure, ..Config::new(kind) })
            };
            let processors: Vec<Point> = (0..4).map(|count| of(count, 0)).collect();
            let channels: Vec<Point> = (0..6).map(|count| of(0, count)).collect();
            let rows = |what: &str, points: &[Point]| -> Vec<Row> {
                points.iter().enumerate().map(|(count, point)| ours(format!("{count} {what}"), point)).collect()
            };
            let mut all = rows("processors failed", &processors);
            all.extend(rows("channels failed", &channels).into_iter().skip(1));
            outcome.tables.push(Table {
                title: format!("{}, uniform load", kind.name()),
                columns: throughput_and_delay(),
                rows: all,
            });
            outcome.checks.extend(degradation(kind, "processors", &processors));
            outcome.checks.extend(degradation(kind, "channels", &channels));
        }
        outcome
    }
}

/// Something is carried with one left, and what is left carries at least its share.
fn degradation(kind: Kind, what: &str, points: &[Point]) -> [Check; 2] {
    let count = points.len();
    let whole = points[0].throughput.mean;
    let shares: Vec<f64> = points
        .iter()
        .enumerate()
        .map(|(failed, point)| point.throughput.mean / (whole * (count - failed) as f64 / count as f64))
        .collect();
    let last = &points[count - 1];
    [
        Check::new(
            format!("{}: data still arrive with one of {count} {what} left", kind.name()),
            last.throughput.mean > 0.0 && last.delay.mean > 0.0,
            format!("{} Mb/s", shown(last.throughput)),
        ),
        Check::new(
            format!("{}: throughput falls no faster than the number of {what} (10 %)", kind.name()),
            shares.iter().all(|&share| share > 0.9),
            format!("{shares:.2?} of what is proportional"),
        ),
    ]
}
