//! 004-table-7 and 004-table-8: predictions made without the printed values.

use super::assumptions::MainFigure;
use super::experiment::{Figure, POLICIES, Point, label, measure};
use super::paper::{Case, Inputs, Table7 as Inputs7, Table8 as Inputs8};
use super::setup::Setup;
use super::table_5::NOTES;
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// Throughput by network length.
pub(super) struct Table7;

/// Latency by window.
pub(super) struct Table8;

/// Reason why these tables are predictions.
const PREDICTION: &str = "A prediction: the printed values were not available to the authors of this model, and \
    nothing in it was fitted to this table.";

/// Smallest change of throughput that counts.
const NOTABLE: f64 = 0.02;

impl Study for Table7 {
    fn id(&self) -> &'static str {
        "004-table-7"
    }

    fn title(&self) -> &'static str {
        "Touchstone-like machine, prediction: throughput over rings of 5, 20 and 100 km"
    }

    fn data(&self) -> &'static [&'static str] {
        &["004-tables-7-8-inputs.toml", "004-touchstone.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&main_figure_7(&Inputs::load().table_7))
    }

    fn run(&self, options: &Options) -> Outcome {
        let inputs = Inputs::load().table_7;
        let setup = |km, case, policy| setup_7(&inputs, km, case, policy);
        let grid = |case| -> Vec<Vec<Point>> {
            let row = |policy| inputs.network_km.iter().map(|&km| measure(&setup(km, case, policy), options)).collect();
            (0..POLICIES.len()).map(row).collect()
        };
        let points: Vec<_> = inputs.cases.iter().map(|&case| (case, grid(case))).collect();
        let columns = |unit| inputs.network_km.iter().map(|km| Column::new(&format!("{km} km"), unit)).collect();
        Outcome {
            tables: vec![
                table("Throughput", columns("Mb/s"), &points, &|point| point.mbps),
                table("Frames at the network units of a ring", columns("frames"), &points, &|point| {
                    point.interface_frames
                }),
            ],
            plots: points.iter().map(|(case, rows)| by_length(*case, &inputs.network_km, rows)).collect(),
            assumptions: choices::assumptions(&self.choices(), options),
            checks: length_checks(&points),
            notes: [PREDICTION].iter().chain(&NOTES).map(|&note| note.to_owned()).collect(),
        }
    }
}

fn setup_7(inputs: &Inputs7, km: u64, case: Case, policy: usize) -> Setup {
    let mut setup = Setup::new(inputs.offered_percent_of_capacity, case).with(POLICIES[policy].0, POLICIES[policy].1);
    (setup.network_km, setup.window_bytes) = (km, inputs.window_bytes);
    setup
}

fn main_figure_7(inputs: &Inputs7) -> MainFigure {
    let longest = inputs.network_km.iter().copied().max().expect("lengths are given");
    MainFigure {
        name: format!("adaptive/adaptive, {longest} km, two overloaded, Mb/s"),
        setup: setup_7(inputs, longest, Case::TwoOverloaded, 2),
        figure: |point| point.mbps,
    }
}

fn table(title: &str, columns: Vec<Column>, points: &[(Case, Vec<Vec<Point>>)], figure: Figure<'_>) -> Table {
    let row = |(case, rows): &(Case, Vec<Vec<Point>>)| -> Vec<Row> {
        rows.iter()
            .zip(POLICIES)
            .map(|(row, policy)| Row {
                label: format!("{}: {}", case.name(), label(policy)),
                cells: row.iter().map(|point| Cell::ours(figure(point))).collect(),
            })
            .collect()
    };
    Table { title: title.to_owned(), columns, rows: points.iter().flat_map(row).collect() }
}

fn by_length(case: Case, lengths_km: &[u64], rows: &[Vec<Point>]) -> Plot {
    let series = |(row, policy): (&Vec<Point>, _)| Series {
        name: label(policy),
        points: lengths_km.iter().zip(row).map(|(&km, point)| (km as f64, point.mbps)).collect(),
    };
    Plot {
        title: format!("Throughput by network length, {}", case.name()),
        x: Column::new("network length", "km"),
        y: Column::new("throughput", "Mb/s"),
        series: rows.iter().zip(POLICIES).map(series).collect(),
    }
}

/// Checks claims 004-22 and 004-23: adaptive network scheduling pays on long networks, where queues
/// build up, and not on short ones.
fn length_checks(points: &[(Case, Vec<Vec<Point>>)]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (case, rows) in points {
        let (Some([short, .., long]), Some(both)) = (rows.get(1).map(Vec::as_slice), rows.get(2)) else {
            continue;
        };
        let (short_both, long_both) = (&both[0], &both[both.len() - 1]);
        let gain = |with: &Point, without: &Point| with.mbps.mean / without.mbps.mean - 1.0;
        let gains = [gain(short_both, short), gain(long_both, long)];
        checks.push(Check::new(
            format!(
                "{}: the adaptive network scheduler pays on the longest network and not on the shortest",
                case.name()
            ),
            gains[1] > NOTABLE && gains[0] < NOTABLE,
            format!("{:+.1} % on the shortest, {:+.1} % on the longest", gains[0] * 100.0, gains[1] * 100.0),
        ));
        let frames = [short, long].map(|point| point.interface_frames.mean);
        checks.push(Check::new(
            format!("{}: queues at the network units are longer on the longest network", case.name()),
            frames[1] > frames[0],
            format!("{:.2} frames on the shortest, {:.2} on the longest", frames[0], frames[1]),
        ));
    }
    checks
}

impl Study for Table8 {
    fn id(&self) -> &'static str {
        "004-table-8"
    }

    fn title(&self) -> &'static str {
        "Touchstone-like machine, prediction: latency with windows of 4000, 8000 and 14000 bytes"
    }

    fn data(&self) -> &'static [&'static str] {
        &["004-tables-7-8-inputs.toml", "004-touchstone.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&main_figure_8(&Inputs::load().table_8))
    }

    fn run(&self, options: &Options) -> Outcome {
        let inputs = Inputs::load().table_8;
        let setup = |window, case| setup_8(&inputs, window, case);
        let row = |&case: &Case| -> Vec<Point> {
            inputs.window_bytes.iter().map(|&window| measure(&setup(window, case), options)).collect()
        };
        let points: Vec<Vec<Point>> = inputs.cases.iter().map(row).collect();
        let columns =
            |unit| inputs.window_bytes.iter().map(|bytes| Column::new(&format!("{bytes} bytes"), unit)).collect();
        let table = |title: &str, unit, figure: Figure<'_>| Table {
            title: title.to_owned(),
            columns: columns(unit),
            rows: (inputs.cases.iter().zip(&points))
                .map(|(case, row)| Row {
                    label: case.name().to_owned(),
                    cells: row.iter().map(|point| Cell::ours(figure(point))).collect(),
                })
                .collect(),
        };
        Outcome {
            tables: vec![
                table("Latency, adaptive/adaptive", "us", &|point| point.latency_us),
                table("Throughput, adaptive/adaptive", "Mb/s", &|point| point.mbps),
            ],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: window_checks(&inputs.cases, &points),
            notes: [PREDICTION].iter().chain(&NOTES).map(|&note| note.to_owned()).collect(),
            ..Outcome::default()
        }
    }
}

fn setup_8(inputs: &Inputs8, window: u64, case: Case) -> Setup {
    let mut setup = Setup::new(inputs.offered_percent_of_capacity, case).with(POLICIES[2].0, POLICIES[2].1);
    (setup.network_km, setup.window_bytes) = (inputs.network_km, window);
    setup
}

fn main_figure_8(inputs: &Inputs8) -> MainFigure {
    let largest = inputs.window_bytes.iter().copied().max().expect("windows are given");
    MainFigure {
        name: format!("latency, window of {largest} bytes, two overloaded, us"),
        setup: setup_8(inputs, largest, Case::TwoOverloaded),
        figure: |point| point.latency_us,
    }
}

/// Checks a property that needs no printed values: overload increases the latency at every window.
fn window_checks(cases: &[Case], points: &[Vec<Point>]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (pair, rows) in cases.windows(2).zip(points.windows(2)) {
        let holds = rows[0].iter().zip(&rows[1]).all(|(less, more)| less.latency_us.mean <= more.latency_us.mean);
        let list = |row: &[Point]| {
            row.iter().map(|point| format!("{:.0}", point.latency_us.mean)).collect::<Vec<_>>().join(", ")
        };
        checks.push(Check::new(
            format!("latency with {} is at least that with {}, at every window", pair[1].name(), pair[0].name()),
            holds,
            format!("{} us; {} us", list(&rows[1]), list(&rows[0])),
        ));
    }
    checks
}
