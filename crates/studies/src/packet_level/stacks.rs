//! 000-stacks: the four stacks with our own TCP, on one to twelve modelled processors, both sides.

mod costs;
mod transfer;

#[cfg(test)]
mod tests;

use measure::Estimate;

use self::costs::{Assumed, Parts, transfer};
use self::transfer::{Found, Side};
use super::curves::table_and_plot;
use super::model::{self, scaled};
use super::paper::{Stack, Throughput};
use super::speedup;
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Table};
use crate::replicate::replicate;
use crate::study::{Effort, Options, Study};

/// The study.
pub(super) struct Stacks;

/// Numbers of processors, the same as in 000-today. The simulated ciphers are as slow as those of
/// the paper.
const COUNTS: [usize; 7] = [1, 2, 4, 6, 8, 10, 12];

/// Numbers of processors of a quick run.
const QUICK_COUNTS: [usize; 2] = [1, 12];

/// Largest accepted deviation of the fitted rates.
const FIT_TOLERANCE: f64 = 0.01;

/// Largest accepted difference of a speedup from the model's. Near saturation of the lock our
/// result may be better, because in the model a processor that waits for it does nothing else.
const MODEL_TOLERANCE: f64 = 0.05;

/// Accepted variation of a speedup that should equal the number of processors.
const VARIATION_MAX: f64 = 0.02;

/// Minimum utilisation of a processor that is always busy, and maximum of one that waits, in
/// percent.
const BUSY_MIN: f64 = 95.0;
const IDLE_MAX: f64 = 80.0;

/// A stack on several numbers of processors.
struct Curve<'a> {
    stack: &'a Stack,
    side: Side,
    parts: Parts,
    counts: Vec<usize>,
    points: Vec<Point>,
    /// Speedups of the model of 000-speedup.
    model: Vec<f64>,
}

/// Results of some runs.
struct Point {
    mbps: Estimate,
    /// Utilisation of the first processor, in percent.
    first_busy: Estimate,
    others_busy: Estimate,
    sent_again: u64,
}

impl Point {
    fn of(
        paper: &Throughput,
        stack: &Stack,
        side: Side,
        count: usize,
        parts: &Parts,
        assumed: &Assumed,
        options: &Options,
    ) -> Self {
        let setup = transfer(paper, stack, side, count, parts.costs(paper, assumed), assumed, options.effort);
        let runs = replicate(options, |seed, number| setup.run(seed, number), |found: &Found| vec![found.mbps]);
        let of =
            |value: fn(&Found) -> f64| Estimate::of(&runs.iter().map(value).collect::<Vec<_>>(), options.confidence);
        Self {
            mbps: of(|found| found.mbps),
            first_busy: of(|found| found.first_busy * 100.0),
            others_busy: of(|found| found.others_busy * 100.0),
            sent_again: runs.iter().map(|found| found.sent_again).sum(),
        }
    }
}

impl<'a> Curve<'a> {
    fn of(
        paper: &Throughput,
        stack: &'a Stack,
        side: Side,
        parts: Parts,
        assumed: &Assumed,
        options: &Options,
    ) -> Self {
        let counts: Vec<usize> = match options.effort {
            Effort::Quick => QUICK_COUNTS.into(),
            Effort::Full => COUNTS.into(),
        };
        let points = counts.iter().map(|&count| Point::of(paper, stack, side, count, &parts, assumed, options));
        let points = points.collect();
        let rate = |count: usize| {
            let mut setup = speedup::setup(paper, stack, count, options);
            if side == Side::Receives {
                setup.steps.reverse();
                setup.direction = model::Direction::In;
            }
            model::replicate(&setup, options).rate.mean
        };
        let one = rate(1);
        let model = counts.iter().map(|&count| rate(count) / one).collect();
        Self { stack, side, parts, counts, points, model }
    }

    fn speedups(&self) -> Vec<Estimate> {
        let one = self.points[0].mbps.mean;
        self.points.iter().map(|point| scaled(point.mbps, 1.0 / one)).collect()
    }

    /// Returns the speedup with the most processors.
    fn last(&self) -> Estimate {
        *self.speedups().last().expect("there are points")
    }

    /// Returns the largest relative difference of a speedup from the model's.
    fn model_difference(&self) -> f64 {
        let pairs = self.speedups().into_iter().zip(&self.model);
        pairs.map(|(ours, model)| (ours.mean / model - 1.0).abs()).fold(0.0, f64::max)
    }

    fn row(&self, paper: &Throughput) -> Row {
        let (first, last) = (&self.points[0], self.points.last().expect("there are points"));
        let (one, speedup) = match (self.side, self.stack.speedup, self.stack.accepted) {
            (Side::Receives, ..) => (Cell::ours(first.mbps), Cell::ours(self.last())),
            (Side::Sends, Some(printed), Some([_, most])) => {
                (self.one(first), Cell::compared(printed, self.last(), most / printed - 1.0))
            }
            (Side::Sends, ..) => (self.one(first), Cell::ours(self.last())),
        };
        let bound = (paper.packet_us(self.stack) / paper.packet_us(paper.bare())).min(paper.processors_max as f64);
        let exact = |mean: f64| Cell::ours(Estimate { mean, plus_minus: None });
        Row {
            label: self.stack.name.clone(),
            cells: vec![
                one,
                Cell::ours(last.mbps),
                speedup,
                exact(*self.model.last().expect("there are points")),
                exact(bound),
                Cell::ours(last.first_busy),
                Cell::ours(last.others_busy),
            ],
        }
    }

    fn one(&self, first: &Point) -> Cell {
        Cell::compared(self.stack.throughput_mbps, first.mbps, FIT_TOLERANCE).fitted()
    }
}

/// Returns the speedup of all processors over one for the sender of a stack.
fn speedup_of(stack: fn(&Throughput) -> &Stack, assumed: &Assumed, options: &Options) -> Estimate {
    let paper = Throughput::load();
    let stack = stack(&paper);
    let parts = Parts::fit(&paper, [stack], assumed)[0];
    let point = |count| Point::of(&paper, stack, Side::Sends, count, &parts, assumed, options);
    scaled(point(paper.processors_max).mbps, 1.0 / point(1).mbps.mean)
}

impl Study for Stacks {
    fn id(&self) -> &'static str {
        "000-stacks"
    }

    fn title(&self) -> &'static str {
        "Our own TCP with the four stacks on up to twelve processors, both sides, beside the paper and the model"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        const DIGEST: &str = "speedup of TCP, MD5, send side";
        const BARE: &str = "speedup without security, send side";
        let assume = |change: fn(&mut Assumed), stack: fn(&Throughput) -> &Stack| {
            move |options: &Options| {
                let mut assumed = Assumed::default();
                change(&mut assumed);
                speedup_of(stack, &assumed, options)
            }
        };
        let (digest, bare) = (Throughput::digest as fn(&Throughput) -> &Stack, Throughput::bare as _);
        vec![
            Choice::new(
                "serial share",
                "all of the stack without security is the serial step of the connection: as in the model",
                "the paper prints no share; our own stack copies and sums the bytes of a packet outside that step",
            )
            .or("96 %", DIGEST, assume(|assumed| assumed.serial_share = 0.96, digest))
            .or("80 %", DIGEST, assume(|assumed| assumed.serial_share = 0.8, digest))
            .or("80 %", BARE, assume(|assumed| assumed.serial_share = 0.8, bare)),
            Choice::new(
                "empty segments",
                "the serial step of an acknowledgement is a quarter of that of a full segment",
                "not given; an acknowledgement has no data to copy or to sum",
            )
            .or("none", DIGEST, assume(|assumed| assumed.empty_share = 0.0, digest))
            .or("as much as a full one", DIGEST, assume(|assumed| assumed.empty_share = 1.0, digest)),
            Choice::new(
                "window",
                "64 packets in the send buffer and in the receive buffer",
                "not given; the 16 packets of 64 KiB, the most without window scaling, keep few processors busy",
            )
            .or("16 packets", DIGEST, assume(|assumed| assumed.window = 16, digest))
            .or("256 packets", DIGEST, assume(|assumed| assumed.window = 256, digest)),
            Choice::new(
                "spread",
                "ciphers and digests take their mean time +-10 %: as in the model",
                "not given; caches and memory cause variation",
            )
            .or("none", DIGEST, assume(|assumed| assumed.spread_percent = 0, digest))
            .or("50 %", DIGEST, assume(|assumed| assumed.spread_percent = 50, digest)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let (paper, assumed) = (Throughput::load(), Assumed::default());
        let parts = Parts::fit(&paper, &paper.stack, &assumed);
        let curves = [Side::Sends, Side::Receives].map(|side| {
            let curve = |(stack, parts): (_, &Parts)| Curve::of(&paper, stack, side, *parts, &assumed, options);
            paper.stack.iter().zip(&parts).map(curve).collect::<Vec<_>>()
        });
        let [sends, receives] = &curves;
        let (mut tables, mut plots) = (vec![parts_table(sends)], Vec::new());
        for (curves, side) in [(sends, "send side"), (receives, "receive side")] {
            tables.push(table(&paper, curves, side));
            let (table, plot) = speedups(curves, side);
            tables.push(table);
            plots.push(plot);
        }
        Outcome {
            tables,
            plots,
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(sends, receives),
            notes: vec![
                "Fitted: one cost for each stack, to its printed rate on one processor when it sends. Speedups, and \
                 all of the receive side, are not fitted to anything. The text that we have prints no receive side."
                    .to_owned(),
                "In the paper any processor takes a packet through the whole stack, and waits where another one holds \
                 the lock of the connection. Ours have no lock: the serial step is always that of the first processor, \
                 and the others never wait for it, because they put results into a queue and take other work. The bound is \
                 the same: the time of a packet by its serial time."
                    .to_owned(),
                "The peer costs no time and the line is memory, as in the paper. Bytes are real: they are encrypted, \
                 digested and verified; a cost in virtual time takes the place of the time that it takes here."
                    .to_owned(),
                "On one processor the classic profile of our TCP sends as many packets as the window permits, so \
                 results of ciphers wait in queues. Digests precede ciphers in these queues; otherwise a receiver with 3DES \
                 acknowledges so late that its peer repeats segments."
                    .to_owned(),
            ],
        }
    }
}

fn parts_table(curves: &[Curve<'_>]) -> Table {
    let exact = |mean: f64| Cell::ours(Estimate { mean, plus_minus: None });
    let row = |curve: &Curve<'_>| {
        let Parts { bare_us, digest_us, cipher_us } = curve.parts;
        let cells = [bare_us, digest_us, cipher_us].map(|us| exact(us).fitted());
        Row { label: curve.stack.name.clone(), cells: cells.into() }
    };
    Table {
        title: "Processor time of a full packet".to_owned(),
        columns: ["TCP, IP", "digest", "cipher"].map(|name| Column::new(name, "us")).into(),
        rows: curves.iter().map(row).collect(),
    }
}

fn table(paper: &Throughput, curves: &[Curve<'_>], side: &str) -> Table {
    Table {
        title: format!("Throughput and speedup, {side}, one connection"),
        columns: vec![
            Column::new(&format!("one processor, {side}"), "Mb/s"),
            Column::new(&format!("twelve processors, {side}"), "Mb/s"),
            Column::new(&format!("speedup, {side}"), ""),
            Column::new("speedup of the model", ""),
            Column::new("bound: packet time / serial time", ""),
            Column::new("first processor of twelve busy", "%"),
            Column::new("the others busy", "%"),
        ],
        rows: curves.iter().map(|curve| curve.row(paper)).collect(),
    }
}

fn speedups(curves: &[Curve<'_>], side: &str) -> (Table, Plot) {
    let named: Vec<_> = curves.iter().map(|curve| (curve.stack.name.as_str(), curve.speedups())).collect();
    table_and_plot(
        &format!("Speedup by number of processors, {side}"),
        Column::new("processors", ""),
        &curves[0].counts,
        Column::new("speedup", ""),
        &named,
    )
}

fn listed(values: impl Iterator<Item = f64>) -> String {
    values.map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ")
}

fn check_of_rates(sends: &[Curve<'_>]) -> Check {
    let off = |curve: &Curve<'_>| (curve.points[0].mbps.mean / curve.stack.throughput_mbps - 1.0).abs();
    let furthest = sends.iter().map(off).fold(0.0, f64::max);
    Check::new(
        "on one processor every sender has the printed rate, within 1 %",
        furthest <= FIT_TOLERANCE,
        format!("at most {:.2} % apart", furthest * 100.0),
    )
}

fn check_of_model<'a>(curves: impl Iterator<Item = &'a Curve<'a>>) -> Check {
    let apart = curves.map(Curve::model_difference).fold(0.0, f64::max);
    Check::new(
        "every speedup is that of the model with a lock, within 5 %",
        apart <= MODEL_TOLERANCE,
        format!("at most {:.1} % apart", apart * 100.0),
    )
}

fn checks(sends: &[Curve<'_>], receives: &[Curve<'_>]) -> Vec<Check> {
    let mut checks = vec![check_of_rates(sends)];
    for (curves, side) in [(sends, "send side"), (receives, "receive side")] {
        let bare = curves[0].last().mean;
        checks.push(Check::new(
            format!("{side}, without security the speedup is minimal, below 2"),
            bare < speedup::MINIMAL,
            format!("{bare:.2}"),
        ));
        for curve in curves {
            let Some([least, most]) = curve.stack.accepted else { continue };
            // A speedup that equals the number of processors varies around it.
            let Estimate { mean, plus_minus } = curve.last();
            checks.push(Check::new(
                format!("{side}, {}: a speedup from {least} to {most}", curve.stack.name),
                mean >= least && mean - plus_minus.unwrap_or(0.0) <= most * (1.0 + VARIATION_MAX),
                format!("{mean:.2}"),
            ));
        }
        // The paper lists the stacks from the fastest to the slowest.
        let last: Vec<_> = curves.iter().map(|curve| curve.last().mean).collect();
        checks.push(Check::new(
            format!("{side}: the more a stack computes for each packet, the better its speedup, up to the number of processors"),
            last.windows(2).all(|pair| pair[1] > pair[0] * (1.0 - VARIATION_MAX)),
            listed(last.into_iter()),
        ));
    }
    let all = || sends.iter().chain(receives);
    checks.push(check_of_model(all()));
    let of_twelve = |curves: &[Curve<'_>], busy: fn(&Point) -> &Estimate| -> Vec<f64> {
        curves.iter().map(|curve| busy(curve.points.last().expect("there are points")).mean).collect()
    };
    for (curves, side) in [(sends, "send side"), (receives, "receive side")] {
        let first = of_twelve(curves, |point| &point.first_busy);
        let others = of_twelve(curves, |point| &point.others_busy);
        checks.push(Check::new(
            format!(
                "{side}, without a cipher the serial step is the limit of twelve processors: the first one is always busy, \
                 and the others are not; with a cipher all are"
            ),
            first.iter().all(|busy| *busy > BUSY_MIN)
                && others[..2].iter().all(|busy| *busy < IDLE_MAX)
                && others[2..].iter().all(|busy| *busy > BUSY_MIN),
            format!("the others {} % of the time", listed(others.into_iter())),
        ));
    }
    let sent_again: u64 = all().flat_map(|curve| &curve.points).map(|point| point.sent_again).sum();
    checks.push(Check::new("nothing is sent twice", sent_again == 0, format!("{sent_again} bytes")));
    checks
}
