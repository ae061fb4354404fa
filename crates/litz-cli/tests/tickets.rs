//! `litz tickets`, and what happens to the tickets of a receiver.

use litz::identity::KeyPair;
use litz::{UdpSocket, UdpSocketOptions};
use serde_json::Value;

use crate::support::{Litz, Place};

/// The tickets of the place's receiver, as `litz tickets --json` lists them.
fn list(place: &Place) -> Vec<Value> {
    let mut listing = Litz::start(&["tickets", "--json", &state(place)]);
    assert_eq!(listing.finish("").0, 0, "{}", listing.errors());
    listing.seen.clone()
}

fn state(place: &Place) -> String {
    format!("--state-dir={}", place.path("state-in").display())
}

fn revoke(place: &Place, what: &[&str]) -> Litz {
    let state = state(place);
    Litz::start(&[&["tickets", "revoke", "--json", &state], what].concat())
}

fn member(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name}: {value}")).to_owned()
}

#[test]
fn a_new_ticket_revokes_the_unfinished_one() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, old) = place.recv(&[]);
    let listen = format!("--listen=127.0.0.1:{}", receiver.port);
    receiver.kill();
    let (mut receiver, new) = place.recv(&["--new-ticket", &listen]);
    assert_ne!(old, new);
    place.send(&[&file], &old, &[]).fail(2, "no such ticket");
    place.send(&[&file], &new, &["--by-key"]).fail(2, "leave --by-key out");
    assert_eq!(list(&place).len(), 1);
    place.send(&[&file], &new, &[]).succeed();
    receiver.succeed();
}

#[test]
fn a_listen_error_names_a_waiting_ticket_only_if_its_port_is_taken_and_its_lifetime_stays() {
    let place = Place::new();
    let (mut receiver, ticket) = place.recv(&[]);
    let port = receiver.port;
    receiver.kill();
    let arguments = |more: &[&str]| {
        let (inbox, state) = (place.inbox().display().to_string(), state(&place));
        let all = [&["recv", "--json", &state, &inbox], more].concat();
        Litz::start(&all)
    };
    let message = |mut receiver: Litz| {
        let (status, error) = receiver.finish("error");
        assert_eq!(status, 2);
        error.expect("an error")["message"].as_str().expect("text").to_owned()
    };
    let elsewhere = message(arguments(&["--listen=203.0.113.99"]));
    assert!(!elsewhere.contains("unfinished ticket"), "{elsewhere}");
    let unknown = message(arguments(&["--device=nosuch0"]));
    assert!(!unknown.contains("unfinished ticket"), "{unknown}");
    let options = UdpSocketOptions::new(([127, 0, 0, 1], port).into());
    let taken = UdpSocket::open(&options).expect("it is free");
    let taken_port = message(arguments(&["--listen=127.0.0.1"]));
    assert!(taken_port.contains(&format!("An unfinished ticket for this needs port {port}")), "{taken_port}");
    let named = message(arguments(&[&format!("--listen=127.0.0.1:{port}")]));
    assert!(!named.contains("unfinished ticket"), "the user chose the port: {named}");
    drop(taken);

    let (again, same) = place.recv(&["--expires=5min"]);
    assert_eq!(same, ticket);
    let warned = again.seen.iter().filter(|event| event["kind"] == "expires_ignored");
    assert_eq!(warned.count(), 1, "{:#?}", again.seen);
}

#[test]
fn the_ticket_of_a_running_receiver_is_not_revoked_by_another_receiver() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let inbox = place.inbox().display().to_string();
    let arguments = ["recv", &inbox, &state(&place), "--json", "--listen=127.0.0.1:0"];
    Litz::start(&arguments).fail(2, "another running command serves the ticket");
    Litz::start(&[&arguments[..], &["--new-ticket"]].concat()).fail(2, "another running command serves the ticket");
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
}

#[test]
fn tickets_are_listed_with_their_state_and_sender() {
    let place = Place::new();
    let file = place.file("file", 3_000_000, 1);
    assert!(list(&place).is_empty());
    let (mut receiver, ticket) = place.recv(&[]);
    let rows = list(&place);
    assert_eq!((rows.len(), member(&rows[0], "state").as_str()), (1, "serving"), "{rows:?}");
    assert!(rows[0]["sender"].is_null(), "{rows:?}");
    assert_eq!(member(&rows[0], "directory"), place.inbox().canonicalize().unwrap().display().to_string());
    let mut sender = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    sender.wait_for("file_started");
    let key = KeyPair::load_or_create(&place.path("state-out").join("host.key")).unwrap();
    assert_eq!(member(&list(&place)[0], "sender"), key.public().fingerprint().to_string());
    receiver.kill();
    assert_eq!(member(&list(&place)[0], "state"), "open", "a killed receiver serves no ticket");
    sender.kill();
    let (mut receiver, _) = place.recv(&[]);
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
    assert_eq!(member(&list(&place)[0], "state"), "completed");
}

#[test]
fn the_listing_as_text_names_what_was_not_used() {
    let place = Place::new();
    let (_receiver, _) = place.recv(&["--expires=330min"]);
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args(["tickets", &state(&place)]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let id = member(&list(&place)[0], "id");
    assert!(output.status.success() && text.starts_with("ID"), "{text}");
    assert!(text.contains(&id) && text.contains(" 5h") && text.contains("unused"), "{text}");
}

#[test]
fn a_waiting_receiver_ends_when_its_ticket_is_revoked() {
    let place = Place::new();
    let (mut receiver, _) = place.recv(&[]);
    let id = member(&list(&place)[0], "id");
    revoke(&place, &["aaaaaaaaaaaaaaaa", &id]).fail(2, "there is no ticket aaaaaaaaaaaaaaaa");
    assert_eq!(list(&place).len(), 1, "nothing was revoked");
    let (status, revoked) = revoke(&place, &[&id]).finish("revoked");
    assert_eq!((status, member(&revoked.unwrap(), "id")), (0, id));
    receiver.fail(2, "the ticket was revoked");
    assert!(list(&place).is_empty());
}

#[test]
fn a_running_transfer_ends_when_its_ticket_is_revoked() {
    let place = Place::new();
    let file = place.file("file", 30_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&file], &ticket, &["--rate=8Mb/s", "--retry-for=0s"]);
    sender.wait_for("file_started");
    assert_eq!(revoke(&place, &["--all"]).finish("revoked").0, 0);
    receiver.fail(2, "the ticket was revoked");
    assert_eq!(sender.finish("error").0, 2);
    assert!(!place.inbox().join("file").exists());
}

#[test]
fn revoking_needs_a_ticket_and_all_leaves_spent_ones() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
    assert_eq!(revoke(&place, &[]).finish("").0, 2, "neither ids nor --all");
    assert_eq!(revoke(&place, &["--all", "x"]).finish("").0, 2);
    assert_eq!(revoke(&place, &["--all"]).finish("").0, 0);
    assert_eq!(list(&place).len(), 1, "so that its sender still reads that it is complete");
}

#[test]
fn a_transfer_that_was_refused_for_its_size_leaves_the_ticket_to_others() {
    let place = Place::new();
    let (large, small) = (place.file("large", 5000, 1), place.file("small", 500, 2));
    let (mut receiver, ticket) = place.recv(&["--max-size=1kB"]);
    place.send(&[&large], &ticket, &[]).fail(2, "more than the 1.0 kB");
    receiver.wait_for("visit_ended");
    assert!(list(&place)[0]["sender"].is_null(), "{:?}", list(&place));
    let other = format!("--state-dir={}", place.path("state-second").display());
    place.send(&[&small], &ticket, &[&other]).succeed();
    receiver.succeed();
}

#[test]
fn the_receiver_says_to_which_key_a_ticket_is_bound() {
    let place = Place::new();
    let file = place.file("file", 3_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut first = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    first.wait_for("file_started");
    let other = format!("--state-dir={}", place.path("state-second").display());
    let mut refused = place.send(&[&file], &ticket, &[&other]);
    refused.fail(2, "bound to another sender");
    let advice = refused.seen.last().unwrap()["message"].to_string();
    assert!(advice.contains("--new-ticket") && !advice.contains("tell them"), "{advice}");
    let ended = receiver.wait_for("visit_ended");
    let key = |state: &str| KeyPair::load_or_create(&place.path(state).join("host.key")).unwrap().public();
    assert_eq!(member(&ended, "key"), key("state-second").to_string());
    let bound = key("state-out").fingerprint().to_string();
    assert_eq!(member(&ended, "bound_to"), bound);
    let message = member(&ended, "message");
    assert!(message.contains(&bound) && message.contains("--new-ticket"), "{message}");
    first.succeed();
    receiver.succeed();
}

#[test]
fn a_restarted_receiver_says_that_its_ticket_is_bound() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    std::fs::write(place.inbox().join("file"), "mine").unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    assert!(receiver.seen.iter().all(|event| event["bound_to"].is_null()), "{:?}", receiver.seen);
    assert_eq!(place.send(&[&file], &ticket, &[]).finish("finished").0, 1, "a name clash");
    receiver.wait_for("visit_ended");
    receiver.kill();
    let key = KeyPair::load_or_create(&place.path("state-out").join("host.key")).unwrap().public();
    let bound = key.fingerprint().to_string();
    let (mut receiver, again) = place.recv(&[]);
    let listening = receiver.seen.iter().find(|event| event["event"] == "listening").unwrap();
    assert_eq!((again, member(listening, "bound_to")), (ticket, bound.clone()));
    receiver.kill();
    // As text.
    let mut receiver = std::process::Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["recv", "--listen=127.0.0.1:0", &state(&place)])
        .arg(place.inbox())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(receiver.stderr.take().unwrap()));
    let told = lines.map_while(Result::ok).find(|line| line.contains("--new-ticket"));
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    assert!(told.as_ref().is_some_and(|line| line.contains(&bound)), "{told:?}");
}
