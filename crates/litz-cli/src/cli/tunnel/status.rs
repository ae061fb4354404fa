//! What a running tunnel tells about itself.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::cli::path_report;
use crate::tunnel::peers::Peer;

/// The counters of a peer and its paths.
pub(super) fn peer_json(peer: &Peer) -> Value {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &peer.counters;
    let stats = peer.connection.stats();
    json!({
        "remote": peer.connection.remote_addr().to_string(),
        "networks": peer.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "in": {
            "packets": get(&counters.packets_in), "bytes": get(&counters.bytes_in),
            "dropped": get(&counters.dropped), "marked": get(&counters.marked),
            "queued_bytes": get(&counters.queued_bytes),
        },
        "out": {
            "packets": get(&counters.packets_out), "bytes": get(&counters.bytes_out),
            "spoofed": get(&counters.spoofed), "malformed": get(&counters.malformed),
            "incomplete": get(&counters.incomplete),
        },
        "order": {
            "held": get(&counters.held), "lost": get(&counters.lost), "expired": get(&counters.expired),
            "late": get(&counters.late), "dropped": get(&counters.duplicates), "wait_us": get(&counters.wait_us),
        },
        "datagrams_lost": stats.send.datagrams_lost,
        "datagrams_dropped": stats.receive.datagrams_dropped,
        "paths": stats.paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
    })
}
