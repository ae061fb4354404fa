//! 001-grid: socket buffers and packet lengths, on our own TCP.

use super::assumptions::{self, TOLERANCE, exact};
use super::exchange::{Assumed, Exchange, Rules};
use super::fit;
use super::paper::{Action, List, Printed, Rate, SLOW_MBPS};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Grid;

/// Rules and their names; both rules together come first.
const RULES: [(&str, Rules); 3] = [
    ("Nagle's algorithm and delayed acknowledgements", Rules::BOTH),
    ("without Nagle's algorithm", Rules { nagle: false, delayed: true }),
    ("without delayed acknowledgements", Rules { nagle: true, delayed: false }),
];

/// Rates of all pairs for an action under some rules.
struct Rates {
    action: Action,
    rules: usize,
    /// Cells: buffer, packet, Mb/s.
    cells: Vec<(usize, usize, f64)>,
}

impl Rates {
    fn find(printed: &Printed, action: Action, rules: usize, assumed: Assumed, byte_ps: u64) -> Self {
        let rate = |(buffer_bytes, packet_bytes)| {
            let rules = RULES[rules].1;
            let exchange = Exchange { action, buffer_bytes, packet_bytes, rules, assumed, byte_ps };
            (buffer_bytes, packet_bytes, exchange.rate_mbps())
        };
        Self { action, rules, cells: printed.pairs().map(rate).collect() }
    }

    fn of(&self, buffer: usize, packet: usize) -> f64 {
        let cell = self.cells.iter().find(|cell| (cell.0, cell.1) == (buffer, packet));
        cell.expect("the grid has every pair").2
    }

    fn slow(&self) -> usize {
        self.cells.iter().filter(|cell| cell.2 < SLOW_MBPS).count()
    }

    fn most(&self) -> f64 {
        self.cells.iter().map(|cell| cell.2).fold(0.0, f64::max)
    }

    fn least(&self) -> f64 {
        self.cells.iter().map(|cell| cell.2).fold(f64::INFINITY, f64::min)
    }
}

/// A printed row and our rate.
struct Compared {
    row: Rate,
    ours: f64,
    is_fitted: bool,
}

impl Compared {
    fn is_right(&self) -> bool {
        (self.ours < SLOW_MBPS) == self.row.is_slow()
    }

    fn deviation(&self) -> f64 {
        self.ours / self.row.rate_mbps - 1.0
    }

    fn is_within(&self) -> bool {
        self.deviation().abs() <= TOLERANCE
    }

    fn cells(&self) -> Vec<Cell> {
        let ms = |mbps: f64| self.row.packet_bytes as f64 * 8.0 / 1e3 / mbps;
        let rate = Cell::compared(self.row.rate_mbps, exact(self.ours), TOLERANCE);
        let time = Cell { tolerance: None, ..Cell::compared(ms(self.row.rate_mbps), exact(ms(self.ours)), TOLERANCE) };
        [rate, time].map(|cell| if self.is_fitted { cell.fitted() } else { cell }).into()
    }
}

impl Study for Grid {
    fn id(&self) -> &'static str {
        "001-grid"
    }

    fn title(&self) -> &'static str {
        "Rates by socket buffer and packet length, on our own TCP with the classic profile"
    }

    fn data(&self) -> &'static [&'static str] {
        &["001-rates.toml", "001-setup.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        assumptions::choices()
    }

    fn run(&self, options: &Options) -> Outcome {
        let printed = Printed::load();
        let assumed = Assumed::of(options.effort);
        let byte_ps = fit::byte_ps(&printed, assumed);
        let all: Vec<_> = (0..RULES.len())
            .flat_map(|rules| Action::ALL.map(|action| Rates::find(&printed, action, rules, assumed, byte_ps)))
            .collect();
        let of = |action: Action, rules: usize| {
            let rates = all.iter().find(|rates| rates.action == action && rates.rules == rules);
            rates.expect("every action was run under all rules")
        };
        let fitted = fit::row(&printed);
        let compare = |row: &Rate| Compared {
            row: *row,
            ours: of(row.action, 0).of(row.socket_buffer_bytes, row.packet_bytes),
            is_fitted: *row == fitted,
        };
        let compared: Vec<_> = printed.measured().map(compare).collect();
        let mut tables = vec![table_of_rows(&compared)];
        tables.extend(Action::ALL.map(|action| table_of_grid(&printed, of(action, 0))));
        tables.push(table_of_rules(&all));
        let mut checks = checks_of_rows(&compared);
        checks.push(check_of_the_rest(&printed, of(Action::Rw, 0)));
        checks.extend(checks_of_rules(&all));
        Outcome {
            tables,
            plots: [0, 1].map(|rules| plot(&printed, of(Action::Rw, rules))).into(),
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                format!(
                    "Fitted: {:.1} ns of processor time for a byte at the receiver, to the row {}. Nothing in the \
                     model mentions 200 ms except the period of the timer of the receiver.",
                    byte_ps as f64 / 1000.0,
                    fitted.label()
                ),
                "Packets of 49142 bytes are printed as slower with buffers of 65535 than with buffers of their own \
                 size. In the model a larger buffer never makes a packet slower that fits into the smaller one, so it \
                 misses these rows by about a quarter. With buffers of 32768 they take a round trip more than the \
                 model needs."
                    .to_owned(),
                "With buffers of 16384 a packet of several segments waits once for each of them in the model. In the \
                 report it waits once or twice: its senders filled their buffer in other pieces."
                    .to_owned(),
            ],
        }
    }
}

fn table_of_rows(compared: &[Compared]) -> Table {
    let row = |compared: &Compared| Row { label: compared.row.label(), cells: compared.cells() };
    Table {
        title: "Printed pairs".to_owned(),
        columns: vec![Column::new("rate", "Mb/s"), Column::new("time of a packet", "ms")],
        rows: compared.iter().map(row).collect(),
    }
}

fn table_of_grid(printed: &Printed, rates: &Rates) -> Table {
    let row = |buffer: &usize| Row {
        label: format!("{}, buffer {buffer}", rates.action.name()),
        cells: printed.grid_bytes.iter().map(|packet| Cell::ours(exact(rates.of(*buffer, *packet)))).collect(),
    };
    Table {
        title: format!("All pairs, action {}", rates.action.name()),
        columns: printed.grid_bytes.iter().map(|packet| Column::new(&format!("packet {packet}"), "Mb/s")).collect(),
        rows: printed.grid_bytes.iter().map(row).collect(),
    }
}

fn table_of_rules(all: &[Rates]) -> Table {
    let row = |rates: &Rates| Row {
        label: format!("{}, {}", rates.action.name(), RULES[rates.rules].0),
        cells: [rates.slow() as f64, rates.most(), rates.least()].map(|value| Cell::ours(exact(value))).into(),
    };
    Table {
        title: "Slow pairs by rules".to_owned(),
        columns: vec![
            Column::new("slow pairs of 36", ""),
            Column::new("fastest pair", "Mb/s"),
            Column::new("slowest pair", "Mb/s"),
        ],
        rows: all.iter().map(row).collect(),
    }
}

fn checks_of_rows(compared: &[Compared]) -> Vec<Check> {
    let names = |rows: &[&Compared]| {
        let name = |one: &&Compared| format!("{} {:+.0} %", one.row.label(), one.deviation() * 100.0);
        rows.iter().map(name).collect::<Vec<_>>().join("; ")
    };
    let wrong: Vec<_> = compared.iter().filter(|one| !one.is_right()).collect();
    let predicted: Vec<_> = compared.iter().filter(|one| !one.row.is_slow() && !one.is_fitted).collect();
    let outside: Vec<_> = predicted.iter().copied().filter(|one| !one.is_within()).collect();
    let sides = format!("{} of {}", compared.len() - wrong.len(), compared.len());
    let within = format!("{} of {}", predicted.len() - outside.len(), predicted.len());
    let with_names = |text: String, rows: &[&Compared]| match rows {
        [] => text,
        _ => format!("{text}; not {}", names(rows)),
    };
    vec![
        Check::new(
            "the slow rows are the printed ones, and the fast rows too",
            wrong.is_empty(),
            with_names(sides, &wrong),
        ),
        Check::new(
            "every fast row but the fitted one is predicted within 15 %",
            outside.is_empty(),
            with_names(within, &outside),
        ),
    ]
}

/// Checks the pairs between the two printed lists, of which the report prints eight entries each.
fn check_of_the_rest(printed: &Printed, rates: &Rates) -> Check {
    let of_list = |list: List| printed.rate.iter().filter(move |rate| rate.action == rates.action && rate.list == list);
    let slowest_fast = of_list(List::Fastest).map(|rate| rate.rate_mbps).fold(f64::INFINITY, f64::min);
    let fastest_slow = of_list(List::Slowest).map(|rate| rate.rate_mbps).fold(0.0, f64::max);
    let is_printed = |buffer: usize, packet: usize| {
        let is_it = |rate: &Rate| (rate.socket_buffer_bytes, rate.packet_bytes) == (buffer, packet);
        of_list(List::Fastest).chain(of_list(List::Slowest)).any(is_it)
    };
    let rest: Vec<_> = rates.cells.iter().filter(|(buffer, packet, _)| !is_printed(*buffer, *packet)).collect();
    let (least, most) =
        rest.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), cell| (least.min(cell.2), most.max(cell.2)));
    Check::new(
        "for rw, the pairs that are not printed lie between the printed lists",
        least > fastest_slow && most < slowest_fast,
        format!(
            "{} pairs from {least:.1} to {most:.1} Mb/s; printed are {fastest_slow:.1} and less, {slowest_fast:.1} \
             and more",
            rest.len()
        ),
    )
}

fn checks_of_rules(all: &[Rates]) -> [Check; 2] {
    let slow = |rules: usize| {
        let of_rules = all.iter().filter(|rates| rates.rules == rules);
        of_rules.map(Rates::slow).sum::<usize>()
    };
    let both = slow(0);
    let check = |statement: &str, rules: usize| {
        let rest = slow(rules);
        Check::new(statement, both > 0 && rest == 0, format!("{rest} slow pairs of 72 instead of {both}"))
    };
    [
        check("without Nagle's algorithm no pair is slow", 1),
        check("without delayed acknowledgements no pair is slow", 2),
    ]
}

fn plot(printed: &Printed, rates: &Rates) -> Plot {
    let mut packets = printed.grid_bytes.clone();
    packets.sort_unstable();
    let series = |buffer: &usize| Series {
        name: format!("buffer {buffer}"),
        points: packets.iter().map(|packet| (*packet as f64, exact(rates.of(*buffer, *packet)))).collect(),
    };
    Plot {
        title: format!("Rate by packet length, action {}, {}", rates.action.name(), RULES[rates.rules].0),
        x: Column::new("packet", "bytes"),
        y: Column::new("rate", "Mb/s"),
        series: printed.grid_bytes.iter().map(series).collect(),
    }
}
