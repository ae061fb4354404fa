//! Key updates by both sides while two paths carry data (multipath draft-21, section 2.5).

use noq::PathStatus;

use crate::flow::{BYTES_MIN, Flow};
use crate::pair::{Client, Pair, Settings, carried};

/// Packets that we seal with one key in tests where we update: a transfer needs some ten thousand.
const KEY_UPDATE_INTERVAL: u64 = 1_000;

/// Key updates while data flow.
const UPDATES_MIN: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Us,
    Them,
    /// Each independently, occasionally at the same moment.
    Both,
}

impl By {
    fn settings(self, client: Client) -> Settings {
        let settings = Settings::new(client, 2);
        if self == Self::Them { settings } else { Settings { key_update_interval: KEY_UPDATE_INTERVAL, ..settings } }
    }

    /// Waits until there were enough updates. noq ignores an update while it holds old keys, so the
    /// request is repeated.
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
    let pair = Pair::with_paths(by.settings(client));
    let theirs = [pair.theirs(0), pair.theirs(1)];
    pair.transfer(|flow| {
        // noq's first update happens by itself after a thousand packets at most.
        flow.wait_for_bytes(BYTES_MIN / 4);
        by.update_keys(flow);
        let before = theirs.each_ref().map(carried);
        flow.wait_for_bytes(BYTES_MIN / 4);
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

/// A path that is unused during key updates has the new keys when it is needed.
fn idle_path(client: Client) {
    let pair = Pair::with_paths(By::Both.settings(client));
    let (first, second) = (pair.theirs(0), pair.theirs(1));
    second.set_status(PathStatus::Backup).expect("the path is open");
    pair.wait_for("noq's status of the path", || pair.ours(1)?.is_backup.then_some(()));
    pair.transfer(|flow| {
        By::Both.update_keys(flow);
        second.set_status(PathStatus::Available).expect("the path is open");
        pair.send_only_on(&second, &first);
    });
    assert_eq!(pair.us.stats().receive.packets_unauthentic, 0);
}

#[test]
fn a_path_of_our_client_is_idle_during_key_updates() {
    idle_path(Client::Ours);
}

#[test]
fn a_path_of_noqs_client_is_idle_during_key_updates() {
    idle_path(Client::Theirs);
}
