//! `litz study`: repeats the papers' experiments and decides their claims.

mod claims;
mod files;
mod near;
mod options;
mod progress;
mod runs;

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use studies::render::{Conditions, StudiesReport, StudyReport, text};
use studies::{Outcome, Study, document};

use super::{exit, out, signals};
use options::{Command, RunOptions};
use progress::Progress;
use runs::{Stop, Watch};

use crate::provenance::PROGRAM;

pub(crate) use options::{HELP, StudyOptions};

/// The exit status and the message of an error.
type Fault = (u8, String);

pub(crate) fn run(options: &StudyOptions) -> ExitCode {
    let (done, json) = match &options.command {
        Command::List { json } => (list(*json), *json),
        Command::Show { ids } => (show(ids), false),
        Command::Run { ids, options } => {
            (chosen(ids).and_then(|studies| run_all(studies, options)), options.conditions.json)
        }
        Command::All(options) => (run_all(studies::all(), options), options.conditions.json),
        Command::Claims { ids, conditions } => (claims::run(ids, conditions), conditions.json),
    };
    match done {
        Ok(()) => ExitCode::from(exit::DONE),
        Err((status, message)) => exit::fail(json, status, &message),
    }
}

fn failed(message: impl Into<String>) -> Fault {
    (exit::FAILED, message.into())
}

fn list(json: bool) -> Result<(), Fault> {
    let all = studies::all();
    if json {
        let one = |study: &dyn Study| {
            let document = document::of(study.id());
            json!({ "id": study.id(), "title": study.title(), "data": study.data(), "document": document })
        };
        let all: Vec<_> = all.iter().map(|study| one(study.as_ref())).collect();
        out::json(&json!({ "format": "litz-study-list", "version": 1, "studies": all }));
        return Ok(());
    }
    out::print(&list_text(&all));
    Ok(())
}

/// The studies below their papers.
fn list_text(all: &[Box<dyn Study>]) -> String {
    let width = all.iter().map(|study| study.id().len()).max().unwrap_or(0);
    let mut text = String::new();
    for paper in &document::DOCUMENTS {
        let studies: Vec<_> =
            all.iter().filter(|study| document::of(study.id()).is_some_and(|of| of == paper)).collect();
        if studies.is_empty() {
            continue;
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}{}  {}\n", paper.number, paper.title);
        for study in studies {
            text += &format!("  {:<width$}  {}\n", study.id(), study.title());
        }
    }
    text
}

fn show(ids: &[String]) -> Result<(), Fault> {
    let texts: Vec<_> = chosen(ids)?.iter().map(|study| text::description(study.as_ref())).collect();
    out::print(&texts.join("\n"));
    Ok(())
}

fn stopped(stop: Stop) -> Fault {
    match stop {
        Stop::Interrupted => (exit::INTERRUPTED, "interrupted".to_owned()),
        Stop::Error(reason) => failed(reason),
    }
}

/// The studies with these names, without duplicates.
///
/// # Errors
/// If a name is unknown. The message suggests similar names.
fn chosen(ids: &[String]) -> Result<Vec<Box<dyn Study>>, Fault> {
    let mut chosen: Vec<Box<dyn Study>> = Vec::new();
    for id in ids {
        if chosen.iter().any(|study| study.id() == id) {
            continue;
        }
        chosen.push(studies::find(id).ok_or_else(|| {
            let all = studies::all();
            unknown("study", id, "litz study list", all.iter().map(|study| study.id()))
        })?);
    }
    Ok(chosen)
}

/// The error for an unknown name.
fn unknown<'a>(what: &str, id: &str, see: &str, known: impl Iterator<Item = &'a str>) -> Fault {
    let near = near::names(id, known);
    let near = if near.is_empty() { String::new() } else { format!("; similar names are {}", near.join(", ")) };
    failed(format!("there is no {what} {id:?}{near}; `{see}` lists all"))
}

fn run_all(studies: Vec<Box<dyn Study>>, options: &RunOptions) -> Result<(), Fault> {
    let how = options.conditions.options().map_err(failed)?;
    // Checked before the runs, which take minutes.
    options.check_folder().map_err(failed)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let studies: Arc<[Box<dyn Study>]> = Arc::from(studies);
    let mut speaker = StudyPrinter {
        conditions: Conditions::of(&how, PROGRAM),
        studies: &studies,
        options,
        progress: Progress::new("studies", studies.len(), options.conditions.json),
        reports: Vec::new(),
    };
    let made = runs::make(&studies, how.threads, &how, &cancel, &mut speaker);
    speaker.progress.clear();
    let (conditions, reports) = (speaker.conditions, speaker.reports);
    let kept = check_results(&reports);
    if options.conditions.json {
        out::line(&files::json(&StudiesReport::new(conditions, reports)).map_err(failed)?);
    }
    made.map_err(stopped)?;
    if options.check { kept } else { Ok(()) }
}

/// Checks that all cells are within their tolerances and all checks hold.
///
/// # Errors
/// The exit status, and the studies that fail.
fn check_results(reports: &[StudyReport]) -> Result<(), Fault> {
    let broken: Vec<_> = reports.iter().filter(|report| !report.summary.is_kept()).map(|report| report.id).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err((exit::INCOMPLETE, format!("outside a tolerance, or with a check that does not hold: {}", broken.join(", "))))
}

/// Prints and writes results as they arrive.
struct StudyPrinter<'a> {
    conditions: Conditions,
    studies: &'a [Box<dyn Study>],
    options: &'a RunOptions,
    progress: Progress,
    reports: Vec<StudyReport>,
}

impl Watch<Outcome> for StudyPrinter<'_> {
    fn began(&mut self, index: usize) {
        self.progress.begin(self.studies[index].id());
    }

    fn ended(&mut self, index: usize) {
        self.progress.end(self.studies[index].id());
    }

    fn found(&mut self, index: usize, outcome: Outcome) -> Result<(), String> {
        let report = StudyReport::new(self.studies[index].as_ref(), outcome);
        if let Some(folder) = &self.options.out {
            files::keep(folder, &self.conditions, &report)?;
        }
        if !self.options.conditions.json {
            let before = if self.reports.is_empty() { "" } else { "\n" };
            let text_of_report = format!("{before}{}", text::study(&report, &self.conditions));
            self.progress.suspend(|| out::print(&text_of_report));
        }
        self.reports.push(report);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use measure::Estimate;
    use studies::{Cell, Check, Column, Options, Row, Table};

    use super::*;

    /// A study whose result is twice the paper's value.
    struct Wrong;

    impl Study for Wrong {
        fn id(&self) -> &'static str {
            "000-wrong"
        }

        fn title(&self) -> &'static str {
            "for tests"
        }

        fn run(&self, _options: &Options) -> Outcome {
            let cells = vec![Cell::compared(1.0, Estimate { mean: 2.0, plus_minus: None }, 0.05)];
            let rows = vec![Row { label: "r".to_owned(), cells }];
            let table = Table { title: "t".to_owned(), columns: vec![Column::new("q", "")], rows };
            Outcome { tables: vec![table], ..Outcome::default() }
        }
    }

    #[test]
    fn a_failed_cell_or_check_has_its_own_exit_status() {
        let report = |outcome| StudyReport::new(&Wrong, outcome);
        let check = |holds| Outcome { checks: vec![Check::new("c", holds, "d")], ..Outcome::default() };
        assert_eq!(check_results(&[report(Outcome::default()), report(check(true))]), Ok(()));
        for outcome in [Wrong.run(&options()), check(false)] {
            let (status, reason) =
                check_results(&[report(check(true)), report(outcome)]).expect_err("a result is wrong");
            assert_eq!(status, exit::INCOMPLETE);
            assert_eq!(reason, "outside a tolerance, or with a check that does not hold: 000-wrong");
        }
    }

    #[test]
    fn every_study_is_listed_below_its_paper() {
        let (all, text) = (studies::all(), list_text(&studies::all()));
        for study in &all {
            let paper = document::of(study.id()).expect("a paper");
            let found = text.find(&format!("\n  {} ", study.id())).expect("it is listed");
            let heading = text[..found].lines().rfind(|line| line.starts_with(char::is_numeric)).expect("a heading");
            assert!(heading.starts_with(paper.number), "{}: {heading}", study.id());
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("  0")).count(), all.len(), "{text}");
    }

    const fn options() -> Options {
        Options {
            seed: 1,
            replications: 1,
            confidence: 0.9,
            precision: None,
            effort: studies::Effort::Quick,
            threads: 1,
        }
    }

    #[test]
    fn the_error_for_an_unknown_name_suggests_similar_names() {
        let Err((status, reason)) = chosen(&["002-duplx".to_owned()]) else { panic!("there is no such study") };
        assert_eq!(status, exit::FAILED);
        assert!(
            reason.contains("no study \"002-duplx\"; similar names are 002-duplex")
                && reason.contains("litz study list"),
            "{reason}"
        );
        let twice: Vec<_> = ["002-duplex", "002-checksum", "002-duplex"].map(str::to_owned).into();
        let ids: Vec<_> = chosen(&twice).expect("they are known").iter().map(|study| study.id()).collect();
        assert_eq!(ids, ["002-duplex", "002-checksum"]);
    }
}
