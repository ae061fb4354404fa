//! 000-today: the paper's experiment with measured costs of our own stack.

use measure::Estimate;

use super::model::{Direction, Lock, Setup, Share, Step, replicate, scaled, spans};
use super::paper::{OurSide, our_sides};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct OwnCosts;

/// Bytes per batch, the unit of work of a processor: the size of a GSO or GRO buffer.
const BATCH_BYTES: u64 = 65_000;

/// The same numbers of processors as in the paper.
const PROCESSORS: [usize; 7] = [1, 2, 4, 6, 8, 10, 12];

/// Variation of sealing and opening a batch.
const SPREAD: f64 = 0.1;

/// The cost of a batch on one side of a connection.
struct Batch<'a> {
    side: &'a OurSide,
    packets: u64,
}

impl Batch<'_> {
    fn steps(&self) -> Vec<Step> {
        let us = |ns: f64| ns * self.packets as f64 / 1000.0;
        let application = Step { mean_us: us(self.side.application_ns), lock: Lock::Application };
        let serial = Step { mean_us: us(self.side.serial_ns), lock: Lock::Connection };
        let parallel = Step { mean_us: us(self.side.parallel_ns), lock: Lock::None };
        if self.side.side == "send" { vec![application, serial, parallel] } else { vec![parallel, serial, application] }
    }

    fn setup(&self, processors: usize, options: &Options) -> Setup {
        let steps = self.steps();
        let (warm_up, measured) = spans(steps.iter().map(|step| step.mean_us).sum(), options.effort);
        let direction = if self.side.side == "send" { Direction::Out } else { Direction::In };
        Setup {
            steps,
            direction,
            processors,
            connections: 1,
            share: Share::AtRandom,
            spread: SPREAD,
            handoff_us: 0.0,
            warm_up,
            measured,
        }
    }

    fn bits(&self) -> f64 {
        self.packets as f64 * self.side.payload_bytes as f64 * 8.0
    }

    fn bound(&self) -> f64 {
        let total = self.side.serial_ns + self.side.parallel_ns + self.side.application_ns;
        total / self.side.serial_ns.max(self.side.application_ns)
    }

    fn name(&self) -> String {
        format!("{}, {} side", self.side.cipher, self.side.side)
    }
}

impl Study for OwnCosts {
    fn id(&self) -> &'static str {
        "000-today"
    }

    fn title(&self) -> &'static str {
        "Our own connection: speedups on up to twelve processors from measured costs"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-our-costs.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "speedup on twelve, receive side, AES-128-GCM";
        let with = |batch_bytes: u64, change: fn(&mut Setup)| {
            move |options: &Options| {
                let sides = our_sides();
                let is_meant = |side: &&OurSide| side.cipher.starts_with("AES") && side.side == "receive";
                let side = sides.iter().find(is_meant).expect("the side exists");
                let batch = Batch { side, packets: batch_bytes / side.datagram_bytes };
                let rate = |count| {
                    let mut setup = batch.setup(count, options);
                    change(&mut setup);
                    replicate(&setup, options).rate
                };
                scaled(rate(PROCESSORS[PROCESSORS.len() - 1]), 1.0 / rate(1).mean)
            }
        };
        vec![
            Choice::new(
                "handoff_us",
                "0 us for the serial part to take over a batch from another processor",
                "the costs were measured on one processor, without such transfers",
            )
            .or("1 us per batch", figure, with(BATCH_BYTES, |setup| setup.handoff_us = 1.0))
            .or("5 us per batch", figure, with(BATCH_BYTES, |setup| setup.handoff_us = 5.0)),
            Choice::new(
                "batch",
                format!("{BATCH_BYTES} bytes"),
                "the size of a GSO or GRO buffer; fewer packets give smaller batches",
            )
            .or("16000 bytes", figure, with(16_000, |_| {}))
            .or("16000 bytes, 5 us per batch", figure, with(16_000, |setup| setup.handoff_us = 5.0)),
            Choice::new("spread", "sealing and opening take their mean time +-10 %", "not measured")
                .or("none", figure, with(BATCH_BYTES, |setup| setup.spread = 0.0))
                .or("50 %", figure, with(BATCH_BYTES, |setup| setup.spread = 0.5)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let sides = our_sides();
        let batches: Vec<_> =
            sides.iter().map(|side| Batch { side, packets: BATCH_BYTES / side.datagram_bytes }).collect();
        let curves: Vec<Vec<Estimate>> = batches
            .iter()
            .map(|batch| {
                PROCESSORS.iter().map(|&count| replicate(&batch.setup(count, options), options).rate).collect()
            })
            .collect();
        let speedup = |curve: &[Estimate], index: usize| scaled(curve[index], 1.0 / curve[0].mean);
        let rows = batches.iter().zip(&curves).map(|(batch, curve)| {
            let side = batch.side;
            let measured = Estimate { mean: side.speedup_2, plus_minus: Some(side.speedup_2_plus_minus) };
            let exact = |mean| Cell::ours(Estimate { mean, plus_minus: None });
            let last = PROCESSORS.len() - 1;
            Row {
                label: format!("{} ({})", batch.name(), side.result),
                cells: vec![
                    Cell::ours(scaled(curve[0], batch.bits() / 1e9)),
                    Cell::ours(measured),
                    Cell::ours(speedup(curve, 1)),
                    Cell::ours(speedup(curve, last)),
                    exact(batch.bound()),
                    Cell::ours(scaled(curve[last], batch.bits() / 1e9)),
                ],
            }
        });
        let columns = vec![
            Column::new("one processor, from the costs", "Gb/s"),
            Column::new("speedup on two, measured", ""),
            Column::new("speedup on two, simulated", ""),
            Column::new("speedup on twelve, simulated", ""),
            Column::new("bound for any number", ""),
            Column::new("twelve processors, simulated", "Gb/s"),
        ];
        let title = "One side of a connection, datagrams of 1472 bytes".to_owned();
        Outcome {
            tables: vec![Table { title, columns, rows: rows.collect() }],
            plots: vec![plot(&batches, &curves)],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&batches, &curves),
            notes: vec![
                "Costs were measured by `litz bench speedup` in memory on two virtual processors, without system \
                 calls for data. More than two processors were not measured."
                    .to_owned(),
                "On two processors the model is an upper bound: it ignores the cost of passing batches between \
                 processors and of processors that share a core. Both matter most with the fast cipher."
                    .to_owned(),
            ],
        }
    }
}

fn plot(batches: &[Batch<'_>], curves: &[Vec<Estimate>]) -> Plot {
    let series = |(batch, curve): (&Batch<'_>, &Vec<Estimate>)| Series {
        name: batch.name(),
        points: PROCESSORS
            .iter()
            .zip(curve)
            .map(|(&count, &rate)| (count as f64, scaled(rate, 1.0 / curve[0].mean)))
            .collect(),
    };
    Plot {
        title: "Speedup by number of processors, one side of one of our connections".to_owned(),
        x: Column::new("processors", ""),
        y: Column::new("speedup", ""),
        series: batches.iter().zip(curves).map(series).collect(),
    }
}

fn checks(batches: &[Batch<'_>], curves: &[Vec<Estimate>]) -> Vec<Check> {
    let last = PROCESSORS.len() - 1;
    let speedups: Vec<_> = curves.iter().map(|curve| curve[last].mean / curve[0].mean).collect();
    // For each side, the more expensive cipher first.
    let of = |cipher: &str, side: &str| {
        let wanted = |batch: &Batch<'_>| batch.side.cipher.starts_with(cipher) && batch.side.side == side;
        batches.iter().position(wanted).map_or(0.0, |index| speedups[index])
    };
    let opposite = ["send", "receive"].iter().all(|side| of("ChaCha", side) > of("AES", side));
    let above = |batch: &Batch<'_>, curve: &[Estimate]| {
        curve[1].mean / curve[0].mean >= batch.side.speedup_2 - batch.side.speedup_2_plus_minus
    };
    vec![
        Check::new(
            "as in 1996, the more expensive cipher has the better speedup",
            opposite,
            speedups.iter().map(|speedup| format!("{speedup:.2}")).collect::<Vec<_>>().join(", "),
        ),
        Check::new(
            "no measured speedup exceeds the simulated one by more than its interval",
            batches.iter().zip(curves).all(|(batch, curve)| above(batch, curve)),
            batches
                .iter()
                .zip(curves)
                .map(|(batch, curve)| format!("{:.2} of {:.2}", batch.side.speedup_2, curve[1].mean / curve[0].mean))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    ]
}
