//! Results as files.

use std::path::Path;

use serde::Serialize;
use studies::render::{Conditions, Report, StudyReport, csv, picture};

/// A result as one line of JSON.
///
/// # Errors
/// If it has no JSON form, in words.
pub(super) fn json(result: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(result).map_err(|error| format!("the result has no JSON form: {error}"))
}

/// Writes what one study found: JSON, CSV for each table and each set of curves, SVG for the latter. Files of these names are
/// replaced; the same options give the same files.
///
/// # Errors
/// In words for the user.
pub(super) fn keep(folder: &Path, conditions: &Conditions, report: &StudyReport) -> Result<(), String> {
    let id = report.id;
    let source = format!("{id}: {}", conditions.words());
    write(&folder.join(format!("{id}.json")), &(json(&Report::new(*conditions, vec![report.clone()]))? + "\n"))?;
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

/// CSV with a line before it that says where it comes from.
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
    fn each_table_and_each_picture_is_a_file_and_the_json_has_all() {
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
    fn a_folder_that_has_gone_is_named() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let report = StudyReport::new(&Small, Small.run(&options));
        let error = keep(Path::new("/no/such/folder"), &Conditions::of(&options, PROGRAM), &report).unwrap_err();
        assert!(error.contains("/no/such/folder/000-small.json"), "{error}");
    }
}
