//! 004-stacks: complete TCP stacks of our own, one for each protocol processor and its ring,
//! compared with the report's machine.

mod channels;

use measure::Estimate;

use self::channels::{Channels, Received};
use super::config::Config;
use super::paper::Kind;
use super::runs::point;
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::replicate::replicate;
use crate::study::{Options, Study};

/// The study.
pub(super) struct Stacks;

/// Numbers of stacks, up to the number of interfaces of the report's machine.
const COUNTS: [usize; 6] = [1, 2, 3, 4, 5, 6];

/// Minimum gain of an additional stack, as a share of the throughput of a single one.
const SHARE_MIN: f64 = 0.95;

/// Returns the report's two-bus machine with as many processors as rings.
fn machine(count: usize) -> Config {
    Config { protocol_processors: count, interfaces: count, ..Config::new(Kind::TwoBus) }
}

/// Results of some stacks.
struct Ours {
    throughput: Estimate,
    /// Largest number of chunks that waited at the receiver for an earlier one.
    waiting_max: Estimate,
}

impl Ours {
    fn of(channels: &Channels, options: &Options) -> Self {
        let run = |seed, run| channels.run(seed, run, options.effort);
        let runs = replicate(options, run, |received: &Received| vec![received.mbps]);
        let of = |figure: fn(&Received) -> f64| {
            Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>(), options.confidence)
        };
        Self { throughput: of(|run| run.mbps), waiting_max: of(|run| run.waiting_max as f64) }
    }
}

/// Returns the least ratio of the throughput of n stacks to n times that of one.
fn least_share_of_sum(ours: &[Estimate]) -> f64 {
    let shares = COUNTS.iter().zip(ours).map(|(&count, one)| one.mean / (count as f64 * ours[0].mean));
    shares.fold(f64::INFINITY, f64::min)
}

/// Returns the least and the largest relative difference of our stacks from the model.
fn range_of_differences(model: &[Estimate], ours: &[Estimate]) -> (f64, f64) {
    let differences = model.iter().zip(ours).map(|(model, ours)| ours.mean / model.mean - 1.0);
    differences.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)))
}

impl Study for Stacks {
    fn id(&self) -> &'static str {
        "004-stacks"
    }

    fn title(&self) -> &'static str {
        "Replicated stacks of our own TCP, one for each processor and ring, beside the two-bus machine"
    }

    fn data(&self) -> &'static [&'static str] {
        super::paper::DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "throughput of four stacks, Mb/s";
        let with = |change: fn(&mut Channels)| {
            move |options: &Options| {
                let mut channels = Channels::new(machine(4));
                change(&mut channels);
                Ours::of(&channels, options).throughput
            }
        };
        vec![
            Choice::new(
                "interface_frames",
                "an interface takes a frame when the previous one has left, as in the model",
                "the report gives no number; the printed throughputs imply it",
            )
            .or("2 frames", figure, with(|channels| channels.interface_frames = 2))
            .or("8 frames", figure, with(|channels| channels.interface_frames = 8)),
            Choice::new(
                "memory",
                "a processor has its memory for itself",
                "our hosts have no buses: the copy from the application and the transfers of the interface are free",
            )
            .or("twice as slow", figure, with(|channels| channels.machine.memory_ns *= 2))
            .or("four times as slow", figure, with(|channels| channels.machine.memory_ns *= 4)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let model: Vec<_> = COUNTS.iter().map(|&count| point(options, &machine(count)).throughput).collect();
        let ours: Vec<_> = COUNTS.iter().map(|&count| Ours::of(&Channels::new(machine(count)), options)).collect();
        let scaled = |estimate: Estimate, factor: f64| Estimate {
            mean: estimate.mean * factor,
            plus_minus: estimate.plus_minus.map(|half| half * factor),
        };
        let row = |index: usize| Row {
            label: format!("{} processors and rings", COUNTS[index]),
            cells: vec![
                Cell::ours(model[index]),
                Cell::ours(ours[index].throughput),
                Cell::ours(scaled(model[index], 1.0 / model[0].mean)),
                Cell::ours(scaled(ours[index].throughput, 1.0 / ours[0].throughput.mean)),
                Cell::ours(ours[index].waiting_max),
            ],
        };
        let columns = vec![
            Column::new("model", "Mb/s"),
            Column::new("our stacks", "Mb/s"),
            Column::new("model, relative to one", ""),
            Column::new("our stacks, relative to one", ""),
            Column::new("chunks that waited for order, at most", ""),
        ];
        let of_ours: Vec<_> = ours.iter().map(|one| one.throughput).collect();
        let least = least_share_of_sum(&of_ours);
        let (low, high) = range_of_differences(&model, &of_ours);
        let points =
            |rates: &[Estimate]| COUNTS.iter().zip(rates).map(|(&count, &rate)| (count as f64, rate)).collect();
        Outcome {
            tables: vec![Table {
                title: "Throughput by number of processors and rings, uniform load".to_owned(),
                columns,
                rows: (0..COUNTS.len()).map(row).collect(),
            }],
            plots: vec![Plot {
                title: "Throughput by number of processors and rings".to_owned(),
                x: Column::new("processors and rings", ""),
                y: Column::new("throughput", "Mb/s"),
                series: vec![
                    Series { name: "model".to_owned(), points: points(&model) },
                    Series { name: "our stacks".to_owned(), points: points(&of_ours) },
                ],
            }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "n stacks carry at least 95 % of n times what one carries",
                    least >= SHARE_MIN,
                    format!("at least {:.1} %", least * 100.0),
                ),
                Check::new(
                    "our stacks are within 15 % of the model",
                    low > -0.15 && high < 0.15,
                    format!("{:+.1} to {:+.1} %", low * 100.0, high * 100.0),
                ),
            ],
            notes: vec![
                "Each of our stacks has one connection over one ring, with the classic profile, the report's window \
                 and its filter of round trips. In the model a network scheduler spreads the packets of each \
                 processor over all rings, and an acknowledgement returns at once; ours waits for a token like any \
                 frame, and one is sent for two segments."
                    .to_owned(),
            ],
        }
    }
}
