//! 002-checksum: the effect of computing TCP's checksum in software.

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Costs, Setup};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
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

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let us = Figures::load().checksum_us(&table);
        let main_figure = MainFigure::rate(
            "scenario 2, checksum in software, segments/s",
            with_checksum(Setup::scenario_2(&table), us),
        );
        let location = Choice::new(
            "location of the checksum",
            "tcp_recv and xtask, each over the whole segment, in a separate pass",
            "it was not implemented",
        );
        let location =
            main_figure.or(location, "half of it hidden in copying", move |setup| setup.costs.checksum_us /= 2.0);
        let mut all = vec![main_figure.or(location, "ten times faster", move |setup| setup.costs.checksum_us /= 10.0)];
        all.extend(assumptions::choices(&table, main_figure));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let us = figures.checksum_us(&table);
        let base = Setup::scenario_2(&table);
        let rate = |setup: &Setup| run(setup, options).segments_per_second;
        let (hardware, software) = (rate(&base), rate(&with_checksum(base, us)));
        let adapter = rate(&with_checksum(Setup::scenario_1(&table), us));
        // The rate if the 3 us per 16 bits of the text were the only cost.
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
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![Check::new(
                "the checksum in software is ruinous: less than a tenth of the throughput remains",
                software * 10.0 < hardware,
                format!("{software:.0} of {hardware:.0} segments/s"),
            )],
            notes: vec![format!(
                "The paper gives 3 us per 16 bits, that is {us:.0} us per segment; the compared number is the rate if \
                 that were the only cost, {cap:.0} segments/s."
            )],
            ..Outcome::default()
        }
    }
}
