//! 002-placement: one, two, four and seven processors, layer by layer.

use super::assumptions::sensitivity;
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::setup::{Mover, Placement, Setup, Traffic};
use crate::outcome::{Assumption, Cell, Check, Column, Outcome, Plot, Row, Sensitivity, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Placements;

/// "Very little improvement", as we hold it against the model.
const LITTLE: f64 = 1.15;

const ALL: [(Placement, f64, &str); 4] = [
    (Placement::One, 1.0, "one"),
    (Placement::Two, 2.0, "two: one a side"),
    (Placement::Four, 4.0, "four: IP and TCP apart, the prototype"),
    (Placement::Seven, 7.0, "seven: one a process"),
];

/// Segments a second, by the order of [`ALL`].
fn rates(setup: &Setup, options: &Options) -> [f64; 4] {
    ALL.map(|(placement, ..)| run(&Setup { placement, ..*setup }, options).segments_per_second)
}

impl Study for Placements {
    fn id(&self) -> &'static str {
        "002-placement"
    }

    fn title(&self) -> &'static str {
        "Layers on processors of their own: four processors an adapter against two, one and seven"
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let base = Setup::scenario_2(&table);
        let both_ways = Setup { traffic: Traffic::BothWays, ..base };
        let moved = Setup { mover: Mover::Processor, ..base };
        let (one_way, duplex, by_hand) = (rates(&base, options), rates(&both_ways, options), rates(&moved, options));
        let columns = ["one way", "both ways", "one way, processors move packets to the network"];
        let columns = columns.iter().map(|name| Column::new(name, "segments/s")).collect();
        let rows = (0..ALL.len()).map(|index| Row {
            label: ALL[index].2.to_owned(),
            cells: [one_way, duplex, by_hand].map(|rates| Cell::ours(exact(rates[index]))).to_vec(),
        });
        let (gain, hand_gain) = (one_way[2] / one_way[1], by_hand[2] / by_hand[1]);
        let speedup = |rates: &[f64; 4], index: usize| rates[index] / rates[0];
        let efficiency = speedup(&duplex, 3) / 7.0;
        let checks = vec![
            Check::new(
                "four processors are very little better than two",
                gain > 1.0 && gain < LITTLE,
                format!("{gain:.2} times as fast one way, {:.2} both ways", duplex[2] / duplex[1]),
            ),
            Check::new(
                "if processors moved packets to the network, four would be far better than two: so they do not",
                hand_gain > 1.4,
                format!("{hand_gain:.2} times as fast"),
            ),
            Check::new(
                "work that is divided by layers is divided badly: its speedup ends far below the number of \
                 processors",
                efficiency < figures.clnp_speedup_8 / 8.0,
                format!(
                    "{:.2} times on seven processors, both ways; others had {} times on eight",
                    speedup(&duplex, 3),
                    figures.clnp_speedup_8
                ),
            ),
        ];
        let points =
            |rates: [f64; 4]| ALL.iter().zip(rates).map(|(&(_, count, _), rate)| (count, exact(rate))).collect();
        let plot = Plot {
            title: "Throughput by processors of an adapter, scenario 2".to_owned(),
            x: Column::new("processors", ""),
            y: Column::new("throughput", "segments/s"),
            series: vec![
                Series { name: "one way".to_owned(), points: points(one_way) },
                Series { name: "both ways".to_owned(), points: points(duplex) },
            ],
        };
        let title = "Throughput by processors of an adapter, scenario 2".to_owned();
        Outcome {
            tables: vec![Table { title, columns, rows: rows.collect() }],
            plots: vec![plot],
            assumptions: assumptions(&base, options),
            checks,
            notes: vec![
                "The paper prints no numbers here, only that four processors are very little better than two."
                    .to_owned(),
            ],
        }
    }
}

fn assumptions(base: &Setup, options: &Options) -> Vec<Assumption> {
    let gain = |value: &str, setup: Setup| {
        let [two, four] = [Placement::Two, Placement::Four]
            .map(|placement| run(&Setup { placement, ..setup }, options).segments_per_second);
        Sensitivity { value: value.to_owned(), figure: "four against two, one way".to_owned(), ours: exact(four / two) }
    };
    let hand_over = |hand_over_us| Setup { hand_over_us, ..*base };
    vec![Assumption {
        key: "hand_over_us".to_owned(),
        value: "0 us for a packet's address between processors, beyond what Table 1 holds".to_owned(),
        reason: "Table 1 was measured on four processors; two would be spared some of it, which is not known"
            .to_owned(),
        sensitivity: vec![
            gain("5 us at both ends", hand_over(5.0)),
            gain("10 us", hand_over(10.0)),
            gain("18.6 us, as a poke", hand_over(18.6)),
            sensitivity("18.6 us, as a poke", "four processors, segments/s", &hand_over(18.6), options),
        ],
    }]
}
