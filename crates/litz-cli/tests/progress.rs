//! What the user reads while a transfer runs.

use std::process::Command;

use crate::support::Place;
use crate::support::run::run;

#[test]
fn a_silent_peer_is_an_event_and_so_is_its_return() {
    let place = Place::new();
    let file = place.file("file", 3_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    sender.wait_for("file_started");
    receiver.signal("STOP");
    let silent = sender.wait_for("silent");
    assert!(silent["silent_us"].as_u64() >= Some(3_000_000), "{silent}");
    receiver.signal("CONT");
    sender.wait_for("silence_ended");
    let paths = sender.wait_until(|event| event["event"] == "paths");
    assert!(paths["paths"][0]["silent_us"].is_u64(), "{paths}");
    sender.succeed();
    receiver.succeed();
}

/// Sends twenty files of which the receiver has most already; the sender's standard error.
fn resumed(more: &[&str]) -> String {
    let place = Place::new();
    for number in 0..20 {
        place.file(&format!("tree/{number:02}"), 100_000, number);
    }
    let tree = place.path("out/tree");
    let (mut receiver, ticket) = place.recv(&[]);
    let mut first = place.send(&[&tree], &ticket, &["--rate=4Mb/s"]);
    for _ in 0..5 {
        first.wait_for("file_done");
    }
    first.kill();
    let mut second = Command::new(env!("CARGO_BIN_EXE_litz"));
    second.arg("send").args(more).arg("--state-dir").arg(place.path("state-out")).arg(&tree).arg(ticket);
    let (output, text) = run(&mut second);
    assert!(output.status.success(), "{text}");
    receiver.succeed();
    text
}

#[test]
fn what_had_been_received_before_is_one_line() {
    let text = resumed(&[]);
    assert!(!text.contains("already received"), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("had been received before")).collect();
    assert!(lines.len() == 1 && lines[0].contains("sent and verified 20 files, "), "{text}");
}

#[test]
fn verbose_names_each_file_that_had_been_received_before() {
    let text = resumed(&["-v"]);
    assert!(text.lines().filter(|line| line.contains("already received (100.0 kB)")).count() >= 5, "{text}");
    // The log beside it is plain text.
    assert!(text.contains("cipher=\"TLS13_") && !text.contains('\u{1b}') && !text.contains("Some("), "{text}");
}
