//! `litz predict` and `litz scenario run --world sim`: what they print and how they end.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::needs::has_root;
use crate::support::run::{json, number, run, run_long_enough};

/// A machine on which a packet takes ten microseconds at each end, half of that for the cipher.
const PROFILE: &str = "{\"format\":\"litz-profile\",\"version\":1,\"memory\":{\
    \"sending\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":5000,\"seal.cipher\":5000}}]},\
    \"receiving\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"recv_call\":5000,\"open_absorb.cipher\":5000}}]}}}";

const SCENARIO: &str = "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 2\n\
    [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '1ms'\n[[workload]]\nkind = 'file'\nsize = '500kB'\n\
    [[check]]\nkind = 'share-of-capacity'\nat-least = 0.5\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("machine.json"), PROFILE).expect("written");
    std::fs::write(folder.path().join("small.toml"), SCENARIO).expect("written");
    folder
}

fn litz(folder: &Path, arguments: &[&str]) -> (Output, String) {
    run(Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments).current_dir(folder))
}

#[test]
fn bulk_is_limited_by_the_profile_and_faster_on_two_processors() {
    let folder = folder();
    let arguments = ["predict", "--bulk", "--profile=machine.json", "--datagram-size=1472", "--time=200ms", "--json"];
    let (output, text) =
        litz(folder.path(), &[&arguments[..], &["--processors=8", "--placement=inline,packet(2)"]].concat());
    assert_eq!(output.status.code(), Some(0), "{text}");
    let report = json(&output.stdout);
    assert_eq!((report["format"].as_str(), report["version"].as_u64()), (Some("litz-prediction"), Some(1)));
    let goodput = |row: usize| number(&report["rows"][row]["predicted"]["goodput_bps"]);
    // Some 1430 bytes in ten microseconds.
    assert!((1.1e9..1.2e9).contains(&goodput(0)), "{report:#}");
    assert!(goodput(1) > 1.5 * goodput(0), "{report:#}");
    let again = litz(folder.path(), &[&arguments[..], &["--processors=8", "--placement=inline,packet(2)"]].concat());
    assert_eq!(again.0.stdout, output.stdout, "the same output");
}

#[test]
fn connections_with_their_own_processors_add_up_and_auto_reports_its_choice() {
    let folder = folder();
    let arguments = ["predict", "--bulk", "--profile=machine.json", "--datagram-size=1472", "--time=200ms"];
    let more = ["--processors=8", "--placement=thread,connection(2),connection(4),auto"];
    let (output, text) = litz(folder.path(), &[&arguments[..], &more, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{text}");
    let rows = &json(&output.stdout)["rows"];
    let goodput = |row: usize| number(&rows[row]["predicted"]["goodput_bps"]);
    for (row, connections) in [(0, 1), (1, 2), (2, 4)] {
        assert_eq!(rows[row]["connections"].as_u64(), Some(connections), "{rows:#}");
        let times = goodput(row) / goodput(0);
        assert!((times - connections as f64).abs() < 0.1, "{times} times: {rows:#}");
    }
    // The cipher takes most of the time, and each end has four processors.
    assert_eq!(rows[3]["placement"], "auto");
    assert_eq!(rows[3]["placements"], serde_json::json!(["packet(4)", "packet(4)"]));
    let (_, text) = litz(folder.path(), &[&arguments[..], &more].concat());
    assert!(text.contains("\nauto, 1472 bytes: packet(4)\n"), "{text}");
    // A scenario has one connection, and a socket for each path.
    let (output, text) = litz(
        folder.path(),
        &[
            "predict",
            "small.toml",
            "--profile=machine.json",
            "--placement=connection(4),auto",
            "--processors=1",
            "--json",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{text}");
    let rows = &json(&output.stdout)["rows"];
    assert_eq!((rows[0]["connections"].as_u64(), &rows[1]["placements"][0]), (Some(1), &Value::from("thread")));
}

#[test]
fn several_connections_are_predicted_and_measured() {
    let folder = folder();
    let arguments = ["predict", "--bulk", "--profile=machine.json", "--datagram-size=1472"];
    let more = ["--placement=connection(2),auto", "--verify", "--runs=1", "--json"];
    let output = in_time(folder.path(), &[&arguments[..], &more].concat());
    let report = json(&output.stdout);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(number(&row["measured"]["goodput_bps"]) > 0.0 && number(&row["measured"]["processors"]) > 0.0, "{row}");
    }
}

fn in_time(folder: &Path, arguments: &[&str]) -> Output {
    run_long_enough(&["60ms", "1s", "10s", "60s"], |time| litz(folder, &[arguments, &[time]].concat()).0)
}

#[test]
fn without_a_profile_this_machine_is_profiled_in_turn_with_the_live_runs() {
    let folder = folder();
    let arguments =
        ["predict", "--bulk", "--datagram-size=1472", "--placement=thread", "--runs=2", "--verify", "--json"];
    let report = json(&in_time(folder.path(), &arguments).stdout);
    let processors = report["processors"].as_array().expect("of each end");
    assert!(processors.iter().all(|count| number(count) >= 1.0), "{report}");
    assert!(number(&report["hand_over_ns"]) > 0.0, "waking a thread takes time: {report}");
    assert!(report["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty()), "a debug build: {report}");
    let row = &report["rows"][0];
    assert!(
        number(&row["predicted"]["goodput_bps"]) > 0.0 && number(&row["measured"]["goodput_bps"]) > 0.0,
        "{report}"
    );
}

#[test]
fn a_scenario_is_verified_between_network_namespaces() {
    if !has_root() {
        return;
    }
    let folder = folder();
    let arguments =
        ["predict", "small.toml", "--profile=machine.json", "--placement=thread", "--verify", "--runs=1", "--json"];
    let (output, text) = litz(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let row = &json(&output.stdout)["rows"][0];
    let (predicted, measured) = (number(&row["predicted"]["goodput_bps"]), number(&row["measured"]["goodput_bps"]));
    // The link carries 20 Mb/s, and half a megabyte takes a fifth of a second of it; a busy machine
    // may be slow.
    assert!((10e6..20e6).contains(&predicted) && (1e5..20e6).contains(&measured), "{row}");
    assert!(row["measured"]["processors"].is_null(), "the links are on this machine, too: {row}");
}

#[test]
fn a_prediction_is_compared_with_measurements() {
    let folder = folder();
    let arguments = ["predict", "--bulk", "--profile=machine.json", "--datagram-size=1472"];
    let more = ["--placement=inline,split", "--verify", "--runs=1", "--hand-over=7", "--json"];
    let output = in_time(folder.path(), &[&arguments[..], &more].concat());
    let warnings = json(&output.stdout)["warnings"].to_string();
    assert!(warnings.contains("--hand-over: the prediction takes 7 ns"), "{warnings}");
    for row in json(&output.stdout)["rows"].as_array().expect("rows") {
        let (predicted, measured) = (number(&row["predicted"]["goodput_bps"]), number(&row["measured"]["goodput_bps"]));
        assert!(measured > 0.0 && number(&row["measured"]["processors"]) > 0.0, "{row}");
        assert!((number(&row["error"]) - (predicted / measured - 1.0)).abs() < 1e-9, "{row}");
    }
}

#[test]
fn without_goodput_there_is_a_warning_and_no_cost_per_byte() {
    let folder = folder();
    std::fs::write(folder.path().join("lossy.toml"), SCENARIO.replace("20Mb/s'", "20Mb/s'\nloss = '100%'"))
        .expect("written");
    let arguments = ["predict", "lossy.toml", "--profile=machine.json", "--placement=thread"];
    let (output, text) = litz(folder.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{text}");
    let report = json(&output.stdout);
    let predicted = &report["rows"][0]["predicted"];
    assert_eq!((number(&predicted["goodput_bps"]), predicted["cpu_s_per_gb"].is_null()), (0.0, true), "{report}");
    let warnings = report["warnings"].as_array().expect("a list");
    assert!(warnings.contains(&"thread: no data arrived in the simulated run".into()), "{report}");
    let (_, text) = litz(folder.path(), &arguments);
    assert!(
        text.contains("warning: thread: no data arrived") && text.lines().any(|line| line.trim_end().ends_with(" -")),
        "{text}"
    );
}

#[test]
fn a_scenario_is_predicted_and_evaluated_on_machines() {
    let folder = folder();
    let (output, text) =
        litz(folder.path(), &["predict", "small.toml", "--profile", "machine.json", "--placement", "thread"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("small: processors ") && text.contains("\nthread "), "{text}");
    assert!(text.starts_with("warning: the profile: it has no cost of waking"), "{text}");
    let run = ["scenario", "run", "small.toml", "--world", "sim"];
    let (output, text) = litz(folder.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("small simulated, seeds 1 to 2"), "{text}");
    // A packet in ten microseconds is more than the link carries; one in a millisecond is less than
    // half of it.
    let (output, text) = litz(folder.path(), &[&run[..], &["--profile", "machine.json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{text}");
    std::fs::write(folder.path().join("slow.json"), PROFILE.replace("5000", "1000000")).expect("written");
    let (output, text) = litz(folder.path(), &[&run[..], &["--profile", "slow.json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{text}");
}

#[test]
fn impossible_requests_end_with_status_2_and_the_reason() {
    let folder = folder();
    std::fs::write(folder.path().join("free.json"), PROFILE.replace("5000", "0")).expect("written");
    let falling = PROFILE.replace(
        "[{",
        "[{\"datagram_bytes\":1200,\"ns\":{\"plan\":10000,\"seal.cipher\":10000,\
        \"recv_call\":10000,\"open_absorb.cipher\":10000}},{",
    );
    std::fs::write(folder.path().join("falling.json"), falling).expect("written");
    let large = "version = 1\n[scenario]\nname = 'large'\nabout = 'A test.'\nduration = '1s'\n[[link]]\nname = 'a'\n\
                 [transport]\ndatagram-size = '16000B'\n[[workload]]\nkind = 'stream'\n";
    std::fs::write(folder.path().join("large.toml"), large).expect("written");
    let bulk = ["predict", "--bulk", "--profile"];
    for (arguments, words) in [
        (&["predict", "--bulk", "--profile", "nowhere.json"][..], "nowhere.json"),
        (&["predict", "--bulk", "--profile", "small.toml"], "not a profile"),
        (&["predict", "--bulk", "--profile", "free.json"], "take the profile again"),
        (&["scenario", "run", "small.toml", "--world=sim", "--profile=free.json"], "take the profile again"),
        (&["predict", "--bulk", "--profile", "falling.json", "--time", "50ms"], "8972 bytes takes no time"),
        (&["predict", "nowhere.toml", "--profile", "machine.json"], "nowhere.toml"),
        (&["predict", "small.toml", "--profile=machine.json", "--verify", "--placement=inline"], "thread,split"),
        (&["predict", "small.toml", "--profile=machine.json", "--time=1s"], "--time is for --bulk"),
        (&["predict", "small.toml", "--profile=machine.json", "--datagram-size=1472"], "--datagram-size is for --bulk"),
        (
            &["predict", "large.toml", "--profile", "falling.json"],
            "transport.datagram-size: in the profile a datagram of 16000",
        ),
        (
            &["scenario", "run", "large.toml", "--world=sim", "--profile=falling.json"],
            "large.toml: transport.datagram-size",
        ),
        (&["scenario", "run", "large.toml", "--world=sim"], "large.toml: link.rate: link \"a\" takes no time"),
        (&["scenario", "run", "large.toml"], "link.rate: link \"a\" takes no time"),
        (&["predict"], "--bulk"),
        (&["predict", "--bulk", "--profile", "machine.json", "--hand-over=-1"], "--hand-over"),
        (&[bulk[0], bulk[1], bulk[2], "machine.json", "--placement", "somewhere"], "no placement"),
        (&[bulk[0], bulk[1], bulk[2], "machine.json", "--datagram-size", "100"], "not 100"),
        (&["scenario", "run", "small.toml", "--profile", "machine.json"], "--world sim"),
    ] {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}
