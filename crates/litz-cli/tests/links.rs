//! Links that come and go during a transfer, between network namespaces (root).
//!
//! ```text
//!   sender: s0 ── ms0 ┐ switch: bridge 0 ┌ mr0 ── r0: receiver
//!           s1 ── ms1 ┘         bridge 1 └ mr1 ── r1
//! ```

use std::process::Command;

use net::MonotonicClock;
use serde_json::Value;
use units::Duration;

use crate::support::needs::has_root;
use crate::support::{Litz, Place, assert_same};

#[expect(clippy::print_stdout, reason = "a measurement")]
fn tell(took: units::Duration) {
    println!("a path was opened, and reported, {took} after the device began to be made");
}

/// The namespaces of one test.
pub(crate) struct Network {
    names: [String; 3],
}

pub(crate) const SENDER: usize = 0;
pub(crate) const SWITCH: usize = 1;
pub(crate) const RECEIVER: usize = 2;

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("the command ip");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    /// With two links, of which the sender has only the first; none without root.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !has_root() {
            return None;
        }
        let names = ["s", "m", "r"].map(|side| format!("litz-{test}-{}-{side}", std::process::id()));
        let network = Self { names };
        network.names.iter().for_each(|name| ip(&format!("netns add {name}")));
        for link in 0..2 {
            network.ip(SWITCH, &format!("link add br{link} type bridge"));
            network.ip(SWITCH, &format!("link set br{link} up"));
            network.plug(RECEIVER, link);
        }
        network.plug(SENDER, 0);
        Some(network)
    }

    pub(crate) fn ip(&self, namespace: usize, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.names[namespace]));
    }

    /// Makes the device of a host on a link, as when an adapter is plugged in: the hardware address
    /// is always the same.
    pub(crate) fn plug(&self, namespace: usize, link: usize) {
        let (letter, host) = if namespace == SENDER { ('s', 1) } else { ('r', 2) };
        let (own, switch) = (&self.names[namespace], &self.names[SWITCH]);
        let device = format!("{letter}{link}");
        ip(&format!(
            "link add {device} netns {own} address 02:00:00:00:0{link}:0{host} type veth peer name m{device} netns {switch}"
        ));
        self.ip(SWITCH, &format!("link set m{device} master br{link} up"));
        self.ip(namespace, &format!("link set {device} up"));
        self.ip(namespace, &format!("addr add 10.8.{link}.{host}/24 dev {device}"));
    }

    /// Runs a command in a namespace.
    fn run(&self, namespace: usize, command: &[&str]) {
        let status = Command::new("ip").args(["netns", "exec", &self.names[namespace]]).args(command).status();
        assert!(status.expect("the command ip").success(), "{command:?}");
    }

    /// Makes the switch a router: each link leads to all addresses of the receiver.
    fn join_links(&self) {
        for link in 0..2 {
            self.ip(SWITCH, &format!("addr add 10.8.{link}.254/24 dev br{link}"));
        }
        self.run(SWITCH, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        for link in 0..2 {
            self.add_far_route(link);
            self.ip(RECEIVER, &format!("route add 10.8.{}.1/32 via 10.8.{link}.254 dev r{link} metric 50", 1 - link));
        }
    }

    /// The route of the sender over a link to the other network, which goes when the link is down.
    fn add_far_route(&self, link: usize) {
        self.ip(SENDER, &format!("route add 10.8.{}.0/24 via 10.8.{link}.254 dev s{link} metric 50", 1 - link));
    }

    /// Starts `litz` in a namespace.
    pub(crate) fn litz(&self, namespace: usize, arguments: &[String]) -> Litz {
        let name = &self.names[namespace];
        Litz::of(Command::new("ip").args(["netns", "exec", name, env!("CARGO_BIN_EXE_litz")]).args(arguments))
    }

    /// Starts a receiver and a sender of a file of `size` bytes, in 4 MB/s.
    fn transfer(&self, place: &Place, size: usize) -> (Litz, Litz) {
        let file = place.file("file", size, 1);
        let path = |name: &str| format!("--state-dir={}", place.path(name).display());
        let inbox = place.inbox().display().to_string();
        let mut receiver = self.litz(RECEIVER, &["recv".into(), inbox, "--json".into(), path("state-in")]);
        let ticket = receiver.wait_for("listening")["ticket"].as_str().expect("a ticket").to_owned();
        let file = file.display().to_string();
        let arguments = ["send".into(), "--json".into(), "--rate=4MB/s".into(), path("state-out"), file, ticket];
        (receiver, self.litz(SENDER, &arguments))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // A test that failed early may not have created it.
            let _gone = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn a_transfer_continues_when_the_receivers_device_is_made_again() {
    let Some(network) = Network::new("again") else { return };
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 12_000_000);
    receiver.wait_for_bytes(3_000_000);
    network.ip(RECEIVER, "link delete r0");
    let gone = receiver.wait_for("link");
    assert_eq!((&gone["device"], &gone["usable"]), (&"r0".into(), &false.into()), "{gone}");
    network.plug(RECEIVER, 0);
    let back = receiver.wait_until(|event| event["event"] == "link" && event["usable"] == true);
    assert!(back["message"].as_str().expect("text").contains("made again"), "{back}");
    sender.succeed();
    receiver.succeed();
    assert!(sender.seen.iter().all(|event| event["event"] != "retrying"), "{:#?}", sender.seen);
    assert_same(&place.path("out").join("file"), &place.inbox().join("file"));
}

#[test]
fn a_transfer_continues_when_the_senders_device_is_made_again() {
    let Some(network) = Network::new("sender") else { return };
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 12_000_000);
    receiver.wait_for_bytes(3_000_000);
    network.ip(SENDER, "link delete s0");
    sender.wait_until(|event| event["event"] == "link" && event["usable"] == false);
    network.plug(SENDER, 0);
    sender.succeed();
    receiver.succeed();
    assert!(sender.seen.iter().any(|event| event["event"] == "link" && event["usable"] == true), "{:#?}", sender.seen);
    assert!(sender.seen.iter().all(|event| event["event"] != "retrying"), "{:#?}", sender.seen);
}

/// The paths of an event that are not abandoned.
fn open_paths(event: &Value) -> Vec<Value> {
    let paths = event["paths"].as_array().into_iter().flatten();
    paths.filter(|path| path["state"] != "abandoned").cloned().collect()
}

/// The addresses of this host that have an active path, in order, if no other path is open.
fn active_from(event: &Value) -> Option<Vec<String>> {
    let paths = open_paths(event);
    let active = paths.iter().filter(|path| path["state"] == "active" && path["bytes"] != 0);
    let mut from: Vec<String> = active.filter_map(|path| path["local"].as_str().map(str::to_owned)).collect();
    from.sort();
    Some(from).filter(|from| event["event"] == "paths" && from.len() == paths.len())
}

#[test]
fn addresses_that_change_use_up_no_paths_and_the_link_carries_on_when_the_other_one_fails() {
    let Some(network) = Network::new("addresses") else { return };
    network.plug(SENDER, 1);
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 400_000_000);
    let is_over = |from: &[&str]| {
        let from: Vec<String> = from.iter().map(ToString::to_string).collect();
        move |event: &Value| active_from(event).as_ref() == Some(&from)
    };
    sender.wait_until(is_over(&["10.8.0.1", "10.8.1.1"]));
    for change in 0..12 {
        let address = format!("10.8.1.{}", 10 + change);
        network.ip(SENDER, "addr flush dev s1");
        network.ip(SENDER, &format!("addr add {address}/24 dev s1"));
        // The path from the former address is gone, too.
        sender.wait_until(is_over(&["10.8.0.1", &address]));
    }
    receiver.take_events();
    network.ip(SWITCH, "link set ms0 down");
    sender.wait_until(|event| open_paths(event).iter().any(|path| path["device"] == "s0" && path["state"] == "down"));
    let clock = MonotonicClock::start();
    let (mut last, mut longest, mut more) = (clock.now(), Duration::ZERO, 0);
    while more < 20 {
        if receiver.next().is_some_and(|event| event["event"] == "progress") {
            let now = clock.now();
            (longest, last, more) = (longest.max(now - last), now, more + 1);
        }
    }
    // 30 s are the end of a connection without paths.
    assert!(longest < Duration::from_secs(3), "nothing arrived for {longest}");
    drop((sender, receiver));
}

#[test]
fn links_that_were_down_have_one_path_each_when_they_are_back() {
    let Some(network) = Network::new("back") else { return };
    network.plug(SENDER, 1);
    // Each link of the sender reaches both addresses of the receiver, as over the Internet.
    network.join_links();
    let place = Place::new();
    let (receiver, mut sender) = network.transfer(&place, 400_000_000);
    let is_over_both = |event: &Value| active_from(event).is_some_and(|from| from == ["10.8.0.1", "10.8.1.1"]);
    sender.wait_until(is_over_both);
    for round in 0..3 {
        for link in [0, 1] {
            network.ip(SENDER, &format!("link set s{link} down"));
            sender.wait_until(|event| event["event"] == "link" && event["usable"] == false);
        }
        if round == 2 {
            // The connection ends, and is made again over the first link that is back.
            sender.wait_until(|event| event["event"] == "retrying");
        }
        for link in [1, 0] {
            network.ip(SENDER, &format!("link set s{link} up"));
            network.add_far_route(link);
            let device = format!("s{link}");
            sender.wait_until(|event| {
                open_paths(event).iter().any(|path| path["device"] == device.as_str() && path["state"] == "active")
            });
        }
        sender.wait_until(is_over_both);
    }
    drop((sender, receiver));
}

#[test]
fn a_filter_that_refuses_large_packets_makes_them_smaller_and_is_named() {
    let Some(network) = Network::new("filter") else { return };
    network.plug(SENDER, 1);
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 24_000_000);
    receiver.wait_for_bytes(3_000_000);
    // The kernel refuses such packets with EPERM: batches, and datagrams larger than the smallest.
    let rules = "add table inet refuse; \
                 add chain inet refuse out { type filter hook output priority 0; }; \
                 add rule inet refuse out meta l4proto udp meta length > 1300 drop";
    network.run(SENDER, &["nft", rules]);
    let warning = sender.wait_until(|event| event["event"] == "warning" && event["kind"] == "send_refused");
    let message = warning["message"].as_str().expect("text");
    assert!(message.contains("Operation not permitted") && message.contains("over s"), "{message}");
    sender.succeed();
    receiver.succeed();
    assert!(sender.seen.iter().all(|event| event["event"] != "retrying"), "{:#?}", sender.seen);
    assert_same(&place.path("out").join("file"), &place.inbox().join("file"));
}

#[test]
fn a_new_link_becomes_a_path_and_a_lost_carrier_silences_it() {
    let Some(network) = Network::new("new") else { return };
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 400_000_000);
    receiver.wait_for_bytes(1_000_000);
    let path = |event: &Value| {
        let paths = event["paths"].as_array().into_iter().flatten();
        let mut paths = paths.filter(|path| path["remote"].as_str().is_some_and(|to| to.starts_with("10.8.1.2:")));
        paths.next().cloned()
    };
    let clock = MonotonicClock::start();
    network.plug(SENDER, 1);
    let plugged = clock.now();
    let link = sender.wait_for("link");
    tell(clock.now() - plugged);
    assert_eq!((&link["device"], &link["usable"]), (&"s1".into(), &true.into()), "{link}");
    sender.wait_until(|event| path(event).is_some_and(|path| path["state"] == "active" && path["bytes"] != 0));

    network.ip(SWITCH, "link set ms1 down");
    let lost = sender.wait_for("link");
    assert!(lost["usable"] == false && lost["message"].as_str().expect("text").contains("carrier"), "{lost}");
    sender.wait_until(|event| path(event).is_some_and(|path| path["state"] == "down"));
    network.ip(SWITCH, "link set ms1 up");
    sender.wait_until(|event| event["event"] == "link" && event["usable"] == true);
    sender.wait_until(|event| path(event).is_some_and(|path| path["state"] == "active"));
    // A transfer of 100 s is not waited for.
    drop((sender, receiver));
}
