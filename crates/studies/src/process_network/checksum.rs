//! 002-checksum: what TCP's checksum in software would do.

use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Costs, Setup};
use crate::outcome::{Assumption, Cell, Check, Column, Outcome, Row, Sensitivity, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Checksum;

fn with_checksum(setup: Setup, us: f64) -> Setup {
    Setup { costs: Costs { checksum_us: us, ..setup.costs }, ..setup }
}

impl Study for Checksum {
    fn id(&self) -> &'static str {
        "002-checksum"
    }

    fn title(&self) -> &'static str {
        "TCP's checksum in software on a transputer"
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let us = figures.checksum_us(&table);
        let base = Setup::scenario_2(&table);
        let rate = |setup: &Setup| run(setup, options).segments_per_second;
        let (hardware, software) = (rate(&base), rate(&with_checksum(base, us)));
        let adapter = rate(&with_checksum(Setup::scenario_1(&table), us));
        // What the text's 3 us for 16 bits leave if nothing else took any time.
        let cap = 1e6 / us;
        let mbps = |rate: f64| Cell::ours(exact(rate * table.segment_bits() / 1e6));
        let row = |label: &str, cell: Cell, rate: f64| Row { label: label.to_owned(), cells: vec![cell, mbps(rate)] };
        let rows = vec![
            row("scenario 2, checksum in hardware", Cell::ours(exact(hardware)), hardware),
            row("scenario 2, checksum in software", Cell::compared(cap, exact(software), TOLERANCE), software),
            row("scenario 1, checksum in software", Cell::ours(exact(adapter)), adapter),
        ];
        Outcome {
            tables: vec![Table {
                title: "Throughput with and without TCP's checksum in software".to_owned(),
                columns: vec![Column::new("throughput", "segments/s"), Column::new("throughput", "Mb/s")],
                rows,
            }],
            assumptions: vec![assumption(&base, us, options)],
            checks: vec![Check::new(
                "the checksum in software is ruinous: less than a tenth of the throughput is left",
                software * 10.0 < hardware,
                format!("{software:.0} of {hardware:.0} segments/s"),
            )],
            notes: vec![format!(
                "The paper gives 3 us for 16 bits, that is {us:.0} us for a segment; the number compared is what \
                 that alone would leave, {cap:.0} segments/s."
            )],
            ..Outcome::default()
        }
    }
}

fn assumption(base: &Setup, us: f64, options: &Options) -> Assumption {
    let try_us = |value: &str, us: f64| Sensitivity {
        value: value.to_owned(),
        figure: "scenario 2, segments/s".to_owned(),
        ours: run(&with_checksum(*base, us), options).rate(),
    };
    Assumption {
        key: "who computes it".to_owned(),
        value: "tcp_recv and xtask, each over the whole segment, data not yet in their hands otherwise".to_owned(),
        reason: "it was not implemented".to_owned(),
        sensitivity: vec![try_us("half of it hidden in copying", us / 2.0), try_us("ten times faster", us / 10.0)],
    }
}
