//! 000-connections: more connections, each with a lock of its own.

use measure::Estimate;

use super::curves::table_and_plot;
use super::model::{Setup, Share, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::setup;
use crate::outcome::{Assumption, Check, Column, Outcome, Sensitivity};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Connections;

/// What twelve processors bring to `connections` connections together, by what one brings to one.
fn gain(paper: &Throughput, stack: &Stack, connections: usize, share: Share, options: &Options) -> Estimate {
    let most = Setup { connections, share, ..setup(paper, stack, paper.processors_max, options) };
    let one = replicate(&setup(paper, stack, 1, options), options).rate.mean;
    scaled(replicate(&most, options).rate, 1.0 / one)
}

impl Study for Connections {
    fn id(&self) -> &'static str {
        "000-connections"
    }

    fn title(&self) -> &'static str {
        "Twelve processors and one to twelve connections: what one connection cannot use"
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Throughput::load();
        let counts: Vec<usize> = (1..=paper.processors_max).collect();
        let curve = |stack: &Stack, share| -> Vec<Estimate> {
            counts.iter().map(|&count| gain(&paper, stack, count, share, options)).collect()
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
            assumptions: vec![assumption(&paper, options)],
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

fn assumption(paper: &Throughput, options: &Options) -> Assumption {
    let bare = paper.bare();
    let other = |connections, share, value: &str| Sensitivity {
        value: value.to_owned(),
        figure: "gain without security".to_owned(),
        ours: gain(paper, bare, connections, share, options),
    };
    Assumption {
        key: "share".to_owned(),
        value: "the next packet is of any connection, all alike".to_owned(),
        reason: "not given; packets of a network come in no order of connections".to_owned(),
        sensitivity: vec![
            other(4, Share::Bound, "a processor stays with its connection, 4 connections"),
            other(12, Share::Bound, "a processor stays with its connection, 12 connections"),
        ],
    }
}
