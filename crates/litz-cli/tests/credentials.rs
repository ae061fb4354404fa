//! How tickets and keys are given, and what the receiver checks before it prints a ticket.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Litz, Place, assert_same};

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
    twice.fail(2, "cannot be used with");
}

#[test]
fn the_source_is_listed_after_the_receiver_has_accepted_and_checked_before_connecting() {
    let place = Place::new();
    let file = place.file("tree/file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let missing = place.path("out/missing");
    let mut mistyped = place.send(&[&file, &missing], &ticket, &[]);
    mistyped.fail(2, "missing");
    assert!(mistyped.seen.iter().all(|event| event["event"] != "connected"), "{:#?}", mistyped.seen);
    let mut sender = place.send(&[&place.path("out/tree")], &ticket, &[]);
    sender.succeed();
    receiver.succeed();
    let order = ["connected", "scanning", "started"];
    let seen: Vec<_> = sender.seen.iter().filter_map(|event| event["event"].as_str()).collect();
    let seen: Vec<_> = seen.into_iter().filter(|event| order.contains(event)).collect();
    assert_eq!(seen, order);
}

#[test]
fn the_line_that_id_prints_admits_the_host() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let state = format!("--state-dir={}", place.path("state-out").display());
    let id = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        let output = command.args(["id", &state]).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (line, fingerprint) = (id(&[]), id(&["--fingerprint"]));
    assert_eq!(line, id(&[]), "the key is created once");
    let object: serde_json::Value = serde_json::from_str(&id(&["--json"])).unwrap();
    assert_eq!((&object["key"], &object["fingerprint"]), (&line.trim_end().into(), &fingerprint.trim_end().into()));
    for line in [line, fingerprint] {
        std::fs::write(place.path("allowed"), line).unwrap();
        let allow = format!("--allow={}", place.path("allowed").display());
        let (_receiver, ticket) = place.recv(&[&allow, "--overwrite"]);
        place.send(&[&file], &ticket, &["--by-key"]).succeed();
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_before_the_ticket() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state-in").display());
    // Root, too, cannot create files there.
    let mut receiver = Litz::start(&["recv", "/proc", "--json", "--listen=127.0.0.1:0", &state]);
    receiver.fail(2, "cannot receive into /proc");
    assert!(receiver.seen.iter().all(|event| event["event"] != "listening"), "{:#?}", receiver.seen);
    let (_receiver, _) = place.recv(&[]);
    assert_eq!(std::fs::read_dir(place.inbox()).unwrap().count(), 0, "the check leaves nothing behind");
}

#[test]
fn a_ticket_without_a_lifetime_is_refused_and_the_expiry_is_shown() {
    let place = Place::new();
    let (inbox, state) = (place.inbox().display().to_string(), format!("--state-dir={}", place.path("s").display()));
    let arguments = ["recv", &inbox, &state, "--listen=127.0.0.1:0"];
    let mut dead = Litz::start(&[&arguments[..], &["--expires=0", "--json"]].concat());
    dead.fail(2, "--expires must be more than 0");
    // It ends by itself when the ticket expires.
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments).arg("--expires=1s").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("or expires on 20") && text.contains(" UTC."), "{text}");
}

#[test]
fn a_state_folder_that_others_may_write_is_refused_at_the_start() {
    let place = Place::new();
    let state = place.path("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (inbox, option) = (place.inbox().display().to_string(), format!("--state-dir={}", state.display()));
    Litz::start(&["recv", &inbox, "--json", "--listen=127.0.0.1:0", &option]).fail(2, "chmod go-w");
    Litz::start(&["id", "--json", &option]).fail(2, "chmod go-w");
}

#[test]
fn a_file_for_the_keys_of_connections_is_named_in_a_warning() {
    let place = Place::new();
    let inbox = place.inbox();
    let start = |keys: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.arg("recv").arg(&inbox).args(["--listen=127.0.0.1:0", "--expires=1s", "--quiet"]);
        command.arg(format!("--state-dir={}", place.path("s").display())).env_remove("SSLKEYLOGFILE");
        command.envs(keys.map(|keys| ("SSLKEYLOGFILE", keys)));
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let file = place.path("keys");
    let text = start(file.to_str());
    assert!(text.contains("SSLKEYLOGFILE is set") && text.contains(file.to_str().unwrap()), "{text}");
    assert!(!start(None).contains("SSLKEYLOGFILE"));
}

#[test]
fn a_receiver_runs_in_its_sandbox() {
    let place = Place::new();
    let file = place.file("file", 100_000, 1);
    for (more, expected) in [(&["--sandbox", "require"][..], "2"), (&["--sandbox", "off"], "0")] {
        let (mut receiver, ticket) = place.recv(&[more, &["--overwrite", "--new-ticket"]].concat());
        let status = std::fs::read_to_string(format!("/proc/{}/status", receiver.id())).unwrap();
        // 2 is a filter.
        let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
        assert_eq!(seccomp, Some(expected), "{more:?}");
        let listening = receiver.seen.iter().find(|event| event["event"] == "listening").expect("it is the first");
        let parts = if expected == "2" { serde_json::json!(["landlock", "seccomp"]) } else { serde_json::json!([]) };
        assert_eq!(listening["sandbox"], parts, "{more:?}");
        let mut sender = place.send(&[&file], &ticket, &[]);
        sender.succeed();
        receiver.succeed();
        assert_same(&file, &place.inbox().join("file"));
    }
}
