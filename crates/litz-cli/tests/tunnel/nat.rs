//! Both ends behind routers that translate addresses, as homes and offices have them.
//!
//! ```text
//!   client c0 ── n0 (NAT) ──┐
//!                           ├── ns (NAT, a forwarded port) ── s0 server
//!          c1 ── n1 (NAT) ──┘
//! ```

use std::io::Write;
use std::process::{Command, Stdio};

use super::stream::Stream;
use super::{SERVER, World, ip};
use crate::support::Litz;

/// The address of the server's router outside.
const PUBLIC: &str = "203.0.113.1";

/// The port that this router forwards to the server.
const PORT: u16 = 4433;

/// The rules of a client's router: it sends from the port of the client if it can.
const MASQUERADE: &str = "oifname wan masquerade";

impl World {
    /// A namespace that forwards packets.
    fn add_router(&mut self, side: &str) -> String {
        let name = format!("{}-{side}", self.client);
        self.routers.push(name.clone());
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("netns exec {name} sysctl -qw net.ipv4.ip_forward=1"));
        name
    }

    /// A client with so many links, each behind a router of its own, and a server behind another one. None
    /// without root or the programs.
    fn behind_nat(test: &str, links: usize) -> Option<(Self, Vec<String>)> {
        let mut world = Self::new(test, 0, &["python3", "ss", "nft", "conntrack"])?;
        let outside = world.add_router("ns");
        let (client, server) = (world.client.clone(), world.server.clone());
        ip(&format!("-n {outside} link add net type bridge"));
        ip(&format!("-n {outside} link set net up"));
        ip(&format!("-n {outside} addr add {PUBLIC}/24 dev net"));
        join(&server, "s0", &outside, "lan");
        address(&server, "s0", "10.2.0.2/24");
        address(&outside, "lan", "10.2.0.1/24");
        ip(&format!("-n {server} route add default via 10.2.0.1"));
        nft(
            &outside,
            &format!(
                "table ip nat {{\n chain pre {{ type nat hook prerouting priority -100; iifname net udp dport {PORT} dnat \
                 to 10.2.0.2; }}\n chain post {{ type nat hook postrouting priority 100; oifname net masquerade; }}\n}}\n"
            ),
        );
        let mut routers = Vec::new();
        for link in 0..links {
            let router = world.add_router(&format!("n{link}"));
            join(&client, &format!("c{link}"), &router, "lan");
            address(&client, &format!("c{link}"), &format!("10.1.{link}.2/24"));
            address(&router, "lan", &format!("10.1.{link}.1/24"));
            // A socket that is bound to a device uses the route of that device.
            ip(&format!("-n {client} route add default via 10.1.{link}.1 dev c{link} metric {}", 100 + link));
            join(&router, "wan", &outside, &format!("net{link}"));
            address(&router, "wan", &format!("203.0.113.{}/24", 10 + link));
            ip(&format!("-n {outside} link set net{link} master net"));
            nft(&router, "table ip nat {\n chain post { type nat hook postrouting priority 100; }\n}\n");
            translate(&router, MASQUERADE);
            routers.push(router);
        }
        Some((world, routers))
    }

    /// The addresses that the server sees the paths of its client come from.
    fn seen_by_server(&self) -> Vec<String> {
        let status = self.status_of(&self.server);
        let paths = status["peers"][0]["paths"].as_array().cloned().unwrap_or_default();
        paths.iter().filter_map(|path| path["remote"].as_str().map(str::to_owned)).collect()
    }
}

/// Joins two namespaces by a link.
fn join(left: &str, left_device: &str, right: &str, right_device: &str) {
    ip(&format!("link add {left_device} netns {left} type veth peer name {right_device} netns {right}"));
    ip(&format!("-n {left} link set {left_device} up"));
    ip(&format!("-n {right} link set {right_device} up"));
}

fn address(name: &str, device: &str, address: &str) {
    ip(&format!("-n {name} addr add {address} dev {device}"));
}

/// Gives a router these rules.
fn nft(router: &str, rules: &str) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", router, "nft", "-f", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("nft starts");
    child.stdin.take().expect("piped").write_all(rules.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it was started").success(), "nft: {rules}");
}

/// Replaces the rule of a client's router.
fn translate(router: &str, rule: &str) {
    nft(router, &format!("flush chain ip nat post\nadd rule ip nat post {rule}\n"));
}

/// Lets a router forget its flows, as when it was started again.
fn forget_flows(router: &str) {
    let output = World::in_namespace(router, "conntrack", &["-F"]).output().expect("conntrack");
    assert!(output.status.success(), "{output:?}");
}

fn serve_args(port: &str) -> [String; 4] {
    ["--listen".to_owned(), format!(":{PORT}"), "--advertise".to_owned(), format!("{PUBLIC}:{port}")]
}

#[test]
fn an_inner_connection_survives_routers_that_translate_anew_on_each_link() {
    let Some((world, routers)) = World::behind_nat("nat", 2) else { return };
    let _echo = world.echo();
    let (mut server, ticket) = world.serve(&serve_args(&PORT.to_string()).each_ref().map(String::as_str));
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    let mut stream = Stream::start(&world, SERVER[0]);
    stream.await_progress(50);
    for (link, router) in routers.iter().enumerate() {
        // The router has forgotten the flow; the next packet gets the same port outside.
        forget_flows(router);
        stream.await_progress(100);
        // The same, and other ports outside.
        let ports = 20_000 + 1000 * link;
        translate(router, &format!("oifname wan meta l4proto udp masquerade to :{ports}-{}", ports + 99));
        forget_flows(router);
        stream.await_progress(100);
        let prefix = format!("203.0.113.{}:{}", 10 + link, ports / 100);
        while !world.seen_by_server().iter().any(|remote| remote.starts_with(&prefix)) {
            stream.await_progress(1);
        }
    }
    world.await_paths(2);
    stream.finish();
    let (sent, _) = World::end(client, server);
    let paths = sent["paths"].as_array().expect("a list");
    assert_eq!(paths.len(), 2, "each path was kept: {sent}");
}

/// The mark of the tunnel's own packets.
const MARK: &str = "0x6c69747a";

#[test]
fn a_kill_switch_takes_no_path_away_from_a_server_that_is_beyond_gateways() {
    let Some((world, _routers)) = World::behind_nat("gates", 2) else { return };
    // The second link has a route, and gets its address later.
    ip(&format!("-n {} addr flush dev c1", world.client));
    ip(&format!("-n {} route add default via 10.1.1.1 dev c1 onlink metric 101", world.client));
    let arguments = serve_args(&PORT.to_string());
    let (mut server, ticket) = world.serve(&arguments.each_ref().map(String::as_str));
    let mut client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(1);
    address(&world.client, "c1", "10.1.1.2/24");
    world.await_paths(2);
    // The routes of other packets lead to the server over none of the links.
    let has_route = |link: u8, mark: &str| {
        let (own, device) = (format!("10.1.{link}.2"), format!("c{link}"));
        let get = ["route", "get", "fibmatch", PUBLIC, "from", &own, "oif", &device, "mark", mark];
        World::in_namespace(&world.client, "ip", &get).output().expect("ip").status.success()
    };
    assert_eq!([0, 1].map(|link| (has_route(link, "0"), has_route(link, MARK))), [(false, true); 2]);

    server.kill();
    server = world.serve(&arguments.each_ref().map(String::as_str)).0;
    client.wait_for("retrying");
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);

    // Another command takes over what one that was killed has left.
    client.kill();
    client = world.litz(&world.client, &["up", "--all", "--kill-switch", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    world.await_paths(2);
    server.wait_for("gone");
    World::end(client, server);
}

#[test]
fn a_strict_reverse_path_filter_is_named_if_a_path_does_not_answer() {
    let Some((world, _routers)) = World::behind_nat("strict", 2) else { return };
    ip(&format!("netns exec {} sysctl -qw net.ipv4.conf.all.rp_filter=1", world.client));
    let (mut server, ticket) = world.serve(&serve_args(&PORT.to_string()).each_ref().map(String::as_str));
    let mut client = world.litz(&world.client, &["up", &ticket]);
    client.wait_for("up");
    server.wait_for("client");
    let warning = client.wait_until(|event| event["kind"] == "path_unanswered");
    let message = warning["message"].as_str().expect("text");
    assert!(message.contains("`sysctl -w net.ipv4.conf.c1.rp_filter=2`"), "{message}");
    // It helps.
    ip(&format!("netns exec {} sysctl -qw net.ipv4.conf.c1.rp_filter=2", world.client));
    world.await_paths(2);
    let warnings = client.seen.iter().filter(|event| event["kind"] == "path_unanswered");
    assert_eq!(warnings.count(), 1, "the other link answers");
    World::end(client, server);
}

#[test]
fn a_sender_names_a_strict_reverse_path_filter_too() {
    let Some((world, _routers)) = World::behind_nat("strictsend", 2) else { return };
    ip(&format!("netns exec {} sysctl -qw net.ipv4.conf.c1.rp_filter=1", world.client));
    let litz = |name: &str, arguments: &[&str]| {
        let state = format!("--state-dir={}", world.path(name).display());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, env!("CARGO_BIN_EXE_litz")]).args(arguments).args([&state, "--json"]);
        Litz::of(&mut command)
    };
    let inbox = world.place.inbox().display().to_string();
    let serve = serve_args(&PORT.to_string());
    let mut receiver = litz(&world.server, &[&["recv", &inbox], &serve.each_ref().map(String::as_str)[..]].concat());
    let ticket = receiver.wait_for("listening")["ticket"].as_str().expect("a ticket").to_owned();
    let file = world.place.file("file", 4_000_000, 1).display().to_string();
    let mut sender = litz(&world.client, &["send", "--rate=4Mb/s", &file, &ticket]);
    let warning = sender.wait_until(|event| event["kind"] == "path_unanswered");
    let message = warning["message"].as_str().expect("text");
    assert!(message.contains("`sysctl -w net.ipv4.conf.c1.rp_filter=2`"), "{message}");
    sender.succeed();
    receiver.succeed();
}

/// How many packets the reverse path filter of a host has dropped.
fn filtered(name: &str) -> u64 {
    let output = World::in_namespace(name, "cat", &["/proc/net/netstat"]).output().expect("cat");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (names, mut values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.into_iter().position(|name| name == "IPReversePathFilter").expect("its counter");
    values.nth(at).expect("its value").parse().expect("a number")
}

#[test]
fn a_reverse_path_filter_lets_the_servers_packets_in() {
    let Some((world, _routers)) = World::behind_nat("filter", 1) else { return };
    let rules = || World::in_namespace(&world.client, "ip", &["rule", "show"]).output().expect("ip").stdout;
    let before = rules();
    let _echo = world.echo();
    for (filter, options) in
        [("1", &["--all"][..]), ("1", &["--all", "--kill-switch"]), ("2", &["--all", "--kill-switch"])]
    {
        ip(&format!("netns exec {} sysctl -qw net.ipv4.conf.all.rp_filter={filter}", world.client));
        let (mut server, ticket) = world.serve(&serve_args(&PORT.to_string()).each_ref().map(String::as_str));
        let arguments = [&["up"], options, &[&ticket]].concat();
        let mut client = world.litz(&world.client, &arguments);
        client.wait_for("up");
        server.wait_for("client");
        client.kill();
        client = world.litz(&world.client, &arguments);
        client.wait_for("up");
        server.wait_for("client");
        server.wait_for("gone");
        let mut stream = Stream::start(&world, SERVER[0]);
        stream.await_progress(100);
        stream.finish();
        World::end(client, server);
        assert_eq!(rules(), before);
    }
    assert_eq!(filtered(&world.client), 0);

    // Without the rule, the filter drops them.
    ip(&format!("netns exec {} sysctl -qw net.ipv4.conf.all.rp_filter=1", world.client));
    let (server, ticket) = world.serve(&serve_args(&PORT.to_string()).each_ref().map(String::as_str));
    let mut client = world.litz(&world.client, &["up", "--all", &ticket]);
    client.wait_for("up");
    // The connection's own packets suffice, as each path carries one every 2 s. The command makes the rule again.
    while filtered(&world.client) == 0 {
        let rule = ["-n", &world.client, "rule", "del", "priority", "32099"];
        let _gone = Command::new("ip").args(rule).output().expect("the command ip");
    }
    drop((client, server));
}
