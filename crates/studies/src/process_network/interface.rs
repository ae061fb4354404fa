//! 002-interface: the workstation behind the prototype's bus, and the acceptable cost of calling
//! the adapter.

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1};
use super::run::{Measured, exact, run};
use super::scenarios::{TOLERANCE, with_workstation};
use super::setup::{Application, Setup};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Interface;

/// Transputers have words of 32 bits.
const BITS_PER_WORD: f64 = 32.0;

/// Time that the workstation spends on calling the adapter, in microseconds per segment and end.
const CALLS_US: [f64; 8] = [0.0, 50.0, 100.0, 200.0, 300.0, 500.0, 700.0, 1000.0];

impl Study for Interface {
    fn id(&self) -> &'static str {
        "002-interface"
    }

    fn title(&self) -> &'static str {
        "The workstation copies through the prototype's bus, and calls the adapter"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let copy_us = table.segment_bits() / Figures::load().workstation_copy_mbps;
        let figure = |setup: &Setup, options: &Options| {
            exact(run(setup, options).segments_per_second * setup.costs.words as f64 * BITS_PER_WORD / 1e6)
        };
        let main_figure =
            MainFigure { name: "integrated system, Mb/s", setup: with_workstation(&table, copy_us), figure };
        let call = Choice::new(
            "call",
            "0 us on the workstation per segment and end",
            "not given; the upper half of the socket layer runs there",
        );
        let taking = |us: f64| {
            move |setup: &mut Setup| {
                setup.application = Application::OnWorkstation { us_per_segment: copy_us + us };
            }
        };
        let call = main_figure.or(call, "50 us", taking(50.0));
        let mut all = vec![main_figure.or(call, "100 us", taking(100.0))];
        all.extend(assumptions::choices(&table, main_figure));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let copy_us = table.segment_bits() / figures.workstation_copy_mbps;
        let mbps = |rate: f64| rate * table.segment_bits() / 1e6;
        let behind_bus = run(&with_workstation(&table, copy_us), options);
        let integrated = exact(mbps(behind_bus.segments_per_second));
        let on_adapter = mbps(run(&Setup::scenario_1(&table), options).segments_per_second);
        let sweep = |copy_us: f64| {
            CALLS_US.map(|call| mbps(run(&with_workstation(&table, copy_us + call), options).segments_per_second))
        };
        let calls = Calls { free: sweep(0.0), bus: sweep(copy_us) };
        let expected = Cell { paper: Some(figures.integrated_mbps), ..Cell::ours(integrated) };
        let rows = vec![
            Row {
                label: "copying by the workstation at the rate of the bus".to_owned(),
                cells: vec![Cell::compared(figures.workstation_copy_mbps, integrated, TOLERANCE)],
            },
            Row { label: "as expected in the paper".to_owned(), cells: vec![expected] },
        ];
        let columns = vec![Column::new("throughput", "Mb/s")];
        Outcome {
            tables: vec![Table { title: "The integrated system".to_owned(), columns, rows }, calls.table()],
            plots: vec![calls.plot()],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&behind_bus, &calls, on_adapter),
            notes: vec![
                "The printed 30 is an expectation (\"around\") and a tenth below what copying alone allows. \
                 The second table shows which cost of a call would explain it."
                    .to_owned(),
            ],
        }
    }
}

/// Throughput in Mb/s by duration of a call, in the order of [`CALLS_US`].
struct Calls {
    /// Copying takes no time.
    free: [f64; 8],
    /// The workstation copies through the bus.
    bus: [f64; 8],
}

impl Calls {
    fn series(&self) -> [(&'static str, &[f64; 8]); 2] {
        [("copying takes no time", &self.free), ("copying at 33 Mb/s", &self.bus)]
    }

    fn table(&self) -> Table {
        let rows = CALLS_US.iter().enumerate().map(|(index, call)| Row {
            label: format!("{call} us"),
            cells: self.series().map(|(_, curve)| Cell::ours(exact(curve[index]))).to_vec(),
        });
        Table {
            title: "Throughput by duration of an adapter call".to_owned(),
            columns: self.series().map(|(name, _)| Column::new(name, "Mb/s")).to_vec(),
            rows: rows.collect(),
        }
    }

    fn plot(&self) -> Plot {
        let series = self.series().map(|(name, curve)| Series {
            name: name.to_owned(),
            points: CALLS_US.iter().zip(curve).map(|(&call, &mbps)| (call, exact(mbps))).collect(),
        });
        Plot {
            title: "Throughput by duration of an adapter call".to_owned(),
            x: Column::new("call", "us"),
            y: Column::new("throughput", "Mb/s"),
            series: series.to_vec(),
        }
    }
}

fn checks(behind_bus: &Measured, calls: &Calls, on_adapter: f64) -> Vec<Check> {
    let [sender, receiver] = behind_bus.workstations;
    let vanishes = CALLS_US.iter().zip(calls.free).find(|&(_, mbps)| mbps < on_adapter).map(|(call, _)| call);
    vec![
        Check::new(
            "the copy is the limit, not the protocol",
            sender.max(receiver) > 0.95 && behind_bus.busiest() < 0.5,
            format!(
                "workstations {:.0} and {:.0} % busy, the busiest protocol processor {:.0} %",
                sender * 100.0,
                receiver * 100.0,
                behind_bus.busiest() * 100.0
            ),
        ),
        Check::new(
            "an adapter call that is expensive enough cancels the whole gain over scenario 1",
            vanishes.is_some(),
            vanishes.map_or_else(
                || "not within the durations tried".to_owned(),
                |call| format!("at {call} us per call and end; scenario 1 has {on_adapter:.1} Mb/s"),
            ),
        ),
    ]
}
