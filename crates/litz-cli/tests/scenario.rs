//! `litz scenario`: what it prints and how it ends.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::run::run;

/// A link of 20 Mb/s, half a megabyte over it, and a check that says how much of the rate must be
/// used.
fn file(at_least: &str) -> String {
    format!(
        "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 2\n\
         [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '1ms'\n[[workload]]\nkind = 'file'\nsize = '500kB'\n\
         [[check]]\nkind = 'share-of-capacity'\nat-least = {at_least}\n"
    )
}

fn litz(folder: &Path, arguments: &[&str]) -> (Output, String) {
    run(Command::new(env!("CARGO_BIN_EXE_litz")).arg("scenario").args(arguments).current_dir(folder))
}

#[test]
fn a_scenario_that_holds_ends_with_zero_and_writes_the_same_json_each_time() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("0.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--out", "."]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("small in memory, seeds 1 to 2") && text.contains("share of the capacity used by file"),
        "{text}"
    );
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--jobs", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let one = std::fs::read(folder.path().join("scenarios.json")).expect("it was written");
    assert!(one == output.stdout, "one job and several give the same");
    let both = litz(folder.path(), &["run", "--json", "small.toml", "--out=."]).0.stdout;
    assert!(one == both, "the flag takes no word, and the file takes nothing from the output");
    let json: serde_json::Value = serde_json::from_slice(&one).expect("it is JSON");
    assert_eq!((json["format"].as_str(), json["version"].as_u64()), (Some("litz-scenario-result"), Some(1)));
    assert_eq!(json["scenarios"][0]["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["scenarios"][0]["runs"][0]["workload"][0]["delivered_bytes"], 500_000);
}

#[test]
fn the_rate_over_time_is_plotted() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("0.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--plot", "rate.svg"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let plot = std::fs::read_to_string(folder.path().join("rate.svg")).expect("it was written");
    assert!(plot.contains("small: rate over time") && plot.contains("<polyline class=\"file\" points=\""), "{plot}");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--plot", "scenarios.json", "--out=."]);
    assert!(output.status.code() == Some(2) && text.contains("--plot and --out name the same file"), "{text}");
}

#[test]
fn a_check_that_does_not_hold_ends_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("1.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FAILED") && text.contains("checks failed: small"), "{text}");
}

#[test]
fn errors_end_with_status_2_and_name_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bad.toml"), file("0.5").replace("rate", "speed")).expect("written");
    for arguments in [&["check", "bad.toml"][..], &["run", "bad.toml"], &["list", "."]] {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("bad.toml:9: link.speed: unknown key; allowed here: "), "{text}");
    }
    std::fs::write(folder.path().join("good.toml"), file("0.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "good.toml", "--paths", "b"]);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("there is no path \"b\"; the scenario has a"), "{text}");
}

#[test]
fn the_contents_and_the_errors_of_files_are_available_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("good.toml"), file("0.5")).expect("written");
    let json = |arguments: &[&str], status| -> serde_json::Value {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(status), 0), "{text}");
        serde_json::from_slice(&output.stdout).expect("one JSON value and nothing else")
    };
    for arguments in [&["check", "--json", "good.toml"][..], &["list", "--json", "."]] {
        let read = json(arguments, 0);
        assert_eq!((read["format"].as_str(), read["version"].as_u64()), (Some("litz-scenario-list"), Some(1)));
        let scenario = &read["scenarios"][0];
        assert_eq!((&scenario["name"], &scenario["paths"][0]), (&"small".into(), &"a".into()), "{read}");
        assert_eq!(scenario["duration_ns"], 5_000_000_000_u64);
        assert_eq!(read["problems"], serde_json::json!([]));
    }
    std::fs::write(folder.path().join("bad.toml"), file("0.5").replace("rate", "speed")).expect("written");
    let read = json(&["check", "--json", "good.toml", "none.toml", "bad.toml"], 2);
    assert_eq!(
        (read["scenarios"].as_array().map(Vec::len), &read["scenarios"][0]["file"]),
        (Some(1), &"good.toml".into())
    );
    let [none, bad] = [0, 1].map(|index| &read["problems"][index]);
    assert_eq!((&none["file"], none["line"].is_null(), none["key"].is_null()), (&"none.toml".into(), true, true));
    assert_eq!((&bad["file"], &bad["line"], &bad["key"]), (&"bad.toml".into(), &9.into(), &"link.speed".into()));
    assert!(bad["message"].as_str().is_some_and(|words| words.starts_with("unknown key")), "{bad}");
    assert_eq!(json(&["list", "--json", "none"], 2)["problems"][0]["file"], "none");
    assert_eq!(json(&["list", "--json"], 0)["scenarios"][0]["file"], "backup");
}

#[test]
fn the_help_of_each_command_lists_the_statuses() {
    for command in ["run", "check", "list"] {
        let (output, text) = litz(Path::new("."), &[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("Exit status:") && text.contains("\n  2    an error: "), "{text}");
    }
}

/// The output is a closed pipe or a full disk.
#[test]
fn a_failing_output_stream_is_reported_without_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("0.5")).expect("written");
    for arguments in
        [&["run", "-q", "small.toml"][..], &["run", "-q", "small.toml", "--json"], &["check", "."], &["list", "."]]
    {
        let run = |stdout: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
            command.arg("scenario").args(arguments).current_dir(folder.path()).stdout(stdout).stderr(Stdio::piped());
            let output = command.output().expect("the command starts");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(run(writer.into()), (Some(0), String::new()), "{arguments:?}");
        if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
            let (status, words) = run(full.into());
            assert!(status == Some(2) && words.contains("cannot write to standard output"), "{arguments:?}: {words}");
        }
    }
}

#[test]
fn a_failed_connection_fails_the_run_regardless_of_its_checks() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "version = 1\n[scenario]\nname = 'dies'\nabout = 'A test.'\nduration = '10s'\n\
                [[link]]\nname = 'a'\nrate = '5Mb/s'\ndelay = '1ms'\n[transport]\nidle-timeout = '1s'\n\
                [[workload]]\nkind = 'stream'\n[[fault]]\nlink = 'a'\nat = '2s'\nstate = 'silent'\n";
    std::fs::write(folder.path().join("dies.toml"), text).expect("written");
    let (output, text) = litz(folder.path(), &["run", "dies.toml", "--seed", "1"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let failed = |kind: &str| text.lines().any(|line| line.contains(kind) && line.trim_end().ends_with("FAILED"));
    assert!(failed(" connection ") && failed(" complete ") && text.contains("the connection failed: "), "{text}");
}

#[test]
fn the_shipped_scenarios_are_listed_and_valid() {
    // Outside of a checkout, too.
    let folder = tempfile::tempdir().expect("a folder");
    let (output, text) = litz(folder.path(), &["list"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        output.stdout.iter().filter(|&&byte| byte == b'\n').count() >= 12 && text.contains("leaving-wifi"),
        "{text}"
    );
    let (output, text) = litz(folder.path(), &["check", "lte-trace", "four-unlike"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (output, text) = litz(&root, &["check", "scenarios"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (output, listed) = litz(&root, &["list", "scenarios"]);
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert!(output.status.success() && sorted(&listed) == sorted(&litz(folder.path(), &["list"]).1), "{listed}");
}

#[test]
fn a_shipped_scenario_runs_by_its_name_and_can_be_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = ["run", "--world", "sim", "--seeds", "1", "requests"];
    let (output, shipped) = litz(folder.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{shipped}");
    assert!(shipped.contains("requests simulated, seed 1, cubic congestion control"), "{shipped}");
    let (output, text) = litz(folder.path(), &["show", "requests"]);
    assert!(output.status.success() && text.starts_with("version = 1\n"), "{text}");
    let changed = text.replace("name = \"requests\"", "name = \"changed\"");
    std::fs::write(folder.path().join("requests"), changed).expect("written");
    let (output, own) = litz(folder.path(), &run);
    assert!(output.status.success() && own.contains("changed simulated"), "a file comes first: {own}");
    for (name, hint) in [
        ("scenarios/requests.toml", "a shipped scenario has the name requests"),
        ("nothing", "`litz scenario list` names the shipped scenarios"),
    ] {
        let (output, text) = litz(folder.path(), &["run", name]);
        assert!(output.status.code() == Some(2) && text.contains(hint), "{text}");
    }
    let (output, text) = litz(folder.path(), &["show", "nothing"]);
    assert!(output.status.code() == Some(2) && text.contains("no shipped scenario \"nothing\""), "{text}");
}

/// A user who sees nothing for a minute takes the command for stuck.
#[test]
fn runs_that_take_long_show_their_progress_in_a_pipe_too() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("0.5")).expect("written");
    let stderr = |arguments: &[&str]| litz(folder.path(), arguments).0.stderr;
    let shown = String::from_utf8(stderr(&["run", "small.toml"])).expect("text");
    assert!(shown.starts_with("small: 0 of 2 runs\n"), "{shown}");
    assert_eq!(stderr(&["run", "--quiet", "small.toml"]), b"");
}

#[test]
fn a_result_in_place_of_a_scenario_is_named_as_such() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("p.json"), "{\"format\":\"litz-profile\",\"version\":1}\n").expect("written");
    let (output, text) = litz(folder.path(), &["run", "p.json"]);
    assert!(output.status.code() == Some(2) && text.contains("p.json is a profile, not a scenario"), "{text}");
    let (output, text) =
        run(Command::new(env!("CARGO_BIN_EXE_litz")).args(["predict", "p.json"]).current_dir(folder.path()));
    assert!(output.status.code() == Some(2) && text.contains("--profile p.json"), "{text}");
}
