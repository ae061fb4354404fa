//! 000-connections: several connections, each with its own lock.

use measure::Estimate;

use super::assumptions::{self, MainFigure};
use super::curves::table_and_plot;
use super::model::{Setup, Share, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{Assumed, setup_with};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Check, Column, Outcome};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Connections;

/// Returns the throughput of twelve processors with `connections` connections, relative to one
/// processor with one connection.
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
        "One to twelve connections on twelve processors"
    }

    fn data(&self) -> &'static [&'static str] {
        &["000-throughput.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let main_figure = MainFigure {
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
            "the next packet belongs to any connection with equal probability",
            "not given; packets arrive from a network in no order of connections",
        )
        .or("a processor is assigned to its connection", main_figure.name, bound(4))
        .or(
            "a processor is assigned to its connection",
            "gain without security, twelve connections",
            bound(12),
        );
        let mut all = vec![share];
        all.extend(assumptions::choices(main_figure));
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
            ("without security, a processor is assigned to its connection", curve(bare, Share::Bound)),
            ("MD5, packets of any connection", curve(digest, Share::AtRandom)),
        ];
        let (table, plot) = table_and_plot(
            "Throughput on twelve processors relative to one connection on one processor",
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
                    "more connections reach throughputs that one cannot",
                    grows(mixed) && last > 3.0 * first,
                    format!("{first:.2} with one, {last:.2} with twelve"),
                ),
                Check::new(
                    "processors assigned to connections never wait for each other",
                    bound > last && bound > 0.98 * paper.processors_max as f64,
                    format!("{bound:.2} with twelve connections"),
                ),
            ],
            notes: vec![
                "Memory is not modelled; a real machine would saturate earlier.".to_owned(),
                "The paper gives no numbers for more than one connection; it only says that more connections help."
                    .to_owned(),
            ],
        }
    }
}
