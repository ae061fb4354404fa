//! 000-connections: more connections, each with a lock of its own.

use measure::Estimate;

use super::assumptions::{self, Headline};
use super::curves::table_and_plot;
use super::model::{Setup, Share, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{Assumed, setup_with};
use crate::outcome::{Check, Column, Outcome};
use crate::study::{Options, Study};
use crate::{Choice, choices};

/// The study.
pub(super) struct Connections;

/// What twelve processors bring to `connections` connections together, by what one brings to one.
fn gain(
    paper: &Throughput,
    stack: &Stack,
    connections: usize,
    share: Share,
    assumed: &Assumed,
    options: &Options,
) -> Estimate {
    let most = Setup { connections, share, ..setup_with(paper, stack, paper.processors_max, assumed, options) };
    let one = replicate(&setup_with(paper, stack, 1, assumed, options), options).rate.mean;
    scaled(replicate(&most, options).rate, 1.0 / one)
}

impl Study for Connections {
    fn id(&self) -> &'static str {
        "000-connections"
    }

    fn title(&self) -> &'static str {
        "Twelve processors and one to twelve connections: what one connection cannot use"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let headline = Headline {
            name: "gain without security, four connections",
            ours: |assumed, options| {
                let paper = Throughput::load();
                gain(&paper, paper.bare(), 4, Share::AtRandom, assumed, options)
            },
        };
        let bound = |connections| {
            move |options: &Options| {
                let paper = Throughput::load();
                gain(&paper, paper.bare(), connections, Share::Bound, &Assumed::default(), options)
            }
        };
        let share = Choice::new(
            "share",
            "the next packet is of any connection, all alike",
            "not given; packets of a network come in no order of connections",
        )
        .or("a processor stays with its connection", headline.name, bound(4))
        .or("a processor stays with its connection", "gain without security, twelve connections", bound(12));
        let mut all = vec![share];
        all.extend(assumptions::choices(headline));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughput::load();
        let counts: Vec<usize> = (1..=paper.processors_max).collect();
        let curve = |stack: &Stack, share| -> Vec<Estimate> {
            counts.iter().map(|&count| gain(&paper, stack, count, share, &Assumed::default(), options)).collect()
        };
        let (bare, digest) = (paper.bare(), paper.digest());
        let curves = [
            ("without security, packets of any connection", curve(bare, Share::AtRandom)),
            ("without security, a processor stays with its connection", curve(bare, Share::Bound)),
            ("MD5, packets of any connection", curve(digest, Share::AtRandom)),
        ];
        let (table, plot) = table_and_plot(
            "Throughput of so many connections on twelve processors, by one on one",
            Column::new("connections", ""),
            &counts,
            Column::new("gain", ""),
            &curves,
        );
        let grows = |curve: &[Estimate]| curve.windows(2).all(|pair| pair[1].mean > pair[0].mean * 0.99);
        let mixed = &curves[0].1;
        let (first, last) = (mixed[0].mean, mixed[mixed.len() - 1].mean);
        let bound = curves[1].1[counts.len() - 1].mean;
        Outcome {
            tables: vec![table],
            plots: vec![plot],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "more connections bring what one cannot",
                    grows(mixed) && last > 3.0 * first,
                    format!("{first:.2} with one, {last:.2} with twelve"),
                ),
                Check::new(
                    "processors that stay with a connection never wait for each other",
                    bound > last && bound > 0.98 * paper.processors_max as f64,
                    format!("{bound:.2} with twelve connections"),
                ),
            ],
            notes: vec![
                "Memory is not modelled: a real machine would reach its end earlier.".to_owned(),
                "The paper has no numbers for more than one connection, only that they help.".to_owned(),
            ],
        }
    }
}
