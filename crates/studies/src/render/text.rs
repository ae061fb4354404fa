//! Studies as text.

use super::lines::{columns, is_too_wide, length, wrapped};
use super::numbers::{difference, estimate, percent, printed};
use super::report::{Conditions, StudyReport};
use crate::document;
use crate::outcome::{Assumption, Cell, Check, Column, Outcome, Table};
use crate::study::Study;

/// Formats a study with its outcome.
pub fn study(report: &StudyReport, conditions: &Conditions) -> String {
    let mut out = format!("{}  {}\n", report.id, report.title);
    if let Some(document) = &report.document {
        out += &wrapped("  document  ", document.title);
    }
    out += &format!("  run       {}\n", conditions.describe());
    out += &outcome(&report.outcome);
    out += &format!("\n  {}\n", report.summary.describe());
    out
}

/// Formats a study before it runs.
pub fn description(study: &dyn Study) -> String {
    let mut out = format!("{}  {}\n", study.id(), study.title());
    if let Some(document) = document::of(study.id()) {
        out += &wrapped("  document  ", document.title);
    }
    for name in study.data() {
        out += &format!("  data      {name}\n");
    }
    let known = study.assumptions();
    out += &assumptions(&known);
    out += &if known.is_empty() {
        "\n  It makes no assumptions beyond the paper\n".to_owned()
    } else {
        format!("\n  Results with alternative values: litz study run {}\n", study.id())
    };
    out
}

fn outcome(outcome: &Outcome) -> String {
    let mut out: String = outcome.tables.iter().map(table).collect();
    out += &assumptions(&outcome.assumptions);
    out += &checks(&outcome.checks);
    if !outcome.notes.is_empty() {
        out += "\n  Notes\n";
        out.extend(outcome.notes.iter().map(|note| wrapped("    - ", note)));
    }
    if !outcome.plots.is_empty() {
        let titles: Vec<_> = outcome.plots.iter().map(|plot| plot.title.as_str()).collect();
        out += "\n";
        out += &wrapped("  curves (drawn with --out)  ", &titles.join("; "));
    }
    out
}

/// Row labels longer than this, in characters, get their own line.
const LABEL_MAX: usize = 36;

/// Compares cell by cell where the paper prints numbers, with the difference. Otherwise prints rows
/// and columns, unless they are too wide.
fn table(table: &Table) -> String {
    let is_compared = table.rows.iter().flat_map(|row| &row.cells).any(|cell| cell.paper.is_some());
    let grid = grid(table);
    let rows = if is_compared || is_too_wide(&grid) { compared(table, is_compared) } else { columns(&grid, &[]) };
    format!("\n  {}\n{}", table.title, indented(&rows))
}

fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect()
}

fn compared(table: &Table, is_compared: bool) -> String {
    let is_long = table.rows.iter().any(|row| length(&row.label) > LABEL_MAX);
    let heads = if is_compared { ["", "", "paper", "ours", "difference", ""] } else { ["", "", "", "ours", "", ""] };
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for row in &table.rows {
        for (index, (column, cell)) in table.columns.iter().zip(&row.cells).enumerate() {
            rows.push(vec![
                if index == 0 && !is_long { row.label.clone() } else { String::new() },
                heading(column),
                if is_compared { cell.paper.map_or("-".to_owned(), printed) } else { String::new() },
                cell.ours.as_ref().map_or("-".to_owned(), estimate),
                cell.difference().map(difference).unwrap_or_default(),
                mark(cell),
            ]);
        }
    }
    let lines = columns(&rows, &[1, 5]);
    if !is_long {
        return lines;
    }
    let mut lines = lines.lines();
    let mut out = lines.next().map(|heads| format!("{heads}\n")).unwrap_or_default();
    for row in &table.rows {
        out += &wrapped("  ", &row.label);
        let cells = table.columns.len().min(row.cells.len());
        out.extend(lines.by_ref().take(cells).map(|line| format!("{line}\n")));
    }
    out
}

/// Returns marks for whether the cell is within its tolerance, and whether it was fitted and thus
/// is no evidence.
fn mark(cell: &Cell) -> String {
    let kept = match (cell.is_within(), cell.tolerance) {
        (Some(true), Some(tolerance)) => format!("within {}", percent(tolerance)),
        (Some(false), Some(tolerance)) => format!("OUTSIDE {}", percent(tolerance)),
        _ => String::new(),
    };
    match (cell.fitted, kept.is_empty()) {
        (true, true) => "fitted".to_owned(),
        (true, false) => format!("fitted, {kept}"),
        (false, _) => kept,
    }
}

fn grid(table: &Table) -> Vec<Vec<String>> {
    let heads = std::iter::once(String::new()).chain(table.columns.iter().map(heading)).collect();
    let cell = |cell: &Cell| cell.ours.as_ref().map_or("-".to_owned(), estimate);
    let row = |row: &crate::Row| std::iter::once(row.label.clone()).chain(row.cells.iter().map(cell)).collect();
    std::iter::once(heads).chain(table.rows.iter().map(row)).collect()
}

fn heading(column: &Column) -> String {
    if column.unit.is_empty() { column.name.clone() } else { format!("{}, {}", column.name, column.unit) }
}

fn assumptions(assumptions: &[Assumption]) -> String {
    if assumptions.is_empty() {
        return String::new();
    }
    let mut out = "\n  Assumptions: values that the paper does not give\n".to_owned();
    for assumption in assumptions {
        out += &wrapped("    ", &format!("{} = {}: {}", assumption.key, assumption.value, assumption.reason));
        for other in &assumption.sensitivity {
            let alternative = format!("with {}, {} is {}", other.value, other.figure, estimate(&other.ours));
            out += &wrapped("      - ", &alternative);
        }
    }
    out
}

fn checks(checks: &[Check]) -> String {
    if checks.is_empty() {
        return String::new();
    }
    let mut out = "\n  Checks\n".to_owned();
    for check in checks {
        out += &wrapped(if check.holds { "    holds  " } else { "    FAILS  " }, &check.statement);
        out += &wrapped("           ", &check.detail);
    }
    out
}

#[cfg(test)]
mod tests {
    use measure::Estimate;

    use super::*;
    use crate::outcome::{Row, Sensitivity};

    const fn exact(mean: f64) -> Estimate {
        Estimate { mean, plus_minus: None }
    }

    fn of(cells: Vec<Cell>) -> Table {
        let columns = (0..cells.len()).map(|index| Column::new(&format!("q{index}"), "Mb/s")).collect();
        Table { title: "t".to_owned(), columns, rows: vec![Row { label: "r".to_owned(), cells }] }
    }

    #[test]
    fn each_cell_shows_its_tolerance_and_whether_it_was_fitted() {
        let ours = Estimate { mean: 310.0, plus_minus: Some(2.0) };
        let text = table(&of(vec![
            Cell::compared(301.0, ours, 0.05),
            Cell::compared(200.0, ours, 0.05),
            Cell::compared(301.0, ours, 0.05).fitted(),
            Cell::ours(ours),
        ]));
        let lines: Vec<_> = text.lines().skip(3).collect();
        assert!(lines[0].contains("301  310.0 ± 2.0") && lines[0].ends_with("+3.0 %  within 5 %"), "{text}");
        assert!(lines[1].ends_with("+55.0 %  OUTSIDE 5 %"), "{text}");
        assert!(lines[2].ends_with("fitted, within 5 %"), "{text}");
        assert!(lines[3].ends_with("-  310.0 ± 2.0"), "{text}");
    }

    #[test]
    fn a_description_has_data_files_and_assumptions() {
        for study in crate::all() {
            let text = description(study.as_ref());
            for file in study.data() {
                assert!(text.contains(&format!("  data      {file}\n")), "{text}");
            }
            let lines = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for assumption in study.assumptions() {
                assert!(lines.contains(&format!("{} = ", assumption.key)), "{}: {text}", assumption.key);
            }
        }
    }

    #[test]
    fn a_table_without_printed_numbers_has_rows_and_columns() {
        let text = table(&of(vec![Cell::ours(exact(1.5)), Cell::default()]));
        assert_eq!(text, "\n  t\n       q0, Mb/s  q1, Mb/s\n    r     1.500         -\n");
    }

    #[test]
    fn assumptions_have_alternatives_and_checks_have_numbers() {
        let other = Sensitivity { value: "4 ms".to_owned(), figure: "throughput, Mb/s".to_owned(), ours: exact(99.0) };
        let text = outcome(&Outcome {
            assumptions: vec![Assumption {
                key: "TTRT".to_owned(),
                value: "8 ms".to_owned(),
                reason: "usual".to_owned(),
                sensitivity: vec![other],
            }],
            checks: vec![Check::new("a", true, "1 < 2"), Check::new("b", false, "2 > 1")],
            ..Outcome::default()
        });
        for words in ["TTRT = 8 ms: usual", "- with 4 ms, throughput, Mb/s is 99", "holds  a", "FAILS  b", "2 > 1"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
