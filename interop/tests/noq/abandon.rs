//! Paths given up while data flow, by either side, and new ones in their place.

use litz::{PathId, PathState};
use noq::PathEvent;

use crate::pair::{Client, Pair, Wish, carried};

/// APPLICATION_ABANDON_PATH (multipath draft-21, section 4.2.1): what noq says too.
const CODE: u64 = 0x3e;

/// Bytes each way between one event and the next.
const A_WHILE: u64 = 3_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Us,
    Them,
    /// At the same moment, so that neither answers the other.
    Both,
}

impl Pair {
    /// Gives a path up and waits until both sides have.
    pub fn abandon(&self, by: By, id: u32) {
        let theirs = self.theirs(id);
        if by != By::Us {
            theirs.close().expect("there is another path");
        }
        if by != By::Them {
            self.us.abandon_path(PathId(id), CODE).expect("the connection is open");
        }
        let is_over = |event: &PathEvent| matches!(event, PathEvent::Abandoned { id: at, .. } if *at == id.into());
        self.wait_for_event("noq to give the path up", is_over);
        self.wait_for("us to give the path up", || {
            self.ours(id).is_none_or(|path| path.state == PathState::Abandoned).then_some(())
        });
    }

    /// Waits until noq has forgotten a path, which it does once we have answered, and so have we.
    fn wait_until_forgotten(&self, id: u32) {
        let is_gone = |event: &PathEvent| matches!(event, PathEvent::Discarded { id: at, .. } if *at == id.into());
        self.wait_for_event("noq to forget the path", is_gone);
        // The first one stays in our statistics.
        self.wait_for("us to forget the path", || (id == 0 || self.ours(id).is_none()).then_some(()));
    }
}

/// Gives up one of two paths, then opens another on the same link.
fn check(client: Client, by: By, id: u32) {
    let pair = Pair::with_paths(Wish::new(client, 2));
    let other = pair.theirs(1 - id);
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        pair.abandon(by, id);
        let before = carried(&other);
        flow.goes_on_for(A_WHILE);
        let after = carried(&other);
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        // As many as were allowed are allowed again (section 4.6), under a new identifier.
        pair.open_path(id as u8, false);
        pair.wait_until_open(2);
        pair.turn_to(&pair.theirs(2), &other);
        pair.wait_until_forgotten(id);
    });
    assert_eq!(pair.us.stats().receive.packets_unauthentic, 0);
}

#[test]
fn our_client_gives_up_the_first_path() {
    check(Client::Ours, By::Us, 0);
}

#[test]
fn our_client_gives_up_the_second_path() {
    check(Client::Ours, By::Us, 1);
}

#[test]
fn our_server_gives_up_the_first_path() {
    check(Client::Theirs, By::Us, 0);
}

#[test]
fn our_server_gives_up_the_second_path() {
    check(Client::Theirs, By::Us, 1);
}

#[test]
fn noqs_client_gives_up_the_first_path() {
    check(Client::Theirs, By::Them, 0);
}

#[test]
fn noqs_client_gives_up_the_second_path() {
    check(Client::Theirs, By::Them, 1);
}

#[test]
fn noqs_server_gives_up_the_first_path() {
    check(Client::Ours, By::Them, 0);
}

#[test]
fn noqs_server_gives_up_the_second_path() {
    check(Client::Ours, By::Them, 1);
}

#[test]
fn our_client_and_noqs_server_give_up_the_same_path_at_once() {
    check(Client::Ours, By::Both, 0);
}

#[test]
fn noqs_client_and_our_server_give_up_the_same_path_at_once() {
    check(Client::Theirs, By::Both, 1);
}

/// Three of four, one after the other, by turns; the last carries the rest.
fn down_to_one(client: Client) {
    let pair = Pair::with_paths(Wish::new(client, 4));
    pair.transfer(|flow| {
        for (by, id) in [(By::Us, 2), (By::Them, 0), (By::Us, 1)] {
            flow.goes_on_for(A_WHILE);
            pair.abandon(by, id);
        }
        flow.goes_on_for(A_WHILE);
        assert!(pair.theirs(3).close().is_err(), "noq keeps the last path");
        pair.us.abandon_path(PathId(3), CODE).expect("the connection is open");
        flow.goes_on_for(A_WHILE);
        assert_eq!(pair.ours(3).map(|path| path.state), Some(PathState::Active), "so do we");
    });
}

#[test]
fn our_client_and_noqs_server_go_down_to_one_of_four_paths() {
    down_to_one(Client::Ours);
}

#[test]
fn noqs_client_and_our_server_go_down_to_one_of_four_paths() {
    down_to_one(Client::Theirs);
}

/// A reserve takes over when the only other path is given up.
fn reserve_takes_over(client: Client, by: By) {
    let pair = Pair::connect(Wish::new(client, 2));
    pair.open_path(1, true);
    pair.wait_until_open(1);
    let reserve = pair.theirs(1);
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        pair.abandon(by, 0);
        let before = carried(&reserve);
        flow.goes_on_for(A_WHILE);
        let after = carried(&reserve);
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
    });
}

#[test]
fn the_reserve_takes_over_when_our_client_gives_up_the_first_path() {
    reserve_takes_over(Client::Ours, By::Us);
}

#[test]
fn the_reserve_takes_over_when_noqs_client_gives_up_the_first_path() {
    reserve_takes_over(Client::Theirs, By::Them);
}
