//! `litz study`: its output, files and exit statuses, and that the number of threads changes
//! nothing.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::run::{names, run};

/// A short study that compares with its paper, and one with curves.
const SMALL: &str = "002-checksum";
const CURVES: &str = "002-interface";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.arg("study").args(arguments).stdin(Stdio::null());
    command
}

fn litz(arguments: &[&str]) -> (Output, String) {
    run(&mut command(arguments))
}

#[test]
fn studies_are_listed_with_their_titles() {
    let (output, text) = litz(&["list"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with(SMALL) && line.contains("checksum")), "{text}");
    assert!(text.contains("002  Ruetsche, Kaiserswerth: TCP/IP on the Parallel Protocol Engine, 1992"), "{text}");
    let (output, _) = litz(&["list", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(json["format"], "litz-study-list");
    let ids = json["studies"].as_array().expect("a list").iter().map(|study| study["id"].as_str().expect("a name"));
    assert_eq!(ids.count(), text.lines().filter(|line| line.starts_with("  ")).count());
    assert!(json["studies"][0]["document"]["title"].is_string(), "{json}");
}

#[test]
fn a_study_is_described_without_being_run() {
    let (output, text) = litz(&["show", SMALL]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with(SMALL) && text.contains("Parallel Protocol Engine"), "{text}");
    assert!(!text.contains("OUTSIDE") && !text.contains("within"), "{text}");
}

#[test]
fn an_unknown_name_ends_with_status_2_and_suggestions() {
    for arguments in [&["show", "002-cheksum"][..], &["run", "002-cheksum", "--quick"]] {
        let (output, text) = litz(arguments);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("similar names are 002-checksum") && text.contains("litz study list"), "{text}");
    }
    let (output, text) = litz(&["claims", "007-01"]);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no claim \"007-01\""), "{text}");
}

#[test]
fn invalid_arguments_are_refused() {
    for (option, words) in [
        ("--confidence=100", "--confidence must be from"),
        ("--replications=0", "replications"),
        ("--threads=0", "threads"),
        ("--out=/no/such/folder", "--out: there is no folder"),
        // The folder exists, but no file can be created in it.
        #[cfg(target_os = "linux")]
        ("--out=/proc", "--out: cannot write into /proc: "),
    ] {
        let (output, text) = litz(&["run", SMALL, "--quick", option]);
        assert_eq!(output.status.code(), Some(2), "{option}: {text}");
        assert!(text.contains(words), "{option}: {text}");
    }
}

#[test]
fn results_are_compared_with_the_paper_and_written_to_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = format!("--out={}", folder.path().display());
    let (output, text) = litz(&["run", SMALL, CURVES, "--quick", &out]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in ["paper", "ours", "difference", "within 5 %", "Assumptions", "holds  ", "seed 1", "quick"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let kept = names(folder.path());
    for name in [format!("{SMALL}.json"), format!("{SMALL}-table-1.csv"), format!("{CURVES}-curves-1.svg")] {
        assert!(kept.contains(&name), "{name}: {kept:?}");
    }
    let csv = std::fs::read_to_string(folder.path().join(format!("{SMALL}-table-1.csv"))).expect("it was written");
    let (source, csv) = csv.split_once('\n').expect("a line that says where it comes from");
    let conditions = ["# 002-checksum: litz ", "(commit ", "seed 1, 3 replications", "quick"];
    assert!(conditions.iter().all(|words| source.contains(words)), "{source}");
    assert!(csv.starts_with("row,quantity,unit,paper,ours,plus_minus,difference,tolerance,within,fitted\n"), "{csv}");
    let json = std::fs::read(folder.path().join(format!("{SMALL}.json"))).expect("it was written");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    assert_eq!((&json["format"], &json["version"]), (&"litz-study".into(), &1.into()));
    assert_eq!((&json["studies"][0]["id"], &json["effort"]), (&SMALL.into(), &"quick".into()));
    assert!(json["studies"][0]["summary"]["checks_hold"].as_u64() > Some(0), "{json:#}");
}

#[test]
fn a_failed_check_changes_the_status_only_with_check() {
    for id in [SMALL, CURVES] {
        let (output, text) = litz(&["run", id, "--quick", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let count = |name: &str| json["studies"][0]["summary"][name].as_u64().expect("a count");
        let is_kept = count("cells_outside") + count("checks_fail") == 0;
        let (output, text) = litz(&["run", id, "--quick", "--check"]);
        assert_eq!(output.status.code(), Some(i32::from(!is_kept)), "{text}");
        assert_eq!(
            text.contains(&format!("outside a tolerance, or with a check that does not hold: {id}")),
            !is_kept,
            "{text}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let run = |threads| {
        let (output, text) = litz(&["run", "002-shared-state", "003-rate", SMALL, "--quick", "--json", threads]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        output.stdout
    };
    let one = run("--threads=1");
    assert!(one == run("--threads=3"));
    let json: Value = serde_json::from_slice(&one).expect("it is JSON");
    let ids: Vec<_> = json["studies"].as_array().expect("a list").iter().map(|study| &study["id"]).collect();
    assert_eq!(ids, ["002-shared-state", "003-rate", SMALL]);
}

#[test]
fn claims_are_decided_and_counted() {
    let (output, text) = litz(&["claims", "001", "004-35", "--quick"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("001-04  ") && text.contains("holds: ") && text.contains("not decidable here: "), "{text}");
    assert!(text.contains("9 claims: "), "{text}");
    let (output, _) = litz(&["claims", "000-07", "--quick", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&json["format"], &json["counts"]["refuted"]), (&"litz-claims".into(), &1.into()));
    assert_eq!((&json["claims"][0]["id"], &json["claims"][0]["verdict"]), (&"000-07".into(), &"refuted".into()));
}

#[test]
fn an_interrupt_ends_it_at_once_and_keeps_finished_studies() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = format!("--out={}", folder.path().display());
    // The second one would take minutes.
    let mut child = command(&["run", SMALL, "000-speedup", "--replications=1000", "--threads=1", &out])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.starts_with(SMALL), "{first}");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("the child is ours");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(names(folder.path()).contains(&format!("{SMALL}.json")));
    assert!(lines.all(|line| !line.expect("text").starts_with("000-speedup")));
}
