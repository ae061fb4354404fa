//! Other interpretations of parameters that the report leaves open, each applied to all rows of
//! Table 3, and one of them to Table 2.

use sim::hardware::Schedule;
use sim::hardware::fddi::Arrivals;
use units::Duration;

use super::config::{Config, Retransmit, Timer};
use super::model::Measured;
use super::paper::Kind;
use super::runs::{point, throughput_and_delay};
use crate::outcome::Cell;
use crate::outcome::{Column, Row, Table};
use crate::study::Options;

/// An interpretation and the change that applies it.
type Interpretation = (&'static str, fn(&mut Config));

/// A printed row with its machine.
pub(super) struct Printed {
    pub(super) label: String,
    pub(super) config: Config,
    pub(super) throughput_mbps: f64,
    pub(super) delay_us: f64,
}

/// Interpretations; none of them fits all rows. The rows of the 1-bus under nonuniform load fit
/// with rings with a short target rotation time, or with running timers ([`timers_run`]).
const INTERPRETATIONS: [Interpretation; 10] = [
    ("TTRT 0.53 ms, background frames of 4500 bytes, two frames per interface", |config| {
        short_target(config, Duration::from_micros(530));
    }),
    ("TTRT 0.75 ms, background frames of 4500 bytes at regular intervals, two frames per interface", |config| {
        short_target(config, Duration::from_micros(750));
        config.choices.background_arrivals = Arrivals::Regular;
    }),
    ("TTRT 0.8 ms", |config| config.choices.ttrt = Duration::from_micros(800)),
    ("background frames of 4500 bytes", |config| config.choices.background_frame_bytes = 4500),
    ("two frames per interface", two_frames),
    ("acknowledgements wait for tokens", |config| config.choices.acks_on_rings = true),
    ("timers of RFC 793", |config| config.choices.timer = Some(Timer::of_paper())),
    ("as in the next table, without timers", |config| {
        timers_run(config);
        config.choices.timer = None;
    }),
    ("as in the next table, only a late packet is retransmitted", |config| timers_send(config, Retransmit::OnlyLate)),
    ("as in the next table, timers of all retransmitted packets restart together", |config| {
        timers_send(config, Retransmit::FromLateTogether);
    }),
];

fn timers_send(config: &mut Config, retransmit: Retransmit) {
    timers_run(config);
    config.choices.timer = Some(Timer { retransmit, ..Timer::of_paper() });
}

/// Applies running timers of RFC 793, and the other changes with which both rows of the 1-bus under
/// nonuniform load agree: three frames per interface, longer background frames, a scheduler that
/// considers the queue first, and an application that is notified of acknowledged segments.
pub(super) fn timers_run(config: &mut Config) {
    let choices = &mut config.choices;
    choices.timer = Some(Timer::of_paper());
    choices.confirms = true;
    choices.costs.generate.instructions = 210;
    choices.background_frame_bytes = 1750;
    if config.kind != Kind::Serial {
        choices.interface_frames = 3;
    }
    if config.schedule == Schedule::Adaptive {
        config.schedule = Schedule::QueueThenRotation;
    }
}

fn short_target(config: &mut Config, ttrt: Duration) {
    let choices = &mut config.choices;
    (choices.ttrt, choices.background_frame_bytes) = (ttrt, 4500);
    two_frames(config);
}

/// Applies two frames per interface; the serial machine's interface already holds more.
fn two_frames(config: &mut Config) {
    config.choices.interface_frames = config.choices.interface_frames.max(2);
}

/// Returns the throughput of every row of `rows` under each interpretation. The heading gives the
/// number of replications, which may be smaller than that of the study.
pub(super) fn table(rows: &[Printed], options: &Options) -> Table {
    let row = |(label, change): &Interpretation| {
        let cell = |printed: &Printed| {
            let mut config = printed.config.clone();
            change(&mut config);
            Cell { paper: Some(printed.throughput_mbps), ..Cell::ours(point(options, &config).throughput) }
        };
        Row { label: (*label).to_owned(), cells: rows.iter().map(cell).collect() }
    };
    Table {
        title: format!(
            "Throughput under other interpretations of rings and timers, for all rows ({} replications)",
            options.replications
        ),
        columns: rows.iter().map(|printed| Column::new(&printed.label, "Mb/s")).collect(),
        rows: INTERPRETATIONS.iter().map(row).collect(),
    }
}

/// Returns the rows of the report's `table` with running timers.
pub(super) fn timers_table(table: &str, rows: &[Printed], options: &Options) -> Table {
    let row = |printed: &Printed| {
        let mut config = printed.config.clone();
        timers_run(&mut config);
        let point = point(options, &config);
        let cells = vec![
            Cell { paper: Some(printed.throughput_mbps), ..Cell::ours(point.throughput) },
            Cell { paper: Some(printed.delay_us), ..Cell::ours(point.delay) },
            Cell::ours(point.of(retransmitted_percent)),
        ];
        Row { label: printed.label.clone(), cells }
    };
    let mut columns = throughput_and_delay();
    columns.push(Column::new("retransmitted", "% of acknowledged packets"));
    Table {
        title: format!("{table} with running timers of RFC 793 and three frames per interface"),
        columns,
        rows: rows.iter().map(row).collect(),
    }
}

/// Returns the number of retransmitted packets per 100 acknowledged ones.
fn retransmitted_percent(run: &Measured) -> f64 {
    let acknowledged: usize = run.round_trips_us.iter().map(Vec::len).sum();
    100.0 * run.resent as f64 / acknowledged.max(1) as f64
}
