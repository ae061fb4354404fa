//! 002-interface: the workstation behind the prototype's bus, and what calling the adapter may cost.

use super::paper::{Figures, Table1};
use super::run::{Measured, exact, run};
use super::scenarios::{TOLERANCE, with_workstation};
use super::setup::Setup;
use crate::outcome::{Assumption, Cell, Check, Column, Outcome, Plot, Row, Sensitivity, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Interface;

/// What the workstation spends on calling the adapter, in microseconds for a segment and end.
const CALLS_US: [f64; 8] = [0.0, 50.0, 100.0, 200.0, 300.0, 500.0, 700.0, 1000.0];

impl Study for Interface {
    fn id(&self) -> &'static str {
        "002-interface"
    }

    fn title(&self) -> &'static str {
        "The workstation copies through the prototype's bus, and calls the adapter"
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
                label: "as fast as the bus lets the workstation copy".to_owned(),
                cells: vec![Cell::compared(figures.workstation_copy_mbps, integrated, TOLERANCE)],
            },
            Row { label: "as the paper expects, around".to_owned(), cells: vec![expected] },
        ];
        let columns = vec![Column::new("throughput", "Mb/s")];
        Outcome {
            tables: vec![Table { title: "The integrated system".to_owned(), columns, rows }, calls.table()],
            plots: vec![calls.plot()],
            assumptions: vec![assumption(&table, copy_us, options)],
            checks: checks(&behind_bus, &calls, on_adapter),
            notes: vec![
                "The printed 30 is an expectation (\"around\"), and below what copying alone allows by a tenth. \
                 The second table says which cost of calling would explain it."
                    .to_owned(),
            ],
        }
    }
}

/// Throughput in Mb/s by what a call takes, in the order of [`CALLS_US`].
struct Calls {
    /// If copying takes no time.
    free: [f64; 8],
    /// If the workstation copies through the bus.
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
            title: "By what a call of the adapter takes".to_owned(),
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
            title: "Throughput by what a call of the adapter takes".to_owned(),
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
            "a call of the adapter that is dear enough takes the whole gain over scenario 1",
            vanishes.is_some(),
            vanishes.map_or_else(
                || "not within the calls tried".to_owned(),
                |call| format!("at {call} us a call and end; scenario 1 has {on_adapter:.1} Mb/s"),
            ),
        ),
    ]
}

fn assumption(table: &Table1, copy_us: f64, options: &Options) -> Assumption {
    let rate = |value: &str, us: f64| {
        let rate = run(&with_workstation(table, us), options).segments_per_second;
        let ours = exact(rate * table.segment_bits() / 1e6);
        Sensitivity { value: value.to_owned(), figure: "integrated system, Mb/s".to_owned(), ours }
    };
    Assumption {
        key: "call".to_owned(),
        value: "0 us of the workstation for a segment and end".to_owned(),
        reason: "not given; the upper half of the socket layer runs there".to_owned(),
        sensitivity: vec![rate("50 us", copy_us + 50.0), rate("100 us", copy_us + 100.0)],
    }
}
