//! A path kept in reserve, by either side's wish.

use litz::PathId;
use noq::{PathEvent, PathStatus};

use crate::pair::{Client, Pair, Wish, carried};

/// Bytes that would not all fit one path's congestion window at the start.
const A_WHILE: u64 = 3_000_000;

fn wait_for_word(pair: &Pair, wanted: PathStatus) {
    let is_wanted = |event: &PathEvent| matches!(event, PathEvent::RemoteStatus { id, status, .. } if *id == 1_u32.into() && *status == wanted);
    pair.wait_for_event("our word about the path", is_wanted);
}

/// A reserve carries no data, but for ours while the first path does not answer: a machine that lets noq wait for longer than a
/// probe timeout makes that happen.
fn assert_spared(pair: &Pair, second: &noq::Path) {
    let (theirs, ours) = carried(second);
    let silences = pair.ours(0).expect("it is open").silences;
    assert!(theirs == 0 && (ours == 0 || silences > 0), "{theirs} and {ours} packets, {silences} silences");
}

/// noq 1.4 tells the application about our wish and does nothing more: here the application follows it.
fn we_ask(client: Client) {
    let pair = Pair::with_paths(Wish::new(client, 2));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    pair.us.set_path_backup(PathId(1), true).expect("the connection is open");
    wait_for_word(&pair, PathStatus::Backup);
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        assert_spared(&pair, &second);
        pair.us.set_path_backup(PathId(1), false).expect("the connection is open");
        wait_for_word(&pair, PathStatus::Available);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.turn_to(&second, &first);
    });
    assert!(!pair.ours(1).expect("it is open").is_backup);
}

/// The wish comes with the path, before the server has it. noq 1.4 does the same as a client, but forgets to tell its peer:
/// it queues PATH_STATUS_BACKUP only if a challenge is still due after it has sent it. Said once more, it arrives.
fn the_client_asks_at_once(client: Client) {
    let pair = Pair::connect(Wish::new(client, 2));
    pair.open_path(1, true);
    pair.wait_until_open(1);
    let second = pair.theirs(1);
    if client == Client::Ours {
        wait_for_word(&pair, PathStatus::Backup);
        second.set_status(PathStatus::Backup).expect("the path is open");
    } else {
        second.set_status(PathStatus::Available).expect("the path is open");
        second.set_status(PathStatus::Backup).expect("the path is open");
        pair.wait_for("noq's word about the path", || pair.ours(1)?.is_backup.then_some(()));
    }
    pair.transfer(|flow| flow.goes_on_for(A_WHILE));
    assert_spared(&pair, &second);
}

fn noq_asks(client: Client) {
    let pair = Pair::with_paths(Wish::new(client, 2));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.wait_for("noq's word about the path", || pair.ours(1)?.is_backup.then_some(()));
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        assert_spared(&pair, &second);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.turn_to(&second, &first);
        assert!(!pair.ours(1).expect("it is open").is_backup);
    });
}

#[test]
fn our_client_keeps_a_path_in_reserve() {
    we_ask(Client::Ours);
}

#[test]
fn our_server_keeps_a_path_in_reserve() {
    we_ask(Client::Theirs);
}

#[test]
fn our_client_opens_a_path_in_reserve() {
    the_client_asks_at_once(Client::Ours);
}

#[test]
fn noqs_client_opens_a_path_in_reserve() {
    the_client_asks_at_once(Client::Theirs);
}

#[test]
fn noqs_client_keeps_a_path_in_reserve() {
    noq_asks(Client::Theirs);
}

#[test]
fn noqs_server_keeps_a_path_in_reserve() {
    noq_asks(Client::Ours);
}
