//! 002-duplex: one receive and one transmit processor, compared with one for both, with data in
//! both directions.

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
pub(super) struct Duplex;

/// Throughput of both directions together with one and with two processors per adapter, in segments
/// per second.
struct Compared {
    one: f64,
    two: f64,
}

impl Compared {
    fn of(setup: &Setup, options: &Options) -> Self {
        let [one, two] = [Placement::One, Placement::Two]
            .map(|placement| run(&Setup { placement, ..*setup }, options).segments_per_second);
        Self { one, two }
    }

    fn gain(&self) -> f64 {
        self.two / self.one
    }

    fn row(&self, label: &str, printed: Option<f64>) -> Row {
        let gain = exact(self.gain());
        let gain = printed.map_or(Cell::ours(gain), |printed| Cell::compared(printed, gain, TOLERANCE));
        Row { label: label.to_owned(), cells: vec![Cell::ours(exact(self.one)), Cell::ours(exact(self.two)), gain] }
    }
}

/// Returns `setup` with a network that is never the limit.
pub(super) fn on_a_fast_network(setup: Setup) -> Setup {
    Setup { costs: Costs { network_word_us: 0.0, ..setup.costs }, ..setup }
}

impl Study for Duplex {
    fn id(&self) -> &'static str {
        "002-duplex"
    }

    fn title(&self) -> &'static str {
        "Data in both directions: one processor per side of the connection against one for both"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let setup = Setup { traffic: Traffic::BothWays, ..Setup::scenario_2(&table) };
        let gain = |setup: &Setup, options: &Options| exact(Compared::of(setup, options).gain());
        assumptions::choices(&table, MainFigure { name: "gain, both directions, scenario 2", setup, figure: gain })
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let both_ways = |setup: Setup| Setup { traffic: Traffic::BothWays, ..setup };
        let alone = both_ways(Setup::protocol_alone(&table));
        let lean = Compared::of(&on_a_fast_network(alone), options);
        let line = Compared::of(&alone, options);
        let real = Compared::of(&both_ways(Setup::scenario_2(&table)), options);
        let one_way = Compared::of(&Setup::scenario_2(&table), options);
        let copying = Compared::of(&both_ways(Setup::scenario_1(&table)), options);
        let columns = vec![
            Column::new("one processor", "segments/s"),
            Column::new("two processors", "segments/s"),
            Column::new("gain", ""),
        ];
        let rows = vec![
            lean.row(
                "both directions, protocol only: no socket layer, no pokes, no network limit",
                Some(figures.duplex_gain),
            ),
            line.row("both directions, protocol only over the 118 Mb/s line", None),
            real.row("both directions, scenario 2 with socket layer and pokes", None),
            copying.row("both directions, scenario 1: the adapter copies", None),
            one_way.row("one direction, scenario 2", None),
        ];
        let checks = vec![
            Check::new(
                "the split pays with data in both directions, even with the cost of pokes",
                real.gain() > 1.4,
                format!("{:.2}", real.gain()),
            ),
            Check::new(
                "with data in one direction it does not pay: pokes cost more than the work that moves to the other \
                 processor",
                one_way.gain() < 1.0,
                format!("{:.2}", one_way.gain()),
            ),
        ];
        let title = "Throughput of both directions together".to_owned();
        Outcome {
            tables: vec![Table { title, columns, rows }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "The printed 1.7 is the ratio of the protocol work alone, (267 + 187) / 267. It excludes the costs of \
                 the split itself and the line. With both, the gain is smaller."
                    .to_owned(),
                "One processor needs no pokes: both sides share one state.".to_owned(),
            ],
            ..Outcome::default()
        }
    }
}
