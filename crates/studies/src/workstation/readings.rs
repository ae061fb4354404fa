//! Other readings of what the paper leaves open, each tried on all rows of Table 3.

use sim::hardware::fddi::Arrivals;
use units::Duration;

use super::config::Config;
use super::runs::point;
use crate::outcome::{Column, Row, Table};
use crate::{Cell, Options};

/// A reading and the change that makes it.
type Reading = (&'static str, fn(&mut Config));

/// None of them fits all rows; those of the 1-bus under nonuniform load fit rings with a short
/// target alone.
const READINGS: [Reading; 6] = [
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
];

fn short_target(config: &mut Config, ttrt: Duration) {
    let choices = &mut config.choices;
    (choices.ttrt, choices.background_frame_bytes) = (ttrt, 4500);
    two_frames(config);
}

/// The serial machine's interface holds more already.
fn two_frames(config: &mut Config) {
    config.choices.interface_frames = config.choices.interface_frames.max(2);
}

/// The throughput of every row of `rows` (name, machine, printed) under each reading. The heading names the replications, as they may be
/// fewer than those of the study.
pub(super) fn table(rows: &[(String, Config, f64)], options: &Options) -> Table {
    let row = |(label, change): &Reading| {
        let cell = |(_, config, printed): &(String, Config, f64)| {
            let mut config = config.clone();
            change(&mut config);
            Cell { paper: Some(*printed), ..Cell::ours(point(options, &config).throughput) }
        };
        Row { label: (*label).to_owned(), cells: rows.iter().map(cell).collect() }
    };
    Table {
        title: format!(
            "Throughput under other readings of the rings, each for all rows ({} replications)",
            options.replications
        ),
        columns: rows.iter().map(|(name, ..)| Column::new(name, "Mb/s")).collect(),
        rows: READINGS.iter().map(row).collect(),
    }
}
