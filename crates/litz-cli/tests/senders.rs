//! Several `litz send` with one ticket: the first is served, the others are told so.

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
    let place_of = |name: &str| receiver.seen.iter().position(|event| event["event"] == name).expect(name);
    let ended = &receiver.seen[place_of("visit_ended")];
    assert_eq!(ended["message"], "a later connection of the same sender has taken over", "{ended}");
    assert!(place_of("visit_ended") < place_of("finished"), "the first ends before the second does");
    assert_same(&file, &place.inbox().join("file"));
}

#[test]
fn a_second_sender_is_told_that_the_ticket_is_used_once_the_first_has_finished() {
    let place = Place::new();
    let file = place.file("file", 2_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut first = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    receiver.wait_for("file_started");
    let mut second = place.send(&[&file], &ticket, &[]);
    second.wait_for("retrying");
    first.succeed();
    receiver.succeed();
    let clock = net::MonotonicClock::start();
    second.fail(2, "ask for a new ticket to send more");
    // Before the handshake's own timeout of 10 s.
    assert!(clock.now().since_start() < units::Duration::from_secs(8), "{:#?}", second.seen);
}

#[test]
fn senders_of_many_files_lose_none_where_descriptors_are_few() {
    const FILES: u64 = 260;
    let place = Place::new();
    let id = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["id", &format!("--state-dir={}", place.path("state-out").display())])
        .output()
        .unwrap();
    std::fs::write(place.path("allowed"), id.stdout).unwrap();
    let folders = [1, 2, 3].map(|sender| {
        for index in 0..FILES {
            place.file(&format!("tree{sender}/file{index}"), 100, index);
        }
        place.path("out").join(format!("tree{sender}"))
    });
    // The soft limit is lower still: the receiver raises it.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 100 && ulimit -Hn 300 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_litz"), "recv"]);
    command.arg(place.inbox()).args(["--json", "--listen=127.0.0.1:0"]);
    command.arg(format!("--state-dir={}", place.path("state-in").display()));
    command.arg(format!("--allow={}", place.path("allowed").display()));
    let mut receiver = Litz::of(&mut command);
    let ticket = receiver.wait_for("listening")["ticket"].as_str().unwrap().to_owned();
    let mut senders = folders.each_ref().map(|folder| place.send(&[folder], &ticket, &["--by-key"]));
    for sender in &mut senders {
        let summary = sender.succeed();
        assert_eq!((&summary["files_done"], &summary["failed"]), (&FILES.into(), &0.into()));
    }
}

/// The steps of docs/guide/listed-keys.md.
#[test]
fn a_standing_receiver_gives_each_listed_sender_a_folder() {
    let place = Place::new();
    let states = ["state-out", "state-other"].map(|name| format!("--state-dir={}", place.path(name).display()));
    let ids = states.each_ref().map(|state| {
        let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", state]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    });
    let list = format!("# senders\n{}  host-b, backups\n{}  ../evil\n", ids[0], ids[1]);
    std::fs::write(place.path("senders.txt"), list).unwrap();

    // As systemd starts it, with Type=notify.
    #[expect(clippy::disallowed_methods, reason = "stands for systemd")]
    let notify = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    notify.set_read_timeout(Some(crate::support::TEST_TIMEOUT)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.env("NOTIFY_SOCKET", place.path("notify")).arg("recv").arg(place.inbox());
    command.args(["--json", "--listen=127.0.0.1:0", "--folder-per-sender", "--overwrite"]);
    command.arg(format!("--state-dir={}", place.path("state-in").display()));
    command.arg(format!("--allow={}", place.path("senders.txt").display()));
    let mut receiver = Litz::of(&mut command);
    let ticket = receiver.wait_for("listening")["ticket"].as_str().unwrap().to_owned();
    let mut said = [0; 64];
    let len = notify.recv(&mut said).expect("the receiver says that it is ready");
    assert_eq!(std::str::from_utf8(&said[..len]).unwrap().trim(), "READY=1");

    for (index, state) in states.iter().enumerate() {
        for round in 0..2 {
            let file = place.file("same-name", 10_000, index as u64 * 10 + round);
            place.send(&[&file], &ticket, &["--by-key", state]).succeed();
        }
    }
    let folders = crate::support::run::names(&place.inbox());
    assert_eq!((folders.len(), folders[0].as_str()), (2, "host-b"), "{folders:?}");
    assert!(folders[1].starts_with("sha256-"), "{folders:?}");
    for (index, folder) in folders.iter().enumerate() {
        let sent = place.file("expected", 10_000, index as u64 * 10 + 1);
        assert_same(&sent, &place.inbox().join(folder).join("same-name"));
    }
    receiver.signal("TERM");
    receiver.fail(130, "interrupted");
}

#[test]
fn an_unlisted_sender_leaves_no_folder() {
    let place = Place::new();
    std::fs::write(place.path("senders.txt"), "# none yet\n").unwrap();
    let file = place.file("file", 100, 1);
    let allow = format!("--allow={}", place.path("senders.txt").display());
    let (_receiver, ticket) = place.recv(&[&allow, "--folder-per-sender"]);
    place.send(&[&file], &ticket, &["--by-key"]).fail(2, "does not know this host's key");
    assert!(crate::support::run::names(&place.inbox()).is_empty());
}

#[test]
fn a_sender_stores_no_more_than_its_quota() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state-of-sender").display());
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", &state]).output().unwrap();
    let id = String::from_utf8(output.stdout).unwrap();
    std::fs::write(place.path("senders.txt"), format!("{} host-b\n", id.trim())).unwrap();
    let allow = format!("--allow={}", place.path("senders.txt").display());
    let (mut receiver, ticket) = place.recv(&[&allow, "--folder-per-sender", "--quota=50kB"]);
    let [first, second, third] =
        [("a", 30_000), ("b", 20_001), ("c", 20_000)].map(|(name, len)| place.file(name, len, 1));
    place.send(&[&first], &ticket, &["--by-key", &state]).succeed();
    let finished = receiver.wait_for("finished");
    assert!(id.starts_with(finished["key"].as_str().unwrap()), "{finished}");
    place.send(&[&second], &ticket, &["--by-key", &state]).fail(2, "left for this sender");
    let ended = receiver.wait_for("visit_ended");
    assert_eq!(
        ended["message"], "refused: its folder would grow by 20.0 kB, and --quota leaves 20.0 kB to it",
        "{ended}"
    );
    place.send(&[&third], &ticket, &["--by-key", &state]).succeed();
    // What is there already takes no more.
    place.send(&[&first], &ticket, &["--by-key", &state]).succeed();
    assert_eq!(crate::support::run::names(&place.inbox().join("host-b")), ["a", "c"]);
}

#[test]
fn the_log_of_a_standing_receiver_names_the_senders() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state-of-sender").display());
    let output = Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", &state]).output().unwrap();
    let id = String::from_utf8(output.stdout).unwrap();
    std::fs::write(place.path("senders.txt"), format!("{} host-b\n", id.trim())).unwrap();
    let (small, large) = (place.file("small", 1000, 1), place.file("large", 3000, 2));
    let log = std::fs::File::create(place.path("log")).unwrap();
    let mut receiver = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["recv", "--listen=127.0.0.1:0", "--max-size=2kB"])
        .arg(format!("--state-dir={}", place.path("state-in").display()))
        .arg(format!("--allow={}", place.path("senders.txt").display()))
        .arg(place.inbox())
        .stdout(std::process::Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(receiver.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let ticket = line.split_whitespace().last().unwrap();
    place.send(&[&small], ticket, &["--by-key", &state]).succeed();
    place.send(&[&large], ticket, &["--by-key", &state]).fail(2, "more than the 2.0 kB");
    assert!(Command::new("kill").args(["-INT", &receiver.id().to_string()]).status().unwrap().success());
    assert_eq!(receiver.wait().unwrap().code(), Some(130));
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("host-b: received and verified 1 file"), "{log}");
    assert!(log.contains("host-b: refused: its 3.0 kB are more than the 2.0 kB that --max-size permits"), "{log}");
}
