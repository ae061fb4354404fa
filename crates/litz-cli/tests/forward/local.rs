//! `-L`: listeners of the client's host.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::*;

#[test]
fn data_and_the_end_of_data_are_carried_both_ways() {
    let target = late_echo();
    let local = format!("0:localhost:{}", target.port());
    let mut forwarder = Forwarder::start(&["--target", &target.to_string()], &["-L", &local]);
    // The program answers only after the end of what it gets, so that a lost half-close would hang.
    for (len, seed) in [(0, 1), (1, 2), (70_000, 3), (5_000_000, 4)] {
        assert_echo(forwarder.connect(0), len, seed);
    }
    let closed = forwarder.client.wait_until(|event| event["event"] == "closed" && event["bytes_sent"] == 5_000_000);
    assert_eq!((&closed["bytes_received"], &closed["error"]), (&5_000_000.into(), &Value::Null));
    forwarder.client.signal("INT");
    assert_eq!(forwarder.client.finish("error").0, 130);
    forwarder.server.wait_for("client_ended");
    forwarder.server.signal("TERM");
    assert_eq!(forwarder.server.finish("error").0, 130);
}

#[test]
fn a_reset_is_carried_both_ways() {
    let (told, ends) = mpsc::channel();
    let target = tcp_program(move |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).expect("a byte");
        if first == [1] {
            return reset(stream);
        }
        stream.write_all(&first).expect("it is read");
        told.send(stream.read(&mut first).map_err(|error| error.kind())).expect("the test waits");
    });
    let local = format!("0:{target}");
    let mut forwarder = Forwarder::start(&["--target", &target.to_string()], &["-L", &local]);
    // The program resets it.
    let mut stream = forwarder.connect(0);
    stream.write_all(&[1]).expect("it is read");
    let error = stream.read(&mut [0]).expect_err("a reset is no end of data");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // The client resets it, after the program has seen a byte.
    let mut stream = forwarder.connect(0);
    stream.write_all(&[2]).expect("it is read");
    stream.read_exact(&mut [0]).expect("an answer");
    reset(stream);
    assert_eq!(ends.recv_timeout(TEST_TIMEOUT), Ok(Err(ErrorKind::ConnectionReset)));
    // An end after the other direction has ended in order.
    let mut stream = forwarder.connect(0);
    stream.write_all(&[2]).expect("it is read");
    stream.read_exact(&mut [0]).expect("an answer");
    stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(ends.recv_timeout(TEST_TIMEOUT), Ok(Ok(0)));
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn what_no_rule_allows_or_nobody_serves_is_refused_with_the_reason_on_both_sides() {
    let closed = free_port();
    let [refused, forbidden] = [format!("0:127.0.0.1:{closed}"), "0:127.0.0.2:22".to_owned()];
    let target = format!("127.0.0.1:{closed}");
    let forwards = ["-L", &refused, "-L", &forbidden, "-L", "0:no-such-name.invalid:80", "-L", "0:/no/such/socket"];
    let rules = ["--target", &target, "--target=no-such-name.invalid:80", "--target=/no/such/socket"];
    let mut forwarder = Forwarder::start(&rules, &forwards);
    for (number, reason) in ["refused", "not_allowed", "name_not_found", "other"].into_iter().enumerate() {
        let error = exchange(forwarder.connect(number), b"hello").expect_err("it is not connected");
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{reason}: {error}");
        for side in [&mut forwarder.client, &mut forwarder.server] {
            let event = side.wait_for("refused");
            assert_eq!(event["reason"], reason, "{event}");
        }
    }
}

#[test]
fn a_server_without_rules_does_not_start_and_a_client_without_forwards_neither() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state").display());
    Litz::start(&["forward", "serve", "--json", &state]).fail(2, "--target");
    Litz::start(&["forward", "--json", &state]).fail(2, "name what to forward");
    Litz::start(&["forward", "--json", &state, "-D", "0.0.0.0:0"]).fail(2, "--gateway");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let local = format!("{}:localhost:1", taken.local_addr().expect("a socket").port());
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target=*:*"]);
    let occupied = place.file("occupied", 1, 1).display().to_string();
    let folder = place.path("nosuchfolder").display().to_string();
    for (local, words) in [
        (local, "another program of this host has this port: choose another one, or 0 for any"),
        ("203.0.113.99:0:localhost:1".to_owned(), "this host does not have this address"),
        (format!("{occupied}:localhost:1"), "choose another path"),
        (format!("{folder}/socket:localhost:1"), "no such folder"),
    ] {
        client(&place, &ticket, &["-L", &local]).fail(2, words);
    }
    let socks = format!("{}", taken.local_addr().expect("a socket").port());
    client(&place, &ticket, &["-D", &socks]).fail(2, "choose another one, or 0 for any");
    // Before anything is served.
    let permit = format!("--permit-listen={folder}/socket");
    Litz::start(&["forward", "serve", "--json", &state, "--listen=127.0.0.1:0", &permit]).fail(2, "there is no folder");
}

#[test]
fn a_ticket_belongs_to_one_client_and_to_its_targets() {
    let place = Place::new();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target=*:1", "--target=*:2"]);
    let forward = ["-L", "0:localhost:1"];
    let mut first = client(&place, &ticket, &forward);
    first.wait_for("connected");
    // Several commands of the same user.
    client(&place, &ticket, &forward).wait_for("connected");
    let other = format!("--state-dir={}", place.path("state-other").display());
    Litz::start(&["forward", "--json", &other, "-L", "0:localhost:1", &ticket]).fail(2, "belongs to another client");
    server.wait_for("client_refused");
    client(&place, &ticket, &["--by-key", "-L", "0:localhost:1"]).fail(2, "leave --by-key out");
    server.wait_for("client_refused");
    drop((first, server));
    // The same rules in another order.
    let (server, again) = serve_at(&place, "127.0.0.1:0", &["--target=*:2", "--target=*:1"]);
    assert_eq!(again, ticket);
    drop(server);
    let (mut server, another) = serve_at(&place, &format!("127.0.0.1:{}", free_port()), &["--target=*:*"]);
    assert_ne!(another, ticket);
    server.port = 0;
}

#[test]
fn listed_keys_are_served_until_they_are_removed() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state-out").display());
    let id = std::process::Command::new(env!("CARGO_BIN_EXE_litz")).args(["id", &state]).output().expect("it runs");
    let list = place.path("allowed");
    std::fs::write(&list, "# none\n").expect("a file");
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let allow = format!("--allow={}", list.display());
    let target = late_echo();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", &target.to_string(), &allow]);
    let local = format!("0:{target}");
    let forward = ["--by-key", "-L", &local];
    client(&place, &ticket, &forward).fail(2, "litz id");
    std::fs::write(&list, &id.stdout).expect("ours");
    let mut forwarder = {
        let mut client = client(&place, &ticket, &forward);
        client.wait_for("connected");
        client
    };
    server.wait_for("client_connected");
    std::fs::write(&list, "").expect("ours");
    let retrying = forwarder.wait_for("error");
    assert!(retrying["message"].as_str().is_some_and(|message| message.contains("litz id")), "{retrying}");
}

#[test]
fn sockets_of_unix_are_forwarded_at_both_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    late_unix_echo(folder.path().join("target").as_ref());
    // The path of a program that was killed.
    drop(UnixListener::bind(path("here")).expect("a path"));
    let (target, here) = (path("target"), path("here"));
    let forwards = [format!("{here}:{target}"), format!("0:{target}")];
    let mut forwarder = Forwarder::start(&["--target", &target], &["-L", &forwards[0], "-L", &forwards[1]]);
    let mode = std::fs::metadata(&here).expect("a socket").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "others may not connect");
    let bytes = random(300_000, 5);
    let mut stream = UnixStream::connect(&here).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    stream.write_all(&bytes).expect("it is read");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer == bytes);
    let listener = forwarder.client.seen.iter().filter(|event| event["event"] == "forwarding").nth(1);
    let address: SocketAddr = listener.expect("two")["address"].as_str().expect("text").parse().expect("an address");
    assert_echo(connect(address), 1000, 6);
    forwarder.client.signal("INT");
    assert_eq!(forwarder.client.finish("error").0, 130);
    assert!(!std::path::Path::new(&here).exists(), "the path is removed");
}

/// Whatever a server does needs no more rights than it keeps: names, TCP, UNIX sockets at both ends.
#[test]
fn a_server_forwards_in_its_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (target, there) = (path("target"), path("there"));
    late_unix_echo(target.as_ref());
    let echo = late_echo();
    let by_name = format!("localhost:{}", echo.port());
    let serve = ["--sandbox=require", "--target", &target, "--target", &by_name, "--permit-listen", &there];
    let forwards = [format!("0:{target}"), format!("0:{by_name}"), format!("{there}:{echo}")];
    let forward = ["-L", &forwards[0], "-L", &forwards[1], "-R", &forwards[2]];
    let mut forwarder = Forwarder::start(&serve, &forward);
    let listening = forwarder.server.seen.iter().find(|event| event["event"] == "listening").expect("it is the first");
    assert_eq!(listening["sandbox"], serde_json::json!(["landlock", "seccomp"]));
    let status = std::fs::read_to_string(format!("/proc/{}/status", forwarder.server.id())).expect("it runs");
    let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    assert_eq!(seccomp, Some("2"), "a filter");
    assert_echo(forwarder.connect(0), 100_000, 7);
    assert_echo(forwarder.connect(1), 100_000, 8);
    let mut stream = UnixStream::connect(&there).expect("the server listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    stream.write_all(b"hello").expect("it is read");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, b"hello");
}

#[test]
fn two_hundred_connections_run_at_once() {
    let target = late_echo();
    let local = format!("0:{target}");
    let mut forwarder = Forwarder::start(&["--target", &target.to_string()], &["-L", &local]);
    let mut streams: Vec<_> = (0..200).map(|_| forwarder.connect(0)).collect();
    // Every one of them has data before any of them ends.
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&random(20_000, number as u64)).expect("it is read");
    }
    for stream in &streams {
        stream.shutdown(Shutdown::Write).expect("it is open");
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer == random(20_000, number as u64), "connection {number}");
    }
}

/// Bytes of memory that a process has.
fn resident(process: &Litz) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") << 10
}

#[test]
fn a_reader_that_stops_stops_the_writer_and_no_other_connection() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let target = tcp_program(move |mut stream| {
        released.lock().expect("one at a time").recv().expect("the test goes on");
        let mut count = 0;
        let mut buffer = vec![0; 1 << 20];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            count += len as u64;
        }
        stream.write_all(&count.to_be_bytes()).expect("it is read");
    });
    let other = late_echo();
    let forwards = [format!("0:{target}"), format!("0:{other}")];
    let rules = ["--target".to_owned(), target.to_string(), "--target".to_owned(), other.to_string()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut forwarder = Forwarder::start(&rules, &["-L", &forwards[0], "-L", &forwards[1]]);
    let before = [&forwarder.client, &forwarder.server].map(resident);
    let mut stream = forwarder.connect(0);
    stream.set_write_timeout(Some(std::time::Duration::from_secs(2))).expect("a socket");
    let chunk = vec![7; 1 << 20];
    let mut sent = 0_u64;
    // Until nothing is taken for two seconds.
    while let Ok(len) = stream.write(&chunk) {
        sent += len as u64;
        assert!(sent < 1 << 30, "a reader that does not read has taken {sent} bytes");
    }
    let after = [&forwarder.client, &forwarder.server].map(resident);
    for (before, after) in before.iter().zip(after) {
        assert!(after < before + (64 << 20), "{before} {after}");
    }
    assert_echo(forwarder.connect(1), 100_000, 9);
    release.send(()).expect("the program waits");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut count = [0; 8];
    stream.read_exact(&mut count).expect("an answer");
    assert_eq!(u64::from_be_bytes(count), sent);
}
