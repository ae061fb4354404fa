//! The network scheduler: in one device for all, or with old news.

use sim::hardware::Schedule;
use units::Duration;

use super::config::Config;
use super::paper::Kind;
use super::runs::{Point, point, series, shown};
use crate::outcome::{Column, Plot};
use crate::{Check, Options, Outcome, Study};

/// The device that holds the central scheduler.
pub(super) struct Central;
/// Schedulers whose knowledge is old.
pub(super) struct Stale;

const SERVICES_US: [u64; 8] = [1, 20, 50, 100, 120, 150, 200, 300];
const AGES_US: [u64; 7] = [0, 100, 300, 1_000, 3_000, 10_000, 30_000];
/// Old: several times what a packet takes.
const OLD_US: u64 = 10_000;

impl Study for Central {
    fn id(&self) -> &'static str {
        "004-central"
    }

    fn title(&self) -> &'static str {
        "The central scheduler's device as the limit of the one-bus machine"
    }

    fn run(&self, options: &Options) -> Outcome {
        let packet_bits = Config::new(Kind::OneBus).packet_bits as f64;
        let points: Vec<(u64, Point)> = SERVICES_US
            .iter()
            .map(|&micros| {
                let mut config = Config::new(Kind::OneBus);
                config.window_bits *= 3;
                config.choices.mux_service = Duration::from_micros(micros);
                config.measured = Duration::from_millis(200);
                (micros, point(options, &config))
            })
            .collect();
        let ceiling = |micros: u64| packet_bits / micros as f64;
        let free = points[0].1.throughput.mean;
        // Where the device is slower than the rest of the machine.
        let bound: Vec<(f64, f64)> = points
            .iter()
            .filter(|(micros, _)| ceiling(*micros) < 0.9 * free)
            .map(|(micros, point)| (point.throughput.mean, ceiling(*micros)))
            .collect();
        let busy = |micros: u64| {
            let found = points.iter().find(|(at, _)| *at == micros).expect("one of the sweep");
            found.1.utilisation("sender", "mux").mean
        };
        Outcome {
            checks: vec![
                Check::new(
                    "a slow device is a ceiling: one packet in each of its service times (within 2 %)",
                    !bound.is_empty() && bound.iter().all(|(ours, ceiling)| (ours / ceiling - 1.0).abs() < 0.02),
                    format!("{bound:.0?} Mb/s"),
                ),
                Check::new(
                    "a device of 1 us is idle, one of 200 us always busy",
                    busy(1) < 0.05 && busy(200) > 0.98,
                    format!("{:.2} and {:.2}", busy(1), busy(200)),
                ),
            ],
            plots: vec![Plot {
                title: "1-bus, window 216 kbit: throughput by the device's time for a packet".to_owned(),
                x: Column::new("service", "us"),
                y: Column::new("throughput", "Mb/s"),
                series: vec![series("1-bus", points.iter().map(|(micros, point)| (*micros as f64, point)), |point| {
                    point.throughput
                })],
            }],
            ..Outcome::default()
        }
    }
}

impl Study for Stale {
    fn id(&self) -> &'static str {
        "004-stale"
    }

    fn title(&self) -> &'static str {
        "Adaptive schedulers that know the queues of a while ago"
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            notes: vec![
                "Queues and rotations become known at intervals; between them, schedulers decide by the last picture. Among equals they take \
                 turns."
                    .to_owned(),
            ],
            ..Outcome::default()
        };
        let mut curves = Vec::new();
        for kind in [Kind::TwoBus, Kind::OneBus] {
            let round_robin = point(options, &Config::new(kind).nonuniform());
            for (name, schedule) in [("queue and rotation", Schedule::Adaptive), ("queue", Schedule::FirstFree)] {
                let points: Vec<(u64, Point)> = AGES_US
                    .iter()
                    .map(|&micros| {
                        let mut config = Config::new(kind).nonuniform();
                        config.schedule = schedule;
                        config.choices.stale = Duration::from_micros(micros);
                        (micros, point(options, &config))
                    })
                    .collect();
                let old = points.iter().find(|(micros, _)| *micros == OLD_US).expect("one of the ages");
                let (fresh, old) = (&points[0].1, &old.1);
                outcome.checks.push(Check::new(
                    format!(
                        "{}, {name}: news of 10 ms ago is worse than none (round robin), fresh news better",
                        kind.name()
                    ),
                    old.throughput.mean < round_robin.throughput.mean
                        && fresh.throughput.mean > round_robin.throughput.mean,
                    format!(
                        "fresh {}, old {}, round robin {} Mb/s",
                        shown(fresh.throughput),
                        shown(old.throughput),
                        shown(round_robin.throughput)
                    ),
                ));
                // A logarithmic axis has no zero.
                let at = points.iter().map(|(micros, point)| ((*micros).max(10) as f64, point));
                curves.push(series(&format!("{}, {name}", kind.name()), at, |point| point.throughput));
            }
        }
        outcome.plots.push(Plot {
            title: "Throughput by the age of what schedulers know (10 us stands for fresh)".to_owned(),
            x: Column::new("age", "us"),
            y: Column::new("throughput", "Mb/s"),
            series: curves,
        });
        outcome
    }
}
