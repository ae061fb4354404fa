//! Writes results to files.

use std::path::Path;

use serde::Serialize;
use studies::render::{Conditions, StudiesReport, StudyReport, csv, picture};

/// A result as one line of JSON.
///
/// # Errors
/// A message for the user, if it cannot be written as JSON.
pub(super) fn json(result: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(result).map_err(|error| format!("cannot write the result as JSON: {error}"))
}

/// Writes the results of one study: JSON, CSV for each table and each set of curves, and SVG for
/// each set of curves. Existing files are replaced. The same options give the same files.
///
/// # Errors
/// A message for the user.
pub(super) fn keep(folder: &Path, conditions: &Conditions, report: &StudyReport) -> Result<(), String> {
    let id = report.id;
    let source = format!("{id}: {}", conditions.describe());
    write(&folder.join(format!("{id}.json")), &(json(&StudiesReport::new(*conditions, vec![report.clone()]))? + "\n"))?;
    for (index, table) in report.outcome.tables.iter().enumerate() {
        write(&folder.join(format!("{id}-table-{}.csv", index + 1)), &commented(&source, &csv::table(table)))?;
    }
    for (index, plot) in report.outcome.plots.iter().enumerate() {
        let name = format!("{id}-curves-{}", index + 1);
        write(&folder.join(format!("{name}.csv")), &commented(&source, &csv::plot(plot)))?;
        write(&folder.join(format!("{name}.svg")), &picture::render(plot, &source))?;
    }
    Ok(())
}

/// CSV preceded by a comment line that names its source.
fn commented(source: &str, csv: &str) -> String {
    format!("# {source}\n{csv}")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use measure::Estimate;
    use studies::{Column, Effort, Options, Outcome, Plot, Series, Study, Table};

    use super::*;
    use crate::provenance::PROGRAM;

    struct Small;

    impl Study for Small {
        fn id(&self) -> &'static str {
            "000-small"
        }

        fn title(&self) -> &'static str {
            "for tests"
        }

        fn run(&self, _options: &Options) -> Outcome {
            let table = |title: &str| Table { title: title.to_owned(), columns: Vec::new(), rows: Vec::new() };
            let points = vec![(1.0, Estimate { mean: 2.0, plus_minus: Some(0.5) })];
            Outcome {
                tables: vec![table("one"), table("two")],
                plots: vec![Plot {
                    title: "curves".to_owned(),
                    x: Column::new("x", ""),
                    y: Column::new("y", "Mb/s"),
                    series: vec![Series { name: "a".to_owned(), points }],
                }],
                ..Outcome::default()
            }
        }
    }

    #[test]
    fn each_table_and_plot_has_a_file_and_the_json_contains_all() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            Options { seed: 7, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let conditions = Conditions::of(&options, PROGRAM);
        keep(folder.path(), &conditions, &StudyReport::new(&Small, Small.run(&options))).unwrap();
        let mut names: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let expected = ["-curves-1.csv", "-curves-1.svg", "-table-1.csv", "-table-2.csv", ".json"]
            .map(|end| format!("000-small{end}"));
        assert_eq!(names, expected);
        for name in ["000-small-table-1.csv", "000-small-curves-1.csv"] {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            let first = text.lines().next().unwrap();
            assert!(first.starts_with("# 000-small: litz ") && first.contains(", seed 7, 2 replications"), "{text}");
        }
        let text = std::fs::read_to_string(folder.path().join("000-small.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["format"], &json["version"]), (&"litz-study".into(), &1.into()));
        assert_eq!((&json["seed"], &json["effort"]), (&7.into(), &"quick".into()));
        assert_eq!(json["litz_commit"], PROGRAM.litz_commit);
        let study = &json["studies"][0];
        assert_eq!((&study["id"], &study["document"]["number"]), (&"000-small".into(), &"000".into()));
        assert_eq!(study["plots"][0]["series"][0]["points"][0][1]["mean"], 2.0);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let report = StudyReport::new(&Small, Small.run(&options));
        let error = keep(Path::new("/no/such/folder"), &Conditions::of(&options, PROGRAM), &report).unwrap_err();
        assert!(error.contains("/no/such/folder/000-small.json"), "{error}");
    }
}
