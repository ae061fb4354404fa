//! `litz profile` with short runs: its sums add up, its JSON has the format of
//! `docs/spec/profile.md`, and its exit statuses.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::run::{close, list, number, run_long_enough};

/// Short runs at three sizes.
const SMALL: [&str; 4] = ["profile", "--runs=1", "--sizes=1200,4096", "--datagram-size=1472"];

fn litz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments).stdin(Stdio::null()).output().expect("the command starts")
}

/// As [`litz`] with [`SMALL`], and with a time in which something is transferred.
fn small(arguments: &[&str]) -> Output {
    run_long_enough(&["40ms", "1s", "10s"], |time| litz(&[&SMALL[..], arguments, &[time]].concat()))
}

fn check_sums(side: &Value) {
    let sum_of = |wanted: &dyn Fn(&Value) -> bool| -> f64 {
        list(&side["rows"]).iter().filter(|row| wanted(row)).map(|row| number(&row["ns"])).sum()
    };
    let total = number(&side["total_ns"]);
    assert!(total > 0.0 && close(sum_of(&|_| true), total), "{side:#}");
    for kind in ["serial", "parallel", "system"] {
        assert!(close(sum_of(&|row| row["kind"] == kind), number(&side[format!("{kind}_ns")])), "{kind}: {side:#}");
    }
    assert!(close(list(&side["rows"]).iter().map(|row| number(&row["share"])).sum(), 1.0));
    let besides = |row: &Value| {
        let id = row["id"].as_str().expect("an id");
        let excepted = [".copy", ".cipher", ".header_cipher"].iter().any(|part| id.ends_with(part));
        row["kind"] != "system" && !excepted && !id.starts_with("file.")
    };
    assert!(close(sum_of(&besides), number(&side["besides_ns"])));
}

fn check_points(side: &Value, sizes: &[u64], at: u64) {
    let ids: BTreeSet<_> = list(&side["rows"]).iter().map(|row| row["id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), list(&side["rows"]).len(), "ids are unique");
    let points = list(&side["points"]);
    assert_eq!(points.iter().map(|point| point["datagram_bytes"].as_u64().unwrap()).collect::<Vec<_>>(), sizes);
    for point in points {
        let costs = point["ns"].as_object().expect("costs by row");
        assert_eq!(costs.keys().map(String::as_str).collect::<BTreeSet<_>>(), ids);
        for name in ["packets", "packets_per_batch", "goodput_bps", "booked_share"] {
            assert!(number(&point[name]) > 0.0, "{name}: {point}");
        }
        assert!((0.0..=1.0).contains(&number(&point["taken_away_share"])), "{point}");
        for row in list(&side["rows"]) {
            let ns = number(&costs[row["id"].as_str().unwrap()]);
            let size = number(&point["datagram_bytes"]);
            let off = (number(&row["packet_ns"]) + number(&row["byte_ns"]) * size - ns).abs();
            assert!(off <= number(&row["residual_ns"]) + 1e-6, "{row}: {off} off at {size}");
            assert!(point["datagram_bytes"] != at || close(ns, number(&row["ns"])), "{row}: {ns}");
        }
    }
}

fn check_bounds(side: &Value) {
    let (serial, system) = (number(&side["serial_ns"]), number(&side["system_ns"]));
    let total = number(&side["total_ns"]);
    let bounds = list(&side["bounds"]);
    let processors: Vec<_> = bounds.iter().map(|bound| bound["processors"].as_u64()).collect();
    assert_eq!(processors, [Some(2), Some(4), Some(8), Some(16), None]);
    let mut before = 0.0;
    for bound in bounds {
        let speedup = number(&bound["speedup"]);
        let limit = total / (serial + system);
        let expected = bound["processors"].as_f64().map_or(limit, |processors| processors.min(limit));
        assert!(close(speedup, expected) && speedup >= before, "{bound}: {expected}");
        assert!(bound["speedup_many_paths"].as_f64().is_none_or(|many| many >= speedup - 1e-9), "{bound}");
        before = speedup;
    }
}

#[test]
fn the_profile_adds_up_and_has_the_specified_format() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("--dir={}", folder.path().display());
    let output = small(&["--json", "--file", &dir]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["format"], &report["version"]), (&"litz-profile".into(), &1.into()));
    assert_eq!((&report["datagram_bytes"], &report["runs"]), (&1472.into(), &1.into()));
    assert!(number(&report["run_ns"]) >= 40e6, "{}", report["run_ns"]);
    for table in ["memory", "file"] {
        for end in ["sending", "receiving"] {
            let side = &report[table][end];
            check_sums(side);
            check_points(side, &[1200, 1472, 4096], 1472);
            check_bounds(side);
        }
    }
    // Costs that cannot be zero.
    let cost = |table: &str, end: &str, id: &str| {
        let row = list(&report[table][end]["rows"]).iter().find(|row| row["id"] == id).cloned();
        number(&row.unwrap_or_else(|| panic!("no row {id}"))["ns"])
    };
    // Differences to what was calibrated at another time, which a busy machine may hide.
    for (end, id) in [("sending", "seal.header_cipher"), ("receiving", "open_absorb.absorb")] {
        assert!(cost("memory", end, id) >= 0.0, "{id}");
    }
    for id in ["plan", "seal.copy", "seal.cipher", "send_call", "open_absorb"] {
        assert!(cost("memory", "sending", id) > 0.0, "{id}");
    }
    for id in ["recv_call", "open_absorb.cipher", "application.copy", "hand_over", "plan"] {
        assert!(cost("memory", "receiving", id) > 0.0, "{id}");
    }
    for (end, id) in [("sending", "file.read"), ("sending", "file.hash"), ("receiving", "file.write")] {
        assert!(cost("file", end, id) > 0.0, "{id}");
    }
    // The transfer that verifies the tables may fail, but only with a warning.
    let checked = report["file"]["accounted_share"].as_f64().is_some_and(|share| share > 0.0);
    let is_warned = list(&report["warnings"])
        .iter()
        .any(|words| words.as_str().unwrap().contains("a transfer over loopback failed"));
    assert!(checked || is_warned, "{:#}", report["file"]);
    assert!(number(&report["file"]["accounted_byte_ns"]) > 0.0);
    let overhead = &report["overhead"];
    let counted = number(&overhead["readings"]) * number(&overhead["reading_ns"]);
    assert!(counted > 0.0 && close(counted, number(&overhead["counted_ns"])), "{overhead}");
    assert!(number(&overhead["unmetered_cpu_ns"]) > 0.0 && number(&overhead["metered_cpu_ns"]) > 0.0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays behind");
}

#[test]
fn the_table_ends_with_the_budget_and_the_cost_of_measuring() {
    let output = small(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in
        ["sending, memory to memory", "receiving, memory to memory", "seal: cipher *", "max. speedup, one path"]
    {
        assert!(text.contains(words), "{words:?} is missing:\n{text}");
    }
    assert!(!text.contains("file to file"));
    let last: Vec<_> = text.lines().rev().take(3).collect();
    assert!(last[2].starts_with("Work other than cipher, copy and system calls: "), "{text}");
    assert!(last[1].starts_with("Waking a thread on the processors of one end takes "), "{text}");
    assert!(last[0].starts_with("Measuring costs "), "{text}");
    assert!(output.stderr.is_empty(), "no progress without a terminal: {:?}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `litz profile tcp` with short runs.
fn small_tcp(arguments: &[&str]) -> Output {
    run_long_enough(&["40ms", "1s", "10s"], |time| {
        litz(&[&["profile", "tcp", "--runs=1"], arguments, &[time]].concat())
    })
}

#[test]
fn the_profile_of_tcp_adds_up_by_the_processes_of_the_paper() {
    let output = small_tcp(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["format"], &report["version"]), (&"litz-profile-tcp".into(), &1.into()));
    assert_eq!(report["segment_bytes"], 4096);
    let paper = [("receiving", 856.08), ("sending", 1051.56)];
    for (side, printed_us) in paper {
        let jobs = &report[side];
        let sum_of = |name: &str| -> f64 { list(&jobs["rows"]).iter().filter_map(|row| row[name].as_f64()).sum() };
        assert!(close(sum_of("ns"), number(&jobs["total_ns"])) && number(&jobs["total_ns"]) > 0.0, "{jobs:#}");
        assert!(close(1e9 / number(&jobs["total_ns"]), number(&jobs["segments_per_second"])), "{jobs:#}");
        assert!((sum_of("paper_us") - printed_us).abs() < 0.01, "{jobs:#}");
    }
    let ns = |side: &str, id: &str| {
        let row = list(&report[side]["rows"]).iter().find(|row| row["id"] == id).cloned();
        number(&row.unwrap_or_else(|| panic!("no row {id}"))["ns"])
    };
    // Costs that cannot be zero.
    for (side, id) in
        [("receiving", "ip_demux"), ("receiving", "tcp_recv"), ("sending", "ip_send"), ("sending", "write")]
    {
        assert!(ns(side, id) > 0.0, "{side} {id}");
    }
    let events: Vec<_> = list(&report["events"]).iter().map(|row| row["id"].as_str().expect("an id")).collect();
    assert_eq!(events, ["icmp_demux", "rtask.expiry"]);
    assert!((1.0..=2.0).contains(&number(&report["duplex_gain_max"])));
    assert_eq!(report["serial"]["super_segment"]["segments"], 15);
    for step in ["lone", "super_segment"] {
        assert!(
            number(&report["serial"][step]["plan_ns"]) > 0.0 && number(&report["serial"][step]["arrival_ns"]) > 0.0
        );
    }
}

#[test]
fn the_table_of_tcp_has_the_paper_beside_it_and_ends_with_the_serial_step() {
    let output = small_tcp(&["--segment=1448"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["of 1448 bytes", "tcp_recv", "235.0", "tcp_snd_data", "147.0", "icmp_demux", "(printed: 1.7)"] {
        assert!(text.contains(words), "{words:?} is missing:\n{text}");
    }
    let last: Vec<_> = text.lines().rev().take(2).collect();
    assert!(last[0].starts_with("Serial step, a super-segment of 45: ") && last[0].contains("(target 300)"), "{text}");
    assert!(last[1].starts_with("Serial step, a lone segment: ") && last[1].contains("(target 100)"), "{text}");
}

#[test]
fn bad_arguments_end_with_status_2() {
    for (arguments, words) in [
        (&["tcp", "--segment=100"][..], "512..=16384"),
        (&["tcp", "--time=1us"], "--time"),
        (&["--datagram-size=100"], "1200 to 16000"),
        (&["--sizes=1472"], "second size"),
        (&["--sizes=1200,20000"], "not 20000"),
        (&["--sizes=1200,big"], "big"),
        (&["--time=1us"], "--time"),
        (&["--time=2h"], "--time"),
        (&["--runs=0"], "--runs"),
        (&["--dir=/tmp"], "--file"),
        (&["--file", "--dir=/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let output = litz(&[&["profile"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(words) && output.stdout.is_empty(), "{arguments:?}: {errors}");
    }
    let output = litz(&["profile", "--json", "--sizes=1472"]);
    let event: Value = serde_json::from_slice(&output.stdout).expect("the error is an object");
    assert_eq!((&event["event"], &event["status"]), (&"error".into(), &2.into()));
}

#[test]
fn help_lists_the_exit_statuses() {
    let output = litz(&["profile", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && help.contains("Exit status:") && help.contains("130"), "{help}");
}

/// Whether the process has installed a handler for SIGINT: before that, the signal would simply
/// kill it.
#[cfg(target_os = "linux")]
fn handles_interrupts(process: u32) -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SIGINT_BIT != 0)
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_it_at_once() {
    let child = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["profile", "--time=50s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let clock = net::MonotonicClock::start();
    while !handles_interrupts(child.id()) {
        assert!(clock.now().since_start() < units::Duration::from_secs(20), "no handler");
        #[expect(clippy::disallowed_methods, reason = "a process needs a moment to start")]
        std::thread::sleep(Duration::from_millis(10));
    }
    let signalled = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(signalled.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted") && output.stdout.is_empty());
    assert!(clock.now().since_start() < units::Duration::from_secs(30));
}
