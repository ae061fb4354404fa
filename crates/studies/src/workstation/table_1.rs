//! Table 1: the simulated machines. Its numbers are inputs, shown without tolerances.

use measure::Estimate;

use super::config::Config;
use super::paper::{DATA, Kind, paper};
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Row, Table};
use crate::study::{Options, Study};

pub(super) struct Table1;

impl Study for Table1 {
    fn id(&self) -> &'static str {
        "004-table-1"
    }

    fn title(&self) -> &'static str {
        "The three workstations of Table 1 as built here, and rejected invalid configurations"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA
    }

    fn run(&self, _options: &Options) -> Outcome {
        let machines = [
            (Kind::TwoBus, &paper().machines.two_bus),
            (Kind::OneBus, &paper().machines.one_bus),
            (Kind::Serial, &paper().machines.serial),
        ];
        let columns = [
            ("protocol processors", ""),
            ("interfaces", ""),
            ("speed", "MIPS"),
            ("application bus", "Mb/s"),
            ("memory", "ns per word"),
            ("ring", "Mb/s"),
            ("segment", "kbit"),
            ("window", "kbit"),
        ];
        let rows = machines.map(|(kind, facts)| {
            let built = Config::new(kind);
            // Both come from the same file, so a tolerance would hold for any machine.
            let cell = |paper: f64, ours: f64| Cell {
                paper: Some(paper),
                ..Cell::ours(Estimate { mean: ours, plus_minus: None })
            };
            let cells = vec![
                cell(facts.protocol_processors as f64, built.protocol_processors as f64),
                cell(facts.interfaces as f64, built.interfaces as f64),
                cell(facts.mips, built.mips),
                cell(facts.abus_mbps as f64, built.abus_mbps as f64),
                cell(facts.memory_ns as f64, built.memory_ns as f64),
                cell(facts.ring_mbps as f64, built.ring_mbps as f64),
                cell(facts.segment_kbit as f64, built.segment_bits as f64 / 1e3),
                cell(facts.window_kbit as f64, built.window_bits as f64 / 1e3),
            ];
            Row { label: kind.name().to_owned(), cells }
        });
        Outcome {
            tables: vec![Table {
                title: "Machines".to_owned(),
                columns: columns.iter().map(|(name, unit)| Column::new(name, unit)).collect(),
                rows: rows.into(),
            }],
            checks: refused(),
            notes: vec![
                "These are inputs of all other studies here; they are no evidence and are not counted.".to_owned(),
            ],
            ..Outcome::default()
        }
    }
}

/// Checks invalid machines, and the key that each error names.
fn refused() -> Vec<Check> {
    let machine = |change: fn(&mut Config)| {
        let mut config = Config::new(Kind::OneBus);
        change(&mut config);
        config
    };
    let cases = [
        ("a window below a segment", machine(|config| config.window_bits = 35_000), "window_bits"),
        ("a segment of one packet and a half", machine(|config| config.segment_bits = 54_000), "segment_bits"),
        ("no interface", machine(|config| config.interfaces = 0), "interfaces"),
        ("memory with zero access time", machine(|config| config.memory_ns = 0), "word_ns"),
        ("a bus with zero rate", machine(|config| config.abus_mbps = 0), "rate"),
        ("a processor with zero speed", machine(|config| config.mips = 0.0), "mips"),
        (
            "a target below the ring latency",
            machine(|config| config.choices.ttrt = units::Duration::from_micros(100)),
            "ttrt",
        ),
    ];
    cases
        .into_iter()
        .map(|(what, config, key)| {
            let error = super::run::run(&config, 0, 0).err();
            let holds = error.as_ref().is_some_and(|error| error.key == key);
            let detail = error.map_or_else(|| "was run".to_owned(), |error| error.to_string());
            Check::new(format!("{what} is rejected, and {key} is named"), holds, detail)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effort;

    #[test]
    fn inputs_are_shown_without_tolerances() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let outcome = Table1.run(&options);
        let cells: Vec<_> = outcome.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells).collect();
        assert!(cells.len() == 24 && cells.iter().all(|cell| cell.paper.is_some() && cell.is_within().is_none()));
    }

    #[test]
    fn invalid_machines_are_rejected_by_key() {
        for check in refused() {
            assert!(check.holds, "{}: {}", check.statement, check.detail);
        }
    }
}
