//! Interfaces and routes of the kernel, and sockets bound to devices. The tests use network
//! namespaces and need root.
#![cfg(target_os = "linux")]

#[path = "support/namespaces.rs"]
mod namespaces;

use std::net::SocketAddr;
use std::time::Duration;

use namespaces::{Namespace, OneSubnet, available};
use net::nftables::{self, NftError};
use net::routing::RoutingWatch;
use net::{
    DatagramSocket, Interface, MonotonicClock, RecvMeta, Transmit, UdpSocket, UdpSocketOptions, interfaces, reachable,
};

/// Number of datagrams, large enough that the hosts' own packets (neighbour discovery) do not
/// matter.
const DATAGRAMS: u64 = 50;
const OTHER_PACKETS_MAX: u64 = 20;

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn open(namespace: &Namespace, local: &str, device: &str) -> UdpSocket {
    let options = UdpSocketOptions::new(socket(local)).with_device(device.to_owned());
    namespace.inside(|| UdpSocket::open(&options)).unwrap()
}

#[test]
fn the_table_lists_every_device_with_state_and_addresses() {
    if !available() {
        return;
    }
    let host = Namespace::new("table");
    host.add_device("idle");
    host.ip("link set idle-end down");
    host.ip("link set idle up");
    host.ip("addr add 172.30.0.1/16 dev idle");
    host.add_device("off");
    host.add_device("on");
    host.ip("addr add 10.77.1.1/20 dev on label on:alias");
    host.ip("addr add 10.77.1.2/32 dev on");
    host.ip("addr add fd77::1/56 dev on nodad");
    host.ip("link set on up");
    let table = settled_table(&host);
    let card = |name: &str| table.iter().find(|card| card.name == name).unwrap_or_else(|| panic!("{name}: {table:#?}"));
    assert!(card("lo").is_loopback && card("lo").is_running);
    assert!(card("idle").is_up && !card("idle").is_running, "the other end is down");
    assert!(!card("off").is_up && card("off").addresses.is_empty(), "listed without an address");
    let on = card("on");
    assert!(on.is_up && on.is_running && !on.is_loopback && !on.is_point_to_point && on.index > 0);
    let shown: Vec<String> =
        on.addresses.iter().map(|address| format!("{}/{}", address.ip, address.prefix_len)).collect();
    assert_eq!(shown[..2], ["10.77.1.1/20", "10.77.1.2/32"]);
    assert!(shown.contains(&"fd77::1/56".to_owned()), "{shown:?}");
    let link_local =
        on.addresses.iter().find(|address| address.ip.to_string().starts_with("fe80")).expect("a link-local address");
    assert_eq!(link_local.scope_id, on.index, "a link-local address has a scope");
    assert!(on.addresses.iter().all(|address| address.scope_id == 0 || address == link_local));
}

/// Returns the table after the kernel has updated the carrier states, which takes up to a second.
fn settled_table(host: &Namespace) -> Vec<Interface> {
    let clock = MonotonicClock::start();
    loop {
        let table = host.inside(interfaces).unwrap();
        let is_running = |name: &str| table.iter().any(|card| card.name == name && card.is_running);
        let is_late = clock.now().since_start() > units::Duration::from_secs(5);
        if is_late || (is_running("on") && !is_running("idle")) {
            return table;
        }
        std::thread::yield_now();
    }
}

#[test]
fn routes_are_checked_per_device() {
    if !available() {
        return;
    }
    let host = Namespace::new("routes");
    for (card, last) in [("c1", 1), ("c2", 2), ("c3", 3)] {
        host.add_device(card);
        host.ip(&format!("addr add 10.77.{last}.1/24 dev {card}"));
        host.ip(&format!("addr add fd77:{last}::1/64 dev {card} nodad"));
        host.ip(&format!("link set {card} up"));
    }
    host.ip("route add default via 10.77.1.254");
    host.ip("route add 192.0.2.0/24 via 10.77.2.254");
    host.ip("route add unreachable 198.51.100.0/24");
    host.ip("route add 2001:db8::/32 via fd77:2::ff");
    let ask =
        |local: &str, device, remote: &str| host.inside(|| reachable(socket(local), device, None, socket(remote)));
    ask("10.77.1.1:0", Some("c1"), "10.77.1.2:9").expect("its own subnet");
    ask("10.77.1.1:0", Some("c1"), "203.0.113.1:9").expect("the default route");
    ask("10.77.2.1:0", Some("c2"), "192.0.2.1:9").expect("its own route");
    ask("[fd77:2::1]:0", Some("c2"), "[2001:db8::1]:9").expect("its own route");
    // A socket on a device connects to all of these, and its packets would end as unanswered ARP
    // requests.
    for (local, device, remote) in [
        ("10.77.2.1:0", "c2", "203.0.113.1:9"),
        ("10.77.3.1:0", "c3", "192.0.2.1:9"),
        ("10.77.3.1:0", "c3", "10.77.1.2:9"),
        ("10.77.3.1:0", "c3", "198.51.100.1:9"),
        ("[fd77:1::1]:0", "c1", "[2001:db8::1]:9"),
    ] {
        let error = ask(local, Some(device), remote).expect_err(remote);
        assert!(
            error.to_string().contains("unreachable") || error.to_string().contains("No route"),
            "{remote}: {error}"
        );
    }
    ask("10.77.3.1:0", None, "192.0.2.1:9").expect("without a device any route counts");
    ask("10.77.3.1:0", None, "198.51.100.1:9").expect_err("a prohibiting route");
    ask("10.77.9.9:0", Some("c1"), "10.77.1.2:9").expect_err("not a local address");
    // Hosts with two providers have a rule for the address: then the second device has a route as
    // well.
    host.ip("route add default via 10.77.3.254 table 300");
    host.ip("rule add from 10.77.3.1 lookup 300");
    ask("10.77.3.1:0", Some("c3"), "203.0.113.1:9").expect("by the rule");
    host.ip("link set c3 down");
    ask("10.77.3.1:0", Some("c3"), "203.0.113.1:9").expect_err("the device is down");
}

/// The rules select by marks, like those of a tunnel that gets all packets but its own.
#[test]
fn marked_packets_have_the_routes_of_their_rules() {
    if !available() {
        return;
    }
    let host = Namespace::new("marked");
    host.add_device("c1");
    host.ip("addr add 10.77.1.1/24 dev c1");
    host.ip("addr add fd77:1::1/64 dev c1 nodad");
    host.ip("link set c1 up");
    host.ip("route add default via 10.77.1.254 table 300");
    host.ip("-6 route add default via fd77:1::ff table 300");
    host.ip("rule add fwmark 7 table 300");
    host.ip("-6 rule add fwmark 7 table 300");
    let ask =
        |local: &str, mark, remote: &str| host.inside(|| reachable(socket(local), Some("c1"), mark, socket(remote)));
    for (local, remote) in [("10.77.1.1:0", "203.0.113.1:9"), ("[fd77:1::1]:0", "[2001:db8::1]:9")] {
        ask(local, None, remote).expect_err("it has no route");
        ask(local, Some(8), remote).expect_err("another mark");
        ask(local, Some(7), remote).expect("the default route");
    }
}

/// Without devices, all packets of two network cards in one subnet would be sent over the first
/// one.
#[test]
fn packets_use_the_device_of_their_socket() {
    if !available() {
        return;
    }
    let world = OneSubnet::new();
    for (from, device, to, remote_device, idle) in [
        ("10.77.0.1:0", "l1", "10.77.0.11:0", "r1", "r2"),
        ("10.77.0.2:0", "l2", "10.77.0.12:0", "r2", "r1"),
        ("10.77.0.2:0", "l2", "10.77.0.11:0", "r1", "r2"),
        ("[fd77::2]:0", "l2", "[fd77::12]:0", "r2", "r1"),
    ] {
        let mut receiver = open(&world.right, to, remote_device);
        let mut sender = open(&world.left, from, device);
        let destination = receiver.local_addr().unwrap();
        let sent_before = world.left.counter(device, "tx_packets");
        let received_before = [remote_device, idle].map(|card| world.right.counter(card, "rx_packets"));
        for number in 0..DATAGRAMS {
            let contents = [number as u8];
            let transmit =
                Transmit { destination, source_ip: None, ecn: None, contents: &contents, segment_size: None };
            sender.send(&transmit).unwrap();
            let source = arrival(&mut receiver);
            assert_eq!(source, sender.local_addr().unwrap());
            let answer = Transmit { destination: source, ..transmit };
            receiver.send(&answer).unwrap();
            assert_eq!(arrival(&mut sender), destination);
        }
        let received = [remote_device, idle].map(|card| world.right.counter(card, "rx_packets"));
        assert!(world.left.counter(device, "tx_packets") - sent_before >= DATAGRAMS, "{from} on {device}");
        assert!(received[0] - received_before[0] >= DATAGRAMS, "{from} to {to}");
        assert!(received[1] - received_before[1] <= OTHER_PACKETS_MAX, "{from} to {to} also arrived at {idle}");
    }
}

/// Returns the source of the next datagram.
fn arrival(socket: &mut UdpSocket) -> SocketAddr {
    let clock = MonotonicClock::start();
    let mut buffer = vec![0; net::RECV_BUFFER_BYTES];
    loop {
        let mut metas = [RecvMeta::default()];
        if socket.recv(&mut [&mut buffer], &mut metas).is_ok_and(|count| count == 1) {
            return metas[0].source;
        }
        assert!(clock.now().since_start() < units::Duration::from_secs(5), "nothing arrived");
    }
}

#[test]
fn a_table_that_is_removed_after_others_is_noticed() {
    if !available() {
        return;
    }
    Namespace::new("watch").inside(|| {
        let mut watch = RoutingWatch::open().unwrap();
        watch.watch_table("wanted").unwrap();
        // The kernel joins the reports: these precede the report of the table.
        let rules: String = (0..40).map(|host| format!("ip daddr 192.0.2.{host} accept\n")).collect();
        match nftables::apply(&format!("table inet earlier {{\nchain rules {{\n{rules}}}\n}}\n")) {
            // The program `ip` is missing in the same way.
            Err(NftError::Program(_)) => return,
            made => made.unwrap(),
        }
        nftables::apply("table inet wanted {\n}\n").unwrap();
        while watch.wait(Duration::ZERO).unwrap().table {}
        nftables::apply("flush ruleset\n").unwrap();
        assert!(watch.wait(Duration::from_secs(60)).unwrap().table);
    });
}
