//! Interrupted transfers over an emulated link: verified data is not sent twice.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use emulate::{Relay, RelayLink};
use netem::LinkConfig;
use units::{Duration, Rate, Ratio};

use crate::support::{Litz, Place, assert_same};

const SIZE: usize = 24_000_000;

/// When this much has arrived, the first segments are complete and verified: two of 4 MiB travel at
/// a time, on any machine.
const ENOUGH: u64 = 12_000_000;

/// A receiver behind a link of 100 Mb/s, and a file for it.
struct ThrottledReceiver {
    place: Place,
    relay: Relay,
    file: PathBuf,
    advertise: String,
}

impl ThrottledReceiver {
    fn new(seed: u64, loss: Ratio) -> Self {
        let place = Place::new();
        let file = place.file("file", SIZE, seed);
        let link = LinkConfig {
            rate: Some(Rate::from_mbps(100)),
            delay: Duration::from_millis(5),
            loss,
            queue_bytes: 500_000,
            ..LinkConfig::default()
        };
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let link = RelayLink { name: "link".into(), listen, server: None, forward: link.clone(), backward: link };
        let relay = Relay::start(vec![link], seed).expect("a relay");
        let advertise = format!("--advertise={}", relay.local_addr(0));
        Self { place, relay, file, advertise }
    }

    fn recv(&self) -> (Litz, String) {
        let (receiver, ticket) = self.place.recv(&[&self.advertise, "--idle-timeout=3s"]);
        self.relay.set_server(0, SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.port))).expect("one link");
        (receiver, ticket)
    }

    fn send(&self, ticket: &str) -> Litz {
        self.place.send(&[&self.file], ticket, &["--idle-timeout=3s", "--parallel=2"])
    }

    fn check(&self, mut sender: Litz, mut receiver: Litz) {
        let summary = sender.succeed();
        let (moved, resumed) = (summary["bytes_moved"].as_u64().unwrap(), summary["bytes_resumed"].as_u64().unwrap());
        assert_eq!(moved + resumed, SIZE as u64, "nothing verified travels twice");
        assert!(resumed > 0, "some data already existed");
        receiver.succeed();
        assert_same(&self.file, &self.place.inbox().join("file"));
    }
}

#[test]
fn a_killed_sender_resumes() {
    let scene = ThrottledReceiver::new(1, Ratio::ZERO);
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.send(&ticket);
    receiver.wait_for_bytes(ENOUGH);
    sender.kill();
    scene.check(scene.send(&ticket), receiver);
}

#[test]
fn a_killed_receiver_resumes_with_the_same_ticket() {
    let scene = ThrottledReceiver::new(2, Ratio::ZERO);
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.send(&ticket);
    receiver.wait_for_bytes(ENOUGH);
    receiver.kill();
    let (receiver, again) = scene.recv();
    assert_eq!(again, ticket, "the ticket survives a restart");
    // The sender notices, reconnects on its own, and succeeds.
    sender.wait_for("retrying");
    let mut receiver = receiver;
    let summary = sender.succeed();
    assert!(summary["bytes_resumed"].as_u64() > Some(0), "{summary}");
    receiver.succeed();
    assert_same(&scene.file, &scene.place.inbox().join("file"));
}

#[test]
fn a_sender_notices_by_the_closed_port_that_its_receiver_is_gone() {
    let place = Place::new();
    let file = place.file("file", 60_000_000, 8);
    let patient = "--idle-timeout=120s";
    let (mut receiver, ticket) = place.recv(&[patient]);
    let mut sender = place.send(&[&file], &ticket, &[patient, "--rate=10MB/s"]);
    receiver.wait_for_bytes(ENOUGH);
    receiver.kill();
    // Long before the idle timeout.
    let retrying = sender.wait_for("retrying");
    let message = retrying["message"].as_str().expect("text");
    assert!(message.contains("the port is closed") && !message.contains("run the same command"), "{message}");
    let (mut receiver, again) = place.recv(&[patient]);
    assert_eq!(again, ticket);
    sender.succeed();
    receiver.succeed();
    assert_same(&file, &place.inbox().join("file"));
}

#[test]
fn a_sender_notices_at_once_that_its_receiver_was_started_again() {
    let scene = ThrottledReceiver::new(7, Ratio::ZERO);
    let patient = "--idle-timeout=120s";
    let recv = || {
        let (receiver, ticket) = scene.place.recv(&[&scene.advertise, patient]);
        scene.relay.set_server(0, SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.port))).expect("one link");
        (receiver, ticket)
    };
    let (mut receiver, ticket) = recv();
    let mut sender = scene.place.send(&[&scene.file], &ticket, &[patient, "--parallel=2"]);
    receiver.wait_for_bytes(ENOUGH);
    receiver.kill();
    let (mut receiver, _) = recv();
    // Long before the idle timeout.
    let retrying = sender.wait_for("retrying");
    assert!(retrying["message"].as_str().is_some_and(|message| message.contains("restarted")), "{retrying}");
    sender.succeed();
    receiver.succeed();
    assert_same(&scene.file, &scene.place.inbox().join("file"));
}

#[test]
fn a_network_outage_only_delays_the_transfer() {
    let scene = ThrottledReceiver::new(3, Ratio::new(1, 1000));
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.send(&ticket);
    receiver.wait_for_bytes(ENOUGH);
    scene.relay.running().cut(0).expect("one link");
    // Longer than the idle timeout: the connection times out on both sides.
    sender.wait_for("retrying");
    assert!(scene.relay.stats()[0].forward.link.vanished > 0, "the network was away");
    scene.relay.running().restore(0).expect("one link");
    let summary = sender.succeed();
    assert!(summary["bytes_resumed"].as_u64() > Some(0), "{summary}");
    receiver.succeed();
    assert_same(&scene.file, &scene.place.inbox().join("file"));
    assert!(scene.relay.stats()[0].forward.link.lost > 0, "the link loses packets");
}

#[test]
fn an_interrupt_ends_cleanly_and_the_transfer_can_be_resumed() {
    let scene = ThrottledReceiver::new(4, Ratio::ZERO);
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.send(&ticket);
    receiver.wait_for_bytes(ENOUGH);
    sender.signal("INT");
    sender.fail(130, "cancelled");
    scene.check(scene.send(&ticket), receiver);
}

#[test]
fn a_source_that_changed_is_not_mixed_with_what_it_was() {
    let scene = ThrottledReceiver::new(5, Ratio::ZERO);
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.send(&ticket);
    receiver.wait_for_bytes(ENOUGH);
    sender.kill();
    scene.place.file("file", SIZE, 99);
    scene.send(&ticket).succeed();
    receiver.succeed();
    assert_same(&scene.file, &scene.place.inbox().join("file"));
}

#[test]
fn another_host_at_the_receivers_address_is_not_retried() {
    let scene = ThrottledReceiver::new(6, Ratio::ZERO);
    let (mut receiver, ticket) = scene.recv();
    let mut sender = scene.place.send(&[&scene.file], &ticket, &["--idle-timeout=3s", "--retry-for=20s"]);
    sender.wait_for("file_started");
    receiver.kill();
    let other_state = format!("--state-dir={}", scene.place.path("state-other").display());
    let (impostor, _) = scene.place.recv(&[&other_state]);
    scene.relay.set_server(0, SocketAddr::from((Ipv4Addr::LOCALHOST, impostor.port))).expect("one link");
    sender.fail(2, "wrong fingerprint");
    let retries = sender.seen.iter().filter(|event| event["event"] == "retrying").count();
    assert_eq!(retries, 1, "after the loss, and not after the wrong host: {:#?}", sender.seen);
}
