//! The result as a text table: one row for each check, over all seeds.

use core::fmt::Write;

use crate::check::{Value, Verdict};
use crate::model::Scenario;
use crate::suite::RunVerdicts;

/// One check over all seeds.
struct Row<'a> {
    paths: String,
    verdict: &'a Verdict,
    values: Vec<Option<Value>>,
    failed_seeds: Vec<u64>,
}

/// Returns the verdicts on a scenario as aligned text, ending with a newline. With several seeds,
/// the value is the range from minimum to maximum.
pub fn table(scenario: &Scenario, run_verdicts: &[RunVerdicts]) -> String {
    let rows = rows(scenario, run_verdicts);
    let cells: Vec<[String; 5]> = rows.iter().map(cells).collect();
    let head = ["paths", "check", "value", "allowed", "result"].map(str::to_owned);
    let mut widths = [0; 5];
    for row in cells.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in [&head].into_iter().chain(&cells) {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _written = write!(line, " {cell:<width$} ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn rows<'a>(scenario: &Scenario, run_verdicts: &'a [RunVerdicts]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for of_run in run_verdicts {
        let paths = if of_run.plan.paths == scenario.all_paths() {
            "all".to_owned()
        } else {
            scenario.path_names(&of_run.plan.paths).join("+")
        };
        for verdict in &of_run.verdicts {
            let is_same = |row: &&mut Row<'_>| {
                let (one, other) = (row.verdict, verdict);
                row.paths == paths && (one.kind, &one.of, one.line) == (other.kind, &other.of, other.line)
            };
            let row = match rows.iter_mut().find(is_same) {
                Some(row) => row,
                None => {
                    rows.push(Row { paths: paths.clone(), verdict, values: Vec::new(), failed_seeds: Vec::new() });
                    let last = rows.len() - 1;
                    &mut rows[last]
                }
            };
            row.values.push(verdict.value);
            if !verdict.passes {
                row.failed_seeds.push(of_run.plan.seed);
            }
        }
    }
    // Group rows by set of paths, in order of first appearance.
    let mut sets: Vec<String> = Vec::new();
    for row in &rows {
        if !sets.contains(&row.paths) {
            sets.push(row.paths.clone());
        }
    }
    rows.sort_by_key(|row| sets.iter().position(|set| *set == row.paths));
    rows
}

fn cells(row: &Row<'_>) -> [String; 5] {
    let verdict = row.verdict;
    let check = in_words(verdict.kind, &verdict.of);
    let result = match row.failed_seeds.len() {
        0 => "ok".to_owned(),
        failed if failed == row.values.len() => "FAILED".to_owned(),
        failed => {
            let seeds: Vec<_> = row.failed_seeds.iter().map(u64::to_string).collect();
            format!("FAILED {failed} of {}: seed {}", row.values.len(), seeds.join(", "))
        }
    };
    let allowed = match (verdict.bound.at_least, verdict.bound.at_most) {
        (None, None) => String::new(),
        _ => verdict.bound.to_string(),
    };
    [row.paths.clone(), check, range(&row.values), allowed, result]
}

/// Describes the value of a check, with its subject.
fn in_words(kind: &str, of: &str) -> String {
    match kind {
        "connection" => "failures of the connection".to_owned(),
        "complete" => format!("time until {of} is complete"),
        "content" => "wrong bytes in all data".to_owned(),
        "fault" => format!("packets affected by the fault of {of}"),
        "path-share" => format!("share of the data on path {of}"),
        "happened" => format!("packets at link {of}"),
        "share-of-capacity" => format!("share of the capacity used by {of}"),
        "goodput" => format!("goodput of {of}"),
        "gap" => format!("longest gap in {of}"),
        "latency" => format!("latency of {of}"),
        "nothing-lost" => format!("bytes missing from {of}"),
        "order-kept" => format!("bytes out of order in {of}"),
        "against-best-path" => format!("{of} relative to the best path alone"),
        _ => format!("{kind} {of}").trim_end().to_owned(),
    }
}

/// Returns the minimum and the maximum; one value if both print the same.
fn range(values: &[Option<Value>]) -> String {
    let mut found: Vec<Value> = values.iter().flatten().copied().collect();
    found.sort_by(|one, other| one.number().total_cmp(&other.number()));
    let shown = match (found.first(), found.last()) {
        (Some(least), Some(most)) if least.to_string() != most.to_string() => format!("{least} to {most}"),
        (Some(only), _) => only.to_string(),
        _ => return "not measured".to_owned(),
    };
    if found.len() < values.len() { format!("{shown}, some not measured") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Bound;
    use crate::testing::scenario;
    use crate::world::RunPlan;

    fn of_run(seed: u64, share: Option<f64>) -> RunVerdicts {
        let bound = Bound::at_least(Value::Share(0.9));
        let value = share.map(Value::Share);
        let passes = value.is_some_and(|value| bound.allows(value));
        let verdict = Verdict { kind: "share-of-capacity", of: "file".to_owned(), value, bound, passes, line: Some(3) };
        RunVerdicts { plan: RunPlan { paths: vec![0], seed }, verdicts: vec![verdict] }
    }

    #[test]
    fn a_check_is_a_phrase_about_its_subject() {
        assert_eq!(in_words("complete", "file"), "time until file is complete");
        assert_eq!(in_words("gap", "file from 1.00 s"), "longest gap in file from 1.00 s");
        let kinds = ["connection", "complete", "content", "fault", "path-share", "happened", "share-of-capacity"];
        let more = ["goodput", "gap", "latency", "nothing-lost", "order-kept", "against-best-path"];
        for kind in kinds.into_iter().chain(more) {
            assert_ne!(in_words(kind, "file"), format!("{kind} file"));
        }
    }

    #[test]
    fn all_seeds_share_a_row_that_names_the_failed_ones() {
        let scenario = scenario("[[link]]\nname = 'a'\n");
        let text = table(&scenario, &[of_run(1, Some(0.95)), of_run(2, Some(0.8)), of_run(3, None)]);
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "paths check value allowed result",
                "all share of the capacity used by file 0.800 to 0.950, some not measured >= 0.900 FAILED 2 of 3: seed 2, 3"
            ]
        );
        assert!(table(&scenario, &[of_run(1, Some(0.95))]).trim_end().ends_with("ok"));
        let text = table(&scenario, &[of_run(1, None)]);
        assert!(text.contains("not measured") && text.trim_end().ends_with("FAILED"), "{text}");
    }
}
