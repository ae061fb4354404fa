//! Flows that keep to one path each.

use serde_json::Value;

use super::{SERVER, World};

/// Links whose delays differ by more than any flow likes.
const LINKS: [&str; 2] = ["rate=20Mb/s,delay=2ms,queue=256KiB", "rate=10Mb/s,delay=40ms,queue=256KiB"];

fn bytes_sent(peer: &Value) -> Vec<u64> {
    let paths = peer["paths"].as_array().expect("paths");
    paths.iter().map(|path| path["bytes_sent"].as_u64().expect("a number")).collect()
}

/// A tunnel whose client pins its flows carries this many at a time; returns what each end counted.
fn carried(world: &World, flows: &str) -> (Value, Value) {
    let (mut server, ticket) = world.serve(&["--pin"]);
    let mut client = world.litz(&world.client, &["up", "--pin", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    world.iperf(&["-C", "cubic", "-c", SERVER[0], "-n", "6M", "-P", flows]);
    World::end(client, server)
}

#[test]
fn one_pinned_flow_uses_one_link_and_its_packets_do_not_wait_for_others() {
    let Some((world, _links)) = World::emulated("pin", &LINKS, &["iperf3", "ss"]) else { return };
    let (sent, received) = carried(&world, "1");
    let bytes = bytes_sent(&sent);
    // The control connection of iperf3 is a flow, too.
    assert!(20 * bytes.iter().min().expect("two") < *bytes.iter().max().expect("two"), "{bytes:?}: {sent}");
    assert_eq!(received["order"]["held"], 0, "{received}");
}

#[test]
fn several_pinned_flows_use_both_links() {
    let Some((world, _links)) = World::emulated("pins", &LINKS, &["iperf3", "ss"]) else { return };
    let (sent, received) = carried(&world, "6");
    let bytes = bytes_sent(&sent);
    let sum: u64 = bytes.iter().sum();
    assert!(bytes.iter().all(|bytes| 8 * bytes > sum), "{bytes:?}: {sent}");
    assert_eq!(received["order"]["held"], 0, "{received}");
}

#[test]
fn a_pinned_flow_goes_on_when_its_link_is_cut() {
    let links = ["rate=20Mb/s,delay=2ms,down=1s..60s silent", "rate=10Mb/s,delay=10ms"];
    let Some((world, _links)) = World::emulated("pincut", &links, &["iperf3", "ss"]) else { return };
    let (sent, _) = carried(&world, "1");
    // More than the first link carries in its second.
    assert!(bytes_sent(&sent)[1] > 2_000_000, "{sent}");
}
