//! 003-multicast: one message to a group of two.

use super::assumptions::{self, MainFigure};
use super::costs::{Costs, Split};
use super::levels::{Measured, columns, exact, setup};
use super::paper::Paper;
use super::pipeline::{Level, Setup};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Multicast;

fn group(paper: &Paper, receivers: usize) -> Setup {
    Setup { receivers, is_group: true, ..setup(paper, &Split::even(paper), Level::User) }
}

impl Study for Multicast {
    fn id(&self) -> &'static str {
        "003-multicast"
    }

    fn title(&self) -> &'static str {
        "Multicast to two receivers compared with unicast"
    }

    fn data(&self) -> &'static [&'static str] {
        &["003-levels.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let main_figure = MainFigure {
            name: "multicast asymptote, Mb/s",
            split: Split::even,
            setup: |paper, setup| Setup { receivers: paper.multicast.receivers, is_group: true, ..setup },
            figure: assumptions::asymptote,
            message_bytes: |split| split.frame_bytes,
        };
        let with = |change: fn(&mut [Costs; 2])| {
            move |options: &Options| {
                let paper = Paper::load();
                let mut setup = group(&paper, paper.multicast.receivers);
                change(&mut setup.costs);
                assumptions::asymptote(&setup, setup.frame_bytes, options)
            }
        };
        let wait = Choice::new(
            "group_wait_us",
            "1.225 ms of waiting at the receiver, without work",
            "the increase of b; the paper does not say where it is spent. Waiting at the receiver does not change \
             the throughput, as printed",
        )
        .or("half of it work of the sender's board", main_figure.name, with(|costs| board_works(costs, 0.5)))
        .or("all of it work of the sender's board", main_figure.name, with(|costs| board_works(costs, 1.0)))
        .or("half of it work of the sender's host", main_figure.name, with(|costs| host_works(costs, 0.5)))
        .or("all of it work of the sender's host", main_figure.name, with(|costs| host_works(costs, 1.0)));
        let mut all = vec![wait];
        all.extend(assumptions::choices(main_figure));
        all
    }

    fn run(&self, options: &Options) -> Outcome {
        let paper = Paper::load();
        let measure = |setup: &Setup| Measured::of(setup, paper.messages, options);
        let unicast = measure(&setup(&paper, &Split::even(&paper), Level::User));
        // Like in the paper: latency with one receiver, throughput with two.
        let (one, two) = (measure(&group(&paper, 1)), measure(&group(&paper, paper.multicast.receivers)));
        let both = Measured { latency_us: one.latency_us, fit: one.fit, throughput_mbps: two.throughput_mbps };
        let rows: Vec<Row> = vec![
            without_tolerance(unicast.row("unicast", &paper.user, [true, true, false])),
            both.row(
                "multicast: latency with one receiver, throughput with two",
                &paper.multicast.line(),
                [false, true, false],
            ),
        ];
        let curve = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            points: points.iter().map(|&(x, y)| (x, exact(y))).collect(),
        };
        let plot = Plot {
            title: "Throughput by size, one sender".to_owned(),
            x: Column::new("user data", "bytes"),
            y: Column::new("throughput", "Mb/s"),
            series: vec![curve("unicast", &unicast.throughput_mbps), curve("multicast to two", &both.throughput_mbps)],
        };
        let more_us = both.fit.b - unicast.fit.b;
        Outcome {
            tables: vec![Table {
                title: "Latency lines and asymptotes at user level".to_owned(),
                columns: columns(),
                rows,
            }],
            plots: vec![plot],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "a second receiver adds no work at the sender",
                    (both.asymptote() / unicast.asymptote() - 1.0).abs() < 0.01,
                    format!("{:.2} and {:.2} Mb/s", unicast.asymptote(), both.asymptote()),
                ),
                Check::new(
                    "multicast adds a fixed latency and almost nothing per byte",
                    more_us > 1000.0 && (both.fit.a / unicast.fit.a - 1.0).abs() < 0.02,
                    format!("{:.2} ms, and {:.4} us per byte", more_us / 1000.0, both.fit.a - unicast.fit.a),
                ),
            ],
            notes: vec![
                "A frame passes every station of the ring, so one frame reaches the whole group.".to_owned(),
                "The unicast row repeats 003-levels, which has its tolerances.".to_owned(),
                "The printed asymptotes are equal, so little of the latency that a group adds can be work of the \
                 sender: see the assumption."
                    .to_owned(),
            ],
        }
    }
}

/// Returns the same row without tolerances, which another study already counts.
fn without_tolerance(mut row: Row) -> Row {
    for cell in &mut row.cells {
        cell.tolerance = None;
    }
    row
}

/// Turns a share of the group's additional latency into work of the sender's board.
fn board_works(costs: &mut [Costs; 2], share: f64) {
    for costs in costs {
        costs.group_work_us = costs.group_wait_us * share;
        costs.group_wait_us *= 1.0 - share;
    }
}

/// Turns a share of it into work of the sender's host.
fn host_works(costs: &mut [Costs; 2], share: f64) {
    costs[0].host_us += costs[0].group_wait_us * share;
}
