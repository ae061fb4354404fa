//! Table 3: three machines, two kinds of load, two network schedulers.

use super::assumptions::Headline;
use super::config::Config;
use super::paper::{DATA, Kind, Table3, paper};
use super::readings::{self, Printed};
use super::runs::{Point, point, shown, throughput_and_delay, warm_up_check};
use super::table_2::{self, DELAY_TOLERANCE, THROUGHPUT_TOLERANCE};
use crate::outcome::{Row, Table};
use crate::{Cell, Check, Choice, Effort, Options, Outcome, Study, choices};

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
            Headline::throughput("throughput, 1-bus, uniform, Mb/s", Config::new(Kind::OneBus)),
            Headline::delay("delay, 1-bus, uniform, us", Config::new(Kind::OneBus)),
            Headline::throughput("throughput, 1-bus, nonuniform, RR, Mb/s", one_bus_nonuniform()),
            Headline::throughput(
                "throughput, 2-bus, nonuniform, adaptive, Mb/s",
                Config::new(Kind::TwoBus).nonuniform().adaptive(),
            ),
            Headline::throughput("throughput, serial, uniform, Mb/s", Config::new(Kind::Serial)),
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
            tables.push(readings::table(&rows, &few));
            tables.push(readings::timers_table("Table 3", &rows, options));
            tables.push(readings::timers_table("Table 2", &table_2::printed(), options));
        }
        let mut checks = checks(&rows);
        // Nonuniform load has no state in which it stays.
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
                // The work of the application, and that of handing up.
                Kind::TwoBus | Kind::Serial => delay = delay.fitted(),
                // It is the first row of Table 2.
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
            "uniform: 1-bus and 2-bus are alike (paper: within 7 %)",
            (one.throughput.mean / two.throughput.mean - 1.0).abs() < 0.07,
            format!("{} and {} Mb/s", shown(one.throughput), shown(two.throughput)),
        ),
        ordered("uniform: 2-bus above serial", [two, serial]),
        ordered("uniform: 1-bus above serial", [one, serial]),
        Check::new(
            "uniform: the 2-bus has the longer delay, though the paper's conclusions say the opposite",
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
        "Fitted: the application's instructions for a segment (on the delay of 2-bus, uniform), bus cycles of a single word (on the \
         throughput of serial, uniform), the words of handing up (on its delay); both figures of 1-bus, uniform, by Table 2, whose first row \
         it is. The nonuniform rows were fitted to nothing.",
        "The nonuniform rows of the 1-bus do not come out: the paper has a fifth less. Its 1-bus moves 323 Mb/s over six rings with two \
         packets in each window, and 270 with six in each and the same load on average. Where packets that wait cost nothing, more of \
         them cannot lower the throughput.",
        "What can lower it is a timed token with a target hardly above a rotation, and others' frames as long as ours: then each of \
         their frames makes the next token late, and a station that always has a frame loses that rotation. Under that reading (last \
         table, first row) the two rows come out, delays as well. But the rows with few packets in flight, 1-bus and 2-bus under \
         uniform load, fall to 250 and less, but for single values of the target at which the others are starved. No target fits all \
         rows, so the usual 8 ms stays.",
        "Timers of RFC 793 lower it, too: with six packets in a window over six unlike rings they fire by mistake, and about half as many packets \
         are sent again as are acknowledged. On other rings the two rows then come out (last tables), and the row of 40 ns of Table 2 and the \
         2-bus under uniform load do not. It takes go-backs that overlap; where timers of all that is sent again begin together, the two \
         rows miss by a tenth. So no timer runs elsewhere.",
        "So two printed orderings do not hold here: serial above 1-bus with RR, and 2-bus adaptive above 1-bus adaptive. Nor does 1-bus \
         above 2-bus under uniform load (323 and 301 printed): both are held back by the same rings here, a hundredth apart.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orderings_that_we_claim_hold_in_short_runs_too() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };
        let rows: Vec<(&Table3, Point)> =
            paper().table_3.iter().map(|row| (row, point(&options, &config_of(row)))).collect();
        let held: Vec<bool> = checks(&rows).iter().map(|check| check.holds).collect();
        // The last three do not, and the notes say why.
        assert!(held[..9].iter().all(|&holds| holds), "{:?}", checks(&rows));
    }
}
