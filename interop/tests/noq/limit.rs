//! A client that wants more paths than the server allows (multipath draft-21, sections 4.6 and
//! 4.7).

use noq::{PathError, PathStatus};

use crate::abandon::By;
use crate::pair::{Client, Pair, Settings};

/// Bytes in each direction between one event and the next.
const BYTES_BETWEEN_EVENTS: u64 = 2_000_000;

/// Our client waits, and opens the path by itself as soon as another is closed.
#[test]
fn our_clients_path_waits_until_noqs_server_allows_it() {
    let pair = Pair::connect(Settings { our_paths_max: 4, their_paths_max: 2, ..Settings::new(Client::Ours, 3) });
    pair.open_path(1, false);
    pair.wait_until_open(1);
    pair.open_path(2, false);
    pair.wait_for("PATHS_BLOCKED", || (pair.them.stats().frame_rx.paths_blocked > 0).then_some(()));
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert_eq!(pair.us.stats().paths.len(), 2);
        pair.abandon(By::Us, 1);
        pair.wait_until_open(2);
        pair.send_only_on(&pair.theirs(2), &pair.theirs(0));
    });
}

/// noq's client finds that it cannot, sends PATHS_BLOCKED, and may try again.
#[test]
fn noqs_clients_path_is_refused_until_our_server_allows_it() {
    let pair = Pair::connect(Settings { our_paths_max: 2, their_paths_max: 4, ..Settings::new(Client::Theirs, 3) });
    pair.open_path(1, false);
    pair.wait_until_open(1);
    let refused = pair.runtime.block_on(pair.them.open_path(pair.their_tuple(2), PathStatus::Available));
    assert!(matches!(refused, Err(PathError::MaxPathIdReached)));
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_BETWEEN_EVENTS);
        assert!(pair.them.stats().frame_tx.paths_blocked > 0);
        assert_eq!(pair.us.stats().paths.len(), 2);
        pair.abandon(By::Them, 1);
        pair.open_path(2, false);
        pair.wait_until_open(2);
        pair.send_only_on(&pair.theirs(2), &pair.theirs(0));
    });
}
