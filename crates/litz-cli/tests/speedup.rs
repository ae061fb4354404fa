//! `litz bench speedup` with short runs: its figures are consistent, its files have the format of
//! `docs/spec/speedup.md`, and bad arguments are refused.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::run::{close, list, number, run_long_enough};

/// Short runs: the test checks the form of the results, not their values.
const SMALL: [&str; 6] = ["bench", "speedup", "--quick", "--warmup=0", "--runs=2", "--processors=1"];

fn litz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments).stdin(Stdio::null()).output().expect("the command starts")
}

/// As [`litz`] with [`SMALL`], and with a time in which something is transferred.
fn small(arguments: &[&str]) -> Output {
    run_long_enough(&["0.1", "1", "10"], |time| litz(&[&SMALL[..], arguments, &[time]].concat()))
}

fn mean(values: &Value) -> f64 {
    list(values).iter().map(number).sum::<f64>() / list(values).len() as f64
}

fn check_point(point: &Value, base: &Value) {
    for (runs, estimate) in [("runs_bps", "throughput_bps"), ("runs_speedup", "speedup")] {
        assert_eq!(list(&point[runs]).len(), 2, "{point:#}");
        assert!(close(mean(&point[runs]), number(&point[estimate]["mean"])), "{point:#}");
        assert!(number(&point[estimate]["plus_minus"]) >= 0.0, "{point:#}");
    }
    assert!(number(&point["throughput_bps"]["mean"]) > 1e6, "{point:#}");
    for run in 0..2 {
        let ratio = number(&point["runs_bps"][run]) / number(&base["runs_bps"][run]);
        assert!(close(ratio, number(&point["runs_speedup"][run])), "{point:#}");
    }
    let reached = number(&point["speedup"]["mean"]) / number(&point["bound"]);
    assert!(close(reached, number(&point["reached"])), "{point:#}");
}

fn check_side(side: &Value, placement: &str) {
    let of = |name: &str| number(&side[name]);
    let sum = of("serial_ns") + of("parallel_ns") + of("application_ns");
    assert!(close(sum, of("total_ns")) && sum > 0.0, "{side:#}");
    assert!(close(of("total_ns") / of("measured_ns"), of("accounted_share")), "{side:#}");
    let base = &side["points"][0];
    assert_eq!((&base["placement"], &base["processors"]), (&placement.into(), &1.into()));
    assert!(close(number(&base["speedup"]["mean"]), 1.0) && close(number(&base["bound"]), 1.0));
    for point in list(&side["points"]).iter().chain(list(&side["beside"])) {
        check_point(point, base);
    }
}

#[test]
fn the_figures_are_consistent_and_the_files_have_the_specified_format() {
    let folder = tempfile::tempdir().unwrap();
    let (out, plot) = (format!("--out={}", folder.path().display()), folder.path().join("plot.svg"));
    let plot_option = format!("--plot={}", plot.display());
    let output = small(&["--json", "--beside=thread,inline", &out, &plot_option]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["format"], &report["version"]), (&"litz-speedup".into(), &2.into()));
    assert_eq!((&report["cipher"], &report["datagram_bytes"]), (&"aes128".into(), &1472.into()));
    assert_eq!(&report["runs"], &Value::from(2));
    assert!(number(&report["time_ns"]) >= 100e6, "{}", report["time_ns"]);
    let sides = list(&report["sides"]);
    assert_eq!(sides.iter().map(|side| &side["side"]).collect::<Vec<_>>(), ["send", "receive"]);
    sides.iter().for_each(|side| check_side(side, "packet(1)"));
    assert_eq!(report["paths"], 1);
    let beside: Vec<_> = list(&sides[0]["beside"]).iter().map(|point| &point["placement"]).collect();
    assert_eq!(beside, ["thread", "inline"]);

    let name = format!("speedup-{}.json", report["date_unix"]);
    let kept: Value = serde_json::from_slice(&std::fs::read(folder.path().join(name)).unwrap()).unwrap();
    assert_eq!(kept, report);
    let picture = std::fs::read_to_string(plot).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(picture.matches("class=\"ideal\"").count(), 2);
}

#[test]
fn the_paths_of_a_connection_are_shared_on_request() {
    let output = small(&["--json", "--placement=path", "--paths=2"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["paths"], 2);
    let sides = list(&report["sides"]);
    assert_eq!(sides.len(), 2);
    for side in sides {
        check_side(side, "path(1)");
        // Socket calls belong to their paths.
        let stage = |id: &str| number(&side["stages_ns"][id]);
        let calls = stage("send_call") + stage("recv_call") + stage("seal");
        assert!(calls > 0.0 && number(&side["parallel_ns"]) >= calls * 0.999, "{side:#}");
    }
}

#[test]
fn both_directions_are_reported_separately_and_together() {
    // There may be only one processor, so only the baseline of `split` is measured.
    let output = small(&["--json", "--placement=split"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["paths"], &report["application_affinity"]), (&1.into(), &"apart".into()));
    let [side] = list(&report["sides"]) else { panic!("{report:#}") };
    assert_eq!((&side["side"], &side["gain_printed"]), (&"duplex".into(), &1.7.into()));
    check_side(side, "thread");
    assert_eq!((list(&side["beside"]).len(), number(&side["parallel_ns"])), (0, 0.0));
    let halves = number(&side["halves"]["send_ns"]) + number(&side["halves"]["receive_ns"]);
    // For two runs, the median of a sum is the sum of the medians.
    assert!(close(halves, number(&side["total_ns"])), "{side:#}");
    let point = &side["points"][0];
    let directions = &point["directions"];
    assert!(
        (number(&directions["sent_bytes"]) / number(&directions["received_bytes"]) - 1.0).abs() < 0.01,
        "{point:#}"
    );
    assert!(number(&directions["sent_bps"]) > 1e6 && number(&directions["one_way_share"]) < 1.0, "{point:#}");

    let output = small(&["--side=duplex"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["both sides", "packet(1)", "thread: sent ", "received ", "only one direction active"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_stack_is_measured_beside_its_layers_and_the_paper() {
    let output = small(&["--json", "--stack=des/tcp/md5/ip", "--papers"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["cipher"], &report["payload_bytes"]), (&Value::Null, &4096.into()));
    let stack = &report["stack"];
    assert_eq!(stack["layers"], "des/tcp/md5/ip");
    assert_eq!((&stack["paper"]["throughput_bps"], &stack["paper"]["processors"]), (&4.6e6.into(), &12.into()));
    let layers: Vec<_> = list(&stack["primitives"]).iter().map(|primitive| &primitive["layer"]).collect();
    assert_eq!(layers, ["des", "md5"]);
    assert_eq!(stack["wire_digest"].as_str().map(str::len), Some(64), "{stack:#}");
    let sides = list(&report["sides"]);
    assert_eq!(sides.iter().map(|side| &side["side"]).collect::<Vec<_>>(), ["send", "receive"]);
    sides.iter().for_each(|side| check_side(side, "packet(1)"));

    let output = small(&["--side=send", "--stack=aes128/tcp/blake3/ip", "--packet=1024"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in
        ["aes128/tcp/blake3/ip", "aes128 alone: ", "blake3 alone: ", "the same stream in lock-step", "packet(1)"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("Nahum et al. 1996: "), "{text}");
}

#[test]
fn the_table_names_each_placement_and_the_bound() {
    let output = small(&["--side=receive", "--cipher=chacha20", "--mtu=9000"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["receive side", "packet(1)", "thread", "bound", "±", "8972 bytes", "2 runs", "serial"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("send side"), "{text}");
}

#[test]
fn impossible_measurements_are_refused_with_status_2_and_advice() {
    let cases: [(&str, &str); 32] = [
        ("--paths=2", "--paths is for --placement path"),
        ("--placement=path --paths=0", "paths"),
        ("--placement=path --paths=2 --beside=inline", "--beside inline has one path"),
        ("--placement=path --side=duplex", "--side duplex has one path"),
        ("--placement=split --side=send", "use --side duplex"),
        ("--placement=split --paths=2", "--paths is for --placement path"),
        ("--placement=split --processors=3", "processors, not 3"),
        ("--placement=pipeline", "add --stack tcp/ip"),
        ("--placement=pipeline --stack=tcp/ip --processors=1..2 --side=send", "use --side duplex"),
        ("--placement=pipeline --stack=tcp/ip --paths=2", "--paths"),
        ("--placement=pipeline --stack=aes128/tcp/ip", "aes128/tcp/ip cannot be split"),
        ("--side=duplex --beside=inline", "cannot write and read at once"),
        ("--application=apart", "--application apart needs --side duplex"),
        ("--processors=0", "not a number of processors"),
        ("--processors=64", "use --processors 1.."),
        ("--cipher=rot13", "aes128, aes256 or chacha20"),
        ("--mtu=500", "--mtu must be from 1228 to"),
        ("--time=0", "--time must be from"),
        ("--warmup=-1", "warmup"),
        ("--confidence=100", "--confidence must be from"),
        ("--beside=packet(2)", "--beside takes placements on one processor"),
        ("--stack=des/tcp/md5/ip", "add --papers"),
        ("--stack=tcp/md5/ip", "add --papers"),
        ("--stack=rot13/tcp/ip", "there is no layer \"rot13\""),
        ("--stack=md5/tcp/ip", "md5 is a digest: it goes between tcp and ip"),
        ("--stack=tcp/ip --placement=path", "--stack has one path"),
        ("--stack=aes128/tcp/ip --placement=split", "aes128/tcp/ip cannot be split"),
        ("--stack=tcp/ip --cipher=aes128", "--cipher"),
        ("--stack=tcp/ip --packet=100", "100 is not in"),
        ("--packet=4096", "--stack"),
        ("--out=/no/such/folder", "--out: there is no folder"),
        ("--plot=/no/such/folder/plot.svg", "--plot: there is no folder"),
    ];
    for (option, words) in cases {
        let options: Vec<_> = option.split(' ').collect();
        let output = litz(&[&["bench", "speedup", "--quick"][..], &options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option}: {output:?}");
        assert!(said.contains(words), "{option}: {said}");
    }
}
