//! One path, because one side allows no more.

use crate::flow::BYTES_MIN;
use crate::pair::{Client, Pair, Settings};

/// If we are the client, we request a second path all the same.
fn check(settings: Settings, is_multipath: bool) {
    let pair = Pair::connect(settings);
    if settings.client == Client::Ours {
        pair.open_path(1, false);
    }
    assert_eq!(pair.us.stats().is_multipath, is_multipath);
    assert_eq!(pair.them.is_multipath_enabled(), is_multipath);
    pair.transfer(|flow| flow.wait_for_bytes(BYTES_MIN / 2));
    let stats = pair.us.stats();
    assert_eq!((stats.is_multipath, stats.paths.len()), (is_multipath, 1));
    assert_eq!(stats.receive.packets_unauthentic, 0, "{:?}", stats.receive);
    let theirs = pair.them.stats();
    let frames = (theirs.frame_tx.path_acks, theirs.frame_rx.path_acks);
    assert_eq!((frames.0 > 0, frames.1 > 0), (is_multipath, is_multipath), "{frames:?}");
}

#[test]
fn noqs_server_does_not_negotiate_multipath() {
    check(Settings { their_paths_max: 0, ..Settings::new(Client::Ours, 2) }, false);
}

#[test]
fn noqs_client_does_not_negotiate_multipath() {
    check(Settings { their_paths_max: 0, ..Settings::new(Client::Theirs, 2) }, false);
}

#[test]
fn our_client_does_not_negotiate_multipath() {
    check(Settings { our_paths_max: 0, ..Settings::new(Client::Ours, 2) }, false);
}

#[test]
fn our_server_does_not_negotiate_multipath() {
    check(Settings { our_paths_max: 0, ..Settings::new(Client::Theirs, 2) }, false);
}

/// Packets of a connection that could have more paths are numbered and acknowledged as with
/// several.
#[test]
fn noqs_server_allows_one_path() {
    check(Settings { their_paths_max: 1, ..Settings::new(Client::Ours, 2) }, true);
}

#[test]
fn our_server_allows_one_path() {
    check(Settings { our_paths_max: 1, ..Settings::new(Client::Theirs, 2) }, true);
}
