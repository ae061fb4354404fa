//! A client that wants more paths than the server allows (multipath draft-21, sections 4.6 and 4.7).

use noq::{PathError, PathStatus};

use crate::abandon::By;
use crate::pair::{Client, Pair, Wish};

/// Bytes each way between one event and the next.
const A_WHILE: u64 = 2_000_000;

/// Our client waits, and opens the path by itself as soon as another is over.
#[test]
fn our_clients_path_waits_until_noqs_server_allows_it() {
    let pair = Pair::connect(Wish { our_paths_max: 4, their_paths_max: 2, ..Wish::new(Client::Ours, 3) });
    pair.open_path(1, false);
    pair.wait_until_open(1);
    pair.open_path(2, false);
    pair.wait_for("PATHS_BLOCKED", || (pair.them.stats().frame_rx.paths_blocked > 0).then_some(()));
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        assert_eq!(pair.us.stats().paths.len(), 2);
        pair.abandon(By::Us, 1);
        pair.wait_until_open(2);
        pair.turn_to(&pair.theirs(2), &pair.theirs(0));
    });
}

/// noq's client is told that it cannot, says PATHS_BLOCKED, and may try again.
#[test]
fn noqs_clients_path_is_refused_until_our_server_allows_it() {
    let pair = Pair::connect(Wish { our_paths_max: 2, their_paths_max: 4, ..Wish::new(Client::Theirs, 3) });
    pair.open_path(1, false);
    pair.wait_until_open(1);
    let refused = pair.runtime.block_on(pair.them.open_path(pair.their_tuple(2), PathStatus::Available));
    assert!(matches!(refused, Err(PathError::MaxPathIdReached)));
    pair.transfer(|flow| {
        flow.goes_on_for(A_WHILE);
        assert!(pair.them.stats().frame_tx.paths_blocked > 0);
        assert_eq!(pair.us.stats().paths.len(), 2);
        pair.abandon(By::Them, 1);
        pair.open_path(2, false);
        pair.wait_until_open(2);
        pair.turn_to(&pair.theirs(2), &pair.theirs(0));
    });
}
