//! 002-placement: layers on one, two, four and seven processors.

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::setup::{Mover, Placement, Setup, Traffic};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Placements;

/// "Very little improvement": our limit for it.
pub(super) const LITTLE: f64 = 1.15;

const ALL: [(Placement, f64, &str); 4] = [
    (Placement::One, 1.0, "one"),
    (Placement::Two, 2.0, "two: one per side"),
    (Placement::Four, 4.0, "four: separate IP and TCP, as in the prototype"),
    (Placement::Seven, 7.0, "seven: one per process"),
];

/// Returns the rates in segments per second, in the order of [`ALL`].
fn rates(setup: &Setup, options: &Options) -> [f64; 4] {
    ALL.map(|(placement, ..)| run(&Setup { placement, ..*setup }, options).segments_per_second)
}

impl Study for Placements {
    fn id(&self) -> &'static str {
        "002-placement"
    }

    fn title(&self) -> &'static str {
        "Layers on separate processors: four processors per adapter against two, one and seven"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let gain = |setup: &Setup, options: &Options| {
            let [two, four] = [Placement::Two, Placement::Four]
                .map(|placement| run(&Setup { placement, ..*setup }, options).segments_per_second);
            exact(four / two)
        };
        let name = "four against two, one direction";
        assumptions::choices(&table, MainFigure { name, setup: Setup::scenario_2(&table), figure: gain })
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let base = Setup::scenario_2(&table);
        let both_ways = Setup { traffic: Traffic::BothWays, ..base };
        let moved = Setup { mover: Mover::Processor, ..base };
        let (one_way, duplex, by_hand) = (rates(&base, options), rates(&both_ways, options), rates(&moved, options));
        let columns = ["one direction", "both directions", "one direction, processors move packets to the network"];
        let columns = columns.iter().map(|name| Column::new(name, "segments/s")).collect();
        let rows = (0..ALL.len()).map(|index| Row {
            label: ALL[index].2.to_owned(),
            cells: [one_way, duplex, by_hand].map(|rates| Cell::ours(exact(rates[index]))).to_vec(),
        });
        let (gain, mover_gain) = (one_way[2] / one_way[1], by_hand[2] / by_hand[1]);
        let speedup = |rates: &[f64; 4], index: usize| rates[index] / rates[0];
        let efficiency = speedup(&duplex, 3) / 7.0;
        let checks = vec![
            Check::new(
                "four processors are very little better than two",
                gain > 1.0 && gain < LITTLE,
                format!("{gain:.2} times as fast in one direction, {:.2} in both", duplex[2] / duplex[1]),
            ),
            Check::new(
                "if processors moved packets to the network, four would be far better than two, so they do not move \
                 them",
                mover_gain > 1.4,
                format!("{mover_gain:.2} times as fast"),
            ),
            Check::new(
                "work that is divided by layers is divided unevenly: its speedup stays far below the number of \
                 processors",
                efficiency < figures.clnp_speedup_8 / 8.0,
                format!(
                    "{:.2} on seven processors, both directions; other work reports {} on eight",
                    speedup(&duplex, 3),
                    figures.clnp_speedup_8
                ),
            ),
        ];
        let points =
            |rates: [f64; 4]| ALL.iter().zip(rates).map(|(&(_, count, _), rate)| (count, exact(rate))).collect();
        let plot = Plot {
            title: "Throughput by processors per adapter, scenario 2".to_owned(),
            x: Column::new("processors", ""),
            y: Column::new("throughput", "segments/s"),
            series: vec![
                Series { name: "one direction".to_owned(), points: points(one_way) },
                Series { name: "both directions".to_owned(), points: points(duplex) },
            ],
        };
        let title = "Throughput by processors per adapter, scenario 2".to_owned();
        Outcome {
            tables: vec![Table { title, columns, rows: rows.collect() }],
            plots: vec![plot],
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "The paper prints no numbers here; it only says that four processors are very little better than two."
                    .to_owned(),
            ],
        }
    }
}
