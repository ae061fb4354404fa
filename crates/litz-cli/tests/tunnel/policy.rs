//! What a server may set at a client, and networks that both hosts have already.

use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::{World, ip};
use crate::support::Litz;

impl World {
    /// Gives a host a network, with a link to itself that no other host is at.
    fn add_network(&self, name: &str, device: &str, address: &str) {
        ip(&format!("-n {name} link add {device} type veth peer name {device}-peer"));
        ip(&format!("-n {name} link set {device}-peer up"));
        ip(&format!("-n {name} link set {device} up"));
        ip(&format!("-n {name} addr add {address} dev {device}"));
    }

    /// The device that the client's packets to an address leave by; none if they are refused.
    fn device_to(&self, address: &str) -> Option<String> {
        let output = Command::new("ip").args(["-n", &self.client, "route", "get", address]).output().expect("ip");
        let text = String::from_utf8(output.stdout).expect("text");
        let device = text.split_whitespace().skip_while(|word| *word != "dev").nth(1);
        device.map(str::to_owned)
    }

    fn await_device_to(&self, address: &str, device: &str) {
        for _ in 0..10_000 {
            if self.device_to(address).as_deref() == Some(device) {
                return;
            }
        }
        panic!("packets to {address} leave by {:?}, not {device}", self.device_to(address));
    }

    fn await_state(&self, state: &str) -> Value {
        for _ in 0..10_000 {
            let status = self.status();
            if status["state"] == state {
                return status;
            }
        }
        panic!("it is not {state}: {}", self.status());
    }
}

/// What the status says that is left out, and why.
fn left_out(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let list = status["left_out"].as_array().expect("a list").iter();
    list.map(|left_out| (text(&left_out["what"]), text(&left_out["reason"]))).collect()
}

fn warnings(litz: &Litz, kind: &str) -> usize {
    litz.seen.iter().filter(|event| event["kind"] == kind).count()
}

#[test]
fn a_server_gets_no_packets_that_the_client_could_send_unless_the_user_asks() {
    let Some(world) = World::new("policy", 1, &[]) else { return };
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    world.add_network(&world.client, "lan0", "192.168.50.1/24");
    let named = [
        ("192.168.50.7/32", "own_network", "192.168.50.7"),
        ("192.168.50.128/25", "own_network", "192.168.50.200"),
        ("192.168.0.0/16", "own_network", "192.168.3.4"),
        // The router.
        ("10.9.0.2/32", "own_network", "10.9.0.2"),
        ("169.254.169.254/32", "local", "169.254.169.254"),
        ("224.0.0.251/32", "local", "224.0.0.251"),
        ("8.8.8.8/32", "public", "8.8.8.8"),
        ("203.0.113.0/24", "public", "203.0.113.9"),
        ("10.128.0.0/9", "sum", "10.130.0.1"),
    ];
    let routes: Vec<String> = named.iter().map(|(route, ..)| format!("--route={route}")).collect();
    let mut serve: Vec<&str> = routes.iter().map(String::as_str).collect();
    serve.push("--route=172.20.0.0/16");
    let before: Vec<_> = named.iter().map(|(.., address)| world.device_to(address)).collect();
    let (mut server, ticket) = world.serve(&serve);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    assert_eq!(client.wait_for("up")["routes"], json!(["172.20.0.0/16"]));
    server.wait_for("client");
    let after: Vec<_> = named.iter().map(|(.., address)| world.device_to(address)).collect();
    assert_eq!(after, before);
    assert_eq!(world.device_to("172.20.1.1").as_deref(), Some("litz0"));
    let expected: Vec<_> = named.iter().map(|(route, why, _)| ((*route).to_owned(), (*why).to_owned())).collect();
    assert_eq!(left_out(&world.status()), expected);
    assert_eq!(warnings(&client, "route_left_out"), named.len(), "{:#?}", client.seen);
    World::end(client, server);

    // The user may ask for each, but for what stays on a link.
    let (mut server, ticket) = world.serve(&serve);
    let accept = ["--accept-route=192.168.50.0/24", "--accept-route=8.8.8.8", "--accept-route=10.128.0.0/16"];
    let mut client = world.litz(&world.client, &[&["up"], &accept[..], &[&ticket]].concat());
    let up = client.wait_for("up");
    server.wait_for("client");
    let taken = ["192.168.50.7/32", "192.168.50.128/25", "8.8.8.8/32", "10.128.0.0/16", "172.20.0.0/16"];
    assert_eq!(up["routes"], json!(taken));
    let led = ["192.168.50.7", "192.168.50.200", "8.8.8.8", "10.128.3.4"].map(|address| world.device_to(address));
    assert_eq!(led, [(); 4].map(|()| Some("litz0".to_owned())));
    assert_eq!(world.device_to("192.168.50.9").as_deref(), Some("lan0"), "the server did not name it");
    assert_eq!(world.device_to("10.130.0.1").as_deref(), Some("c0"), "the user did not ask for it");
    World::end(client, server);
}

#[test]
fn an_address_that_leads_other_packets_into_the_tunnel_or_is_a_neighbours_is_refused() {
    let Some(world) = World::new("address", 1, &[]) else { return };
    ip(&format!("-n {} route add default via 10.9.0.2 dev c0", world.client));
    world.add_network(&world.client, "lan0", "192.168.50.1/24");
    world.add_network(&world.client, "wan0", "100.64.0.2/32");
    for (address, words) in [
        ("130.0.0.1/5", "it is a large part of all addresses; --all"),
        ("8.8.8.1/24", "public addresses by itself; --accept-route 8.8.8.0/24"),
        ("192.168.50.9/28", "this host has the network 192.168.50.0/24 of lan0, whose hosts"),
        ("192.168.0.1/16", "this host has the network 192.168.50.0/24 of lan0. Give the server an --address"),
        ("2001:db8::1/64", "--accept-route 2001:db8::/64"),
    ] {
        let (mut server, ticket) = world.serve(&["--address", address, "--new-ticket"]);
        world.litz(&world.client, &["up", &ticket]).fail(2, words);
        server.kill();
        assert!(
            world.device_to("8.8.8.8").as_deref() == Some("c0")
                && world.device_to("192.168.50.10").as_deref() == Some("lan0")
        );
    }
    let (mut server, ticket) = world.serve(&["--address", "8.8.8.1/24", "--new-ticket"]);
    let mut client = world.litz(&world.client, &["up", "--accept-route=8.8.8.0/24", &ticket]);
    assert_eq!(client.wait_for("up")["addresses"], json!(["8.8.8.2/24"]));
    server.wait_for("client");
    assert_eq!(world.device_to("8.8.8.8").as_deref(), Some("litz0"));
    World::end(client, server);
}

#[test]
fn networks_that_the_client_gets_later_are_its_own_and_the_servers_when_they_are_gone() {
    let Some(world) = World::new("later", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&["--route=192.168.7.0/24", "--route=192.168.8.0/24"]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    assert_eq!(world.device_to("192.168.7.9").as_deref(), Some("litz0"));
    // Around the route, so that the kernel would go on to send these packets into the tunnel.
    world.add_network(&world.client, "lan0", "192.168.7.1/23");
    world.await_device_to("192.168.7.9", "lan0");
    assert_eq!(world.device_to("192.168.8.9").as_deref(), Some("litz0"));
    let mut statuses = (0..10_000).map(|_| world.status());
    let status = statuses.find(|status| !left_out(status).is_empty()).expect("it is shown");
    assert_eq!(left_out(&status), [("192.168.7.0/24".to_owned(), "own_network".to_owned())]);
    let networks = status["peers"][0]["networks"].as_array().expect("a list");
    assert!(networks.contains(&json!("192.168.8.0/24")) && !networks.contains(&json!("192.168.7.0/24")), "{status}");
    ip(&format!("-n {} link del lan0", world.client));
    world.await_device_to("192.168.7.9", "litz0");

    // The tunnel's own network: the address goes, until the other network is gone.
    world.add_network(&world.client, "lan1", "10.76.0.200/16");
    client.wait_for("down");
    let status = world.await_state("connecting");
    let reason = status["reason"].as_str().expect("a reason");
    assert!(reason.contains("this host has the network 10.76.0.0/16 of lan1"), "{reason}");
    world.await_device_to("10.76.0.2", "lan1");
    ip(&format!("-n {} link del lan1", world.client));
    client.wait_for("up");
    assert_eq!(world.device_to("10.76.0.1").as_deref(), Some("litz0"));
    assert_eq!(
        (warnings(&client, "route_left_out"), warnings(&client, "network_collides")),
        (1, 1),
        "{:#?}",
        client.seen
    );
    server.wait_for("client");
    World::end(client, server);
}

#[test]
fn networks_that_the_client_gets_while_its_server_is_away_are_its_own() {
    let Some(world) = World::new("away", 1, &[]) else { return };
    let port = "--listen=:4433";
    let (mut server, ticket) = world.serve(&[port, "--route=192.168.7.0/24"]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    server.kill();
    client.wait_for("retrying");
    assert_eq!(world.device_to("192.168.7.9").as_deref(), Some("litz0"));
    world.add_network(&world.client, "lan0", "192.168.7.1/23");
    world.await_device_to("192.168.7.9", "lan0");
    assert_eq!(world.status()["state"], "connecting");
    ip(&format!("-n {} link del lan0", world.client));
    world.await_device_to("192.168.7.9", "litz0");
    // The tunnel's own network: the address goes, although no server is there.
    world.add_network(&world.client, "lan1", "10.76.0.200/16");
    world.await_device_to("10.76.0.2", "lan1");
    ip(&format!("-n {} link del lan1", world.client));
    server = world.serve(&[port, "--route=192.168.7.0/24"]).0;
    client.wait_for("up");
    server.wait_for("client");
    assert_eq!(world.device_to("192.168.7.9").as_deref(), Some("litz0"));
    assert_eq!(warnings(&client, "network_collides"), 1, "{:#?}", client.seen);
    World::end(client, server);
}

#[test]
fn networks_that_cannot_be_read_at_once_are_followed_as_soon_as_they_can() {
    let Some(world) = World::new("unread", 1, &[]) else { return };
    let (mut server, ticket) = world.serve(&["--route=192.168.7.0/24"]);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    // Files that are open stay so, and there are no more.
    let limit = |litz: &Litz, files: u64| {
        let process = Pid::from_raw(litz.id().cast_signed());
        let limit = Rlimit { current: Some(files), maximum: Some(4096) };
        prlimit(process, Resource::Nofile, limit).expect("it is this test's");
    };
    [&client, &server].iter().for_each(|litz| limit(litz, 3));
    world.add_network(&world.client, "lan0", "192.168.7.1/23");
    world.add_network(&world.server, "lan1", "10.76.0.129/25");
    for litz in [&mut client, &mut server] {
        let is_told = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["kind"] == "network_changed" && message.starts_with("cannot read the networks of this host")
        };
        litz.wait_until(is_told);
    }
    [&client, &server].iter().for_each(|litz| limit(litz, 4096));
    world.await_device_to("192.168.7.9", "lan0");
    server.wait_until(|event| event["kind"] == "network_collides");
    ip(&format!("-n {} link del lan1", world.server));
    World::end(client, server);
}

#[test]
fn a_server_chooses_another_network_than_its_hosts_and_refuses_one_that_the_user_chose() {
    let Some(world) = World::new("collides", 1, &["ping"]) else { return };
    world.add_network(&world.server, "lan0", "10.76.3.4/16");
    ip(&format!("-n {} route add fd76:6c69:747a::/48 dev lan0", world.server));
    let (mut server, ticket) = world.serve(&[]);
    let listening = server.seen.iter().find(|event| event["event"] == "listening").expect("it was waited for");
    assert_eq!(listening["tunnel_addresses"], json!(["10.77.0.1/24", "fd76:6c69:747b::1/64"]));
    assert_eq!(warnings(&server, "network_collides"), 2, "{:#?}", server.seen);
    let mut client = world.litz(&world.client, &["up", &ticket]);
    assert_eq!(client.wait_for("up")["addresses"][0], "10.77.0.2/24");
    server.wait_for("client");
    world.succeed("ping", &["-c", "1", "10.77.0.1"]);

    // Within it, later.
    world.add_network(&world.server, "lan1", "10.77.0.129/25");
    let warning = server.wait_for("warning");
    let message = warning["message"].as_str().expect("text");
    assert!(message.contains("10.77.0.128/25 of lan1"), "{message}");
    World::end(client, server);
    for (address, own) in
        [("10.76.0.1/16", "10.76.0.0/16"), ("10.76.9.1/24", "10.76.0.0/16"), ("10.0.0.1/8", "10.77.0.128/25")]
    {
        let words = format!("collides with the network {own} of lan");
        world.litz(&world.server, &["serve", "--address", address]).fail(2, &words);
    }
}

#[test]
fn each_end_has_all_addresses_of_a_family() {
    let Some(world) = World::new("two", 1, &["ping"]) else { return };
    let addresses = ["10.76.0.1/24", "10.80.0.1/24", "fd76::1/64", "fd80::1/64"];
    let serve: Vec<String> = addresses.iter().map(|address| format!("--address={address}")).collect();
    let (mut server, ticket) = world.serve(&serve.iter().map(String::as_str).collect::<Vec<_>>());
    let mut client = world.litz(&world.client, &["up", &ticket]);
    let up = client.wait_for("up");
    assert_eq!(up["addresses"], json!(["10.76.0.2/24", "10.80.0.2/24", "fd76::2/64", "fd80::2/64"]));
    server.wait_for("client");
    for address in ["10.76.0.1", "10.80.0.1", "fd76::1", "fd80::1"] {
        world.succeed("ping", &["-c", "1", address]);
    }
    World::end(client, server);
}
