//! 000-order: reordering of packets of one connection on many processors.

use measure::Estimate;

use super::assumptions::{self, MainFigure};
use super::curves::table_and_plot;
use super::model::{Direction, Setup, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{setup, setup_with};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Check, Column, Outcome};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Reordering;

const PROCESSORS: [usize; 7] = [1, 2, 4, 6, 8, 10, 12];

/// Returns the same stack for incoming packets: the steps in reverse order.
fn incoming(out: Setup) -> Setup {
    let steps = out.steps.iter().rev().copied().collect();
    Setup { steps, direction: Direction::In, ..out }
}

/// Returns the percentage of packets that were overtaken.
fn overtaken(setup: &Setup, options: &Options) -> Estimate {
    scaled(replicate(setup, options).overtaken, 100.0)
}

impl Study for Reordering {
    fn id(&self) -> &'static str {
        "000-order"
    }

    fn title(&self) -> &'static str {
        "Reordering of packets of one connection on many processors"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        assumptions::choices(MainFigure {
            name: "overtaken at the receiver's lock, MD5, twelve processors, %",
            ours: |assumed, options| {
                let paper = Throughput::load();
                let out = setup_with(&paper, paper.digest(), paper.processors_max, assumed, options);
                overtaken(&incoming(out), options)
            },
        })
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughput::load();
        let (digest, cipher) = (paper.digest(), &paper.stack[2]);
        let curve = |stack: &Stack, inwards: bool| -> Vec<Estimate> {
            let point = |&count: &usize| {
                let out = setup(&paper, stack, count, options);
                overtaken(&if inwards { incoming(out) } else { out }, options)
            };
            PROCESSORS.iter().map(point).collect()
        };
        let curves = [
            ("MD5, on the wire", curve(digest, false)),
            ("MD5, at the receiver's lock", curve(digest, true)),
            ("DES and MD5, on the wire", curve(cipher, false)),
            ("DES and MD5, at the receiver's lock", curve(cipher, true)),
        ];
        let (table, plot) = table_and_plot(
            "Overtaken packets by number of processors, without order preservation",
            Column::new("processors", ""),
            &PROCESSORS,
            Column::new("overtaken packets", "% of packets"),
            &curves,
        );
        let none_alone = curves.iter().all(|(_, curve)| curve[0].mean == 0.0);
        let last = |index: usize| curves[index].1[PROCESSORS.len() - 1].mean;
        Outcome {
            tables: vec![table],
            plots: vec![plot],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "one processor preserves the order, many do not",
                    none_alone && (0..curves.len()).all(|index| last(index) > 0.0),
                    format!("{:.1} % at the receiver's lock with MD5 and twelve processors", last(1)),
                ),
                Check::new(
                    "the longer the work outside the lock, the more packets are overtaken",
                    last(3) > last(1),
                    format!("{:.1} % with DES and MD5, {:.1} % with MD5 at the receiver's lock", last(3), last(1)),
                ),
            ],
            notes: vec![
                "The paper does not discuss order; its authors' study of 1994 found it decisive for one connection. \
                 A sender that receives acknowledgements of three later packets considers an overtaken one lost (RFC \
                 5681), so a stage must preserve the order, as the stages of Litz do."
                    .to_owned(),
            ],
        }
    }
}
