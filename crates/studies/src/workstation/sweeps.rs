//! Sweeps behind the parameters of Table 1: windows and segments (Figures 7 to 10, lost), buses,
//! processors, memory.

use units::Duration;

use super::assumptions::MainFigure;
use super::config::Config;
use super::paper::{DATA_WITH_PROSE as DATA, Kind, paper};
use super::prose::prose;
use super::runs::{Point, places, point, shown, slowed, table_by, throughput_and_delay, throughput_and_delay_by};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Row, Table};
use crate::study::{Options, Study};

const WINDOWS_PACKETS: [u64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
const SEGMENTS_PACKETS: [u64; 3] = [1, 2, 3];
/// At this speed processors matter.
const SLOW_MIPS: f64 = 2.0;
const BUSES_MBPS: [u64; 7] = [300, 400, 500, 600, 700, 800, 1200];

/// Windows and segments.
pub(super) struct Windows;
/// Buses, processors and memories.
pub(super) struct Hardware;

impl Study for Windows {
    fn id(&self) -> &'static str {
        "004-windows"
    }

    fn title(&self) -> &'static str {
        "Throughput and delay by window and segment, both buses (Figures 7 to 10, whose curves are lost)"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        // Half of the report's window, where it matters.
        let half = Config { window_bits: 108_000, ..Config::new(Kind::TwoBus) };
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 2-bus, window 108 kbit, Mb/s", half),
            MainFigure::throughput("throughput, 1-bus, window 72 kbit, Mb/s", Config::new(Kind::OneBus)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut outcome = Outcome {
            assumptions: choices::assumptions(&self.choices(), options),
            notes: vec![
                "A larger segment carries more data, so its delay is longer for that reason alone: the report's 7 to \
                 23 % are per segment."
                    .to_owned(),
                "The 2-bus machine has nearly all its throughput with half of the report's window; its best window \
                 is the one beyond which one more packet per window adds less than 1 %."
                    .to_owned(),
            ],
            ..Outcome::default()
        };
        for kind in [Kind::TwoBus, Kind::OneBus] {
            windows_of(kind, options, &mut outcome);
        }
        outcome
    }
}

fn windows_of(kind: Kind, options: &Options, outcome: &mut Outcome) {
    let base = Config { measured: Duration::from_millis(250), ..Config::new(kind) };
    let packet = base.packet_bits;
    let name = kind.name();
    let mut by_segment = Vec::new();
    for segment in SEGMENTS_PACKETS {
        let points: Vec<(u64, Point)> = WINDOWS_PACKETS
            .iter()
            .filter(|&&window| window >= segment)
            .map(|&window| {
                let config = Config { window_bits: window * packet, segment_bits: segment * packet, ..base.clone() };
                (window, point(options, &config))
            })
            .collect();
        by_segment.push((segment, points));
    }
    let names: Vec<String> = SEGMENTS_PACKETS.iter().map(|segment| segment_name(segment * packet)).collect();
    let kbit = |window: u64| (window * packet / 1000) as f64;
    let curves: Vec<_> =
        names.iter().zip(&by_segment).map(|(name, (_, points))| (name.as_str(), places(points, kbit))).collect();
    let x = Column::new("window", "kbit");
    outcome.tables.push(table_by(&format!("{name}, uniform load, by window"), &x, &curves));
    outcome.plots.extend(throughput_and_delay_by(name, &x, &curves));
    outcome.checks.extend(window_checks(kind, &base, &by_segment));
}

fn segment_name(bits: u64) -> String {
    format!("segments of {} kbit", bits / 1000)
}

fn window_checks(kind: Kind, base: &Config, by_segment: &[(u64, Vec<(u64, Point)>)]) -> Vec<Check> {
    let name = kind.name();
    let points = &by_segment[0].1;
    let most = points.iter().map(|(_, point)| point.throughput.mean).fold(0.0, f64::max);
    let enough = points.iter().find(|(_, point)| point.throughput.mean > 0.97 * most).map_or(0, |(window, _)| *window);
    let chosen = base.window_packets();
    let at = |segment: usize, window: u64| {
        by_segment[segment].1.iter().find(|(at, _)| *at == window).map(|(_, point)| point)
    };
    let after: Vec<f64> =
        points.iter().filter(|(window, _)| *window >= enough).map(|(_, point)| point.delay.mean).collect();
    let mut checks = vec![
        Check::new(
            format!("{name}: the smallest window with full throughput (97 %) is the report's best, {chosen} packets"),
            enough == chosen,
            format!("{enough} packets; maximum {most:.0} Mb/s"),
        ),
        Check::new(
            format!("{name}: beyond that window, delay grows with the window, until the window is never full"),
            after.is_sorted_by(|a, b| *a < 1.01 * b) && after[after.len() - 1] > 1.2 * after[0],
            format!("{after:.0?} us"),
        ),
    ];
    let printed = prose().larger_segments;
    // At the smallest window that holds two segments of both larger sizes.
    let Some(small) = at(0, 6) else { return checks };
    for (index, segment) in SEGMENTS_PACKETS.iter().enumerate().skip(1) {
        let Some(large) = at(index, 6) else { continue };
        let throughput = large.throughput.mean / small.throughput.mean - 1.0;
        let delay = large.delay.mean / small.delay.mean - 1.0;
        checks.push(Check::new(
            format!("{name}: segments of {segment} packets have the same throughput (10 %)"),
            throughput.abs() < 0.1,
            format!("{:+.1} %", throughput * 100.0),
        ));
        checks.push(Check::new(
            format!(
                "{name}: segments of {segment} packets take {:.0} to {:.0} % longer (+-2 % of the total)",
                printed.more_delay_min * 100.0,
                printed.more_delay_max * 100.0
            ),
            printed.contains(delay),
            format!("{:+.1} %", delay * 100.0),
        ));
    }
    checks
}

impl Study for Hardware {
    fn id(&self) -> &'static str {
        "004-hardware"
    }

    fn title(&self) -> &'static str {
        "Effect of faster processors, buses and memories"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        let slow = slowed(&Config::new(Kind::TwoBus), SLOW_MIPS);
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 2-bus, 2 MIPS, Mb/s", slow),
            MainFigure::throughput("throughput, serial, Mb/s", Config::new(Kind::Serial)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let assumptions = choices::assumptions(&self.choices(), options);
        let mut outcome = Outcome { assumptions, notes: hardware_notes(), ..Outcome::default() };
        processors(options, &mut outcome);
        buses(options, &mut outcome);
        serial(options, &mut outcome);
        copies(options, &mut outcome);
        outcome
    }
}

fn hardware_notes() -> Vec<String> {
    [
        "The report's 86 % at 1 MIPS and 300 Mb/s leave a processor 14 % of its time for its local memory. In the \
         model it waits for that memory (two passes over the data it sends take 120 us of 480), so it cannot reach \
         300 Mb/s at 1 MIPS; at 2 and 25 MIPS it agrees with the report.",
        "Buses below 700 Mb/s are no limit here, because split buses overlap with memories of 400 Mb/s. The \
         assumption `buses of the 2-bus machine` of 004-table-3 shows held ones.",
    ]
    .map(str::to_owned)
    .into()
}

/// Adds the utilisation of processors by instructions: the report does not count the time for which
/// they wait for memory.
fn processors(options: &Options, outcome: &mut Outcome) {
    let instructions = Config::new(Kind::TwoBus).choices.costs.send.instructions as f64;
    let mut rows = Vec::new();
    let mut throughputs = Vec::new();
    for facts in &paper().utilisation {
        let config = slowed(&Config::new(Kind::TwoBus), facts.mips);
        let result = point(options, &config);
        let per_processor = config.protocol_processors as f64 * config.packet_bits as f64;
        let busy =
            result.of(|run| 100.0 * run.throughput_mbps * 1e6 / per_processor * instructions / (config.mips * 1e6));
        throughputs.push(result.throughput.mean);
        rows.push(Row {
            label: format!("{} MIPS", facts.mips),
            cells: vec![
                Cell::compared(facts.percent, busy, 0.15),
                Cell::ours(result.throughput),
                Cell::ours(result.delay),
            ],
        });
    }
    outcome.tables.push(Table {
        title: "2-bus: processors busy with instructions".to_owned(),
        columns: [Column::new("busy", "%")].into_iter().chain(throughput_and_delay()).collect(),
        rows,
    });
    let (least, most) = (throughputs[0], throughputs[throughputs.len() - 1]);
    outcome.checks.push(Check::new(
        "2-bus: processors of 2 MIPS do as well as processors of 25 (within 10 %)",
        throughputs[1] > 0.9 * most,
        format!("1, 2, 25 MIPS: {least:.0}, {:.0}, {most:.0} Mb/s", throughputs[1]),
    ));
}

fn buses(options: &Options, outcome: &mut Outcome) {
    let points: Vec<(u64, Point)> = BUSES_MBPS
        .iter()
        .map(|&mbps| {
            let config = Config { abus_mbps: mbps, nbus_mbps: mbps, ..Config::new(Kind::TwoBus) };
            (mbps, point(options, &config))
        })
        .collect();
    let at = |mbps: u64| points.iter().find(|(at, _)| *at == mbps).expect("in the sweep").1.throughput;
    outcome.checks.push(Check::new(
        "2-bus: buses of 700 Mb/s are needed for 300 Mb/s (500 do not reach 97 % of the throughput of 800)",
        at(500).mean < 0.97 * at(800).mean && at(700).mean > 0.97 * at(800).mean,
        format!(
            "300, 500, 700, 800: {}, {}, {}, {} Mb/s",
            shown(at(300)),
            shown(at(500)),
            shown(at(700)),
            shown(at(800))
        ),
    ));
    let curves = [("2-bus", places(&points, |mbps| mbps as f64))];
    let x = Column::new("each bus", "Mb/s");
    outcome.tables.push(table_by("2-bus, by bus", &x, &curves));
    outcome.plots.extend(throughput_and_delay_by("2-bus, by bus", &x, &curves));
}

/// Adds the loss of the serial machine by accessing single words, and the effect of half its
/// processor speed.
fn serial(options: &Options, outcome: &mut Outcome) {
    let base = Config::new(Kind::Serial);
    let pipelined = Config { transactions: sim::hardware::Transactions::Split, ..base.clone() };
    let half = Config { mips: base.mips / 2.0, ..base.clone() };
    let slow_memory = Config { memory_ns: 20, ..base.clone() };
    let [as_it_is, pipelined, half, slow_memory] =
        [base, pipelined, half, slow_memory].map(|config| point(options, &config));
    let row = |label: &str, point: &Point| super::runs::ours(label, point);
    outcome.tables.push(Table {
        title: "Serial".to_owned(),
        columns: throughput_and_delay(),
        rows: vec![
            row("as in Table 1", &as_it_is),
            row("memory accesses pipelined", &pipelined),
            row("100 MIPS", &half),
            row("memory of 20 ns", &slow_memory),
        ],
    });
    outcome.checks.push(Check::new(
        "serial: with pipelined memory accesses it exceeds the parallel machines (300 Mb/s)",
        pipelined.throughput.mean > paper().common.goal_mbps,
        format!("{} and {} Mb/s", shown(as_it_is.throughput), shown(pipelined.throughput)),
    ));
    outcome.checks.push(Check::new(
        "serial: half the processor speed costs less than 5 %, four times the memory's time costs more",
        half.throughput.mean > 0.95 * as_it_is.throughput.mean
            && slow_memory.throughput.mean < 0.95 * as_it_is.throughput.mean,
        format!("{} and {} Mb/s", shown(half.throughput), shown(slow_memory.throughput)),
    ));
}

/// Adds the time of buses and memories per packet.
fn copies(options: &Options, outcome: &mut Outcome) {
    let mut rows = Vec::new();
    let mut busiest = Vec::new();
    for kind in [Kind::TwoBus, Kind::OneBus] {
        let config = Config::new(kind);
        let result = point(options, &config);
        let each = |part: &str| result.of(|run| most_busy_us_per_packet(run, &config, part));
        let cells = vec![Cell::ours(each("memory")), Cell::ours(each("bus"))];
        busiest.push(each("memory").mean / config.memory_ns as f64);
        rows.push(Row { label: kind.name().to_owned(), cells });
    }
    outcome.tables.push(Table {
        title: "Time of the busiest memory and bus of the sender per packet".to_owned(),
        columns: vec![Column::new("memory", "us"), Column::new("bus", "us")],
        rows,
    });
    outcome.checks.push(Check::new(
        "local memories relieve the busiest one: fewer accesses per packet than with shared memory",
        busiest[0] < busiest[1],
        format!("{:.0} and {:.0} accesses", busiest[0] * 1e3, busiest[1] * 1e3),
    ));
}

fn most_busy_us_per_packet(run: &super::model::Measured, config: &Config, part: &str) -> f64 {
    let mine = run.reports.iter().filter(|report| report.name.starts_with("sender") && report.name.contains(part));
    let busiest = mine.map(|report| report.utilisation).fold(0.0, f64::max);
    busiest * config.packet_bits as f64 / run.throughput_mbps
}
