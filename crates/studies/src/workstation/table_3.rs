//! Table 3: three machines, two kinds of load, two network schedulers.

use super::assumptions::MainFigure;
use super::config::Config;
use super::interpretations::{self, Printed};
use super::paper::{DATA, Kind, Table3, paper};
use super::runs::{Point, point, shown, throughput_and_delay, warm_up_check};
use super::table_2::{self, DELAY_TOLERANCE, THROUGHPUT_TOLERANCE};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Row, Table};
use crate::study::{Effort, Options, Study};

pub(super) struct Comparison;

impl Study for Comparison {
    fn id(&self) -> &'static str {
        "004-table-3"
    }

    fn title(&self) -> &'static str {
        "Three workstations under uniform and nonuniform load (Table 3)"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn choices(&self) -> Vec<Choice> {
        super::assumptions::choices(&[
            MainFigure::throughput("throughput, 1-bus, uniform, Mb/s", Config::new(Kind::OneBus)),
            MainFigure::delay("delay, 1-bus, uniform, us", Config::new(Kind::OneBus)),
            MainFigure::throughput("throughput, 1-bus, nonuniform, RR, Mb/s", one_bus_nonuniform()),
            MainFigure::throughput(
                "throughput, 2-bus, nonuniform, adaptive, Mb/s",
                Config::new(Kind::TwoBus).nonuniform().adaptive(),
            ),
            MainFigure::throughput("throughput, serial, uniform, Mb/s", Config::new(Kind::Serial)),
        ])
    }

    fn run(&self, options: &Options) -> Outcome {
        let rows: Vec<(&Table3, Point)> =
            paper().table_3.iter().map(|row| (row, point(options, &config_of(row)))).collect();
        let small_window = Config { window_bits: Config::new(Kind::OneBus).window_bits, ..one_bus_nonuniform() };
        let mut tables = vec![table(&rows)];
        tables.push(Table {
            title: "1-bus, nonuniform load, with the 72 kbit window of Table 1".to_owned(),
            columns: throughput_and_delay(),
            rows: vec![
                super::runs::ours("RR", &point(options, &small_window)),
                super::runs::ours("adaptive", &point(options, &small_window.adaptive())),
            ],
        });
        if options.effort == Effort::Full {
            let few = Options { replications: options.replications.min(2), precision: None, ..*options };
            let rows: Vec<Printed> = paper().table_3.iter().map(printed).collect();
            tables.push(interpretations::table(&rows, &few));
            tables.push(interpretations::timers_table("Table 3", &rows, options));
            tables.push(interpretations::timers_table("Table 2", &table_2::printed(), options));
        }
        let mut checks = checks(&rows);
        // Nonuniform load has no steady state.
        checks.push(warm_up_check(options, &[Kind::TwoBus, Kind::OneBus, Kind::Serial].map(Config::new)));
        Outcome {
            tables,
            checks,
            assumptions: choices::assumptions(&self.choices(), options),
            notes: notes(),
            ..Outcome::default()
        }
    }
}

fn one_bus_nonuniform() -> Config {
    Config::new(Kind::OneBus).nonuniform()
}

fn config_of(row: &Table3) -> Config {
    let mut config = Config::new(row.machine);
    if !row.uniform {
        config = config.nonuniform();
    }
    if row.adaptive { config.adaptive() } else { config }
}

fn printed(row: &Table3) -> Printed {
    Printed { label: label(row), config: config_of(row), throughput_mbps: row.throughput_mbps, delay_us: row.delay_us }
}

fn label(row: &Table3) -> String {
    let load = if row.uniform { "uniform" } else { "nonuniform" };
    let policy = match (row.machine, row.adaptive) {
        (Kind::Serial, _) => "-",
        (_, true) => "adaptive",
        (_, false) => "RR",
    };
    format!("{load}, {}, {policy}", row.machine.name())
}

fn table(rows: &[(&Table3, Point)]) -> Table {
    let row = |(paper, point): &(&Table3, Point)| {
        let mut throughput = Cell::compared(paper.throughput_mbps, point.throughput, THROUGHPUT_TOLERANCE);
        let mut delay = Cell::compared(paper.delay_us, point.delay, DELAY_TOLERANCE);
        if paper.uniform {
            match paper.machine {
                // The instructions of the application, and the words of delivery.
                Kind::TwoBus | Kind::Serial => delay = delay.fitted(),
                // The first row of Table 2.
                Kind::OneBus => (throughput, delay) = (throughput.fitted(), delay.fitted()),
            }
            if paper.machine == Kind::Serial {
                throughput = throughput.fitted();
            }
        }
        Row { label: label(paper), cells: vec![throughput, delay] }
    };
    Table {
        title: "Table 3: performance comparison".to_owned(),
        columns: throughput_and_delay(),
        rows: rows.iter().map(row).collect(),
    }
}

fn checks(rows: &[(&Table3, Point)]) -> Vec<Check> {
    let find = |uniform: bool, machine: Kind, adaptive: bool| {
        let found =
            rows.iter().find(|(row, _)| (row.uniform, row.machine, row.adaptive) == (uniform, machine, adaptive));
        &found.expect("a row of Table 3").1
    };
    let ordered = |statement: &str, points: [&Point; 2]| {
        Check::new(
            statement,
            points[0].throughput.mean > points[1].throughput.mean,
            format!("{} and {} Mb/s", shown(points[0].throughput), shown(points[1].throughput)),
        )
    };
    let (two, one, serial) =
        (find(true, Kind::TwoBus, false), find(true, Kind::OneBus, false), find(true, Kind::Serial, false));
    let (two_rr, two_adaptive) = (find(false, Kind::TwoBus, false), find(false, Kind::TwoBus, true));
    let (one_rr, one_adaptive) = (find(false, Kind::OneBus, false), find(false, Kind::OneBus, true));
    let serial_nonuniform = find(false, Kind::Serial, false);
    let change = (serial_nonuniform.throughput.mean / serial.throughput.mean - 1.0).abs();
    vec![
        Check::new(
            "uniform: 1-bus and 2-bus are alike (report: within 7 %)",
            (one.throughput.mean / two.throughput.mean - 1.0).abs() < 0.07,
            format!("{} and {} Mb/s", shown(one.throughput), shown(two.throughput)),
        ),
        ordered("uniform: 2-bus above serial", [two, serial]),
        ordered("uniform: 1-bus above serial", [one, serial]),
        Check::new(
            "uniform: the 2-bus has the longer delay, although the report's conclusions say the opposite",
            two.delay.mean > one.delay.mean,
            format!("{} and {} us", shown(two.delay), shown(one.delay)),
        ),
        ordered("nonuniform: adaptive above RR, 2-bus", [two_adaptive, two_rr]),
        ordered("nonuniform: adaptive above RR, 1-bus", [one_adaptive, one_rr]),
        ordered("RR loses by nonuniform load, 2-bus", [two, two_rr]),
        Check::new(
            "nonuniform: the 2-bus has the shorter delay",
            two_adaptive.delay.mean < one_adaptive.delay.mean && two_rr.delay.mean < one_rr.delay.mean,
            format!("adaptive {} and {} us", shown(two_adaptive.delay), shown(one_adaptive.delay)),
        ),
        Check::new(
            "nonuniform load changes nothing for the serial machine (less than 2 %)",
            change < 0.02,
            format!("{} and {} Mb/s", shown(serial.throughput), shown(serial_nonuniform.throughput)),
        ),
        ordered("nonuniform: serial above 1-bus with RR, as printed", [serial_nonuniform, one_rr]),
        ordered("nonuniform: 2-bus adaptive above 1-bus adaptive, as printed", [two_adaptive, one_adaptive]),
        ordered("uniform: 1-bus above 2-bus, as printed", [one, two]),
    ]
}

fn notes() -> Vec<String> {
    [
        "Fitted: the application's instructions per segment (to the delay of 2-bus, uniform), the bus cycles of a \
         single word (to the throughput of serial, uniform), the words of delivery (to its delay); both figures of \
         1-bus, uniform, by Table 2, whose first row it is. The nonuniform rows were not used for fitting.",
        "The nonuniform rows of the 1-bus do not agree: the report has a fifth less. Its 1-bus carries 323 Mb/s over \
         six rings with two packets per window, and 270 with six per window and the same mean load. If waiting \
         packets cost nothing, more of them cannot lower the throughput.",
        "A possible cause is a timed token with a target barely above a rotation, and background frames as long as \
         ours: each of them then makes the next token late, and a station that always has a frame loses that \
         rotation. Under that interpretation (last table, first row) the two rows agree, including the delays. But \
         the rows with few packets in flight, 1-bus and 2-bus under uniform load, fall to 250 and less, except for \
         single values of the target at which the background starves. No target fits all rows, so the usual 8 ms is \
         kept.",
        "Timers of RFC 793 also lower it: with six packets per window over six different rings they fire by mistake, \
         and about half as many packets are retransmitted as are acknowledged. On other rings the two rows then \
         agree (last tables), but the row of 40 ns of Table 2 and the 2-bus under uniform load do not. This needs \
         overlapping go-backs; if the timers of all retransmitted packets restart together, the two rows miss by a \
         tenth. So no timer runs in the other studies.",
        "Two printed orderings therefore do not hold here: serial above 1-bus with RR, and 2-bus adaptive above \
         1-bus adaptive. Nor does 1-bus above 2-bus under uniform load (323 and 301 printed): both are limited by \
         the same rings here, one percent apart.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claimed_orderings_hold_in_quick_runs() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };
        let rows: Vec<(&Table3, Point)> =
            paper().table_3.iter().map(|row| (row, point(&options, &config_of(row)))).collect();
        let held: Vec<bool> = checks(&rows).iter().map(|check| check.holds).collect();
        // The last three do not hold; the notes explain why.
        assert!(held[..9].iter().all(|&holds| holds), "{:?}", checks(&rows));
    }
}
