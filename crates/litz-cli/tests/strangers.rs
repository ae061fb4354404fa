//! A receiver among visitors that may not send: they neither keep a sender out nor fill the
//! terminal.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use litz::identity::{Fingerprint, KeyPair, client_config};
use litz::{Connection, Endpoint, EndpointConfig, TransportConfig};
use serde_json::Value;
use transfer::{Secret, Ticket};

use crate::support::{Litz, Place, TEST_TIMEOUT, assert_same};

/// Connections from one address without a right to send.
struct Strangers {
    connections: Vec<Connection>,
    _endpoint: Endpoint,
}

impl Strangers {
    /// Connects `count` times from `address` to a receiver on `port` with this key.
    fn connect(address: &str, port: u16, receiver: Fingerprint, count: usize) -> Self {
        let local = SocketAddr::new(address.parse().unwrap(), 0);
        let transport = transfer::transport(TransportConfig::default());
        let endpoint = Endpoint::bind(EndpointConfig::at(local).with_transport(transport)).unwrap();
        let remote = SocketAddr::from(([127, 0, 0, 1], port));
        let connect = |_| {
            let tls = client_config(&KeyPair::generate().unwrap(), &[receiver], transfer::PROTOCOLS).unwrap();
            endpoint.connect(remote, "litz", tls.config.clone()).unwrap()
        };
        Self { connections: (0..count).map(connect).collect(), _endpoint: endpoint }
    }

    /// Waits until the receiver has closed the first `count`; the reasons.
    fn reasons(&self, count: usize) -> Vec<String> {
        let connections = self.connections.iter().take(count);
        let closed = connections.map(|connection| connection.closed_timeout(TEST_TIMEOUT).expect("it is closed"));
        closed.map(|closed| closed.to_string()).collect()
    }
}

/// The receiver's fingerprint in a ticket.
fn receiver_of(ticket: &str) -> Fingerprint {
    ticket.parse::<Ticket>().unwrap().receiver
}

#[test]
fn silent_strangers_from_one_address_do_not_keep_the_sender_out() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let strangers = Strangers::connect("127.0.0.1", receiver.port, receiver_of(&ticket), 24);
    place.send(&[&file], &ticket, &["--retry-for=0s"]).succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    let reasons = strangers.reasons(1);
    assert!(reasons[0].contains("too many connections without a proof"), "{reasons:?}");
}

#[test]
fn half_a_hello_does_not_keep_the_sender_out() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let strangers = Strangers::connect("127.0.0.1", receiver.port, receiver_of(&ticket), 16);
    let mut streams = Vec::new();
    for connection in &strangers.connections {
        // A closed connection has no streams.
        let Ok((mut send, recv)) = connection.open_bi() else { continue };
        let _written = send.write_all(&[0, 0, 0, 36, 1]);
        streams.push((send, recv));
    }
    assert!(!streams.is_empty());
    place.send(&[&file], &ticket, &["--retry-for=0s"]).succeed();
    receiver.succeed();
}

#[test]
fn a_visitor_without_a_complete_hello_is_closed_with_the_reason() {
    let place = Place::new();
    let (receiver, ticket) = place.recv(&[]);
    let strangers = Strangers::connect("127.0.0.1", receiver.port, receiver_of(&ticket), 2);
    let (mut send, _recv) = strangers.connections[0].open_bi().unwrap();
    send.write_all(&[0, 0, 0, 36, 1]).unwrap();
    for reason in strangers.reasons(2) {
        assert!(reason.contains("no complete Hello in time"), "{reason}");
    }
}

#[test]
fn the_bound_sender_comes_back_among_strangers_from_many_addresses() {
    let place = Place::new();
    let file = place.file("file", 3_000_000, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = place.send(&[&file], &ticket, &["--rate=8Mb/s"]);
    sender.wait_for("file_started");
    sender.kill();
    let fingerprint = receiver_of(&ticket);
    let flood = |number| Strangers::connect(&format!("127.0.1.{number}"), receiver.port, fingerprint, 6);
    let strangers: Vec<_> = (1..=8).map(flood).collect();
    place.send(&[&file], &ticket, &["--retry-for=0s"]).succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
    drop(strangers);
}

/// A list of the keys of state folders.
fn write_list(place: &Place, states: &[&str]) -> String {
    let line = |state: &&str| {
        let folder = place.path(state);
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::load_or_create(&folder.join("host.key")).unwrap();
        format!("{} {state}\n", key.public().fingerprint())
    };
    let lines: String = states.iter().map(line).collect();
    // In one step, so that the receiver never reads half a list.
    let draft = list_of(place).with_file_name("draft");
    std::fs::write(&draft, lines).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o644)).unwrap();
    let list = list_of(place);
    std::fs::rename(draft, &list).unwrap();
    format!("--allow={}", list.display())
}

/// The list of a receiver, which is replaced: it is in a folder without private files.
fn list_of(place: &Place) -> PathBuf {
    let folder = place.path("lists");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("allowed")
}

#[test]
fn a_listed_sender_gets_in_among_strangers_and_a_stranger_reads_why_it_does_not() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let allow = write_list(&place, &["state-out"]);
    let (mut receiver, ticket) = place.recv(&[&allow]);
    let strangers = Strangers::connect("127.0.0.1", receiver.port, receiver_of(&ticket), 24);
    place.send(&[&file], &ticket, &["--by-key", "--retry-for=0s"]).succeed();
    let other = format!("--state-dir={}", place.path("state-other").display());
    place.send(&[&file], &ticket, &["--by-key", "--retry-for=0s", &other]).fail(2, "does not know this host's key");
    let ended = receiver.wait_for("visit_ended");
    let key = KeyPair::load_or_create(&place.path("state-other").join("host.key")).unwrap();
    assert_eq!(ended["key"], key.public().to_string(), "{ended}");
    drop(strangers);
}

#[test]
fn a_key_that_is_taken_off_the_list_ends_its_transfer_and_starts_no_other() {
    let place = Place::new();
    let (file, small) = (place.file("file", 30_000_000, 1), place.file("small", 1000, 2));
    let allow = write_list(&place, &["state-out", "state-second"]);
    let (mut receiver, ticket) = place.recv(&[&allow]);
    let mut sender = place.send(&[&file], &ticket, &["--by-key", "--rate=8Mb/s"]);
    sender.wait_for("file_started");
    write_list(&place, &["state-second"]);
    // It lasts half a minute, but the receiver ends it now.
    sender.fail(2, "does not know this host's key");
    assert!(sender.seen.iter().any(|event| event["event"] == "retrying"), "{:#?}", sender.seen);
    let ended = receiver.wait_for("visit_ended");
    assert_eq!(ended["authorised"], true, "{ended}");
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("its key was taken off the list"), "{message}");
    let second = format!("--state-dir={}", place.path("state-second").display());
    place.send(&[&small], &ticket, &["--by-key", &second]).succeed();
    write_list(&place, &["state-out", "state-second"]);
    place.send(&[&file], &ticket, &["--by-key"]).succeed();
}

/// Waits for the next warning about the list of keys.
fn wait_for_list_warning(receiver: &mut Litz) -> String {
    let warning = receiver.wait_until(|event| event["event"] == "warning" && event["kind"] == "allowed_keys");
    warning["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_bad_edit_of_the_list_is_reported_and_leaves_the_last_good_list() {
    let place = Place::new();
    let file = place.file("file", 1000, 1);
    let allow = write_list(&place, &["state-out"]);
    let (mut receiver, ticket) = place.recv(&[&allow]);
    // In one step: the receiver may look at any moment, and an empty list is another warning.
    let (list, edited) = (list_of(&place), list_of(&place).with_file_name("edited"));
    std::fs::write(&edited, "sha256:half\n").unwrap();
    std::fs::set_permissions(&edited, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(edited, &list).unwrap();
    assert!(wait_for_list_warning(&mut receiver).contains("not a key"));
    place.send(&[&file], &ticket, &["--by-key"]).succeed();
    write_list(&place, &["state-out"]);
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(wait_for_list_warning(&mut receiver).contains("chmod go-w"));
    let inbox = place.inbox().display().to_string();
    let state = format!("--state-dir={}", place.path("state-in").display());
    Litz::start(&["recv", &inbox, &state, "--json", "--listen=127.0.0.1:0", &allow]).fail(2, "chmod go-w");
}

#[test]
fn an_empty_list_is_reported_at_the_start() {
    let place = Place::new();
    let allow = write_list(&place, &[]);
    let (receiver, _ticket) = place.recv(&[&allow]);
    let warning = receiver.seen.iter().find(|event| event["kind"] == "allowed_keys").expect("a warning");
    assert!(warning["message"].as_str().unwrap().contains("lists no keys"), "{warning}");
}

#[test]
fn refusals_are_printed_a_few_times_and_then_counted() {
    const REFUSED: usize = 7;
    const INTERVAL: units::Duration = units::Duration::from_secs(60);
    let clock = net::MonotonicClock::start();
    let place = Place::new();
    let file = place.file("file", 10, 1);
    let (mut receiver, ticket) = place.recv(&[]);
    let mut wrong: Ticket = ticket.parse().unwrap();
    wrong.secret = Secret::generate().unwrap();
    let wrong = wrong.to_text().unwrap();
    for _ in 0..REFUSED {
        place.send(&[&file], &wrong, &[]).fail(2, "no such ticket");
    }
    place.send(&[&file], &ticket, &[]).succeed();
    receiver.succeed();
    let of = |name: &str| receiver.seen.iter().filter(|event| event["event"] == name).collect::<Vec<&Value>>();
    let (ended, counts) = (of("visit_ended"), of("visits_refused"));
    let counted: u64 = counts.iter().map(|event| event["count"].as_u64().unwrap()).sum();
    // On a slow machine the refusals fall into several intervals.
    let is_slow = clock.now().since_start() >= INTERVAL;
    assert!(ended.len() < REFUSED || is_slow, "{ended:#?}");
    assert_eq!(ended.len() as u64 + counted, REFUSED as u64, "{counts:?}");
}
