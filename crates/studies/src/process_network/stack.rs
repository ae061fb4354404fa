//! 002-stack: our own TCP on one processor, and divided over two and over four, with the times of Table 1,
//! beside the model of the prototype.

mod hosts;

use self::hosts::segments_per_second;
use super::duplex::on_a_fast_network;
use super::paper::{Figures, Table1};
use super::placement::LITTLE;
use super::run::{exact, run};
use super::scenarios::TOLERANCE;
use super::setup::{Placement, Setup, Traffic};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Stack;

/// Numbers of processors: for both sides, one for each, and one for IP and one for TCP of each.
const PLACEMENTS: [Placement; 3] = [Placement::One, Placement::Two, Placement::Four];

/// Rates of one processor, of two and of four, in the model and with our TCP.
struct Compared {
    model: [f64; 3],
    ours: [f64; 3],
}

impl Compared {
    fn of(table: &Table1, setup: &Setup, options: &Options) -> Self {
        let setups = PLACEMENTS.map(|placement| Setup { placement, ..*setup });
        Self {
            model: setups.map(|setup| run(&setup, options).segments_per_second),
            ours: setups.map(|setup| segments_per_second(table, &setup, options)),
        }
    }

    /// Returns the gains of two processors over one, in the model and with our TCP.
    fn gains(&self) -> [f64; 2] {
        [self.model, self.ours].map(|rates| rates[1] / rates[0])
    }

    /// Returns the gains of four processors over two.
    fn gains_of_four(&self) -> [f64; 2] {
        [self.model, self.ours].map(|rates| rates[2] / rates[1])
    }

    fn row(&self, label: &str, printed: Printed) -> Row {
        let [of_model, of_ours] = self.gains();
        let ours = |value: f64| Cell::ours(exact(value));
        let compared = |value: f64, printed: Option<f64>| {
            printed.map_or(ours(value), |printed| Cell::compared(printed, exact(value), TOLERANCE))
        };
        let rates = self.model.iter().zip(self.ours).enumerate().flat_map(|(index, (model, value))| {
            let printed = printed.rate_of_four.filter(|_| index == 2);
            [ours(*model), compared(value, printed)]
        });
        let [model_four, ours_four] = self.gains_of_four();
        let gains = [ours(of_model), compared(of_ours, printed.gain_of_two), ours(model_four), ours(ours_four)];
        Row { label: label.to_owned(), cells: rates.chain(gains).collect() }
    }

    /// Returns our rates relative to the model's.
    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.ours.into_iter().zip(self.model).map(|(ours, model)| ours / model)
    }
}

/// The paper's numbers for a setup.
#[derive(Clone, Copy, Default)]
struct Printed {
    gain_of_two: Option<f64>,
    /// Rate of four processors in segments per second.
    rate_of_four: Option<f64>,
}

/// Differences from the model that its simplifications may explain.
const DIFFERENCE_MAX: f64 = 0.02;

/// Largest accepted gain of our TCP where the adapter copies: see the notes.
const COPIES_MAX: f64 = 0.2;

fn check_of_model(what: &str, compared: &[Compared]) -> Check {
    let apart = compared.iter().flat_map(Compared::ratios).map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    Check::new(
        format!("{what} our TCP is as fast as the model, within 2 %"),
        apart <= DIFFERENCE_MAX,
        format!("at most {:.1} % apart", apart * 100.0),
    )
}

fn check_of_copies(compared: &Compared) -> Check {
    let ratios: Vec<_> = compared.ratios().collect();
    Check::new(
        "with data in both directions that the adapter copies our TCP is faster than the model, by at most 20 %",
        ratios.iter().all(|ratio| (1.0..1.0 + COPIES_MAX).contains(ratio)),
        ratios.iter().map(|ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0)).collect::<Vec<_>>().join(", "),
    )
}

impl Study for Stack {
    fn id(&self) -> &'static str {
        "002-stack"
    }

    fn title(&self) -> &'static str {
        "Our own TCP with the times of Table 1, on one processor and divided over two and four, beside the model"
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
        let nothing = Printed::default();
        let duplex_gain = Printed { gain_of_two: Some(figures.duplex_gain), ..nothing };
        let rate = Printed { rate_of_four: Some(figures.segments_per_second), ..nothing };
        let setups = [
            ("both directions, protocol only, no network limit", alone, duplex_gain),
            ("both directions, scenario 2", both_ways(Setup::scenario_2(&table)), nothing),
            ("both directions, scenario 1: the adapter copies", both_ways(Setup::scenario_1(&table)), nothing),
            ("one direction, scenario 2", Setup::scenario_2(&table), rate),
            ("one direction, scenario 1", Setup::scenario_1(&table), nothing),
        ];
        let compared = setups.map(|(_, setup, _)| Compared::of(&table, &setup, options));
        let columns = vec![
            Column::new("model, one processor", "segments/s"),
            Column::new("our TCP, one processor", "segments/s"),
            Column::new("model, two", "segments/s"),
            Column::new("our TCP, two", "segments/s"),
            Column::new("model, four", "segments/s"),
            Column::new("our TCP, four", "segments/s"),
            Column::new("gain of the model", ""),
            Column::new("gain of our TCP", ""),
            Column::new("four against two, model", ""),
            Column::new("four against two, our TCP", ""),
        ];
        let rows = setups.iter().zip(&compared).map(|((label, _, printed), one)| one.row(label, *printed)).collect();
        let [duplex, one_way] = [1, 3].map(|index| compared[index].gains()[1]);
        let of_four: Vec<_> = compared.iter().map(|one| one.gains_of_four()[1]).collect();
        Outcome {
            tables: vec![Table { title: "Throughput of all directions together".to_owned(), columns, rows }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                check_of_model("with data in one direction", &compared[3..]),
                check_of_model("with data in both directions that the adapter does not copy", &compared[..2]),
                check_of_copies(&compared[2]),
                Check::new(
                    "the split of our TCP pays with data in both directions, even with the cost of pokes",
                    duplex > 1.4,
                    format!("{duplex:.2}"),
                ),
                Check::new("with data in one direction it does not pay", one_way < 1.05, format!("{one_way:.2}")),
                Check::new(
                    "four processors are very little better than two, also for our TCP",
                    of_four.iter().all(|gain| (1.0..LITTLE).contains(gain)),
                    of_four.iter().map(|gain| format!("{gain:.2}")).collect::<Vec<_>>().join(", "),
                ),
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
                "In scenario 1 on two and four processors our TCP is faster: the prototype's pokes and calls wait until \
                 the other processor, which copies, takes them. Our halves exchange reports through queues. With them \
                 the receive processor is never idle, and is the limit."
                    .to_owned(),
                "On four processors, IP and TCP apart on each side, each packet passes through steps on them, and the \
                 driver decides in no time: both halves of the connection are in one place. The pokes keep their cost, \
                 as on two."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}
