//! Paths abandoned by either side while data flow, and new ones that replace them.

use litz::{PathId, PathState};
use noq::PathEvent;

use crate::pair::{Client, Pair, Settings, carried};

/// APPLICATION_ABANDON_PATH (multipath draft-21, section 4.2.1), which noq sends too.
const CODE: u64 = 0x3e;

/// Bytes in each direction between one event and the next.
const BYTES_BETWEEN_EVENTS: u64 = 3_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Us,
    Them,
    /// At the same moment, so that neither responds to the other.
    Both,
}

impl Pair {
    /// Abandons a path and waits until both sides have.
    pub fn abandon(&self, by: By, id: u32) {
        let theirs = self.theirs(id);
        if by != By::Us {
            theirs.close().expect("there is another path");
        }
        if by != By::Them {
            self.us.abandon_path(PathId(id), CODE).expect("the connection is open");
        }
        let is_over = |event: &PathEvent| matches!(event, PathEvent::Abandoned { id: at, .. } if *at == id.into());
        self.wait_for_event("noq to abandon the path", is_over);
        self.wait_for("us to abandon the path", || {
            self.ours(id).is_none_or(|path| path.state == PathState::Abandoned).then_some(())
        });
    }

    /// Waits until noq has discarded a path, which it does once we have responded, and until we
    /// have.
    fn wait_until_discarded(&self, id: u32) {
        let is_gone = |event: &PathEvent| matches!(event, PathEvent::Discarded { id: at, .. } if *at == id.into());
        self.wait_for_event("noq to discard the path", is_gone);
        // The first path stays in our statistics.
        self.wait_for("us to discard the path", || (id == 0 || self.ours(id).is_none()).then_some(()));
    }
}

/// Abandons one of two paths, then opens another on the same link.
fn check(client: Client, by: By, id: u32) {
    let pair = Pair::with_paths(Settings::new(client, 2));
    let other = pair.theirs(1 - id);
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        pair.abandon(by, id);
        let before = carried(&other);
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        let after = carried(&other);
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        // As many paths as before are allowed again (section 4.6), under a new path ID.
        pair.open_path(id as u8, false);
        pair.wait_until_open(2);
        pair.send_only_on(&pair.theirs(2), &other);
        pair.wait_until_discarded(id);
    });
    assert_eq!(pair.us.stats().receive.packets_unauthentic, 0);
}

#[test]
fn our_client_abandons_the_first_path() {
    check(Client::Ours, By::Us, 0);
}

#[test]
fn our_client_abandons_the_second_path() {
    check(Client::Ours, By::Us, 1);
}

#[test]
fn our_server_abandons_the_first_path() {
    check(Client::Theirs, By::Us, 0);
}

#[test]
fn our_server_abandons_the_second_path() {
    check(Client::Theirs, By::Us, 1);
}

#[test]
fn noqs_client_abandons_the_first_path() {
    check(Client::Theirs, By::Them, 0);
}

#[test]
fn noqs_client_abandons_the_second_path() {
    check(Client::Theirs, By::Them, 1);
}

#[test]
fn noqs_server_abandons_the_first_path() {
    check(Client::Ours, By::Them, 0);
}

#[test]
fn noqs_server_abandons_the_second_path() {
    check(Client::Ours, By::Them, 1);
}

#[test]
fn our_client_and_noqs_server_abandon_the_same_path_at_once() {
    check(Client::Ours, By::Both, 0);
}

#[test]
fn noqs_client_and_our_server_abandon_the_same_path_at_once() {
    check(Client::Theirs, By::Both, 1);
}

/// Abandons three of four paths one by one, from alternating sides; the last carries the rest.
fn abandon_all_but_one(client: Client) {
    let pair = Pair::with_paths(Settings::new(client, 4));
    pair.transfer(|flow| {
        for (by, id) in [(By::Us, 2), (By::Them, 0), (By::Us, 1)] {
            flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
            pair.abandon(by, id);
        }
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert!(pair.theirs(3).close().is_err(), "noq keeps the last path");
        pair.us.abandon_path(PathId(3), CODE).expect("the connection is open");
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert_eq!(pair.ours(3).map(|path| path.state), Some(PathState::Active), "so do we");
    });
}

#[test]
fn our_client_and_noqs_server_abandon_three_of_four_paths() {
    abandon_all_but_one(Client::Ours);
}

#[test]
fn noqs_client_and_our_server_abandon_three_of_four_paths() {
    abandon_all_but_one(Client::Theirs);
}

/// A backup path takes over when the only other path is abandoned.
fn backup_takes_over(client: Client, by: By) {
    let pair = Pair::connect(Settings::new(client, 2));
    pair.open_path(1, true);
    pair.wait_until_open(1);
    let reserve = pair.theirs(1);
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        pair.abandon(by, 0);
        let before = carried(&reserve);
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        let after = carried(&reserve);
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
    });
}

#[test]
fn the_backup_takes_over_when_our_client_abandons_the_first_path() {
    backup_takes_over(Client::Ours, By::Us);
}

#[test]
fn the_backup_takes_over_when_noqs_client_abandons_the_first_path() {
    backup_takes_over(Client::Theirs, By::Them);
}
