//! 002-stack: our own TCP on one processor, and divided over two, with the times of Table 1, beside the
//! model of the prototype.

mod hosts;

use self::hosts::segments_per_second;
use super::duplex::on_a_fast_network;
use super::paper::{Figures, Table1};
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Placement, Setup, Traffic};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Stack;

/// The rates of one processor and of two, in the model and with our TCP.
struct Compared {
    model: [f64; 2],
    ours: [f64; 2],
}

impl Compared {
    fn of(table: &Table1, setup: &Setup, options: &Options) -> Self {
        let setups = [Placement::One, Placement::Two].map(|placement| Setup { placement, ..*setup });
        Self {
            model: setups.map(|setup| run(&setup, options).segments_per_second),
            ours: setups.map(|setup| segments_per_second(table, &setup, options)),
        }
    }

    fn gains(&self) -> [f64; 2] {
        [self.model, self.ours].map(|rates| rates[1] / rates[0])
    }

    fn row(&self, label: &str, printed: Option<f64>) -> Row {
        let [of_model, of_ours] = self.gains();
        let ours = |value: f64| Cell::ours(exact(value));
        let gain = printed.map_or(ours(of_ours), |printed| Cell::compared(printed, exact(of_ours), TOLERANCE));
        let cells = vec![
            ours(self.model[0]),
            ours(self.ours[0]),
            ours(self.model[1]),
            ours(self.ours[1]),
            ours(of_model),
            gain,
        ];
        Row { label: label.to_owned(), cells }
    }

    /// The largest relative difference of a rate.
    fn difference(&self) -> f64 {
        let of = |index: usize| (self.ours[index] / self.model[index] - 1.0).abs();
        of(0).max(of(1))
    }
}

/// Differences from the model that its simplifications may explain, with data in one direction and in
/// both.
const DIFFERENCE_MAX: [f64; 2] = [0.02, 0.1];

impl Study for Stack {
    fn id(&self) -> &'static str {
        "002-stack"
    }

    fn title(&self) -> &'static str {
        "Our own TCP with the times of Table 1, on one processor and divided over two, beside the model"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let gain = |change: fn(&mut Setup)| {
            move |options: &Options| {
                let table = Table1::load();
                let mut setup = Setup { traffic: Traffic::BothWays, ..Setup::scenario_2(&table) };
                change(&mut setup);
                exact(Compared::of(&table, &setup, options).gains()[1])
            }
        };
        let name = "gain of our TCP, both directions, scenario 2";
        vec![
            Choice::new(
                "pokes",
                "2 for each segment received and 1 for each sent, on two processors: as in the model",
                "our halves pass a report for a batch of segments, whose cost on these processors is not known",
            )
            .or("none", name, gain(|setup| (setup.pokes, setup.pokes_back) = (0, 0)))
            .or("4 and 4", name, gain(|setup| (setup.pokes, setup.pokes_back) = (4, 4))),
            Choice::new(
                "acknowledgements",
                "at once for 8 of the 15 segments of a window; otherwise the classic profile",
                "the paper acknowledges by a threshold in percent of the window and does not give it; the model's",
            )
            .or("4 of 15", name, gain(|setup| setup.acknowledge_every = 4))
            .or("12 of 15", name, gain(|setup| setup.acknowledge_every = 12)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let both_ways = |setup: Setup| Setup { traffic: Traffic::BothWays, ..setup };
        let alone = on_a_fast_network(both_ways(Setup::protocol_alone(&table)));
        let setups = [
            ("both directions, protocol only, no network limit", alone, Some(figures.duplex_gain)),
            ("both directions, scenario 2", both_ways(Setup::scenario_2(&table)), None),
            ("both directions, scenario 1: the adapter copies", both_ways(Setup::scenario_1(&table)), None),
            ("one direction, scenario 2", Setup::scenario_2(&table), None),
            ("one direction, scenario 1", Setup::scenario_1(&table), None),
        ];
        let compared = setups.map(|(_, setup, _)| Compared::of(&table, &setup, options));
        let columns = vec![
            Column::new("model, one processor", "segments/s"),
            Column::new("our TCP, one processor", "segments/s"),
            Column::new("model, two", "segments/s"),
            Column::new("our TCP, two", "segments/s"),
            Column::new("gain of the model", ""),
            Column::new("gain of our TCP", ""),
        ];
        let rows = setups.iter().zip(&compared).map(|((label, _, printed), one)| one.row(label, *printed)).collect();
        let largest = |traffic: Traffic| {
            let of_traffic = setups.iter().zip(&compared).filter(|((_, setup, _), _)| setup.traffic == traffic);
            of_traffic.map(|(_, one)| one.difference()).fold(0.0, f64::max)
        };
        let apart = [Traffic::OneWay, Traffic::BothWays].map(largest);
        let [duplex, one_way] = [1, 3].map(|index| compared[index].gains()[1]);
        Outcome {
            tables: vec![Table { title: "Throughput of all directions together".to_owned(), columns, rows }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "with data in one direction our TCP is as fast as the model, within 2 %",
                    apart[0] <= DIFFERENCE_MAX[0],
                    format!("at most {:.1} % apart", apart[0] * 100.0),
                ),
                Check::new(
                    "with data in both directions our TCP is as fast as the model, within 10 %",
                    apart[1] <= DIFFERENCE_MAX[1],
                    format!("at most {:.1} % apart", apart[1] * 100.0),
                ),
                Check::new(
                    "the split of our TCP pays with data in both directions, even with the cost of pokes",
                    duplex > 1.4,
                    format!("{duplex:.2}"),
                ),
                Check::new("with data in one direction it does not pay", one_way < 1.05, format!("{one_way:.2}")),
            ],
            notes: vec![
                "The model has processes for single tasks that exchange segments by channels. Our host has a receive \
                 worker and a driver, which take turns: a turn takes all segments that have arrived, and an \
                 acknowledgement leaves after it. The times of single processes are added for each side."
                    .to_owned(),
                "On one processor the two directions of our TCP take turns for longer than the model's: a turn sends \
                 all that the window permits. Over 0.3 s the rate of both together varies by a third, so it is \
                 measured over seconds."
                    .to_owned(),
                "In scenario 1 on two processors our TCP is faster: the prototype's pokes and calls wait until the \
                 other processor, which copies, takes them. Our halves exchange reports through queues. With them the \
                 receive processor is never idle, and is the limit."
                    .to_owned(),
                "The prototype's four processors, IP and TCP apart on each side, have no counterpart: our hosts have \
                 one processor or two."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}
