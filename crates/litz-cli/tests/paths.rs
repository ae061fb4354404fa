//! `litz paths`, and sockets on the paths that it shows: on hosts with two network cards in one
//! subnet (network namespaces, as root).

use std::net::SocketAddr;
use std::process::Command;

use litz::identity::Fingerprint;
use litz::paths::choose::Turn;
use litz::paths::{Choice, choose_here, listen};
use litz::{UdpSocket, UdpSocketOptions};
use net::{DatagramSocket, MonotonicClock, RecvMeta, Transmit};
use serde_json::Value;
use transfer::{Secret, Ticket, TicketAddress};

use crate::namespaces::{Namespace, OneSubnet, available};

/// Far beyond this test: 2^39 seconds.
const LATE: u64 = 1 << 39;

fn ticket(addresses: &[TicketAddress], expires_unix: u64) -> String {
    let (receiver, secret) = (Fingerprint::from_bytes([7; 32]), Secret::from_bytes([9; 16]));
    Ticket::new(addresses.to_vec(), receiver, secret, expires_unix).to_text().unwrap()
}

fn sockets(texts: &[&str]) -> Vec<TicketAddress> {
    texts.iter().map(|text| TicketAddress::Socket(text.parse().unwrap())).collect()
}

/// The status and the output: the JSON objects, or the text.
fn run(mut command: Command, arguments: &[&str]) -> (i32, Vec<Value>, String) {
    let output = command.arg("paths").args(arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let objects = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (output.status.code().unwrap(), objects, text)
}

fn litz() -> Command {
    Command::new(env!("CARGO_BIN_EXE_litz"))
}

/// The paths of the answer as short texts.
fn short(answer: &Value) -> Vec<String> {
    let field = |path: &Value, name: &str| path[name].as_str().unwrap_or("-").to_owned();
    let one = |path: &Value| format!("{} {} > {}", field(path, "device"), field(path, "local"), field(path, "remote"));
    answer["paths"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn a_ticket_of_this_host_shows_one_path_and_more_when_asked() {
    let ticket = ticket(&sockets(&["127.0.0.1:4433"]), LATE);
    let (status, objects, _) = run(litz(), &[&ticket, "--json"]);
    assert_eq!((status, short(&objects[0])), (0, vec!["- 127.0.0.1:0 > 127.0.0.1:4433".to_owned()]));
    assert_eq!(objects[0]["paths"][0]["link"], "same_host");
    let (status, objects, _) = run(litz(), &[&ticket, "--json", "--paths=3"]);
    assert_eq!((status, short(&objects[0]).len()), (0, 3));
    let (status, _, text) = run(litz(), &[&ticket]);
    assert!(status == 0 && text.contains("127.0.0.1:4433") && text.contains("both ends on this host"), "{text}");
}

#[test]
fn bad_arguments_end_with_the_same_error_as_of_send() {
    let good = ticket(&sockets(&["127.0.0.1:4433"]), LATE);
    let mut mistyped = good.clone();
    let last = mistyped.pop().unwrap();
    mistyped.push(if last == 'a' { 'b' } else { 'a' });
    for (arguments, words) in [
        (&[mistyped.as_str()][..], "mistyped"),
        (&["hello"], "must be the ticket"),
        (&[&good, "--path=nosuch0"], "no interface is called nosuch0; there are lo"),
        (&[&good, "--path=203.0.113.99"], "does not have the address"),
        (&[&good, "--path=lo,fast"], "backup"),
        (&[&good, "--paths=0"], "1..=32"),
        (&[&good, "--path=lo", "--path=lo", "--paths=1"], "--paths allows 1"),
        (&[], "TICKET"),
    ] {
        let (status, _, text) = run(litz(), arguments);
        assert!(status == 2 && text.contains(words), "{arguments:?}: {status} {text}");
    }
    let (status, objects, _) = run(litz(), &["hello", "--json"]);
    assert_eq!((status, objects[0]["event"].as_str(), objects[0]["status"].as_u64()), (2, Some("error"), Some(2)));
    // `send` reports the same error for the same ticket.
    let place = crate::support::Place::new();
    let file = place.file("file", 10, 1);
    place.send(&[&file], "hello", &[]).fail(2, "must be the ticket");
}

#[test]
fn a_replay_reports_differences() {
    let place = crate::support::Place::new();
    let spec = include_str!("../../../docs/spec/scheduler-trace.md");
    let example = spec.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let path = place.path("trace");
    let option = format!("--replay={}", path.display());
    std::fs::write(&path, example).unwrap();
    let (status, _, text) = run(litz(), &[&option]);
    assert!(status == 0 && text.contains("3 choices by earliest: all the same in the replay"), "{text}");

    // Nineteen differences: more than are printed.
    let (choice, verdict) = (example.lines().nth(2).unwrap(), example.lines().nth(4).unwrap());
    let wrong = choice.replace("send 0 76800 0", "wait 7");
    let more = format!("{}{}", format!("{wrong}\n").repeat(18), verdict.replace("| no", "| yes"));
    let head = example.lines().take(2).collect::<Vec<_>>().join("\n");
    std::fs::write(&path, format!("{head}\n{more}\n")).unwrap();
    let (status, _, text) = run(litz(), &[&option]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains(r#"line 3: recorded "wait 7", replayed "send 0 76800 0""#), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("line ")).count(), 16, "{text}");
    assert!(text.contains("and 3 more") && text.contains("19 of 19 choices differ in the replay"), "{text}");
    let (status, objects, _) = run(litz(), &[&option, "--json"]);
    assert_eq!((status, &objects[0]["event"], &objects[0]["differences_count"]), (2, &"replay".into(), &19.into()));
    assert_eq!(objects[0]["differences"][15]["line"], 18);
    assert_eq!(objects[0]["differences"][0]["recorded"], "wait 7");
    assert_eq!(objects[1]["event"], "error");
    assert_eq!(run(litz(), &[&option, "--paths=2"]).0, 2, "it has no paths to choose");
}

#[test]
fn addresses_without_a_path_are_tried_last_unless_the_paths_are_given() {
    let ticket = ticket(&sockets(&["127.0.0.1:4433", "127.0.0.1:4434"]), LATE);
    let (_, objects, _) = run(litz(), &[&ticket, "--json"]);
    assert_eq!(objects[0]["tried_last"], serde_json::json!(["127.0.0.1:4434"]));
    let (_, objects, _) = run(litz(), &[&ticket, "--json", "--path=127.0.0.1-127.0.0.1:4434"]);
    assert_eq!(objects[0]["tried_last"], serde_json::json!([]));
}

#[test]
fn a_sender_waits_for_a_removed_interface_and_a_receiver_gives_advice() {
    if !available() {
        return;
    }
    let world = OneSubnet::new();
    // The card that the routes do not prefer. Nothing is sent to it in this test.
    world.right.set("ipv4.conf.r2.rp_filter", "1");
    let place = crate::support::Place::new();
    let file = place.file("file", 3_000_000, 1);
    let state = |name: &str| format!("--state-dir={}", place.path(name).display());
    let mut command = inside(&world.right);
    let mut receiver =
        crate::support::Litz::of(command.arg("recv").arg(place.inbox()).args(["--json", &state("in-state")]));
    let listening = receiver.wait_for("listening");
    assert!(listening["advice"].to_string().contains("r2.rp_filter=2"), "{listening}");

    let mut command = inside(&world.left);
    command.args(["send", "--json", "--path=l1", "--idle-timeout=2s", "--rate=4Mb/s", &state("out-state")]);
    let mut sender = crate::support::Litz::of(command.arg(&file).arg(listening["ticket"].as_str().unwrap()));
    sender.wait_for_bytes(100_000);
    world.left.ip("link set l1 down");
    world.left.ip("link set l1 name away");
    let retrying = sender.wait_until(|event| {
        event["event"] == "retrying" && event["message"].as_str().is_some_and(|words| words.contains("called l1"))
    });
    assert!(retrying["message"].as_str().is_some_and(|words| words.contains("no interface")), "{retrying}");
    world.left.ip("link set away name l1");
    world.left.ip("link set l1 up");
    sender.succeed();
    receiver.succeed();
    crate::support::assert_same(&file, &place.inbox().join("file"));
}

/// A receiver with an address on its loopback device, as routers and anycast servers have it, to which the
/// routes of the sender lead over both links.
#[test]
fn an_address_on_loopback_is_served_over_all_links() {
    if !available() {
        return;
    }
    let world = OneSubnet::new();
    for address in ["10.9.9.9/32", "fd99::9/128"] {
        world.right.ip(&format!("address add {address} dev lo"));
    }
    for (route, table) in [("10.9.9.9/32 via 10.77.0.1", ""), ("fd99::9/128 via fd77::1", "-6 ")] {
        for (card, metric) in [(1, 1), (2, 2)] {
            world.left.ip(&format!("{table}route add {route}{card} dev l{card} metric {metric}"));
        }
    }
    for (arguments, addresses) in [
        (&["--listen=10.9.9.9"][..], &["10.9.9.9"][..]),
        (&["--listen=10.9.9.9", "--listen=fd99::9"], &["10.9.9.9", "fd99::9"]),
        (&["--listen=0.0.0.0", "--advertise=10.9.9.9"], &["10.9.9.9"]),
        (&["--advertise=10.9.9.9"], &["10.9.9.9"]),
        (&["--listen=:4433", "--advertise=10.9.9.9:4433", "--advertise=fd99::9"], &["10.9.9.9", "fd99::9"]),
        (&["--device=r1", "--advertise=10.9.9.9"], &["10.9.9.9"]),
    ] {
        let place = crate::support::Place::new();
        let file = place.file("file", 300_000, 1);
        let state = |name: &str| format!("--state-dir={}", place.path(name).display());
        let mut command = inside(&world.right);
        command.arg("recv").arg(place.inbox()).args(["--json", &state("in-state")]).args(arguments);
        let mut receiver = crate::support::Litz::of(&mut command);
        let listening = receiver.wait_for("listening");
        let named = listening["addresses"].as_array().unwrap().iter();
        let named: Vec<_> = named.map(|address| address.as_str().unwrap().parse::<SocketAddr>().unwrap()).collect();
        let ips: Vec<_> = named.iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(ips, addresses, "{arguments:?}");
        let ticket = listening["ticket"].as_str().unwrap();
        let mut command = inside(&world.left);
        command.args(["send", "--json", "--idle-timeout=5s", &state("out-state")]).arg(&file).arg(ticket);
        crate::support::Litz::of(&mut command).succeed();
        receiver.succeed();
        crate::support::assert_same(&file, &place.inbox().join("file"));
    }
    // An address at which nothing listens is named.
    let place = crate::support::Place::new();
    let mut command = inside(&world.right);
    command.arg("recv").arg(place.inbox()).arg(format!("--state-dir={}", place.path("state").display()));
    command.args(["--json", "--listen=10.77.0.11", "--advertise=10.9.9.9"]);
    let warning = crate::support::Litz::of(&mut command).wait_for("warning");
    assert_eq!(warning["kind"], "not_listening", "{warning}");
    assert!(warning["message"].as_str().is_some_and(|text| text.contains("--listen 10.9.9.9")), "{warning}");
}

fn inside(namespace: &Namespace) -> Command {
    namespace.command(env!("CARGO_BIN_EXE_litz"))
}

#[test]
fn the_command_shows_what_two_cards_in_one_subnet_would_do() {
    if !available() {
        return;
    }
    let world = OneSubnet::new();
    let all = ["10.77.0.11:4433", "10.77.0.12:4433", "[fd77::11]:4433", "[fd77::12]:4433"];
    let ticket = ticket(&sockets(&all), LATE);
    let straight = ["l1 10.77.0.1:0 > 10.77.0.11:4433", "l2 10.77.0.2:0 > 10.77.0.12:4433"];
    let (status, objects, _) = run(inside(&world.left), &[&ticket, "--json"]);
    assert_eq!((status, short(&objects[0])), (0, straight.map(str::to_owned).to_vec()));
    assert_eq!(objects[0]["paths"][0]["why"], "same subnet (/24)");
    assert_eq!(objects[0]["advice"].as_array().unwrap().len(), 0, "{}", objects[0]["advice"]);
    let unused = objects[0]["unused"].as_array().unwrap();
    assert!(unused.iter().any(|row| row["device"] == "lo" && row["reason"] == "loopback"));
    let spare = unused.iter().filter(|row| row["spare"] == true).count();
    assert_eq!(spare, 6, "two by two in both families, less two: {unused:#?}");

    let (_, objects, _) = run(inside(&world.left), &[&ticket, "--json", "--path=l2-fd77::11", "--path=l1,backup"]);
    assert_eq!(short(&objects[0]), ["l2 [fd77::2]:0 > [fd77::11]:4433", "l1 10.77.0.1:0 > 10.77.0.11:4433"]);

    // Without these settings, packets for one card arrive at the other.
    world.left.set("ipv4.conf.all.arp_ignore", "0");
    world.left.set("ipv4.conf.l2.rp_filter", "1");
    let (_, _, text) = run(inside(&world.left), &[&ticket]);
    for words in ["l1.arp_ignore=1", "l2.arp_ignore=1", "l2.rp_filter=2"] {
        assert!(text.contains(words), "{words}: {text}");
    }

    world.left.ip("link set l1 down");
    let (_, objects, _) = run(inside(&world.left), &[&ticket, "--json"]);
    assert_eq!(short(&objects[0])[0], "l2 10.77.0.2:0 > 10.77.0.11:4433");
    assert!(
        objects[0]["unused"].as_array().unwrap().iter().any(|row| row["device"] == "l1" && row["reason"] == "down")
    );
    world.left.ip("link set l2 down");
    let (status, objects, _) = run(inside(&world.left), &[&ticket, "--json"]);
    assert_eq!(status, 2);
    assert_eq!(objects[1]["message"], "no path leads to the far host");
}

#[test]
fn sockets_of_both_sides_meet_on_the_cards_that_were_chosen() {
    if !available() {
        return;
    }
    let world = OneSubnet::new();
    let table = world.right.inside(net::interfaces).unwrap();
    let places = listen::plan(&table, None);
    let mut listening = world.right.inside(|| listen::open(&places, 0)).unwrap();
    assert_eq!((listening.sockets.len(), listening.skipped.len()), (4, 0), "two cards, two families");
    let named: Vec<SocketAddr> = listening.sockets.iter().map(|(_, socket)| socket.local_addr().unwrap()).collect();
    assert!(named.iter().all(|address| address.port() == listening.port));
    assert_eq!(listening.addresses(), named);

    let choose = |limit| world.left.inside(|| choose_here(&named, &[], limit)).unwrap();
    assert_eq!(choose(None).candidates.len(), 2);
    let choice: Choice = choose(Some(12));
    let ports = choice.candidates.iter().filter(|path| path.why.turn == Turn::OtherPort).count();
    assert_eq!((choice.candidates.len(), ports), (12, 4), "2 by 2 cards in 2 families, then ports");
    let mut seen = std::collections::BTreeSet::new();
    let mut senders: Vec<UdpSocket> = Vec::new();
    for path in &choice.candidates {
        let options = UdpSocketOptions::new(path.local).with_device(path.device.clone());
        let mut sender = world.left.inside(|| UdpSocket::open(&options)).unwrap();
        assert!(seen.insert((sender.local_addr().unwrap(), path.remote)), "4-tuples differ: {path:?}");
        let there = listening.sockets.iter_mut().find(|(_, socket)| socket.local_addr().unwrap() == path.remote);
        let (place, receiver) = there.unwrap();
        let (card_here, card_there) = (path.device.clone().unwrap(), place.device.clone().unwrap());
        let before = [world.left.counter(&card_here, "rx_packets"), world.right.counter(&card_there, "rx_packets")];
        for _ in 0..ROUNDS {
            send(&mut sender, path.remote);
            let source = arrival(receiver);
            assert_eq!(source.port(), sender.local_addr().unwrap().port());
            send(receiver, source);
            assert_eq!(arrival(&mut sender), path.remote);
        }
        let after = [world.left.counter(&card_here, "rx_packets"), world.right.counter(&card_there, "rx_packets")];
        assert!(before.iter().zip(after).all(|(before, after)| after - before >= ROUNDS), "{path:?}");
        senders.push(sender);
    }
}

/// More than the packets that a host sends on its own in that time.
const ROUNDS: u64 = 30;

fn send(socket: &mut UdpSocket, destination: SocketAddr) {
    let transmit = Transmit { destination, source_ip: None, ecn: None, contents: b"path", segment_size: None };
    socket.send(&transmit).unwrap();
}

/// The source of the next datagram.
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
