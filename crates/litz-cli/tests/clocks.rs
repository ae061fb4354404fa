//! Hosts whose clocks are wrong: without a battery, ahead, and before 1970.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::needs::skipped;
use crate::support::{Litz, Place, assert_same};

/// Seconds since 1970, shown by a clock that is wrong.
const WRONG: [(&str, i64); 4] =
    [("before 1970", -86_400), ("of a host without a battery", 600), ("ahead", 2_300_000_000), ("far ahead", 1 << 33)];

/// Compiles the library that shifts the clock; none without a C compiler.
fn fake_clock(place: &Place) -> Option<PathBuf> {
    let library = place.path("fake_clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_clock.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    compiled.is_ok_and(|status| status.success()).then_some(library)
}

/// A command whose clock shows `unix` seconds since 1970 when it starts.
fn with_clock(library: &Path, unix: Option<i64>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    if let Some(unix) = unix {
        let now = i64::try_from(now()).expect("a time of these centuries");
        command.env("LD_PRELOAD", library).env("FAKE_CLOCK_OFFSET", (unix - now).to_string());
    }
    command
}

#[expect(clippy::disallowed_methods, reason = "a test shifts the clock of another process")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a right clock").as_secs()
}

fn recv(place: &Place, library: &Path, clock: Option<i64>) -> (Litz, String, u64) {
    let mut command = with_clock(library, clock);
    command.args(["recv", "--json", "--listen=127.0.0.1:0"]).arg(place.inbox());
    command.arg(format!("--state-dir={}", place.path("state-in").display()));
    let mut receiver = Litz::of(&mut command);
    let listening = receiver.wait_for("listening");
    let expires = listening["expires_unix"].as_u64().expect("a time");
    (receiver, listening["ticket"].as_str().expect("a ticket").to_owned(), expires)
}

fn send(place: &Place, library: &Path, clock: Option<i64>, file: &Path, ticket: &str) -> Litz {
    let mut command = with_clock(library, clock);
    command.args(["send", "--json"]).arg(format!("--state-dir={}", place.path("state-out").display()));
    Litz::of(command.arg(file).arg(ticket))
}

#[test]
fn no_clock_of_either_host_ends_a_transfer() {
    let place = Place::new();
    let Some(library) = fake_clock(&place) else { return skipped("a C compiler") };
    let clocks = || WRONG.map(|(what, unix)| (what, Some(unix))).into_iter().chain([("right", None)]);
    for (seed, (of_receiver, receivers)) in (1..).zip(clocks()) {
        // One of them is wrong, or both are.
        let with_one =
            clocks().filter(|(_, senders)| receivers.is_none() || senders.is_none() || *senders == receivers);
        for (of_sender, senders) in with_one {
            let what = format!("receiver's clock {of_receiver}, sender's {of_sender}");
            let name = format!("{of_receiver}, {of_sender}");
            let file = place.file(&name, 10_000, seed);
            let (mut receiver, ticket, expires) = recv(&place, &library, receivers);
            let issued = receivers.map_or_else(now, |unix| u64::try_from(unix).unwrap_or(0));
            assert!(expires.abs_diff(issued + 86_400) < 600, "{what}: the clock is not faked: {expires}");
            let mut sender = send(&place, &library, senders, &file, &ticket);
            let (status, _) = sender.finish("finished");
            let errors = sender.errors();
            assert_eq!(status, 0, "{what}: {:#?}\n{errors}", sender.seen);
            receiver.succeed();
            assert_same(&file, &place.inbox().join(&name));
        }
    }
}

#[test]
fn a_ticket_of_a_host_without_a_battery_is_valid_when_its_clock_was_set() {
    let place = Place::new();
    let Some(library) = fake_clock(&place) else { return skipped("a C compiler") };
    let file = place.file("file", 10_000, 1);
    let (mut receiver, ticket, _) = recv(&place, &library, Some(600));
    receiver.kill();
    let (mut receiver, again, expires) = recv(&place, &library, None);
    assert!(expires.abs_diff(now() + 86_400) < 600, "a day from now: {expires}");
    assert_ne!(ticket, again, "the later time is in the ticket");
    // The earlier one has the same secret.
    send(&place, &library, None, &file, &ticket).succeed();
    receiver.succeed();
}
