//! Acknowledgement and retransmission schemes beyond the report's DRDA, and small messages with a
//! dedicated processor.

use measure::Estimate;
use units::Duration;

use super::assumptions::MainFigure;
use super::config::{Config, Scheme, Small};
use super::paper::{DATA, Kind};
use super::runs::{Point, point, shown, slowed};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Row, Table};
use crate::study::{Options, Study};

/// The four schemes.
pub(super) struct Schemes;
/// Classes of service.
pub(super) struct Classes;

const SCHEMES: [(&str, Scheme); 4] = [
    ("DRDA", Scheme { central_sender: false, central_receiver: false }),
    ("DRCA", Scheme { central_sender: false, central_receiver: true }),
    ("CRDA", Scheme { central_sender: true, central_receiver: false }),
    ("CRCA", Scheme { central_sender: true, central_receiver: true }),
];

/// At this speed the messages of the central processor matter; at 25 MIPS no scheme is limited by
/// processors.
const SLOW_MIPS: f64 = 2.0;

impl Study for Schemes {
    fn id(&self) -> &'static str {
        "004-schemes"
    }

    fn title(&self) -> &'static str {
        "Central and distributed acknowledgement and retransmission: DRDA, DRCA, CRDA, CRCA"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&[MainFigure::throughput(
            "throughput, CRCA, 2 MIPS, Mb/s",
            config(SLOW_MIPS, SCHEMES[3].1),
        )])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "The report simulates only DRDA, so this is a prediction. The central processor is processor 0 of \
                 its machine and also works on its own packets. Under central retransmission all processors share \
                 one window of the same total size. CRDA acknowledges packets individually, so no packet waits for \
                 an earlier one of its window: with fast processors that gains one percent."
                    .to_owned(),
            ],
            ..Outcome::default()
        };
        for mips in [Config::new(Kind::OneBus).mips, SLOW_MIPS] {
            let points: Vec<(&str, Point)> =
                SCHEMES.iter().map(|&(name, scheme)| (name, point(options, &config(mips, scheme)))).collect();
            outcome.tables.push(table(mips, &points));
            outcome.checks.extend(scheme_checks(mips, &points));
        }
        outcome
    }
}

fn config(mips: f64, scheme: Scheme) -> Config {
    slowed(&Config { scheme, ..Config::new(Kind::OneBus).nonuniform() }, mips)
}

fn table(mips: f64, points: &[(&str, Point)]) -> Table {
    let row = |(name, point): &(&str, Point)| Row {
        label: (*name).to_owned(),
        cells: vec![
            Cell::ours(point.throughput),
            Cell::ours(point.delay),
            Cell::ours(point.of(|run| run.messages)),
            Cell::ours(waiting(point)),
            Cell::ours(point.of(|run| run.waiting_for_order.1)),
        ],
    };
    Table {
        title: format!("1-bus, nonuniform load, window 216 kbit per processor, {mips} MIPS"),
        columns: vec![
            Column::new("throughput", "Mb/s"),
            Column::new("delay per segment", "us"),
            Column::new("messages between processors", "per packet"),
            Column::new("packets waiting for resequencing at the host, mean", ""),
            Column::new("maximum", ""),
        ],
        rows: points.iter().map(row).collect(),
    }
}

fn waiting(point: &Point) -> Estimate {
    point.of(|run| run.waiting_for_order.0)
}

fn scheme_checks(mips: f64, points: &[(&str, Point)]) -> Vec<Check> {
    let distributed = &points[0].1;
    let central = &points[3].1;
    let least_messages =
        points.iter().all(|(_, point)| point.of(|run| run.messages).mean >= distributed.of(|run| run.messages).mean);
    vec![
        Check::new(
            format!("{mips} MIPS: no scheme has more throughput than DRDA (5 %)"),
            points.iter().all(|(_, point)| point.throughput.mean < 1.05 * distributed.throughput.mean),
            points
                .iter()
                .map(|(name, point)| format!("{name} {}", shown(point.throughput)))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        Check::new(
            format!("{mips} MIPS: DRDA needs no messages between processors, the others do"),
            least_messages && distributed.of(|run| run.messages).mean == 0.0,
            points
                .iter()
                .map(|(name, point)| format!("{name} {:.2}", point.of(|run| run.messages).mean))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        Check::new(
            format!("{mips} MIPS: one window for all needs less resequencing at the host (CRCA below DRDA)"),
            waiting(central).mean < waiting(distributed).mean,
            format!("{} and {} packets", shown(waiting(central)), shown(waiting(distributed))),
        ),
    ]
}

impl Study for Classes {
    fn id(&self) -> &'static str {
        "004-classes"
    }

    fn title(&self) -> &'static str {
        "Small messages in addition to bulk data, with and without a dedicated processor"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let config = Config { small: Some(small(true)), ..Config::new(Kind::TwoBus).adaptive() };
        let name = "delay of small messages with a dedicated processor, 2-bus, us";
        super::assumptions::choices(&[MainFigure { name, config, figure: |point| point.small_delay }])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome { assumptions: choices::assumptions(&self.choices(), options), ..Outcome::default() };
        for kind in [Kind::OneBus, Kind::TwoBus] {
            let of = |small: Option<Small>| point(options, &Config { small, ..Config::new(kind).adaptive() });
            let [none, shared, own] = [None, Some(small(false)), Some(small(true))].map(of);
            let row = |label: &str, point: &Point, has_small: bool| Row {
                label: label.to_owned(),
                cells: vec![
                    Cell::ours(point.throughput),
                    Cell::ours(point.delay),
                    if has_small { Cell::ours(point.small_delay) } else { Cell::default() },
                ],
            };
            outcome.tables.push(Table {
                title: format!("{}, uniform load, adaptive", kind.name()),
                columns: vec![
                    Column::new("bulk throughput", "Mb/s"),
                    Column::new("delay per segment of bulk", "us"),
                    Column::new("delay of small messages", "us"),
                ],
                rows: vec![
                    row("bulk only", &none, false),
                    row("all messages share 4 processors", &shared, true),
                    row("small messages have 1 processor, bulk data 3", &own, true),
                ],
            });
            outcome.checks.push(Check::new(
                format!("{}: a dedicated processor makes small messages faster", kind.name()),
                own.small_delay.mean < shared.small_delay.mean,
                format!("{} instead of {} us", shown(own.small_delay), shown(shared.small_delay)),
            ));
            outcome.checks.push(Check::new(
                format!(
                    "{}: it costs bulk data no more than the quarter of the processors that it loses (5 %)",
                    kind.name()
                ),
                own.throughput.mean > (0.75 - 0.05) * none.throughput.mean,
                format!("{} instead of {} Mb/s", shown(own.throughput), shown(none.throughput)),
            ));
        }
        outcome
    }
}

/// Returns the small packet of Table 4; 8 Mb/s.
const fn small(dedicated: bool) -> Small {
    Small { interval: Duration::from_micros(500), bits: 500 * 8, dedicated }
}
