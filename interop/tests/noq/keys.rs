//! Key updates by both sides while two paths carry data (multipath draft-21, section 2.5).

use noq::PathStatus;

use crate::flow::{BYTES_MIN, Flow};
use crate::pair::{Client, Pair, Wish, carried};

/// Packets that we seal with one key where we shall update: a transfer needs some ten thousand.
const KEY_UPDATE_INTERVAL: u64 = 1_000;

/// Updates while data flow.
const UPDATES_MIN: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Us,
    Them,
    /// Each in its own time, and now and then at the same moment.
    Both,
}

impl By {
    fn wish(self, client: Client) -> Wish {
        let wish = Wish::new(client, 2);
        if self == Self::Them { wish } else { Wish { key_update_interval: KEY_UPDATE_INTERVAL, ..wish } }
    }

    /// Waits until there were enough updates. noq takes no new keys while it holds old ones, so it is asked again and again.
    fn update_keys(self, flow: &Flow<'_>) {
        let enough = flow.pair.us.stats().send.key_updates + UPDATES_MIN;
        flow.pair.wait_for("key updates", || {
            if self != Self::Us {
                flow.pair.them.force_key_update();
            }
            (flow.pair.us.stats().send.key_updates >= enough).then_some(())
        });
    }
}

fn check(client: Client, by: By) {
    let pair = Pair::with_paths(by.wish(client));
    let theirs = [pair.theirs(0), pair.theirs(1)];
    pair.transfer(|flow| {
        // noq's first update comes by itself after a thousand packets at most.
        flow.goes_on_for(BYTES_MIN / 4);
        by.update_keys(flow);
        let before = theirs.each_ref().map(carried);
        flow.goes_on_for(BYTES_MIN / 4);
        let after = theirs.each_ref().map(carried);
        assert!(before[0].1 < after[0].1 && before[1].1 < after[1].1, "{before:?} {after:?}");
    });
    let stats = pair.us.stats();
    assert_eq!(stats.receive.packets_unauthentic, 0, "{:?}", stats.receive);
}

#[test]
fn our_client_updates_keys_on_two_paths() {
    check(Client::Ours, By::Us);
}

#[test]
fn our_server_updates_keys_on_two_paths() {
    check(Client::Theirs, By::Us);
}

#[test]
fn noqs_client_updates_keys_on_two_paths() {
    check(Client::Theirs, By::Them);
}

#[test]
fn noqs_server_updates_keys_on_two_paths() {
    check(Client::Ours, By::Them);
}

#[test]
fn our_client_and_noqs_server_update_keys_on_two_paths() {
    check(Client::Ours, By::Both);
}

#[test]
fn noqs_client_and_our_server_update_keys_on_two_paths() {
    check(Client::Theirs, By::Both);
}

/// A path that rests while keys change knows the new ones when it is needed.
fn rested_path(client: Client) {
    let pair = Pair::with_paths(By::Both.wish(client));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.wait_for("noq's word about the path", || pair.ours(1)?.is_backup.then_some(()));
    pair.transfer(|flow| {
        By::Both.update_keys(flow);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.turn_to(&second, &first);
    });
    assert_eq!(pair.us.stats().receive.packets_unauthentic, 0);
}

#[test]
fn a_path_of_our_client_rests_while_keys_change() {
    rested_path(Client::Ours);
}

#[test]
fn a_path_of_noqs_client_rests_while_keys_change() {
    rested_path(Client::Theirs);
}
