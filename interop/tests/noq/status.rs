//! A backup path, at the request of either side.

use litz::PathId;
use noq::{PathEvent, PathStatus};

use crate::pair::{Client, Pair, Settings, carried};

/// Bytes that would not all fit one path's congestion window at the start.
const BYTES_BETWEEN_EVENTS: u64 = 3_000_000;

fn wait_for_status(pair: &Pair, wanted: PathStatus) {
    let is_wanted = |event: &PathEvent| matches!(event, PathEvent::RemoteStatus { id, status, .. } if *id == 1_u32.into() && *status == wanted);
    pair.wait_for_event("our status of the path", is_wanted);
}

/// A backup path carries no data, except for ours while the first path does not respond: this
/// happens on a machine that delays noq for longer than a probe timeout.
fn assert_unused(pair: &Pair, second: &noq::Path) {
    let (theirs, ours) = carried(second);
    let silences = pair.ours(0).expect("it is open").silences;
    assert!(theirs == 0 && (ours == 0 || silences > 0), "{theirs} and {ours} packets, {silences} silences");
}

/// noq 1.4 reports our request to the application and does nothing more; here the application
/// follows it.
fn we_request_backup(client: Client) {
    let pair = Pair::with_paths(Settings::new(client, 2));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    pair.us.set_path_backup(PathId(1), true).expect("the connection is open");
    wait_for_status(&pair, PathStatus::Backup);
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert_unused(&pair, &second);
        pair.us.set_path_backup(PathId(1), false).expect("the connection is open");
        wait_for_status(&pair, PathStatus::Available);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.send_only_on(&second, &first);
    });
    assert!(!pair.ours(1).expect("it is open").is_backup);
}

/// The request arrives with the path, before the server has it. As a client noq 1.4 does the same,
/// but does not notify its peer: it queues PATH_STATUS_BACKUP only if a challenge is still due
/// after it has sent it. When repeated, the request arrives.
fn the_client_opens_a_backup(client: Client) {
    let pair = Pair::connect(Settings::new(client, 2));
    pair.open_path(1, true);
    pair.wait_until_open(1);
    let second = pair.theirs(1);
    if client == Client::Ours {
        wait_for_status(&pair, PathStatus::Backup);
        second.set_status(PathStatus::Backup).expect("the path is open");
    } else {
        second.set_status(PathStatus::Available).expect("the path is open");
        second.set_status(PathStatus::Backup).expect("the path is open");
        pair.wait_for("noq's status of the path", || pair.ours(1)?.is_backup.then_some(()));
    }
    pair.transfer(|flow| flow.wait_for_bytes(BYTES_BETWEEN_EVENTS));
    assert_unused(&pair, &second);
}

fn noq_requests_backup(client: Client) {
    let pair = Pair::with_paths(Settings::new(client, 2));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.wait_for("noq's status of the path", || pair.ours(1)?.is_backup.then_some(()));
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert_unused(&pair, &second);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.send_only_on(&second, &first);
        assert!(!pair.ours(1).expect("it is open").is_backup);
    });
}

#[test]
fn our_client_marks_a_path_as_backup() {
    we_request_backup(Client::Ours);
}

#[test]
fn our_server_marks_a_path_as_backup() {
    we_request_backup(Client::Theirs);
}

#[test]
fn our_client_opens_a_path_as_backup() {
    the_client_opens_a_backup(Client::Ours);
}

#[test]
fn noqs_client_opens_a_path_as_backup() {
    the_client_opens_a_backup(Client::Theirs);
}

#[test]
fn noqs_client_marks_a_path_as_backup() {
    noq_requests_backup(Client::Theirs);
}

#[test]
fn noqs_server_marks_a_path_as_backup() {
    noq_requests_backup(Client::Ours);
}
