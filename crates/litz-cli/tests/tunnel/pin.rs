//! Flows that keep to one path each.

use std::process::Stdio;

use serde_json::Value;

use super::{Running, SERVER, World, ip};

/// Links whose delays differ by more than any flow likes.
const LINKS: [&str; 2] = ["rate=20Mb/s,delay=2ms,queue=256KiB", "rate=10Mb/s,delay=60ms,queue=256KiB"];

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

/// Packets of a path keep their order. A machine that stands still makes a path fail, and flows go on elsewhere.
fn assert_few_held(received: &Value) {
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(50 * number(&received["order"]["held"]) <= number(&received["out"]["packets"]), "{received}");
}

#[test]
fn one_pinned_flow_uses_one_link_and_its_packets_do_not_wait_for_others() {
    let Some((world, _links)) = World::emulated("pin", &LINKS, &["iperf3", "ss"]) else { return };
    let (sent, received) = carried(&world, "1");
    let bytes = bytes_sent(&sent);
    // The control connection of iperf3 is a flow, too.
    assert!(20 * bytes.iter().min().expect("two") < *bytes.iter().max().expect("two"), "{bytes:?}: {sent}");
    assert_few_held(&received);
}

#[test]
fn several_pinned_flows_use_both_links() {
    let Some((world, _links)) = World::emulated("pins", &LINKS, &["iperf3", "ss"]) else { return };
    let (sent, received) = carried(&world, "6");
    let bytes = bytes_sent(&sent);
    let sum: u64 = bytes.iter().sum();
    assert!(bytes.iter().all(|bytes| 8 * bytes > sum), "{bytes:?}: {sent}");
    assert_few_held(&received);
}

/// Without the option. While the flows send, the status says which paths they use.
#[test]
fn flows_share_links_of_unlike_delays_and_the_status_says_which_is_left_out() {
    let Some((world, _links)) = World::emulated("unlike", &LINKS, &["iperf3", "ss"]) else { return };
    let (client, server) = world.tunnel();
    world.await_paths(2);
    let are_shared = |paths: &[Value]| paths.iter().all(|path| path["flows"].as_u64() > Some(0));
    let is_one_left_out = |paths: &[Value]| {
        let left_out = paths.iter().filter(|path| path["left_out"].is_string() && path["flows"] == 0);
        left_out.count() == 1 && paths.iter().filter(|path| path["flows"] == 1).count() == 1
    };
    for (flows, is_as_wanted) in [("6", &are_shared as &dyn Fn(&[Value]) -> bool), ("1", &is_one_left_out)] {
        let listener = world.start("iperf3", &["-s", "-1"]);
        world.await_port(5201);
        let arguments = ["-C", "cubic", "-c", SERVER[0], "-t", "50", "-P", flows];
        let mut sender = World::in_namespace(&world.client, "iperf3", &arguments);
        let mut sender = Running(sender.stdout(Stdio::null()).spawn().expect("iperf3 starts"));
        loop {
            let status = world.status();
            let paths = status["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
            if paths.len() == 2 && is_as_wanted(&paths) {
                break;
            }
            assert!(sender.0.try_wait().expect("it was started").is_none(), "{flows} flows have ended: {status}");
        }
        drop((sender, listener));
    }
    let (_, received) = World::end(client, server);
    assert_few_held(&received);
}

/// Nothing is known of the links when the flow begins. The fast one is not the near one.
#[test]
fn a_flow_finds_the_link_that_gives_it_most() {
    let links = ["rate=2Mb/s,delay=2ms", "rate=20Mb/s,delay=60ms,queue=256KiB"];
    let Some((world, _links)) = World::emulated("far", &links, &["iperf3", "ss"]) else { return };
    let (client, server) = world.tunnel();
    world.await_paths(2);
    world.iperf(&["-C", "cubic", "-c", SERVER[0], "-n", "6M"]);
    let (sent, received) = World::end(client, server);
    let is_far = |path: &&Value| path["round_trip_min_us"].as_u64() > Some(100_000);
    let far = sent["paths"].as_array().expect("paths").iter().find(is_far).expect("the far link");
    assert!(far["bytes_sent"].as_u64() > Some(4_500_000), "{sent}");
    // The peer passes over what has filled the other link.
    assert_eq!(received["out"]["malformed"], 0, "{received}");
}

#[test]
fn a_pinned_flow_goes_on_when_its_link_is_cut() {
    let links = ["rate=20Mb/s,delay=2ms", "rate=10Mb/s,delay=10ms"];
    let Some((world, _links)) = World::emulated("pincut", &links, &["iperf3", "ss"]) else { return };
    let (mut server, ticket) = world.serve(&["--pin"]);
    let mut client = world.litz(&world.client, &["up", "--pin", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    let mut listener = world.start("iperf3", &["-s", "-1"]);
    world.await_port(5201);
    let mut sender = World::in_namespace(&world.client, "iperf3", &["-C", "cubic", "-c", SERVER[0], "-n", "6M"]);
    let mut sender = Running(sender.stdout(Stdio::null()).spawn().expect("iperf3 starts"));
    let (used, remote) = loop {
        let status = world.status();
        let paths = status["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
        let is_used = |path: &&Value| path["bytes_sent"].as_u64() > Some(500_000);
        if let Some(path) = paths.iter().find(is_used) {
            break (path["path"].clone(), path["remote"].as_str().expect("an address").to_owned());
        }
        assert!(sender.0.try_wait().expect("it was started").is_none(), "the flow has ended: {status}");
    };
    // An address of the link names its device.
    let link = remote.strip_prefix("10.9.").and_then(|rest| rest.split('.').next()).expect("a link");
    ip(&format!("-n {} link set l{link} down", world.client));
    assert!(sender.0.wait().expect("it was started").success());
    assert!(listener.0.wait().expect("it was started").success());
    let (sent, _) = World::end(client, server);
    let paths = sent["paths"].as_array().expect("paths");
    let others = paths.iter().filter(|path| path["path"] != used).map(|path| path["bytes_sent"].as_u64());
    assert!(others.flatten().sum::<u64>() > 1_000_000, "{sent}");
}
