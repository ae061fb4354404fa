//! 000-order: how often packets of one connection overtake each other on many processors.

use measure::Estimate;

use super::assumptions::{self, Headline};
use super::curves::table_and_plot;
use super::model::{Setup, Way, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{setup, setup_with};
use crate::outcome::{Check, Column, Outcome};
use crate::study::{Options, Study};
use crate::{Choice, choices};

/// The study.
pub(super) struct Order;

const PROCESSORS: [usize; 7] = [1, 2, 4, 6, 8, 10, 12];

/// The same stack on the way in: what was done last is done first.
fn way_in(out: Setup) -> Setup {
    let steps = out.steps.iter().rev().copied().collect();
    Setup { steps, way: Way::In, ..out }
}

/// Packets that another one overtook, in percent.
fn overtaken(setup: &Setup, options: &Options) -> Estimate {
    scaled(replicate(setup, options).overtaken, 100.0)
}

impl Study for Order {
    fn id(&self) -> &'static str {
        "000-order"
    }

    fn title(&self) -> &'static str {
        "Packets of one connection that overtake each other on many processors"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        assumptions::choices(Headline {
            name: "overtaken at the receiver's lock, MD5, twelve processors, %",
            ours: |assumed, options| {
                let paper = Throughput::load();
                let out = setup_with(&paper, paper.digest(), paper.processors_max, assumed, options);
                overtaken(&way_in(out), options)
            },
        })
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughput::load();
        let (digest, cipher) = (paper.digest(), &paper.stack[2]);
        let curve = |stack: &Stack, inwards: bool| -> Vec<Estimate> {
            let point = |&count: &usize| {
                let out = setup(&paper, stack, count, options);
                overtaken(&if inwards { way_in(out) } else { out }, options)
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
            "Overtaken packets by processors, where nobody keeps the order",
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
                    "one processor keeps the order, many do not",
                    none_alone && (0..curves.len()).all(|index| last(index) > 0.0),
                    format!("{:.1} % at the receiver's lock with MD5 and twelve processors", last(1)),
                ),
                Check::new(
                    "the longer the work beside the lock, the more packets overtake each other",
                    last(3) > last(1),
                    format!("{:.1} % with DES and MD5, {:.1} % with MD5 at the receiver's lock", last(3), last(1)),
                ),
            ],
            notes: vec![
                "The paper is silent on order; its authors' study of 1994 found it decisive for one connection. A \
                 sender that is told of three later packets takes an overtaken one for lost (RFC 5681), so a stage \
                 must keep the order, as the stages of Litz do."
                    .to_owned(),
            ],
        }
    }
}
