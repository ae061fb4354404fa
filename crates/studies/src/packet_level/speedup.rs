//! 000-speedup: four stacks on one to twelve processors, one connection, send side.

use measure::Estimate;

use super::assumptions::{self, MainFigure};
use super::model::{Direction, Lock, Measured, Setup, Share, Step, completions, replicate, scaled, spans};
use super::paper::{Stack, Throughput};
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};
use crate::{choices, warm_up};

/// The study.
pub(super) struct Speedup;

/// The part of the stack without security that runs under the lock.
const SERIAL_SHARE: f64 = 1.0;

/// Variation of ciphers and digests from packet to packet.
const SPREAD: f64 = 0.1;

/// "Minimal": upper limit for the speedup of the stack without security.
pub(super) const MINIMAL: f64 = 2.0;

/// Returns the steps of a stack for outgoing packets, with `serial_share` of the stack without
/// security under the lock.
fn steps(paper: &Throughput, stack: &Stack, serial_share: f64) -> Vec<Step> {
    let bare = paper.packet_us(paper.bare());
    let digest = if stack.below_tcp { paper.packet_us(paper.digest()) - bare } else { 0.0 };
    let cipher = if stack.above_tcp { paper.packet_us(stack) - bare - digest } else { 0.0 };
    let free = |mean_us| Step { mean_us, lock: Lock::None };
    vec![
        free(cipher),
        Step { mean_us: bare * serial_share, lock: Lock::Connection },
        free(digest + bare * (1.0 - serial_share)),
    ]
}

/// Parameters of the stacks that the paper does not give.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Assumed {
    /// The part of the stack without security that runs under the lock.
    pub(super) serial_share: f64,
    /// Variation of ciphers and digests from packet to packet.
    pub(super) spread: f64,
    /// Time to pass the lock to a waiting processor.
    pub(super) handoff_us: f64,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { serial_share: SERIAL_SHARE, spread: SPREAD, handoff_us: 0.0 }
    }
}

/// Returns a setup of one connection on `processors` processors.
pub(super) fn setup(paper: &Throughput, stack: &Stack, processors: usize, options: &Options) -> Setup {
    setup_with(paper, stack, processors, &Assumed::default(), options)
}

/// Returns the same setup with other assumptions.
pub(super) fn setup_with(
    paper: &Throughput,
    stack: &Stack,
    processors: usize,
    assumed: &Assumed,
    options: &Options,
) -> Setup {
    let (warm_up, measured) = spans(paper.packet_us(stack), options.effort);
    Setup {
        steps: steps(paper, stack, assumed.serial_share),
        direction: Direction::Out,
        processors,
        connections: 1,
        share: Share::AtRandom,
        spread: assumed.spread,
        handoff_us: assumed.handoff_us,
        warm_up,
        measured,
    }
}

/// Runs of a stack on one processor, two and so on.
struct Curve<'a> {
    stack: &'a Stack,
    points: Vec<Measured>,
}

impl Curve<'_> {
    fn speedup(&self, processors: usize) -> Estimate {
        scaled(self.points[processors - 1].rate, 1.0 / self.points[0].rate.mean)
    }

    fn last(&self) -> Estimate {
        self.speedup(self.points.len())
    }

    /// Returns the bound: packet time divided by the time under the lock, at most the number of
    /// processors.
    fn bound(&self, paper: &Throughput) -> f64 {
        let serial = paper.packet_us(paper.bare()) * SERIAL_SHARE;
        (paper.packet_us(self.stack) / serial).min(self.points.len() as f64)
    }

    fn row(&self, paper: &Throughput) -> Row {
        let bits = paper.packet_bytes as f64 * 8.0 / 1e6;
        let at = |processors: usize| scaled(self.points[processors - 1].rate, bits);
        // The paper's number, and the distance to the upper end of the accepted range, which is the
        // nearer one.
        let speedup = match (self.stack.speedup, self.stack.accepted) {
            (Some(printed), Some([_, most])) => Cell::compared(printed, self.last(), most / printed - 1.0),
            _ => Cell::ours(self.last()),
        };
        let one = Cell { paper: Some(self.stack.throughput_mbps), ..Cell::ours(at(1)) };
        Row {
            label: self.stack.name.clone(),
            cells: vec![
                one.fitted(),
                Cell::ours(at(self.points.len())),
                speedup,
                Cell::ours(Estimate { mean: self.bound(paper), plus_minus: None }),
                Cell::ours(scaled(self.points[self.points.len() - 1].lock_utilisation, 100.0)),
            ],
        }
    }
}

impl Study for Speedup {
    fn id(&self) -> &'static str {
        "000-speedup"
    }

    fn title(&self) -> &'static str {
        "Four protocol stacks on up to twelve processors, one connection with one lock"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        assumptions::choices(MainFigure {
            name: "speedup of TCP, MD5",
            ours: |assumed, options| assumptions::speedup_of(Throughput::digest, assumed, options),
        })
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughput::load();
        let measure = |stack| {
            let points =
                (1..=paper.processors_max).map(|count| replicate(&setup(&paper, stack, count, options), options));
            Curve { stack, points: points.collect() }
        };
        let curves: Vec<_> = paper.stack.iter().map(measure).collect();
        let columns = vec![
            Column::new("one processor", "Mb/s"),
            Column::new("twelve processors", "Mb/s"),
            Column::new("speedup", ""),
            Column::new("bound: packet time / serial time", ""),
            Column::new("lock held, twelve processors", "%"),
        ];
        let title = "Throughput and speedup, send side, one connection".to_owned();
        Outcome {
            tables: vec![Table { title, columns, rows: curves.iter().map(|curve| curve.row(&paper)).collect() }],
            plots: vec![plot(&curves)],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: checks(&paper, &curves).into_iter().chain([warm_up_check(&paper, options)]).collect(),
            notes: vec![
                "The time per packet on one processor is the paper's, so the first column agrees by \
                 construction. Speedups are not fitted to anything."
                    .to_owned(),
                "The printed speedup of 8 for the digest is slightly above the bound of 7.7 for a stack that is \
                 entirely serial: at least 4 % of the stack without security must have run in parallel."
                    .to_owned(),
            ],
        }
    }
}

fn plot(curves: &[Curve<'_>]) -> Plot {
    let series = |curve: &Curve<'_>| Series {
        name: curve.stack.name.clone(),
        points: (1..=curve.points.len()).map(|count| (count as f64, curve.speedup(count))).collect(),
    };
    Plot {
        title: "Speedup by number of processors, send side, one connection".to_owned(),
        x: Column::new("processors", ""),
        y: Column::new("speedup", ""),
        series: curves.iter().map(series).collect(),
    }
}

/// Checks the warm-up with the most and with the least waiting.
fn warm_up_check(paper: &Throughput, options: &Options) -> Check {
    let mut runs = Vec::new();
    for stack in [paper.digest(), &paper.stack[2]] {
        let setup = setup(paper, stack, paper.processors_max, options);
        runs.push((setup.warm_up, completions(&setup, options.seed, 0)));
    }
    warm_up::check("times between packets", &runs)
}

fn checks(paper: &Throughput, curves: &[Curve<'_>]) -> Vec<Check> {
    let mut checks = Vec::new();
    let bare = curves[0].last().mean;
    checks.push(Check::new("without security the speedup is minimal, below 2", bare < MINIMAL, format!("{bare:.2}")));
    for curve in curves {
        let Some([least, most]) = curve.stack.accepted else { continue };
        let speedup = curve.last().mean;
        checks.push(Check::new(
            format!("{}: a speedup from {least} to {most}", curve.stack.name),
            (least..=most).contains(&speedup),
            format!("{speedup:.2}"),
        ));
    }
    // The paper lists the stacks from the fastest to the slowest.
    let speedups: Vec<_> = curves.iter().map(|curve| curve.last().mean).collect();
    let rates: Vec<_> = curves.iter().map(|curve| curve.points[0].rate.mean).collect();
    let opposite =
        (1..curves.len()).all(|index| rates[index] < rates[index - 1] && speedups[index] > speedups[index - 1] * 0.999);
    checks.push(Check::new(
        "the more a stack computes per packet, the slower it is and the better its speedup (which may equal the number \
         of processors)",
        opposite,
        speedups.iter().map(|speedup| format!("{speedup:.2}")).collect::<Vec<_>>().join(", "),
    ));
    let furthest = curves.iter().map(|curve| 1.0 - curve.last().mean / curve.bound(paper)).fold(0.0, f64::max);
    checks.push(Check::new(
        "each speedup is its bound, packet time divided by serial time, to 3 %",
        furthest < 0.03,
        format!("at most {:.1} % below", furthest * 100.0),
    ));
    let [bare, digest, des, triple] = [0, 1, 2, 3].map(|index| paper.stack[index].throughput_mbps);
    let orders = (bare / des).log10();
    checks.push(Check::new(
        "a digest costs nearly one order of magnitude of throughput, a cipher more, and three times that cipher \
         another factor of three",
        (bare / digest).log10() > 0.8 && orders > 1.0 && (des / triple - 3.0).abs() < 0.5,
        format!(
            "{:.1}, {:.0} and {:.2} times; the text's \"nearly two\" for a cipher are {orders:.1} orders",
            bare / digest,
            bare / des,
            des / triple
        ),
    ));
    checks
}
