//! 002-table-1: what the processes take for a segment, measured in the running model as the paper's monitor did, and what copying
//! costs beside the protocol.

use super::assumptions::{self, Headline};
use super::paper::{Figures, Table1, roles};
use super::run::{Measured, exact, run};
use super::setup::{Costs, Setup};
use crate::outcome::{Cell, Check, Column, Outcome, Row, Table};
use crate::study::{Options, Study};
use crate::{Choice, choices};

/// The study.
pub(super) struct Times;

impl Study for Times {
    fn id(&self) -> &'static str {
        "002-table-1"
    }

    fn title(&self) -> &'static str {
        "Where the time of a segment goes in scenario 1, and what copying costs beside the protocol"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml", "002-figures.toml", "002-processes.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let table = Table1::load();
        let figure = |setup: &Setup, options: &Options| exact(run(setup, options).work_of(1, "tcp_recv"));
        let name = "work of tcp_recv with its pokes, us/segment";
        assumptions::choices(&table, Headline { name, setup: Setup::scenario_1(&table), figure })
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
                    "what the model's processes work is what Table 1 gives them, and acknowledgements beside it",
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
                "Table 1 is input: its rows come back by construction. What is new is what the running system \
                 adds: pokes, remote calls and the acknowledgements that go the other way. A poke is booked to who \
                 calls it."
                    .to_owned(),
                "The printed factor of two is that of the receive side, rounded. Of the transmit side it is \
                 three."
                    .to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// Copying and managing buffers by protocol processing, for each side and both.
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

/// What Table 1 has for a process of the model.
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
        // What the paper has is of the adapter that sends for the transmit side, and of the other for the receive side.
        let cell = |adapter: usize, is_its: bool| {
            let ours = exact(measured.work_of(adapter, &role.name));
            Cell { paper: printed(costs, &role.name).filter(|_| is_its), ..Cell::ours(ours) }
        };
        let cells = vec![cell(0, role.side == "transmit"), cell(1, role.side == "receive")];
        Row { label: format!("{}: {}", role.name, role.role), cells }
    };
    // rtask works only where nobody else acknowledges, and peek_poke does what its callers pay for.
    let worked = |role: &super::paper::Role| measured.work_of(0, &role.name) + measured.work_of(1, &role.name) > 0.0;
    let rows = roles().into_iter().filter(worked).map(row).collect();
    Table { title: "Work for a delivered segment".to_owned(), columns, rows }
}

fn copying(figures: &Figures, ratios: &Ratios) -> Table {
    let row = |label: &str, cell| Row { label: label.to_owned(), cells: vec![cell] };
    let printed = Cell { paper: Some(figures.copy_cost_ratio), ..Cell::ours(exact(ratios.receive)) };
    Table {
        title: "Copying and managing buffers, by protocol processing".to_owned(),
        columns: vec![Column::new("ratio", "")],
        rows: vec![
            row("receive side", printed),
            row("transmit side", Cell::ours(exact(ratios.transmit))),
            row("both", Cell::ours(exact(ratios.both))),
        ],
    }
}

/// Whether each process of the data's way works at least what Table 1 says and no more than a tenth beyond, pokes apart.
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
        // A segment at the edges of the counted time may be worked on and not delivered.
        found >= table * 0.999 && found <= table * 1.1
    })
}
