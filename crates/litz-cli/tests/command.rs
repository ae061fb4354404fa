//! `litz recv` and `litz send` as a user runs them: files, directories, refusals, bad arguments,
//! signals.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use litz::identity::KeyPair;
use transfer::{Secret, Ticket};

use crate::support::needs::skipped;
use crate::support::run::run;
use crate::support::{Litz, Place, assert_same};

#[test]
fn files_and_directories_arrive_verified() {
    let place = Place::new();
    let big = place.file("big.bin", 9_000_000, 1);
    place.file("tree/a/one", 1, 2);
    place.file("tree/a/empty", 0, 3);
    place.file("tree/b/ünï cødé.txt", 70_000, 4);
    std::fs::create_dir(place.path("out/tree/hollow")).unwrap();
    let tree = place.path("out/tree");
    let (mut receiver, ticket) = place.recv(&[]);
    let summary = place.send(&[&big, &tree], &ticket, &[]).succeed();
    assert_eq!(summary["files_done"], 4);
    assert_eq!(receiver.succeed()["files_done"], 4);
    for name in ["big.bin", "tree/a/one", "tree/a/empty", "tree/b/ünï cødé.txt"] {
        assert_same(&place.path("out").join(name), &place.inbox().join(name));
    }
    assert!(place.inbox().join("tree/hollow").is_dir());
    let hash = blake3::hash(&std::fs::read(&big).unwrap()).to_string();
    let done = receiver.seen.iter().find(|event| event["event"] == "file_done" && event["path"] == "big.bin");
    assert_eq!(done.expect("big.bin is done")["hash"], hash.as_str(), "as b3sum prints it");
    let left: Vec<_> = std::fs::read_dir(place.inbox()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no part files stay behind: {left:?}");
}

#[test]
fn an_existing_file_is_refused_and_the_rest_arrives() {
    let place = Place::new();
    let (first, second) = (place.file("first", 50_000, 1), place.file("second", 50_000, 2));
    std::fs::write(place.inbox().join("first"), "mine").unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&first, &second], &ticket, &[]);
    assert_eq!(sender.finish("finished").0, 1);
    // It waits for the sender to send again.
    receiver.wait_for("visit_ended");
    receiver.signal("INT");
    assert_eq!(receiver.finish("error").0, 130);
    assert_eq!(std::fs::read(place.inbox().join("first")).unwrap(), b"mine");
    assert_same(&second, &place.inbox().join("second"));

    let (mut receiver, ticket) = place.recv(&["--overwrite", "--new-ticket"]);
    place.send(&[&first, &second], &ticket, &[]).succeed();
    receiver.succeed();
    assert_same(&first, &place.inbox().join("first"));
}

#[test]
fn an_identical_file_of_another_time_is_no_clash() {
    let place = Place::new();
    let (same, other) = (place.file("same", 50_000, 1), place.file("other", 50_000, 2));
    std::fs::copy(&same, place.inbox().join("same")).unwrap();
    std::fs::copy(&same, place.inbox().join("other")).unwrap();
    let old = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    std::fs::File::open(place.inbox().join("same")).unwrap().set_times(old).unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&same, &other], &ticket, &[]);
    let (status, finished) = sender.finish("finished");
    let summary = &finished.expect("a summary")["summary"];
    assert_eq!((status, &summary["files_done"], &summary["failed"]), (1, &1.into(), &1.into()), "{summary}");
    let failed = sender.seen.iter().find(|event| event["event"] == "file_failed").expect("one");
    assert_eq!((&failed["path"], &failed["error"]["kind"]), (&"other".into(), &"exists".into()), "{failed}");
    receiver.wait_for("visit_ended");
    receiver.signal("INT");
    assert_eq!(receiver.finish("error").0, 130);
}

#[test]
fn a_ticket_that_names_another_key_reveals_nothing() {
    let place = Place::new();
    let file = place.file("secret-name", 1000, 1);
    let (receiver, ticket) = place.recv(&[]);
    let mut ticket: Ticket = ticket.parse().unwrap();
    ticket.receiver = KeyPair::generate().unwrap().public().fingerprint();
    place.send(&[&file], &ticket.to_text().unwrap(), &[]).fail(2, "wrong fingerprint");
    drop(receiver);
    assert_eq!(std::fs::read_dir(place.inbox()).unwrap().count(), 0);
}

#[test]
fn a_wrong_secret_is_refused() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (_receiver, ticket) = place.recv(&[]);
    let mut ticket: Ticket = ticket.parse().unwrap();
    ticket.secret = Secret::generate().unwrap();
    place.send(&[&file], &ticket.to_text().unwrap(), &[]).fail(2, "ticket");
    assert_eq!(std::fs::read_dir(place.inbox()).unwrap().count(), 0);
}

#[test]
fn an_expired_ticket_is_reported_on_both_sides() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&["--expires=1s"]);
    receiver.fail(2, "expired");
    place.send(&[&file], &ticket, &[]).fail(2, "expired");
}

#[test]
fn a_ticket_belongs_to_its_first_sender() {
    let place = Place::new();
    let file = place.file("file", 3_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut first = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    first.wait_for("file_started");
    first.kill();
    let other_state = format!("--state-dir={}", place.path("state-second").display());
    place.send(&[&file], &ticket, &[&other_state]).fail(2, "another");
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
}

#[test]
fn a_spent_ticket_is_refused_after_a_restart() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    place.send(&[&file], &ticket, &[]).succeed();
    let port = receiver.port;
    receiver.succeed();
    let listen = format!("--listen=127.0.0.1:{port}");
    let (_receiver, fresh) = place.recv(&[&listen]);
    assert_ne!(fresh, ticket);
    place.send(&[&file], &ticket, &[]).fail(2, "complete");
}

#[test]
fn listed_keys_may_send_repeatedly() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    std::fs::create_dir(place.path("state-out")).unwrap();
    std::fs::set_permissions(place.path("state-out"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let key = KeyPair::load_or_create(&place.path("state-out").join("host.key")).unwrap();
    std::fs::write(place.path("allowed"), format!("# senders\n{}\n", key.public().fingerprint())).unwrap();
    std::fs::set_permissions(place.path("allowed"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let allow = format!("--allow={}", place.path("allowed").display());
    let (mut receiver, ticket) = place.recv(&[&allow, "--overwrite"]);
    for _ in 0..2 {
        place.send(&[&file], &ticket, &["--by-key"]).succeed();
    }
    place.send(&[&file], &ticket, &[]).fail(2, "--by-key");
    let other_state = format!("--state-dir={}", place.path("state-other").display());
    let other = std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", &other_state]).output().unwrap();
    let line = String::from_utf8(other.stdout).unwrap();
    assert!(line.starts_with("ed25519:") && line.ends_with('\n') && line.lines().count() == 1, "{line:?}");
    place.send(&[&file], &ticket, &["--by-key", &other_state]).fail(2, line.trim_end());
    place.send(&[&file], &ticket, &[&other_state]).fail(2, "--by-key");
    let refused =
        receiver.wait_until(|event| event["message"].as_str().is_some_and(|text| text.contains("not on the list")));
    assert!(refused["message"].as_str().unwrap().contains(line.trim_end()), "{refused}");
    assert_eq!(refused["key"], line.trim_end());
    receiver.signal("INT");
    assert_eq!(receiver.finish("error").0, 130);
}

#[test]
fn links_and_special_files_are_skipped_with_a_message() {
    let place = Place::new();
    place.file("tree/real", 10, 1);
    symlink("/etc/passwd", place.path("out/tree/link")).unwrap();
    let fifo = place.path("out/tree/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&place.path("out/tree")], &ticket, &[]);
    let (status, finished) = sender.finish("finished");
    assert_eq!((status, &finished.unwrap()["summary"]["skipped"]), (1, &2.into()));
    let told = receiver.wait_for("not_sent");
    assert_eq!(told["skipped"], serde_json::json!({ "links": 1, "special": 1, "unreadable": 0 }));
    let (status, finished) = receiver.finish("finished");
    assert_eq!((status, &finished.unwrap()["summary"]["skipped"]), (1, &2.into()));
    assert!(place.inbox().join("tree/real").exists() && !place.inbox().join("tree/link").exists());
}

#[test]
fn links_holes_and_modes_are_kept_by_choice() {
    let place = Place::new();
    place.file("tree/sub/file", 300_000, 1);
    symlink("sub/file", place.path("out/tree/link")).unwrap();
    // In another directory than the file: the sandbox of the receiver allows that, too.
    std::fs::hard_link(place.path("out/tree/sub/file"), place.path("out/tree/zz")).unwrap();
    std::fs::File::create(place.path("out/tree/holes")).unwrap().set_len(50_000_000).unwrap();
    std::fs::set_permissions(place.path("out/tree/sub"), std::fs::Permissions::from_mode(0o700)).unwrap();
    for (keep, is_kept) in [("links,hard-links,holes", true), ("all", true), ("none", false)] {
        let _ = std::fs::remove_dir_all(place.inbox().join("tree"));
        let (mut receiver, ticket) = place.recv(&[]);
        let mut sender = place.send(&[&place.path("out/tree")], &ticket, &["--keep", keep]);
        let status = i32::from(!is_kept);
        assert_eq!((sender.finish("finished").0, receiver.finish("finished").0), (status, status), "{keep}");
        let at = |name: &str| std::fs::symlink_metadata(place.inbox().join("tree").join(name));
        assert_eq!(at("link").is_ok_and(|found| found.is_symlink()), is_kept);
        assert_eq!(at("zz").unwrap().nlink(), if is_kept { 2 } else { 1 });
        assert_eq!(at("holes").unwrap().len(), 50_000_000);
        assert_eq!(at("holes").unwrap().blocks() == 0, is_kept);
        let mode = at("sub").unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if keep == "all" { 0o700 } else { 0o755 }, "{keep}");
    }
}

#[test]
fn a_link_in_the_target_is_not_followed() {
    let place = Place::new();
    place.file("tree/file", 10, 1);
    std::fs::create_dir(place.path("outside")).unwrap();
    symlink(place.path("outside"), place.inbox().join("tree")).unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    assert_eq!(place.send(&[&place.path("out/tree")], &ticket, &[]).finish("finished").0, 1);
    receiver.wait_for("visit_ended");
    assert_eq!(std::fs::read_dir(place.path("outside")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_fails_one_file_and_not_the_other() {
    let place = Place::new();
    let inbox = place.inbox();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&inbox)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        return skipped("mounting a small tmpfs needs root");
    }
    let (large, small) = (place.file("large", 20_000_000, 1), place.file("small", 10_000, 2));
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&large, &small], &ticket, &[]);
    let (status, failed) = sender.finish("file_failed");
    assert_eq!(status, 1);
    assert_eq!(failed.expect("large fails")["error"]["kind"], "no_space");
    let ended = receiver.wait_for("visit_ended");
    assert!(ended["message"].as_str().unwrap().contains("1 file was not received; the ticket stays valid"), "{ended}");
    assert_same(&small, &inbox.join("small"));
    // The user makes space, and the sender sends again.
    let status = std::process::Command::new("mount").args(["-o", "remount,size=40m"]).arg(&inbox).status();
    assert!(status.unwrap().success());
    place.send(&[&large, &small], &ticket, &[]).succeed();
    receiver.succeed();
    assert_same(&large, &inbox.join("large"));
    drop(receiver);
    let unmounted = std::process::Command::new("umount").arg(&inbox).status();
    assert!(unmounted.unwrap().success());
}

#[test]
fn a_rate_limit_is_kept() {
    let place = Place::new();
    let file = place.file("file", 2_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let clock = net::MonotonicClock::start();
    place.send(&[&file], &ticket, &["--rate=16Mb/s", "--burst=32KiB"]).succeed();
    receiver.succeed();
    let seconds = clock.now().since_start().as_secs_f64();
    assert!(seconds > 0.95, "2 MB at 16 Mb/s take a second, not {seconds:.2} s");
}

#[test]
fn bad_arguments_end_with_status_2() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (_receiver, ticket) = place.recv(&[]);
    let mut mistyped = ticket.clone();
    let last = mistyped.pop().unwrap();
    mistyped.push(if last == 'a' { 'b' } else { 'a' });
    place.send(&[&file], &mistyped, &[]).fail(2, "mistyped");
    place.send(&[&file], "litz", &[]).fail(2, "ticket");
    place.send(&[Path::new("/nowhere/at/all")], &ticket, &[]).fail(2, "/nowhere/at/all");
    place.send(&[&file], &ticket, &["--datagram-size=100"]).fail(2, "1200");
    for (words, message) in
        [("inline", "run the protocol themselves"), ("connection(2)", "one connection"), ("path", "path(2)")]
    {
        let mut refused = Litz::start(&["send", "--placement", words, "a", "b"]);
        assert_eq!(refused.finish("").0, 2, "{words}");
        assert!(refused.errors().contains(message), "{}", refused.errors());
    }
    let mut missing = Litz::start(&["recv", "/nowhere/at/all", "--json"]);
    missing.fail(2, "/nowhere/at/all");
    for arguments in
        [&["send", "only-one"][..], &["recv", "--no-such-flag"], &["dance"], &["send", "a", "b", "--rate=1"]]
    {
        assert_eq!(Litz::start(arguments).finish("").0, 2, "{arguments:?}");
    }
}

#[test]
fn an_unreachable_address_is_reported_in_time() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let silent = silent();
    let address = silent.local_addr().unwrap();
    let (_receiver, ticket) = place.recv(&[&format!("--advertise={address}")]);
    let clock = net::MonotonicClock::start();
    let mut sender = place.send(&[&file], &ticket, &[]);
    let unanswered = sender.wait_for("unanswered");
    assert_eq!(unanswered["addresses"][0], address.to_string(), "{unanswered}");
    sender.fail(2, "cannot reach");
    assert!(clock.now().since_start() < units::Duration::from_secs(20));
}

#[test]
fn a_receiver_lists_what_it_would_receive_and_keeps_what_is_newer() {
    let place = Place::new();
    let files = ["newer", "older"].map(|name| place.file(name, 1000, 1));
    let paths = files.each_ref().map(|path| path.as_path());
    let modified = std::fs::metadata(&files[0]).unwrap().modified().unwrap();
    let hour = std::time::Duration::from_secs(3600);
    for (name, modified) in [("newer", modified + hour), ("older", modified - hour)] {
        std::fs::write(place.inbox().join(name), name).unwrap();
        let there = std::fs::File::options().write(true).open(place.inbox().join(name)).unwrap();
        there.set_modified(modified).unwrap();
    }
    let content = |name: &str| std::fs::read(place.inbox().join(name)).unwrap();
    let (mut receiver, ticket) = place.recv(&["--update", "--dry-run"]);
    let summary = place.send(&paths, &ticket, &[]).succeed();
    assert_eq!((&summary["would_receive"], &summary["newer"]), (&1.into(), &1.into()), "{summary}");
    assert_eq!(receiver.succeed(), summary);
    assert_eq!([content("newer"), content("older")], [b"newer", b"older"]);
    // The ticket is for the transfer itself.
    let (mut receiver, same) = place.recv(&["--update"]);
    assert_eq!(same, ticket);
    for (option, words) in
        [("--update", "`litz recv --update`"), ("-n", "`litz recv --dry-run`"), ("--delete", "send to HOST:DIR")]
    {
        place.send(&paths, &ticket, &[option]).fail(2, words);
    }
    let summary = place.send(&paths, &ticket, &[]).succeed();
    assert_eq!((&summary["files_done"], &summary["newer"]), (&1.into(), &1.into()), "{summary}");
    receiver.succeed();
    assert_eq!(content("newer"), b"newer");
    assert_same(&files[1], &place.inbox().join("older"));
}

#[test]
fn a_receiver_that_has_ended_is_named_before_anything_is_waited_for() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.finish("");
    // The ticket is used, and its receiver has ended with it.
    let mut sender = place.send(&[&file], &ticket, &[]);
    sender.fail(2, &format!("nothing listens at 127.0.0.1:{}", receiver.port));
    let waited = sender.seen.iter().any(|event| event["event"] == "unanswered");
    assert!(!waited, "it waited for an answer: {:?}", sender.seen);
}

/// Permanent faults end both commands well before a retry or an idle timeout.
const PROMPT: units::Duration = units::Duration::from_secs(8);

#[test]
fn exceeding_max_size_ends_the_sender_at_once_and_the_receiver_goes_on() {
    let place = Place::new();
    let (file, small) = (place.file("file", 5000, 1), place.file("small", 500, 2));
    let (mut receiver, ticket) = place.recv(&["--max-size=1kB"]);
    let clock = net::MonotonicClock::start();
    let mut sender = place.send(&[&file], &ticket, &["--retry-for=20s"]);
    sender.fail(2, "more than the 1.0 kB");
    let ended = receiver.wait_for("visit_ended");
    assert!(ended["message"].as_str().is_some_and(|text| text.contains("more than the 1.0 kB")), "{ended}");
    assert!(clock.now().since_start() < PROMPT);
    assert!(sender.seen.iter().all(|event| event["event"] != "retrying"), "{:#?}", sender.seen);
    assert_eq!(std::fs::read_dir(place.inbox()).unwrap().count(), 0);
    place.send(&[&small], &ticket, &[]).succeed();
    receiver.succeed();
    let (_, help) = run(std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args(["recv", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("a larger one is refused, and the receiver waits for another"), "{help}");
}

#[test]
fn a_removed_target_directory_ends_both_commands_at_once() {
    let place = Place::new();
    let file = place.file("file", 5000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    std::fs::remove_dir(place.inbox()).unwrap();
    let clock = net::MonotonicClock::start();
    place.send(&[&file], &ticket, &["--retry-for=20s"]).fail(2, "cannot receive into");
    receiver.fail(2, "cannot receive into");
    assert!(clock.now().since_start() < PROMPT);
}

#[test]
fn a_ticket_that_cannot_be_marked_as_used_ends_the_receiver() {
    let place = Place::new();
    let file = place.file("file", 1_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    // By now the ticket is bound to the sender; from here on its file cannot be read.
    sender.wait_for("file_started");
    std::fs::write(place.path("state-in/tickets.json"), "damaged").unwrap();
    sender.succeed();
    receiver.fail(2, "could not be marked as used");
    assert_same(&file, &place.inbox().join("file"));
}

#[test]
fn an_interrupt_ends_the_wait_for_an_answer() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    #[expect(clippy::disallowed_methods, reason = "a host that never answers")]
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(crate::support::TEST_TIMEOUT)).unwrap();
    let advertise = format!("--advertise={}", silent.local_addr().unwrap());
    let (_receiver, ticket) = place.recv(&[&advertise]);
    let mut sender = place.send(&[&file], &ticket, &[]);
    silent.recv(&mut [0; 2000]).expect("the sender calls");
    let clock = net::MonotonicClock::start();
    sender.signal("INT");
    sender.fail(130, "cancelled");
    assert!(clock.now().since_start() < units::Duration::from_secs(2));
}

#[test]
fn an_interrupted_receiver_says_that_its_ticket_remains_valid() {
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    receiver.signal("INT");
    receiver.fail(130, "the ticket remains valid");
    let listen = format!("--listen=127.0.0.1:{}", receiver.port);
    let (mut receiver, again) = place.recv(&[&listen]);
    assert_eq!(again, ticket);
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
}

#[test]
fn every_placement_and_policy_carries_a_file() {
    let place = Place::new();
    let variants = [["packet(2)", "thread", "DRCA"], ["path(2)", "packet(3)", "CRCA"], ["auto", "path(2)", "DRDA"]];
    for (index, [at_sender, at_receiver, policy]) in variants.into_iter().enumerate() {
        let file = place.file(&format!("file{index}"), 3_000_000, index as u64);
        let (mut receiver, ticket) = place.recv(&["--placement", at_receiver, "--policy", policy]);
        let mut sender = place.send(&[&file], &ticket, &["--placement", at_sender, "--policy", policy]);
        sender.succeed();
        receiver.succeed();
        let name = format!("file{index}");
        assert_same(&file, &place.inbox().join(name));
    }
}

#[test]
fn verbose_logs_connections_but_not_packets() {
    let place = Place::new();
    let file = place.file("file", 1_000_000, 1);
    let (mut receiver, ticket) = place.recv(&["-v"]);
    let mut sender = place.send(&[&file], &ticket, &["-v"]);
    sender.succeed();
    receiver.succeed();
    for output in [sender.errors(), receiver.errors()] {
        for word in ["connected", "key_exchange", "packets_lost"] {
            assert!(output.contains(word), "{output}");
        }
        assert!(output.lines().count() < 50, "{output}");
    }
}

#[test]
fn the_help_of_every_command_lists_its_exit_statuses() {
    for command in ["recv", "send", "id", "tickets", "demo"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains("Exit status:"), "{command}: {help}");
    }
}

/// A socket that never answers. Its port stays in use while it exists.
#[expect(clippy::disallowed_methods, reason = "a host that never answers")]
fn silent() -> std::net::UdpSocket {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap()
}

#[test]
fn an_unusable_requested_path_is_not_replaced() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let dead = silent().local_addr().unwrap();
    let (_receiver, ticket) = place.recv(&[&format!("--advertise={dead}"), "--advertise=127.0.0.1"]);
    let path = format!("--path=127.0.0.1-{dead}");
    place.send(&[&file], &ticket, &[&path]).fail(2, "cannot reach");
    assert_eq!(std::fs::read_dir(place.inbox()).unwrap().count(), 0);
}

#[test]
fn the_chosen_path_is_opened_when_another_address_answers() {
    let place = Place::new();
    let file = place.file("file", 300_000, 1);
    let dead = silent();
    let advertise = format!("--advertise={}", dead.local_addr().unwrap());
    let (mut receiver, ticket) = place.recv(&[&advertise, "--advertise=127.0.0.1"]);
    let mut sender = place.send(&[&file], &ticket, &["--rate=2Mb/s"]);
    sender.succeed();
    receiver.succeed();
    let connected = sender.seen.iter().find(|event| event["event"] == "connected").unwrap();
    assert_eq!((&connected["paths_wanted"], &connected["multipath"]), (&2.into(), &true.into()), "{connected}");
    let stats = sender.seen.iter().find(|event| event["event"] == "stats").unwrap();
    let remotes: Vec<_> = stats["paths"].as_array().unwrap().iter().map(|path| path["remote"].clone()).collect();
    assert_eq!(remotes, [format!("127.0.0.1:{}", receiver.port), dead.local_addr().unwrap().to_string()], "{stats}");
}

#[test]
fn a_path_whose_port_is_taken_is_refused() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let taken = silent();
    let (_receiver, ticket) = place.recv(&[]);
    let path = format!("--path={}", taken.local_addr().unwrap());
    place.send(&[&file], &ticket, &[&path, "--path=lo"]).fail(2, "another socket has this port");
}

#[test]
fn the_trace_of_a_short_transfer_is_complete_and_a_failed_one_is_reported() {
    let place = Place::new();
    let file = place.file("file", 400_000, 1);
    let trace = place.path("trace");
    let option = format!("--trace-scheduler={}", trace.display());
    // The last candidate would be tried five seconds after the first.
    let paths = ["--path=127.0.0.1"; 21];
    let (mut receiver, ticket) = place.recv(&["--overwrite"]);
    place.send(&[&file], &ticket, &[&paths[..], &[&option]].concat()).succeed();
    receiver.succeed();
    let text = std::fs::read_to_string(&trace).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() > 10, "{} bytes", text.len());
    let replay = format!("--replay={}", trace.display());
    let (status, report) = Litz::start(&["paths", &replay, "--json"]).finish("replay");
    assert_eq!((status, &report.expect("a result")["differences_count"]), (0, &0.into()));

    let (mut receiver, ticket) = place.recv(&["--overwrite"]);
    let mut sender = place.send(&[&file], &ticket, &[&paths[..], &["--trace-scheduler=/dev/full"]].concat());
    sender.succeed();
    receiver.succeed();
    let words = warnings(&sender, "trace");
    assert!(words.len() == 1 && words[0].contains("/dev/full is incomplete"), "{words:?}");

    // With one path there are no choices.
    let (mut receiver, ticket) = place.recv(&["--overwrite"]);
    let mut sender = place.send(&[&file], &ticket, &["--path=127.0.0.1", &option]);
    sender.succeed();
    receiver.succeed();
    assert!(warnings(&sender, "trace")[0].contains("no path was chosen"), "{:#?}", sender.seen);
    Litz::start(&["paths", &replay, "--json"]).fail(2, "is empty");
}

/// The messages of the warnings of this kind.
fn warnings(litz: &Litz, kind: &str) -> Vec<String> {
    let warnings = litz.seen.iter().filter(|event| event["event"] == "warning" && event["kind"] == kind);
    warnings.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// Runs the command with a closed output stream, and with a full one. Returns the status and the
/// other stream.
fn with_broken_output(arguments: &[&str], stream: &str) -> [(Option<i32>, String); 2] {
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    [closed.into(), full.into()].map(|target: std::process::Stdio| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_litz"));
        command.args(arguments);
        match stream {
            "stdout" => command.stdout(target),
            _ => command.stderr(target),
        };
        let output = command.output().unwrap();
        let heard = if stream == "stdout" { output.stderr } else { output.stdout };
        (output.status.code(), String::from_utf8(heard).unwrap())
    })
}

#[test]
fn a_failing_output_stream_does_not_cause_a_panic() {
    let place = Place::new();
    let (_receiver, ticket) = place.recv(&[]);
    let relay = ["emulate", "relay", "--listen=127.0.0.1:0", "--to=127.0.0.1:9", "--for=50ms"];
    for arguments in [&["paths", &ticket][..], &["paths", &ticket, "--json"], &relay[..], &["--help"]] {
        let [closed, full] = with_broken_output(arguments, "stdout");
        let is_silent = closed.1.lines().all(|line| line.starts_with("link "));
        assert!(closed.0 == Some(0) && is_silent, "{arguments:?}: {closed:?}");
        assert_eq!(full.0, Some(2), "{arguments:?}: {full:?}");
        assert!(full.1.contains("cannot write to standard output: No space left"), "{arguments:?}: {full:?}");
    }
    let inbox = place.inbox().display().to_string();
    let state = format!("--state-dir={}", place.path("state-unreachable").display());
    for arguments in [&["recv", &inbox, &state, "--listen=127.0.0.1:0"][..], &["recv", &inbox, &state, "--json"]] {
        let [closed, full] = with_broken_output(arguments, "stdout");
        assert_eq!((closed.0, full.0), (Some(2), Some(2)), "no sender can connect: {closed:?} {full:?}");
        assert!(full.1.contains("No space left"), "{full:?}");
    }
    for arguments in [&["recv", "/nowhere/at/all"][..], &["paths", "hello"]] {
        assert_eq!(
            with_broken_output(arguments, "stderr").map(|(status, _)| status),
            [Some(2), Some(2)],
            "{arguments:?}"
        );
    }
}

#[test]
fn too_many_advertised_addresses_are_refused() {
    let place = Place::new();
    let inbox = place.inbox().display().to_string();
    let state = format!("--state-dir={}", place.path("state-in").display());
    let addresses: Vec<String> = (1..=17).map(|number| format!("--advertise=192.0.2.{number}")).collect();
    let mut arguments = vec!["recv", &inbox, &state, "--json"];
    arguments.extend(addresses.iter().map(String::as_str));
    Litz::start(&arguments).fail(2, "--advertise is given 17 times");
}

#[test]
fn all_addresses_of_a_ticket_are_tried_and_the_first_to_answer_is_enough() {
    let place = Place::new();
    let file = place.file("file", 100_000, 1);
    // Two addresses that answer, and one that does not.
    let addresses = ["--advertise=127.0.0.9:9", "--advertise=127.0.0.1", "--advertise=127.0.0.2"];
    let (mut receiver, ticket) = place.recv(&[&["--listen=0.0.0.0:0"], &addresses[..]].concat());
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    let ended: Vec<_> = receiver.seen.iter().filter(|event| event["event"] == "visit_ended").collect();
    assert!(ended.is_empty(), "connections that were not needed are no event: {ended:?}");
}

#[test]
fn wrong_arguments_are_an_event_if_the_arguments_ask_for_json() {
    for arguments in [&["send", "--json", "--nonsense"][..], &["recv", "--expires", "soon", "--json"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments).output().unwrap();
        let event: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one event");
        assert_eq!((output.status.code(), &event["event"], &event["status"]), (Some(2), &"error".into(), &2.into()));
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(arguments[1]) || message.contains("--nonsense"), "{message}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_not_there_is_named_with_advice() {
    let place = Place::new();
    let (_receiver, ticket) = place.recv(&[]);
    place.send(&[&place.path("nofile")], &ticket, &[]).fail(2, "there is no such file or directory; check the name");
    place.send(&["/dev/null".as_ref()], &ticket, &[]).fail(2, "cannot send /dev/null: neither a regular file");
    let missing = place.path("nodir").display().to_string();
    Litz::start(&["recv", "--json", &missing]).fail(2, &format!("make it first, as with `mkdir {missing}`"));
    std::fs::write(place.path("plain"), "").unwrap();
    let state = format!("--state-dir={}", place.path("plain/litz").display());
    Litz::start(&["recv", "--json", &state]).fail(2, "cannot use the state folder");
}

#[test]
fn a_pipe_of_the_shell_is_not_said_to_be_missing() {
    let place = Place::new();
    let (_receiver, ticket) = place.recv(&[]);
    let script = format!("exec {} send --json <(echo text) {ticket}", env!("CARGO_BIN_EXE_litz"));
    let mut sender = Litz::of(std::process::Command::new("bash").args(["-c", &script]));
    sender.fail(2, "send it as a stream, as with `litz send -");
}

#[test]
fn symbolic_links_are_kept_without_being_asked_for() {
    let place = Place::new();
    place.file("tree/file", 1000, 1);
    let tree = place.path("out").join("tree");
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    place.send(&[&tree], &ticket, &[]).succeed();
    receiver.succeed();
    assert_eq!(std::fs::read_link(place.inbox().join("tree/link")).unwrap(), std::path::Path::new("file"));
    // Only those that lead out are skipped.
    std::os::unix::fs::symlink("/etc/passwd", tree.join("outside")).unwrap();
    let (mut receiver, ticket) = place.recv(&[]);
    let (status, finished) = place.send(&[&tree], &ticket, &[]).finish("finished");
    assert_eq!((status, &finished.unwrap()["summary"]["skipped"]), (1, &1.into()));
    receiver.finish("finished");
}
