//! `litz send -` and `litz recv -o -` in pipelines.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;
use units::Rng;

use crate::support::needs::skipped;
use crate::support::{Litz, Place};

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(1).fill(&mut bytes);
    bytes
}

/// A receiver to standard output, with its messages and its ticket.
fn recv(place: &Place, more: &[&str]) -> (Child, BufReader<ChildStderr>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["recv", "-o", "-", "--json", "--listen=127.0.0.1:0"])
        .arg(format!("--state-dir={}", place.path("state-in").display()))
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let event = |line: std::io::Result<String>| serde_json::from_str::<Value>(&line.unwrap()).unwrap();
    let listening = messages.by_ref().lines().map(event).find(|event| event["event"] == "listening");
    let ticket = listening.expect("a ticket")["ticket"].as_str().unwrap().to_owned();
    (child, messages, ticket)
}

/// A sender of standard input.
fn send(place: &Place, ticket: &str, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["send", "-", ticket])
        .arg(format!("--state-dir={}", place.path("state-out").display()))
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The status and the standard error of a sender of `bytes`.
fn send_all(place: &Place, ticket: &str, more: &[&str], bytes: &[u8]) -> (Option<i32>, String) {
    let mut sender = send(place, ticket, more);
    let mut stdin = sender.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A sender that fails closes the pipe.
        scope.spawn(move || drop(stdin.write_all(bytes)));
        let output = sender.wait_with_output().unwrap();
        assert!(output.stdout.is_empty(), "standard output has only results");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    })
}

#[test]
fn bytes_go_from_pipe_to_pipe() {
    let place = Place::new();
    let bytes = random(20_000_001);
    let (receiver, mut messages, ticket) = recv(&place, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (status, errors) = send_all(&place, &ticket, &[], &bytes);
            assert_eq!(status, Some(0), "{errors}");
        });
        let mut text = String::new();
        let reading = scope.spawn(move || {
            messages.read_to_string(&mut text).unwrap();
            text
        });
        let output = receiver.wait_with_output().unwrap();
        let text = reading.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(output.stdout == bytes, "only the data is on standard output");
        let hash = blake3::hash(&bytes).to_string();
        assert!(text.contains("\"file_done\"") && text.contains(&hash), "{text}");
    });
}

#[test]
fn standard_input_becomes_a_file_of_the_chosen_name() {
    let place = Place::new();
    for (more, name, bytes) in [(&[][..], "stdin", &b""[..]), (&["--name=log"], "log", b"a line\n")] {
        let (mut receiver, ticket) = place.recv(&["--new-ticket"]);
        let (status, errors) = send_all(&place, &ticket, more, bytes);
        assert_eq!(status, Some(0), "{errors}");
        assert_eq!(receiver.succeed()["bytes"], bytes.len());
        assert_eq!(std::fs::read(place.inbox().join(name)).unwrap(), bytes);
    }
}

#[test]
fn a_reader_that_ends_early_ends_both_commands() {
    let place = Place::new();
    let (mut receiver, mut messages, ticket) = recv(&place, &[]);
    drop(receiver.stdout.take());
    let (status, errors) = send_all(&place, &ticket, &[], &random(5_000_000));
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("standard output ended before the transfer"), "{errors}");
    assert_eq!(receiver.wait().unwrap().code(), Some(2));
    let mut text = String::new();
    messages.read_to_string(&mut text).unwrap();
    assert!(text.contains("standard output ended before the transfer"), "{text}");
}

#[test]
fn a_killed_sender_ends_the_receiver_with_an_error() {
    let place = Place::new();
    let (mut receiver, mut messages, ticket) = recv(&place, &[]);
    let mut sender = send(&place, &ticket, &[]);
    let mut stdin = sender.stdin.take().unwrap();
    stdin.write_all(&random(300_000)).unwrap();
    let mut first = [0; 1000];
    receiver.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(first[..] == random(300_000)[..1000], "the first piece does not wait for the others");
    assert!(Command::new("kill").arg(sender.id().to_string()).status().unwrap().success());
    assert_eq!(sender.wait().unwrap().code(), Some(130));
    assert_eq!(receiver.wait().unwrap().code(), Some(2));
    let mut text = String::new();
    messages.read_to_string(&mut text).unwrap();
    assert!(text.contains("cancelled on the other host; a stream cannot be resumed"), "{text}");
}

#[test]
fn a_file_is_refused_where_a_stream_is_needed() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (receiver, _messages, ticket) = recv(&place, &[]);
    place.send(&[&file], &ticket, &[]).fail(2, "litz send - TICKET");
    // Nothing was written, so the receiver waits for a stream.
    let (status, errors) = send_all(&place, &ticket, &[], b"text");
    assert_eq!(status, Some(0), "{errors}");
    let output = receiver.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"text".as_slice()));
}

#[test]
fn bad_arguments_of_streams_are_explained() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (mut receiver, ticket) = place.recv(&["--max-size=1kB"]);
    place.send(&[&file], &ticket, &["--name=other"]).fail(2, "--name");
    place.send(&[&file, "-".as_ref()], &ticket, &[]).fail(2, "alone");
    let (status, errors) = send_all(&place, &ticket, &["--name=a/b"], b"");
    assert!(status == Some(2) && errors.contains("a/b"), "{errors}");
    for arguments in [&["recv", "-o", "file"][..], &["recv", "-o", "-", "."], &["recv", "--force"]] {
        assert_eq!(Litz::start(arguments).finish("").0, 2, "{arguments:?}");
    }
    let (status, errors) = send_all(&place, &ticket, &[], &random(5000));
    assert!(status == Some(2) && errors.contains("longer than the 1.0 kB"), "{errors}");
    let ended = receiver.wait_for("visit_ended");
    assert!(ended["message"].as_str().is_some_and(|text| text.contains("longer than the 1.0 kB")), "{ended}");
}

/// Runs `litz recv -o -` on a terminal, which the program `script` provides.
#[test]
fn data_is_not_written_to_a_terminal() {
    let place = Place::new();
    let command = format!("{} recv -o - --state-dir={}", env!("CARGO_BIN_EXE_litz"), place.path("state").display());
    let Ok(output) = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output() else {
        return skipped("the program script is missing (scripts/need installs it)");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("standard output is a terminal"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}
