//! Links that come and go during a transfer, between network namespaces (root).
//!
//! ```text
//!   sender: s0 ── ms0 ┐ switch: bridge 0 ┌ mr0 ── r0: receiver
//!           s1 ── ms1 ┘         bridge 1 └ mr1 ── r1
//! ```

use std::process::Command;

use net::MonotonicClock;

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

#[test]
fn a_new_link_becomes_a_path_and_a_lost_carrier_silences_it() {
    let Some(network) = Network::new("new") else { return };
    let place = Place::new();
    let (mut receiver, mut sender) = network.transfer(&place, 400_000_000);
    receiver.wait_for_bytes(1_000_000);
    let path = |event: &serde_json::Value| {
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
    sender.wait_until(|event| path(event).is_some_and(|path| path["state"] == "silent"));
    network.ip(SWITCH, "link set ms1 up");
    sender.wait_until(|event| event["event"] == "link" && event["usable"] == true);
    sender.wait_until(|event| path(event).is_some_and(|path| path["state"] == "active"));
    // A transfer of 100 s is not waited for.
    drop((sender, receiver));
}
