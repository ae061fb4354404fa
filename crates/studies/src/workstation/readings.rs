//! Other readings of what the paper leaves open, each tried on all rows of Table 3, and one of them on Table 2 as well.

use sim::hardware::Schedule;
use sim::hardware::fddi::Arrivals;
use units::Duration;

use super::config::{Again, Config, Timer};
use super::model::Measured;
use super::paper::Kind;
use super::runs::{point, throughput_and_delay};
use crate::outcome::{Column, Row, Table};
use crate::{Cell, Options};

/// A reading and the change that makes it.
type Reading = (&'static str, fn(&mut Config));

/// A row of the paper, and the machine that it is of.
pub(super) struct Printed {
    pub(super) label: String,
    pub(super) config: Config,
    pub(super) throughput_mbps: f64,
    pub(super) delay_us: f64,
}

/// None of them fits all rows. Those of the 1-bus under nonuniform load fit rings with a short target, or machines with timers
/// ([`timers_run`]).
const READINGS: [Reading; 10] = [
    ("TTRT 0.53 ms, others' frames 4500 bytes, two frames in an interface", |config| {
        short_target(config, Duration::from_micros(530));
    }),
    ("TTRT 0.75 ms, others' frames 4500 bytes at regular times, two frames in an interface", |config| {
        short_target(config, Duration::from_micros(750));
        config.choices.background_arrivals = Arrivals::Regular;
    }),
    ("TTRT 0.8 ms", |config| config.choices.ttrt = Duration::from_micros(800)),
    ("others' frames 4500 bytes", |config| config.choices.background_frame_bytes = 4500),
    ("two frames in an interface", two_frames),
    ("acknowledgements wait for tokens", |config| config.choices.acks_on_rings = true),
    ("timers of RFC 793", |config| config.choices.timer = Some(Timer::of_paper())),
    ("as in the next table, without timers", |config| {
        timers_run(config);
        config.choices.timer = None;
    }),
    ("as in the next table, a late packet is sent again alone", |config| timers_send(config, Again::Late)),
    ("as in the next table, timers of all that is sent again begin together", |config| {
        timers_send(config, Again::FromLateTogether);
    }),
];

fn timers_send(config: &mut Config, again: Again) {
    timers_run(config);
    config.choices.timer = Some(Timer { again, ..Timer::of_paper() });
}

/// Timers of RFC 793 run, and what else then has both rows of the 1-bus under nonuniform load come out: three frames in an interface,
/// longer frames of the others, a scheduler to whom the queue comes first, an application that is told of its segments.
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

/// The serial machine's interface holds more already.
fn two_frames(config: &mut Config) {
    config.choices.interface_frames = config.choices.interface_frames.max(2);
}

/// The throughput of every row of `rows` under each reading. The heading names the replications, as they may be fewer than those of the
/// study.
pub(super) fn table(rows: &[Printed], options: &Options) -> Table {
    let row = |(label, change): &Reading| {
        let cell = |printed: &Printed| {
            let mut config = printed.config.clone();
            change(&mut config);
            Cell { paper: Some(printed.throughput_mbps), ..Cell::ours(point(options, &config).throughput) }
        };
        Row { label: (*label).to_owned(), cells: rows.iter().map(cell).collect() }
    };
    Table {
        title: format!(
            "Throughput under other readings of rings and timers, each for all rows ({} replications)",
            options.replications
        ),
        columns: rows.iter().map(|printed| Column::new(&printed.label, "Mb/s")).collect(),
        rows: READINGS.iter().map(row).collect(),
    }
}

/// What becomes of `rows`, those of the paper's `table`, where timers run.
pub(super) fn timers_table(table: &str, rows: &[Printed], options: &Options) -> Table {
    let row = |printed: &Printed| {
        let mut config = printed.config.clone();
        timers_run(&mut config);
        let point = point(options, &config);
        let cells = vec![
            Cell { paper: Some(printed.throughput_mbps), ..Cell::ours(point.throughput) },
            Cell { paper: Some(printed.delay_us), ..Cell::ours(point.delay) },
            Cell::ours(point.of(sent_again_percent)),
        ];
        Row { label: printed.label.clone(), cells }
    };
    let mut columns = throughput_and_delay();
    columns.push(Column::new("sent again", "% of what is acknowledged"));
    Table {
        title: format!("{table} if timers of RFC 793 run, with three frames in an interface"),
        columns,
        rows: rows.iter().map(row).collect(),
    }
}

/// Packets sent again for 100 that are acknowledged.
fn sent_again_percent(run: &Measured) -> f64 {
    let acknowledged: usize = run.round_trips_us.iter().map(Vec::len).sum();
    100.0 * run.resent as f64 / acknowledged.max(1) as f64
}
