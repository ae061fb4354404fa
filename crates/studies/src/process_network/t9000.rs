//! 002-t9000: the same architecture with processors ten times as fast, but not the links.

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Costs, Placement, Setup, Traffic};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct T9000;

impl Study for T9000 {
    fn id(&self) -> &'static str {
        "002-t9000"
    }

    fn title(&self) -> &'static str {
        "Two T9000 with hardware for checksums and header extraction, and the gain of more processors with slower links"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let main_figure = MainFigure::rate("two T9000, segments/s", Setup::t9000(&table, &Figures::load()));
        let Costs { poke_us, link_word_us, .. } = main_figure.setup.costs;
        let poke = Choice::new(
            "poke_us, link_word_us",
            format!("{poke_us:.2} us and {link_word_us:.2} us per word"),
            "the processor work of a poke is ten times as fast, and its word is sent over links of 100 instead of 20 \
             Mb/s; the paper only says that communication does not become ten times as fast",
        );
        let poke = main_figure.or(poke, "poke and word ten times as fast", |setup| setup.costs.link_word_us /= 2.0);
        let poke = main_figure.or(poke, "a poke five times as fast", |setup| setup.costs.poke_us *= 2.0);
        let poke = main_figure.or(poke, "a poke as slow as on a T425", |setup| setup.costs.poke_us *= 10.0);
        let mut all = vec![poke];
        all.extend(assumptions::choices(&table, main_figure));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let two = Setup::t9000(&table, &figures);
        let rate = |setup: &Setup| run(setup, options).rate();
        let printed = Cell::compared(figures.t9000_segments_per_second, rate(&two), TOLERANCE);
        let row = |label: &str, cell: Cell| Row { label: label.to_owned(), cells: vec![cell] };
        let rows = vec![
            row("two T9000, header extraction removes nothing", printed),
            row("header extraction removes all of ip_demux", Cell::ours(rate(&without_demux(two)))),
            row("the first, over a line of 1 Gb/s", Cell::ours(rate(&over_line(two, 1000.0)))),
            row("the first, over ATM of 622 Mb/s", Cell::ours(rate(&over_line(two, 622.0)))),
        ];
        let old = Gains::of(&Setup::scenario_2(&table), options);
        let new = Gains::of(&with_slow_messages(&two, &table, &figures), options);
        let tables = vec![
            Table {
                title: "Throughput end to end".to_owned(),
                columns: vec![Column::new("throughput", "segments/s")],
                rows,
            },
            Table {
                title: "Gain of more processors where passing a packet takes as long as a poke".to_owned(),
                columns: vec![
                    Column::new("four against two, one direction", ""),
                    Column::new("two against one, both directions", ""),
                ],
                rows: vec![old.row("T425"), new.row("T9000, ten times as fast, messages five times")],
            },
        ];
        let checks = vec![
            Check::new(
                "with faster processors, separating layers pays less",
                new.pipeline < old.pipeline,
                format!("{:.2} against {:.2}", new.pipeline, old.pipeline),
            ),
            Check::new(
                "separating sender and receiver still pays, though less",
                new.split > 1.2 && new.split > new.pipeline,
                format!("{:.2} against {:.2}", new.split, old.split),
            ),
        ];
        Outcome {
            tables,
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "The paper's number is a first estimate, \"over\" 30,000. 4096 bytes 30,000 times per \
                 second are 983 Mb/s."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// Speeds up all parts of a message, on processors and links, by the ratio of the link rates only.
fn with_slow_messages(two: &Setup, table: &Table1, figures: &Figures) -> Setup {
    let poke_us = table.of("poke").us_per_segment * figures.t425_link_mbps / figures.t9000_link_mbps;
    Setup { costs: Costs { poke_us, ..two.costs }, ..*two }
}

fn without_demux(setup: Setup) -> Setup {
    Setup { costs: Costs { ip_demux_us: 0.0, ..setup.costs }, ..setup }
}

/// Returns the same setup over a line of `mbps` Mb/s.
fn over_line(setup: Setup, mbps: f64) -> Setup {
    Setup { costs: Costs { network_word_us: 32.0 / mbps, ..setup.costs }, ..setup }
}

/// Gains of more processors if a handoff costs as much as a poke.
struct Gains {
    pipeline: f64,
    split: f64,
}

impl Gains {
    fn of(setup: &Setup, options: &Options) -> Self {
        // A network limit would hide the gains of more processors.
        let costs = Costs { network_word_us: 0.0, ..setup.costs };
        let setup = Setup { costs, handoff_us: costs.poke_us, ..*setup };
        let rate = |placement, traffic| run(&Setup { placement, traffic, ..setup }, options).segments_per_second;
        Self {
            pipeline: rate(Placement::Four, Traffic::OneWay) / rate(Placement::Two, Traffic::OneWay),
            split: rate(Placement::Two, Traffic::BothWays) / rate(Placement::One, Traffic::BothWays),
        }
    }

    fn row(&self, label: &str) -> Row {
        let cells = [self.pipeline, self.split].map(|gain| Cell::ours(exact(gain)));
        Row { label: label.to_owned(), cells: cells.to_vec() }
    }
}
