//! 002-scenarios: segments per second with copying by the adapter (scenario 1) and by the
//! workstation (scenario 2).

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1};
use super::run::{Measured, exact, rates_after_warm_ups, run};
use super::setup::{Application, Setup};
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};
use crate::{choices, warm_up};

/// The study.
pub(super) struct Scenarios;

/// Tolerance of the paper's main figures.
pub(super) const TOLERANCE: f64 = 0.05;

/// Largest share of the receive processor that pokes may take for claim 002-08 ("far less than
/// expected") to hold.
const POKES_SHARE_MAX: f64 = 0.25;

impl Study for Scenarios {
    fn id(&self) -> &'static str {
        "002-scenarios"
    }

    fn title(&self) -> &'static str {
        "TCP/IP on four transputers: copying by the adapter (scenario 1) or by the workstation in parallel (scenario 2)"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        assumptions::choices(&table, MainFigure::rate("scenario 2, segments/s", Setup::scenario_2(&table)))
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let [first, second] = [Setup::scenario_1(&table), Setup::scenario_2(&table)].map(|setup| run(&setup, options));
        let trickle = trickle(&table, options);
        let mbps = |measured: &Measured| exact(measured.segments_per_second * table.segment_bits() / 1e6);
        let gain = exact(second.segments_per_second / first.segments_per_second);
        let derived_mbps = figures.segments_per_second * table.segment_bits() / 1e6;
        let columns =
            vec![Column::new("throughput", "segments/s"), Column::new("throughput", "Mb/s"), Column::new("gain", "")];
        let rows = vec![
            Row {
                label: "scenario 1: the application on the adapter".to_owned(),
                cells: vec![Cell::ours(first.rate()), Cell::ours(mbps(&first)), Cell::ours(exact(1.0))],
            },
            Row {
                label: "scenario 2: the workstation copies in parallel with the protocol".to_owned(),
                cells: vec![
                    Cell::compared(figures.segments_per_second, second.rate(), TOLERANCE).fitted(),
                    Cell::compared(derived_mbps, mbps(&second), TOLERANCE).fitted(),
                    Cell::compared(figures.copy_overlap_gain, gain, TOLERANCE),
                ],
            },
        ];
        let mut checks = checks(&table, &figures, &first, &second, &trickle);
        let twice = |name, setup: &Setup| (name, rates_after_warm_ups(setup, options));
        let pairs = [twice("scenario 1", &Setup::scenario_1(&table)), twice("scenario 2", &Setup::scenario_2(&table))];
        checks.push(warm_up::check_twice("segments per second", &pairs));
        Outcome {
            tables: vec![
                Table { title: "Throughput end to end".to_owned(), columns, rows },
                processors(&first, &second),
            ],
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "The model is deterministic: all runs are equal, so there are no \
                 intervals."
                    .to_owned(),
                "The number of pokes was calibrated so that scenario 2 is as fast as printed. The gain over scenario \
                 1 and all other studies of this paper use it unchanged."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// Runs an application with twenty segments per second: the timer then acknowledges.
fn trickle(table: &Table1, options: &Options) -> Measured {
    run(&Setup { pause_us: 50_000.0, ..Setup::scenario_2(table) }, options)
}

fn processors(first: &Measured, second: &Measured) -> Table {
    let columns = ["IP, transmit", "TCP, transmit", "TCP, receive", "IP, receive"];
    let row = |label: &str, measured: &Measured| {
        let [sender, receiver] = &measured.utilisations;
        // The prototype's processors are IP and TCP of the receive side, then TCP and IP of the
        // transmit side.
        let cells = [sender[3], sender[2], receiver[1], receiver[0]];
        Row { label: label.to_owned(), cells: cells.map(|share| Cell::ours(exact(share * 100.0))).to_vec() }
    };
    Table {
        title: "Utilisation of the processors on the data path, at sender and receiver".to_owned(),
        columns: columns.map(|name| Column::new(name, "%")).to_vec(),
        rows: vec![row("scenario 1", first), row("scenario 2", second)],
    }
}

fn checks(table: &Table1, figures: &Figures, first: &Measured, second: &Measured, trickle: &Measured) -> Vec<Check> {
    let setup = Setup::scenario_2(table);
    let poke_us = f64::from(setup.pokes) * (setup.costs.poke_us + setup.costs.link_word_us);
    let of_segment = poke_us * second.segments_per_second / 1e6;
    let rate = second.segments_per_second;
    let (bulk, slow) = (second.acknowledgements, trickle.acknowledgements);
    vec![
        Check::new(
            "scenario 2 exceeds 3300 segments/s",
            rate > figures.segments_per_second,
            format!("{rate:.0} segments/s"),
        ),
        Check::new(
            "the processor of tcp_recv and user_task at the receiver is the bottleneck of both scenarios",
            [first, second].iter().all(|measured| measured.utilisations[1][1] > 0.95),
            format!(
                "{:.0} % busy in scenario 1, {:.0} % in scenario 2",
                first.utilisations[1][1] * 100.0,
                second.utilisations[1][1] * 100.0
            ),
        ),
        Check::new(
            "shared state by pokes takes less than a quarter of the receive processor",
            of_segment < POKES_SHARE_MAX,
            format!("{:.0} % in scenario 2, with {} pokes per segment", of_segment * 100.0, setup.pokes),
        ),
        Check::new(
            "in steady state the timer never acknowledges",
            bulk.by_timer == 0 && bulk.total() > 0 && slow.by_timer > 0,
            format!(
                "{} acknowledgements by receipt and {} by the timer with bulk data; {} by the timer with twenty \
                 segments per second",
                bulk.by_receipt, bulk.by_timer, slow.by_timer
            ),
        ),
        Check::new(
            "no packet is lost between the adapters",
            first.dropped + second.dropped == 0,
            format!("{} dropped", first.dropped + second.dropped),
        ),
    ]
}

/// Returns the workstation as in scenario 2, taking `us_per_segment` at each end.
pub(super) fn with_workstation(table: &Table1, us_per_segment: f64) -> Setup {
    Setup { application: Application::OnWorkstation { us_per_segment }, ..Setup::scenario_2(table) }
}
