//! Packets that go on from a server whose host forwards none are lost, and both ends say so.

use serde_json::Value;

use super::{World, ip};
use crate::support::Litz;

const ROUTES: [&str; 2] = ["--route=192.168.7.0/24", "--route=fd07::/64"];

impl World {
    fn set_forwarding(&self, ipv4: bool, ipv6: bool) {
        for (setting, is_on) in [("net.ipv4.ip_forward", ipv4), ("net.ipv6.conf.all.forwarding", ipv6)] {
            ip(&format!("netns exec {} sysctl -qw {setting}={}", self.server, u8::from(is_on)));
        }
    }
}

/// What the command has warned of.
fn warned(command: &Litz) -> Vec<String> {
    let warnings = command.seen.iter().filter(|event| event["kind"] == "not_forwarding");
    warnings.map(|event| event["message"].as_str().expect("text").to_owned()).collect()
}

fn has(warnings: &[String], words: &[&str]) -> bool {
    warnings.len() == 1 && words.iter().all(|words| warnings[0].contains(words))
}

#[test]
fn both_ends_warn_of_routes_and_clients_that_the_server_does_not_forward_to() {
    let Some(world) = World::new("nofwd", 1, &["sysctl"]) else { return };
    world.set_forwarding(false, false);
    let (mut server, ticket) = world.serve(&ROUTES);
    let both = "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1";
    assert!(has(&warned(&server), &["IPv4 and IPv6", both]), "{:#?}", server.seen);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    assert!(has(&warned(&client), &["the server does not", both]), "{:#?}", client.seen);
    server.wait_for("client");
    World::end(client, server);

    // One IP version, told to each client as it is then.
    let (mut server, ticket) = world.serve(&ROUTES[..1]);
    assert!(has(&warned(&server), &["packets of IPv4:", "ip_forward=1`"]), "{:#?}", server.seen);
    world.set_forwarding(true, false);
    let mut client = world.litz(&world.client, &["up", "--all", &ticket]);
    client.wait_for("up");
    assert!(has(&warned(&client), &["packets of IPv6:", "conf.all.forwarding=1`"]), "{:#?}", client.seen);
    server.wait_for("client");
    World::end(client, server);

    // One client reaches no other one.
    let keys = world.path("keys");
    let key = World::key_in(&format!("--state-dir={}", world.path("state-true").display()));
    std::fs::write(&keys, format!("{key}\n")).expect("a file");
    let allow = ["--allow", keys.to_str().expect("text")];
    let (server, _) = world.serve(&allow);
    assert_eq!(warned(&server), Vec::<String>::new());
    drop(server);

    // Several clients, which may reach each other.
    std::fs::write(&keys, format!("{key}\ned25519:{}\n", "a".repeat(52))).expect("a file");
    let (server, _) = world.serve(&allow);
    assert!(has(&warned(&server), &["packets of IPv6:"]), "{:#?}", server.seen);
    drop(server);

    world.set_forwarding(true, true);
    let (mut server, ticket) = world.serve(&[&allow[..], &ROUTES].concat());
    let mut client = world.litz(&world.client, &["up", "--all", "--by-key", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    assert_eq!([warned(&server), warned(&client)], [vec![], Vec::<String>::new()]);
    let (sent, _): (Value, Value) = World::end(client, server);
    assert!(sent["paths"].is_array(), "{sent}");
}
