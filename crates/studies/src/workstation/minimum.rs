//! The smallest number of processors and rings for 300 Mb/s, and operation after failures.

use units::Duration;

use super::assumptions::MainFigure;
use super::config::{Config, Failure};
use super::paper::{DATA, Kind, paper};
use super::runs::{Point, ours, point, shown, throughput_and_delay, throughput_and_delay_by};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Plot, Row, Table};
use crate::study::{Effort, Options, Study};

/// The smallest configuration.
pub(super) struct Minimum;
/// Failures of processors and channels.
pub(super) struct Failures;

/// Returns the numbers of processors and rings in the grid. Quick runs have only those that the
/// checks need.
const fn counts(effort: Effort) -> &'static [usize] {
    match effort {
        Effort::Quick => &[1, 3, 4, 5, 6],
        Effort::Full => &[1, 2, 3, 4, 5, 6, 7, 8],
    }
}

/// Throughput and delay by number of processors and rings.
struct Grid {
    kind: Kind,
    counts: &'static [usize],
    /// One row per number of processors.
    points: Vec<Vec<Point>>,
}

impl Study for Minimum {
    fn id(&self) -> &'static str {
        "004-least"
    }

    fn title(&self) -> &'static str {
        "The smallest number of processors and rings for 300 Mb/s"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 2-bus, 3 processors, 6 rings, Mb/s", machine(Kind::TwoBus, 3, 6)),
            MainFigure::throughput("throughput, 1-bus, 4 processors, 5 rings, Mb/s", machine(Kind::OneBus, 4, 5)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "Fitted: that five rings are too few. The number of frames that an interface holds (one) was fitted \
                 to it; with two, fewer rings would be enough, as the assumptions show."
                    .to_owned(),
                "Three processors are almost enough: a fourth adds little, because the rings are the limit.".to_owned(),
            ],
            ..Outcome::default()
        };
        for kind in [Kind::TwoBus, Kind::OneBus] {
            let grid = Grid::new(kind, options);
            outcome.tables.extend(grid.tables());
            outcome.plots.extend(grid.plots());
            outcome.checks.extend(grid.checks());
        }
        outcome
    }
}

impl Grid {
    fn new(kind: Kind, options: &Options) -> Self {
        let counts = counts(options.effort);
        let of = |protocol_processors: usize, interfaces: usize| {
            point(options, &machine(kind, protocol_processors, interfaces))
        };
        let row = |&processors: &usize| counts.iter().map(|&interfaces| of(processors, interfaces)).collect();
        Self { kind, counts, points: counts.iter().map(row).collect() }
    }

    fn at(&self, processors: usize, interfaces: usize) -> f64 {
        let place = |count: usize| self.counts.iter().position(|&at| at == count).expect("in the grid");
        self.points[place(processors)][place(interfaces)].throughput.mean
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
            Check::new(
                format!("{name}: 5 rings are too few (fitted: the frames of an interface were fitted to it)"),
                !enough(fewer_rings),
                format!("{fewer_rings:.0} Mb/s"),
            ),
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

    fn tables(&self) -> [Table; 2] {
        FIGURES.map(|(name, unit, figure)| {
            let row = |(count, row): (&usize, &Vec<Point>)| Row {
                label: format!("processors: {count}"),
                cells: row.iter().map(|point| Cell::ours(figure(point))).collect(),
            };
            Table {
                title: format!("{}: {name}, uniform load", self.kind.name()),
                columns: self.counts.iter().map(|rings| Column::new(&format!("rings: {rings}"), unit)).collect(),
                rows: self.counts.iter().zip(&self.points).map(row).collect(),
            }
        })
    }

    fn plots(&self) -> [Plot; 2] {
        let names: Vec<String> = self.counts.iter().map(|count| format!("processors: {count}")).collect();
        let mut curves: Vec<(&str, Vec<(f64, &Point)>)> = Vec::new();
        for (name, row) in names.iter().zip(&self.points) {
            curves.push((name, self.counts.iter().map(|&rings| rings as f64).zip(row).collect()));
        }
        throughput_and_delay_by(
            &format!("{}, by number of rings", self.kind.name()),
            &Column::new("rings", ""),
            &curves,
        )
    }
}

type Figure = fn(&Point) -> measure::Estimate;

/// The figures of a grid: name, unit and value.
const FIGURES: [(&str, &str, Figure); 2] =
    [("throughput", "Mb/s", |point| point.throughput), ("delay per segment", "us", |point| point.delay)];

/// Returns a machine of the grid.
fn machine(kind: Kind, protocol_processors: usize, interfaces: usize) -> Config {
    let measured = Duration::from_millis(200);
    Config { protocol_processors, interfaces, measured, ..Config::new(kind) }
}

impl Study for Failures {
    fn id(&self) -> &'static str {
        "004-failures"
    }

    fn title(&self) -> &'static str {
        "Processors and channels that fail while data are sent"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let failing =
            |kind, processors, interfaces| Config { failure: Failure { processors, interfaces }, ..Config::new(kind) };
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 1-bus, 3 processors failed, Mb/s", failing(Kind::OneBus, 3, 0)),
            MainFigure::throughput("throughput, 2-bus, 3 channels failed, Mb/s", failing(Kind::TwoBus, 0, 3)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "A processor that fails takes its connection with it; its segments return to the application's \
                 scheduler. A ring that fails takes no more packets, and those in its queue are sent elsewhere; the \
                 frame in its interface is still sent, because no timers are active."
                    .to_owned(),
                "Throughput is measured after the failure. The serial machine has one of each, so either failure \
                 stops it."
                    .to_owned(),
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

/// Checks that the last remaining part still carries data, and that the remaining parts carry at
/// least their share.
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
            format!("{shares:.2?} of the proportional share"),
        ),
    ]
}
