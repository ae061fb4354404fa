//! Table 2: the one-bus machine by memory speed.

use super::assumptions::MainFigure;
use super::config::Config;
use super::interpretations::Printed;
use super::paper::{DATA, Kind, Table2, paper};
use super::runs::{Point, places, point, shown, throughput_and_delay_by};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Row, Table};
use crate::study::{Options, Study};

/// Tolerances of throughputs and of times.
pub(super) const THROUGHPUT_TOLERANCE: f64 = 0.05;
pub(super) const DELAY_TOLERANCE: f64 = 0.10;

pub(super) struct MemorySpeed;

impl Study for MemorySpeed {
    fn id(&self) -> &'static str {
        "004-table-2"
    }

    fn title(&self) -> &'static str {
        "The one-bus workstation under varying memory speed (Table 2)"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let at = |memory_ns| Config { memory_ns, ..Config::new(Kind::OneBus) };
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 20 ns, Mb/s", at(20)),
            MainFigure::throughput("throughput, 80 ns, Mb/s", at(80)),
            MainFigure::delay("delay, 20 ns, us", at(20)),
            MainFigure::delay("delay, 80 ns, us", at(80)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let rows: Vec<(&Table2, Point)> =
            paper().table_2.iter().map(|row| (row, point(options, &config_of(row)))).collect();
        let curve = places(&rows, |row| row.memory_ns as f64);
        let x = Column::new("memory", "ns per word");
        Outcome {
            plots: throughput_and_delay_by("1-bus, by memory speed", &x, &[("1-bus", curve)]).into(),
            checks: checks(&rows),
            tables: vec![table(&rows)],
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "Fitted: the words per read or write (to the access time of the first row), the background frames on \
                 the rings (to its throughput), the data words per packet (to the throughput of the last row), the \
                 segments generated ahead (to the amount in flight that follows from all three delays). The \
                 throughput of the middle row and the other access times are predictions."
                    .to_owned(),
                "The loop is closed: at any throughput, delay is the amount in flight divided by it. The delays \
                 therefore add no information to the throughputs."
                    .to_owned(),
            ],
        }
    }
}

fn config_of(row: &Table2) -> Config {
    Config { memory_ns: row.memory_ns, ..Config::new(Kind::OneBus) }
}

fn label(row: &Table2) -> String {
    format!("{} ns per word", row.memory_ns)
}

/// Returns the printed rows, for other interpretations.
pub(super) fn printed() -> Vec<Printed> {
    let printed = |row: &Table2| Printed {
        label: label(row),
        config: config_of(row),
        throughput_mbps: row.throughput_mbps,
        delay_us: row.delay_us,
    };
    paper().table_2.iter().map(printed).collect()
}

fn table(rows: &[(&Table2, Point)]) -> Table {
    let row = |(index, (paper, point)): (usize, &(&Table2, Point))| {
        let mut access = Cell::compared(paper.access_us, point.access, DELAY_TOLERANCE);
        let mut throughput = Cell::compared(paper.throughput_mbps, point.throughput, THROUGHPUT_TOLERANCE);
        if index == 0 {
            access = access.fitted();
        }
        if index == 0 || index + 1 == rows.len() {
            throughput = throughput.fitted();
        }
        // The amount in flight was derived from these; divided by the throughput it is the delay.
        let delay = Cell::compared(paper.delay_us, point.delay, DELAY_TOLERANCE).fitted();
        Row { label: label(paper), cells: vec![access, throughput, delay] }
    };
    Table {
        title: "Table 2: 1-bus, 25 MIPS, 30 % uniform".to_owned(),
        columns: vec![
            Column::new("time per read or write", "us"),
            Column::new("throughput", "Mb/s"),
            Column::new("delay per segment", "us"),
        ],
        rows: rows.iter().enumerate().map(row).collect(),
    }
}

fn checks(rows: &[(&Table2, Point)]) -> Vec<Check> {
    let throughputs: Vec<f64> = rows.iter().map(|(_, point)| point.throughput.mean).collect();
    let delays: Vec<f64> = rows.iter().map(|(_, point)| point.delay.mean).collect();
    let (first, last) = (&rows[0].1, &rows[rows.len() - 1].1);
    let worse = (first.throughput.mean / last.throughput.mean - 1.0, last.delay.mean / first.delay.mean - 1.0);
    let in_flight = |point: &Point| point.throughput.mean * point.delay.mean / 1e3;
    let population: Vec<f64> = rows.iter().map(|(_, point)| in_flight(point)).collect();
    let spread = population.iter().fold(0.0_f64, |most, number| most.max((number / population[0] - 1.0).abs()));
    vec![
        Check::new(
            "throughput falls and delay grows with every step of slower memory",
            throughputs.is_sorted_by(|a, b| a > b) && delays.is_sorted_by(|a, b| a < b),
            format!("{throughputs:.0?} Mb/s, {delays:.0?} us"),
        ),
        Check::new(
            "from 20 to 80 ns both get worse by about 90 % (75 to 105 %)",
            [worse.0, worse.1].iter().all(|share| (0.75..1.05).contains(share)),
            format!("throughput {:.0} %, delay {:.0} %", worse.0 * 100.0, worse.1 * 100.0),
        ),
        Check::new(
            "the loop is closed: the same amount is in flight at every speed (within 5 %)",
            spread < 0.05,
            format!("{population:.0?} kbit"),
        ),
        Check::new(
            "the memory is the limit at 80 ns, and not at 20 ns",
            last.utilisation("sender", "memory").mean > 0.9 && first.utilisation("sender", "memory").mean < 0.6,
            format!(
                "busy {} % and {} %",
                shown(last.of(|run| 100.0 * run.utilisation("sender", "memory").unwrap_or(0.0))),
                shown(first.of(|run| 100.0 * run.utilisation("sender", "memory").unwrap_or(0.0)))
            ),
        ),
    ]
}
