//! Several `litz send` with one ticket: the first is served, the others are told so. How the ticket
//! is given.

use std::process::Command;

use crate::support::{Litz, Place, assert_same};

/// Slow enough that the first transfer outlives the others: two minutes for [`SIZE`]. It shows its
/// progress every two seconds.
const SLOW: &str = "--rate=4Mb/s";
const SIZE: usize = 60_000_000;

fn count(process: &Litz, name: &str) -> usize {
    process.seen.iter().filter(|event| event["event"] == name).count()
}

/// Bytes that the last progress event shows.
fn progress(process: &Litz) -> u64 {
    let shown = process.seen.iter().rev().find_map(|event| event["bytes_done"].as_u64());
    shown.unwrap_or_default()
}

#[test]
fn a_second_sender_with_the_same_ticket_is_refused_and_the_first_is_not_disturbed() {
    let place = Place::new();
    let (big, other) = (place.file("big", SIZE, 1), place.file("other", 1000, 2));
    let (mut receiver, ticket) = place.recv(&[]);
    let mut first = place.send(&[&big], &ticket, &[SLOW]);
    receiver.wait_for("file_started");
    // Another file, and the identical command.
    let mut seconds = [place.send(&[&other], &ticket, &[]), place.send(&[&big], &ticket, &[SLOW])];
    for second in &mut seconds {
        second.fail(2, "a transfer with this ticket is running");
        assert_eq!(count(second, "retrying"), 1, "one message, not one for each attempt: {:#?}", second.seen);
        assert_eq!(count(second, "started"), 0);
    }
    // The first still moves bytes after both have given up.
    let before = progress(&first);
    first.wait_until(|event| event["bytes_done"].as_u64() > Some(before));
    assert_eq!((count(&first, "connected"), count(&first, "retrying")), (1, 0), "{:#?}", first.seen);
    first.signal("INT");
    first.fail(130, "cancelled");
    receiver.wait_until(|event| event["event"] == "visit_ended" && event["authorised"] == true);
    let refusals = receiver.seen.iter().filter(|event| event["event"] == "visit_ended" && event["authorised"] == false);
    assert_eq!((refusals.count(), count(&receiver, "sender_replaced")), (1, 0), "told once: {:#?}", receiver.seen);
}

#[test]
fn a_second_sender_takes_over_from_one_that_answers_nothing() {
    let place = Place::new();
    let file = place.file("file", SIZE / 20, 1);
    // The idle timeout does not end the first.
    let (mut receiver, ticket) = place.recv(&["--idle-timeout=10min"]);
    let mut first = place.send(&[&file], &ticket, &["--rate=200kb/s", "--idle-timeout=10min"]);
    first.wait_for("file_started");
    first.signal("STOP");
    let mut second = place.send(&[&file], &ticket, &[]);
    second.succeed();
    receiver.succeed();
    assert_eq!(count(&receiver, "sender_replaced"), 1, "{:#?}", receiver.seen);
    assert_same(&file, &place.inbox().join("file"));
}

#[test]
fn a_ticket_need_not_be_an_argument_and_options_may_stand_anywhere() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let script = |words: &str| {
        let mut command = Command::new("sh");
        let words = words.replace("SEND", "exec \"$LITZ\" send --json --state-dir=\"$STATE\"");
        command.args(["-c", &words]).env("LITZ", env!("CARGO_BIN_EXE_litz")).env("STATE", place.path("state-out"));
        command.env("FILE", &file).env("SAVED", place.path("ticket"));
        command
    };
    for words in [
        "SEND \"$FILE\" -q \"$TICKET\"",
        "SEND --to=\"$TICKET\" \"$FILE\" -q",
        "SEND \"$FILE\" --ticket-file \"$SAVED\"",
        "echo $TICKET | SEND \"$FILE\" --ticket-file -",
        "export LITZ_TICKET=$TICKET; SEND \"$FILE\" -q",
    ] {
        let (mut receiver, ticket) = place.recv(&["--overwrite"]);
        std::fs::write(place.path("ticket"), format!("litz send PATH... {ticket}\n")).unwrap();
        let mut sender = Litz::of(script(words).env("TICKET", &ticket));
        let (status, _) = sender.finish("finished");
        assert_eq!(status, 0, "{words}: {:#?}", sender.seen);
        receiver.succeed();
        assert_same(&file, &place.inbox().join("file"));
        std::fs::remove_file(place.inbox().join("file")).unwrap();
    }
    let mut twice = Litz::of(script("SEND \"$FILE\" --to a --ticket-file b").env("TICKET", ""));
    assert_eq!(twice.finish("").0, 2);
    assert!(twice.errors().contains("cannot be used with"), "{}", twice.errors());
}

#[test]
fn the_source_is_listed_after_the_receiver_has_accepted_and_checked_before_connecting() {
    let place = Place::new();
    let file = place.file("tree/file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let missing = place.path("out/missing");
    let mut mistyped = place.send(&[&file, &missing], &ticket, &[]);
    mistyped.fail(2, "missing");
    assert_eq!(count(&mistyped, "connected"), 0);
    let mut sender = place.send(&[&place.path("out/tree")], &ticket, &[]);
    sender.succeed();
    receiver.succeed();
    let order = ["connected", "scanning", "started"];
    let seen: Vec<_> = sender.seen.iter().filter_map(|event| event["event"].as_str()).collect();
    let seen: Vec<_> = seen.into_iter().filter(|event| order.contains(event)).collect();
    assert_eq!(seen, order);
}
