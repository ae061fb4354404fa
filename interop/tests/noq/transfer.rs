//! Data in both directions over two and over four paths.

use litz::PathStats;

use crate::flow::BYTES_MIN;
use crate::pair::{Client, Pair, Settings};

/// Our bytes that are acknowledged on each path, at least.
const OUR_BYTES_MIN: u64 = 100_000;

/// STREAM frames that noq sends on each path, at least. Few, because noq 1.4 fills the oldest path
/// and uses others only while the congestion window of that one is full: rarely, once it has grown.
const THEIR_FRAMES_MIN: u64 = 4;

fn check(client: Client, links: u8) {
    let pair = Pair::with_paths(Settings::new(client, links));
    assert!(pair.us.stats().is_multipath && pair.them.is_multipath_enabled());
    let theirs: Vec<_> = (0..u32::from(links)).map(|id| pair.theirs(id)).collect();
    // A path may be slow to begin on a busy machine, so the transfer goes on until each has its share.
    let has_share = |ours: &PathStats, theirs: &noq::Path| {
        ours.bytes_acked >= OUR_BYTES_MIN && theirs.stats().frame_tx.stream >= THEIR_FRAMES_MIN
    };
    pair.transfer(|flow| {
        flow.wait_for_bytes(BYTES_MIN);
        pair.wait_for("a share of the data on every path", || {
            pair.us.stats().paths.iter().zip(&theirs).all(|(ours, theirs)| has_share(ours, theirs)).then_some(())
        });
    });
    let stats = pair.us.stats();
    assert_eq!(stats.paths.len(), usize::from(links));
    assert_eq!(stats.receive.packets_unauthentic, 0, "every path has its own nonces: {:?}", stats.receive);
    for (ours, theirs) in stats.paths.iter().zip(&theirs) {
        assert!(has_share(ours, theirs));
        let theirs = theirs.stats();
        assert!(theirs.frame_rx.stream > 0, "{ours:?} {theirs:?}");
        // Both count the same packets, unless the system has dropped some.
        assert!(ours.bytes_received <= theirs.udp_tx.bytes && theirs.udp_rx.bytes <= ours.bytes_sent);
        assert!(ours.bytes_received > theirs.udp_tx.bytes / 2, "{ours:?} {theirs:?}");
    }
}

#[test]
fn our_client_and_noqs_server_over_two_paths() {
    check(Client::Ours, 2);
}

#[test]
fn our_client_and_noqs_server_over_four_paths() {
    check(Client::Ours, 4);
}

#[test]
fn noqs_client_and_our_server_over_two_paths() {
    check(Client::Theirs, 2);
}

#[test]
fn noqs_client_and_our_server_over_four_paths() {
    check(Client::Theirs, 4);
}
