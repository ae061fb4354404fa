//! The network scheduler: in one central device, or with outdated information.

use sim::hardware::Schedule;
use units::Duration;

use super::assumptions::MainFigure;
use super::config::Config;
use super::paper::{DATA, Kind};
use super::runs::{Point, places, point, shown, table_by, throughput_and_delay_by};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::Column;
use crate::outcome::{Check, Outcome};
use crate::study::{Options, Study};

/// The device of the central scheduler.
pub(super) struct Central;
/// Schedulers with outdated information.
pub(super) struct Stale;

const SERVICES_US: [u64; 8] = [1, 20, 50, 100, 120, 150, 200, 300];
const AGES_US: [u64; 7] = [0, 100, 300, 1_000, 3_000, 10_000, 30_000];
/// Several times the time of a packet.
const OLD_US: u64 = 10_000;
/// Factor of the windows of Table 1 in the study of the device.
const WIDER: u64 = 3;

/// Title of the plots and of a table.
const DEVICES: &str = "1-bus, window 216 kbit, by service time of the device";

impl Study for Central {
    fn id(&self) -> &'static str {
        "004-central"
    }

    fn title(&self) -> &'static str {
        "The central scheduler device as the limit of the one-bus machine"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, device of 20 us, Mb/s", with_device(20)),
            MainFigure::delay("delay, device of 150 us, us", with_device(150)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let packet_bits = Config::new(Kind::OneBus).packet_bits as f64;
        let points: Vec<(u64, Point)> =
            SERVICES_US.iter().map(|&micros| (micros, point(options, &with_device(micros)))).collect();
        let ceiling = |micros: u64| packet_bits / micros as f64;
        let free = points[0].1.throughput.mean;
        // Where the device is slower than the rest of the machine.
        let bound: Vec<(f64, f64)> = points
            .iter()
            .filter(|(micros, _)| ceiling(*micros) < 0.9 * free)
            .map(|(micros, point)| (point.throughput.mean, ceiling(*micros)))
            .collect();
        let busy = |micros: u64| {
            let found = points.iter().find(|(at, _)| *at == micros).expect("in the sweep");
            found.1.utilisation("sender", "mux").mean
        };
        let x = Column::new("service", "us");
        let curves = [("1-bus", places(&points, |micros| micros as f64))];
        Outcome {
            checks: vec![
                Check::new(
                    "a slow device is a ceiling: one packet per service time (within 2 %)",
                    !bound.is_empty() && bound.iter().all(|(ours, ceiling)| (ours / ceiling - 1.0).abs() < 0.02),
                    rates_of_ceilings(&bound),
                ),
                Check::new(
                    "a device of 1 us is idle, one of 200 us always busy",
                    busy(1) < 0.05 && busy(200) > 0.98,
                    format!("{:.2} and {:.2}", busy(1), busy(200)),
                ),
            ],
            tables: vec![table_by(DEVICES, &x, &curves)],
            plots: throughput_and_delay_by(DEVICES, &x, &curves).into(),
            assumptions: choices::assumptions(&self.choices(), options),
            ..Outcome::default()
        }
    }
}

/// Formats rates beside their ceilings.
fn rates_of_ceilings(pairs: &[(f64, f64)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(ours, ceiling)| format!("{ours:.0} of {ceiling:.0} Mb/s")).collect();
    pairs.join(", ")
}

/// Returns the machine whose device takes `micros` per packet, with windows that are never the
/// limit.
fn with_device(micros: u64) -> Config {
    let mut config = Config::new(Kind::OneBus);
    config.window_bits *= WIDER;
    config.choices.mux_service = Duration::from_micros(micros);
    config.measured = Duration::from_millis(200);
    config
}

impl Study for Stale {
    fn id(&self) -> &'static str {
        "004-stale"
    }

    fn title(&self) -> &'static str {
        "Adaptive schedulers with outdated queue information"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&[
            MainFigure::throughput(
                "throughput, 2-bus, information 10 ms old, Mb/s",
                with_information_age(Kind::TwoBus, OLD_US),
            ),
            MainFigure::throughput(
                "throughput, 1-bus, information 1 ms old, Mb/s",
                with_information_age(Kind::OneBus, 1_000),
            ),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "Queues and rotations are updated at intervals; between them, schedulers use the last values. Equal \
                 outlets take turns."
                    .to_owned(),
            ],
            ..Outcome::default()
        };
        let mut curves = Vec::new();
        for kind in [Kind::TwoBus, Kind::OneBus] {
            let round_robin = point(options, &Config::new(kind).nonuniform());
            for (name, schedule) in [("queue and rotation", Schedule::Adaptive), ("queue", Schedule::FirstFree)] {
                let at = |&micros: &u64| {
                    let config = Config { schedule, ..with_information_age(kind, micros) };
                    (micros, point(options, &config))
                };
                let points: Vec<(u64, Point)> = AGES_US.iter().map(at).collect();
                let old = points.iter().find(|(micros, _)| *micros == OLD_US).expect("in the sweep");
                let (fresh, old) = (&points[0].1, &old.1);
                outcome.checks.push(Check::new(
                    format!(
                        "{}, {name}: information 10 ms old is worse than none (round robin), current information is \
                         better",
                        kind.name()
                    ),
                    old.throughput.mean < round_robin.throughput.mean
                        && fresh.throughput.mean > round_robin.throughput.mean,
                    format!(
                        "current {}, old {}, round robin {} Mb/s",
                        shown(fresh.throughput),
                        shown(old.throughput),
                        shown(round_robin.throughput)
                    ),
                ));
                curves.push((format!("{}, {name}", kind.name()), points));
            }
        }
        // A logarithmic axis has no zero.
        let micros = |micros: u64| micros.max(10) as f64;
        let curves: Vec<_> = curves.iter().map(|(name, points)| (name.as_str(), places(points, micros))).collect();
        let x = Column::new("age", "us");
        outcome.tables.push(table_by("By age of the schedulers' information", &x, &curves));
        outcome.plots.extend(throughput_and_delay_by(
            "By age of the schedulers' information (10 us: current)",
            &x,
            &curves,
        ));
        outcome
    }
}

/// Returns the machine under nonuniform load whose adaptive schedulers have information of age
/// `micros`.
fn with_information_age(kind: Kind, micros: u64) -> Config {
    let mut config = Config::new(kind).nonuniform().adaptive();
    config.choices.stale = Duration::from_micros(micros);
    config
}
