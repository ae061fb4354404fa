//! 002-interface: the workstation behind the prototype's bus, and what calling the adapter may cost.

use super::paper::{Figures, Table1};
use super::run::{exact, run};
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
        let integrated = mbps(behind_bus.segments_per_second);
        let on_adapter = run(&Setup::scenario_1(&table), options).segments_per_second;
        let sweep = |copy_us: f64| -> Vec<(f64, f64)> {
            let rate = |call: f64| run(&with_workstation(&table, copy_us + call), options).segments_per_second;
            CALLS_US.iter().map(|&call| (call, mbps(rate(call)))).collect()
        };
        let (bus, free) = (sweep(copy_us), sweep(0.0));
        let printed = |paper: f64| Cell { paper: Some(paper), ..Cell::ours(exact(integrated)) };
        let rows = vec![
            Row {
                label: "as fast as the bus lets the workstation copy".to_owned(),
                cells: vec![Cell::compared(figures.workstation_copy_mbps, exact(integrated), TOLERANCE)],
            },
            Row { label: "as the paper expects, around".to_owned(), cells: vec![printed(figures.integrated_mbps)] },
        ];
        let columns = vec![Column::new("copying takes no time", "Mb/s"), Column::new("copying at 33 Mb/s", "Mb/s")];
        let calls = free.iter().zip(&bus).map(|(&(call, free), &(_, bus))| Row {
            label: format!("{call} us"),
            cells: vec![Cell::ours(exact(free)), Cell::ours(exact(bus))],
        });
        let tables = vec![
            Table { title: "The integrated system".to_owned(), columns: vec![Column::new("throughput", "Mb/s")], rows },
            Table { title: "By what a call of the adapter takes".to_owned(), columns, rows: calls.collect() },
        ];
        let vanishes = free.iter().find(|&&(_, rate)| rate < mbps(on_adapter)).map(|&(call, _)| call);
        let [sender, receiver] = behind_bus.workstations;
        let checks = vec![
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
                    |call| format!("at {call} us a call and end, scenario 1 has {:.1} Mb/s", mbps(on_adapter)),
                ),
            ),
        ];
        let points = |curve: Vec<(f64, f64)>| curve.into_iter().map(|(call, rate)| (call, exact(rate))).collect();
        let plot = Plot {
            title: "Throughput by what a call of the adapter takes".to_owned(),
            x: Column::new("call", "us"),
            y: Column::new("throughput", "Mb/s"),
            series: vec![
                Series { name: "copying takes no time".to_owned(), points: points(free) },
                Series { name: "copying at 33 Mb/s".to_owned(), points: points(bus) },
            ],
        };
        Outcome {
            tables,
            plots: vec![plot],
            assumptions: vec![assumption(&table, copy_us, options)],
            checks,
            notes: vec![
                "The printed 30 is an expectation (\"around\"), and below what copying alone allows by a tenth. The second table says which \
                 cost of calling would explain it."
                    .to_owned(),
            ],
        }
    }
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
