//! 002-t9000: the same architecture on processors ten times as fast, whose links are not.

use super::assumptions::{self, Headline};
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Costs, Placement, Setup, Traffic};
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};
use crate::{Choice, choices};

/// The study.
pub(super) struct T9000;

impl Study for T9000 {
    fn id(&self) -> &'static str {
        "002-t9000"
    }

    fn title(&self) -> &'static str {
        "Two T9000 with hardware for checksums and header extraction; what still pays when processors outrun links"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let headline = Headline::rate("two T9000, segments/s", Setup::t9000(&table, &Figures::load()));
        let Costs { poke_us, link_word_us, .. } = headline.setup.costs;
        let poke = Choice::new(
            "poke_us, link_word_us",
            format!("{poke_us:.2} us and {link_word_us:.2} us a word"),
            "what the processor does for a poke is ten times as fast, its word goes over links of 100 instead of 20 Mb/s; the paper \
             says only that communication does not get ten times as fast",
        );
        let poke = headline.or(poke, "a poke ten times as fast, its word too", |setup| setup.costs.link_word_us /= 2.0);
        let poke = headline.or(poke, "a poke five times as fast", |setup| setup.costs.poke_us *= 2.0);
        let poke = headline.or(poke, "a poke as slow as on a T425", |setup| setup.costs.poke_us *= 10.0);
        let mut all = vec![poke];
        all.extend(assumptions::choices(&table, headline));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let two = Setup::t9000(&table, &figures);
        let rate = |setup: &Setup| run(setup, options).rate();
        let printed = Cell::compared(figures.t9000_segments_per_second, rate(&two), TOLERANCE);
        let row = |label: &str, cell: Cell| Row { label: label.to_owned(), cells: vec![cell] };
        let rows = vec![
            row("two T9000, header extraction spares nothing", printed),
            row("header extraction spares all of ip_demux", Cell::ours(rate(&without_demux(two)))),
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
                title: "What more processors gain where handing a packet over takes as long as a poke".to_owned(),
                columns: vec![
                    Column::new("four against two, one way", ""),
                    Column::new("two against one, both ways", ""),
                ],
                rows: vec![old.row("T425"), new.row("T9000, ten times as fast, messages five times")],
            },
        ];
        let checks = vec![
            Check::new(
                "faster processors make dividing layers pay less",
                new.pipeline < old.pipeline,
                format!("{:.2} against {:.2}", new.pipeline, old.pipeline),
            ),
            Check::new(
                "dividing sender and receiver still pays, though less",
                new.split > 1.2 && new.split > new.pipeline,
                format!("{:.2} against {:.2}", new.split, old.split),
            ),
        ];
        Outcome {
            tables,
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "The paper's number is a first evaluation, \"over\" 30,000, on paper. 4096 bytes 30,000 times a \
                 second are 983 Mb/s."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// All that a message takes, at processors and on the way, is faster by as much as links are, and by no more.
fn with_slow_messages(two: &Setup, table: &Table1, figures: &Figures) -> Setup {
    let poke_us = table.of("poke").us_per_segment * figures.t425_link_mbps / figures.t9000_link_mbps;
    Setup { costs: Costs { poke_us, ..two.costs }, ..*two }
}

fn without_demux(setup: Setup) -> Setup {
    Setup { costs: Costs { ip_demux_us: 0.0, ..setup.costs }, ..setup }
}

/// The same over a line of so many Mb/s.
fn over_line(setup: Setup, mbps: f64) -> Setup {
    Setup { costs: Costs { network_word_us: 32.0 / mbps, ..setup.costs }, ..setup }
}

/// What more processors gain if a hand-over costs as much as a poke.
struct Gains {
    pipeline: f64,
    split: f64,
}

impl Gains {
    fn of(setup: &Setup, options: &Options) -> Self {
        // A network in the way would hide what processors gain.
        let costs = Costs { network_word_us: 0.0, ..setup.costs };
        let setup = Setup { costs, hand_over_us: costs.poke_us, ..*setup };
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
