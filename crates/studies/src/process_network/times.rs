//! 002-table-1: time of the processes per segment, measured in the running model as by the paper's
//! monitor, and the cost of copying relative to the protocol.

use super::assumptions::{self, MainFigure};
use super::paper::{Figures, Table1, roles};
use super::run::{Measured, exact, run};
use super::setup::{Costs, Setup};
use crate::choices;
use crate::choices::Choice;
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};

/// The study.
pub(super) struct Times;

impl Study for Times {
    fn id(&self) -> &'static str {
        "002-table-1"
    }

    fn title(&self) -> &'static str {
        "Processing times of a segment in scenario 1, and the cost of copying relative to the protocol"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml", "002-processes.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let figure = |setup: &Setup, options: &Options| exact(run(setup, options).work_of(1, "tcp_recv"));
        let name = "work of tcp_recv with its pokes, us/segment";
        assumptions::choices(&table, MainFigure { name, setup: Setup::scenario_1(&table), figure })
    }

    fn run(&self, options: &Options) -> Outcome {
        let (table, figures) = (Table1::load(), Figures::load());
        let setup = Setup::scenario_1(&table);
        let measured = run(&setup, options);
        let ratios = Ratios::of(&setup.costs);
        Outcome {
            tables: vec![processes(&setup.costs, &measured), copying(&figures, &ratios)],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![
                Check::new(
                    "on the receive side copying costs about twice the protocol",
                    ratios.receive.round() == figures.copy_cost_ratio,
                    format!("{:.2}", ratios.receive),
                ),
                Check::new(
                    "the processes of the model work as long as in Table 1, plus acknowledgements",
                    adds_up(&setup.costs, &measured),
                    format!(
                        "tcp_recv {:.1} us with its pokes, ip_demux {:.1} us, ip_intrsvc {:.1} us",
                        measured.work_of(1, "tcp_recv"),
                        measured.work_of(1, "ip_demux"),
                        measured.work_of(1, "ip_intrsvc")
                    ),
                ),
            ],
            notes: vec![
                "Table 1 is an input: its rows agree by construction. New are the additions of the running system: \
                 pokes, remote calls and the acknowledgements in the opposite direction. The time of a poke is \
                 counted for its caller."
                    .to_owned(),
                "The printed factor of two is that of the receive side, rounded. On the transmit side it is \
                 three."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// Time of copying and buffer management relative to protocol processing, for each side and both.
struct Ratios {
    receive: f64,
    transmit: f64,
    both: f64,
}

impl Ratios {
    fn of(costs: &Costs) -> Self {
        let (received, sent) = (costs.user_task_us + costs.copy_us(), costs.write_us + costs.copy_us());
        let (receive, transmit) = (costs.receive_us(), costs.transmit_us());
        Self { receive: received / receive, transmit: sent / transmit, both: (received + sent) / (receive + transmit) }
    }
}

/// Returns the time of a process of the model in Table 1.
fn printed(costs: &Costs, process: &str) -> Option<f64> {
    Some(match process {
        "ip_intrsvc" => costs.ip_intrsvc_us,
        "ip_demux" => costs.ip_demux_us,
        "tcp_recv" => costs.tcp_recv_us,
        "user_task" => costs.user_task_us + costs.copy_us(),
        "write" => costs.write_us + costs.copy_us(),
        "xtask" => costs.tcp_snd_data_us,
        "ip_send" => costs.ip_send_us + costs.driver_send_us,
        _ => return None,
    })
}

fn processes(costs: &Costs, measured: &Measured) -> Table {
    let columns = vec![Column::new("sending adapter", "us/segment"), Column::new("receiving adapter", "us/segment")];
    let row = |role: super::paper::Role| {
        // The paper's numbers for the transmit side belong to the sending adapter, those for the
        // receive side to the other one.
        let cell = |adapter: usize, is_its: bool| {
            let ours = exact(measured.work_of(adapter, &role.name));
            Cell { paper: printed(costs, &role.name).filter(|_| is_its), ..Cell::ours(ours) }
        };
        let cells = vec![cell(0, role.side == "transmit"), cell(1, role.side == "receive")];
        Row { label: format!("{}: {}", role.name, role.role), cells }
    };
    // rtask works only if no other process acknowledges, and the work of peek_poke is counted for
    // its callers.
    let worked = |role: &super::paper::Role| measured.work_of(0, &role.name) + measured.work_of(1, &role.name) > 0.0;
    let rows = roles().into_iter().filter(worked).map(row).collect();
    Table { title: "Work per delivered segment".to_owned(), columns, rows }
}

fn copying(figures: &Figures, ratios: &Ratios) -> Table {
    let row = |label: &str, cell| Row { label: label.to_owned(), cells: vec![cell] };
    let printed = Cell { paper: Some(figures.copy_cost_ratio), ..Cell::ours(exact(ratios.receive)) };
    Table {
        title: "Copying and buffer management, relative to protocol processing".to_owned(),
        columns: vec![Column::new("ratio", "")],
        rows: vec![
            row("receive side", printed),
            row("transmit side", Cell::ours(exact(ratios.transmit))),
            row("both", Cell::ours(exact(ratios.both))),
        ],
    }
}

/// Returns whether each process on the data path works at least as long as in Table 1 and at most a
/// tenth longer, except for pokes.
fn adds_up(costs: &Costs, measured: &Measured) -> bool {
    let pokes = f64::from(super::setup::POKES) * costs.poke_us;
    let expected = [
        (1, "ip_intrsvc", 0.0),
        (1, "ip_demux", 0.0),
        (1, "tcp_recv", pokes),
        (1, "user_task", 0.0),
        (0, "write", 0.0),
        (0, "ip_send", 0.0),
    ];
    expected.iter().all(|&(adapter, process, extra)| {
        let table = printed(costs, process).unwrap_or(0.0) + extra;
        let found = measured.work_of(adapter, process);
        // A segment at the ends of the measured time may be processed and not delivered.
        found >= table * 0.999 && found <= table * 1.1
    })
}
