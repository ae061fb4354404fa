//! 003-rate: whether the 12 Mb/s at user level are caused by the setting or by the host.

use super::assumptions::{self, MainFigure};
use super::costs::Split;
use super::levels::{exact, setup};
use super::measure::{repetitions, throughput_mbps};
use super::paper::Paper;
use super::pipeline::{Level, Setup};
use super::rate::RateLimit;
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Limit;

/// Message sizes in bytes, in addition to the longest frame: about a third of a burst, a burst, and
/// more.
const SIZES: [u64; 6] = [1024, 3333, 8192, 10_000, 16_384, 65_536];

/// Factors of the printed rate.
const FACTORS: [u64; 3] = [1, 2, 4];

fn with_limit(paper: &Paper, factor: Option<u64>) -> Setup {
    let base = setup(paper, &Split::even(paper), Level::User);
    let raise = |limit: RateLimit, factor| RateLimit {
        rate_bytes_per_second: limit.rate_bytes_per_second * factor,
        burst_bytes: limit.burst_bytes * factor,
        ..limit
    };
    Setup { limit: base.limit.and_then(|limit| factor.map(|factor| raise(limit, factor))), ..base }
}

impl Study for Limit {
    fn id(&self) -> &'static str {
        "003-rate"
    }

    fn title(&self) -> &'static str {
        "The user's rate and burst: are the 12 Mb/s caused by the setting or by the host?"
    }

    fn data(&self) -> &'static [&'static str] {
        &["003-levels.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        assumptions::choices(MainFigure {
            name: "throughput of messages of 65,536 bytes, Mb/s",
            split: Split::even,
            setup: |_, setup| setup,
            figure: assumptions::asymptote,
            message_bytes: |_| SIZES[SIZES.len() - 1],
        })
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Paper::load();
        let count = repetitions(paper.messages, options);
        let mut sizes = SIZES.to_vec();
        sizes.push(paper.frame_bytes);
        sizes.sort_unstable();
        let limits: Vec<Option<u64>> = FACTORS.map(Some).into_iter().chain([None]).collect();
        let name = |factor: &Option<u64>| match factor {
            None => "no limit".to_owned(),
            Some(factor) => {
                let (rate, burst) = (paper.rate_bytes_per_second * factor, paper.burst_bytes * factor);
                format!("{} Mb/s, burst of {burst} bytes", rate as f64 * 8.0 / 1e6)
            }
        };
        let rate = |factor: &Option<u64>, bytes| throughput_mbps(&with_limit(&paper, *factor), bytes, count, options);
        let curves: Vec<Vec<f64>> =
            limits.iter().map(|factor| sizes.iter().map(|&bytes| rate(factor, bytes)).collect()).collect();
        let rows = sizes.iter().enumerate().map(|(index, bytes)| Row {
            label: format!("{bytes} bytes"),
            cells: curves.iter().map(|curve| Cell::ours(exact(curve[index]))).collect(),
        });
        let table = Table {
            title: "Throughput at user level by size of message and limit".to_owned(),
            columns: limits.iter().map(|factor| Column::new(&name(factor), "Mb/s")).collect(),
            rows: rows.collect(),
        };
        let series = limits.iter().zip(&curves).map(|(factor, curve)| Series {
            name: name(factor),
            points: sizes.iter().zip(curve).map(|(&bytes, &mbps)| (bytes as f64, exact(mbps))).collect(),
        });
        let plot = Plot {
            title: "Throughput at user level by size of message".to_owned(),
            x: Column::new("message", "bytes"),
            y: Column::new("throughput", "Mb/s"),
            series: series.collect(),
        };
        let at = |factor: usize, bytes: u64| {
            sizes.iter().position(|&size| size == bytes).map_or(0.0, |index| curves[factor][index])
        };
        let (frame, long, free) = (paper.frame_bytes, SIZES[SIZES.len() - 1], limits.len() - 1);
        Outcome {
            tables: vec![table],
            plots: vec![plot],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "with messages of many frames the setting is the limit: doubling the rate changes the asymptote",
                    (at(0, long) / paper.user.asymptote_mbps - 1.0).abs() < 0.01 && at(1, long) > 1.2 * at(0, long),
                    format!("{:.1} Mb/s, and {:.1} with twice the rate", at(0, long), at(1, long)),
                ),
                Check::new(
                    "with messages of one frame the host is the limit: removing the setting changes the asymptote by \
                     less than 5 %",
                    at(free, frame) < 1.05 * at(0, frame),
                    format!("{:.2} Mb/s, and {:.2} without a limit", at(0, frame), at(free, frame)),
                ),
            ],
            notes: vec![
                "Both explanations of the 12 Mb/s give nearly the same number. Which one holds depends on the \
                 longest message, which the paper does not give."
                    .to_owned(),
            ],
        }
    }
}
