//! Datagrams through a relay, with sockets of the standard library.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests run real clocks and sockets")]

mod support;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use emulate::{CLIENTS_MAX, Direction, Relay, RelayLink};
use net::{DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocketOptions};
use netem::{Change, LinkConfig};
use support::{count, echo, ping, udp};
use units::{Rate, Ratio};

fn millis(millis: u64) -> units::Duration {
    units::Duration::from_millis(millis)
}

fn link(server: Option<SocketAddr>, config: &LinkConfig) -> RelayLink {
    RelayLink {
        name: "test".into(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        server,
        forward: config.clone(),
        backward: config.clone(),
    }
}

/// A server that echoes until the process ends.
fn echo_server() -> SocketAddr {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || echo(&server));
    address
}

fn relay(config: &LinkConfig) -> (Relay, String) {
    let relay = Relay::start(vec![link(Some(echo_server()), config)], 3).unwrap();
    let address = relay.local_addr(0).to_string();
    (relay, address)
}

#[test]
fn a_round_trip_takes_about_both_delays() {
    let (_relay, address) = relay(&LinkConfig { delay: millis(20), ..LinkConfig::default() });
    let client = udp("127.0.0.1:0");
    let round_trips: Vec<_> = (0..20).map(|_| ping(&client, &address)).collect();
    let shortest = *round_trips.iter().min().unwrap();
    assert!((Duration::from_millis(40)..Duration::from_millis(42)).contains(&shortest), "{round_trips:?}");
}

#[test]
fn the_rate_limits_throughput_and_a_full_queue_drops() {
    // 1000 bytes and 28 of headers at 8.224 Mb/s: a thousand packets per second.
    let config = LinkConfig {
        rate: Some(Rate::from_bps(8_224_000)),
        overhead_bytes: 28,
        queue_bytes: 1028 * 200,
        ..LinkConfig::default()
    };
    let server = udp("127.0.0.1:0");
    let relay = Relay::start(vec![link(Some(server.local_addr().unwrap()), &config)], 3).unwrap();
    let client = udp("127.0.0.1:0");
    let start = Instant::now();
    for _ in 0..300 {
        client.send_to(&[7; 1000], relay.local_addr(0)).unwrap();
    }
    let mut buffer = [0; 2000];
    for _ in 0..200 {
        server.recv_from(&mut buffer).unwrap();
    }
    let span = start.elapsed();
    assert!((Duration::from_millis(199)..Duration::from_millis(400)).contains(&span), "200 datagrams in {span:?}");
    let stats = relay.stats()[0].forward.link;
    assert_eq!(stats.offered, 300);
    // 200 wait and one is in transmission; more only if some had left already.
    assert!((50..=99).contains(&stats.overflowed), "{stats:?}");
}

/// A wake-up of the relay costs several system calls, so it must not follow each datagram.
#[test]
fn a_busy_relay_handles_the_datagrams_of_an_interval_together() {
    const DATAGRAMS: u32 = 20_000;
    let server = udp("127.0.0.1:0");
    let config = LinkConfig { delay: millis(2), ..LinkConfig::default() };
    let relay = Relay::start(vec![link(Some(server.local_addr().unwrap()), &config)], 3).unwrap();
    let client = udp("127.0.0.1:0");
    let start = Instant::now();
    for _ in 0..DATAGRAMS {
        client.send_to(&[7; 1000], relay.local_addr(0)).unwrap();
    }
    let report = &relay.stats()[0];
    let intervals = start.elapsed().as_micros() as u64 / 200;
    // A turn that leaves datagrams in a socket is followed by the next one at once, after at least 32.
    let at_once = u64::from(DATAGRAMS) / 32;
    assert!(report.forward.link.offered > 1000, "{report:?}");
    assert!(report.turns <= intervals + at_once + 10, "{intervals} intervals: {report:?}");
}

#[test]
fn counted_losses_match_the_missing_packets() {
    let server = udp("127.0.0.1:0");
    let config = LinkConfig { loss: Ratio::new(1, 4), ..LinkConfig::default() };
    let relay = Relay::start(vec![link(Some(server.local_addr().unwrap()), &config)], 3).unwrap();
    let counting = count(server);
    let client = udp("127.0.0.1:0");
    for _ in 0..1000 {
        client.send_to(&[7; 100], relay.local_addr(0)).unwrap();
        std::thread::sleep(Duration::from_micros(20));
    }
    relay.change(0, Direction::Forward, Change::Loss(Ratio::ZERO)).unwrap();
    let lost = relay.stats()[0].forward.link.lost;
    client.send_to(b"end", relay.local_addr(0)).unwrap();
    let received = counting.join().unwrap();
    assert!((180..320).contains(&lost), "{lost} of 1000 at 25 %");
    let report = &relay.stats()[0].forward;
    assert_eq!(report.link.lost + received + report.refused, 1000, "{report:?}");
}

#[test]
fn two_links_run_simultaneously_on_both_families() {
    let slow = LinkConfig { delay: millis(30), ..LinkConfig::default() };
    let fast = LinkConfig { delay: millis(5), ..LinkConfig::default() };
    let server = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let over_ipv6 = RelayLink {
        listen: SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        ..link(Some(server.local_addr().unwrap()), &slow)
    };
    std::thread::spawn(move || echo(&server));
    let relay = Relay::start(vec![link(Some(echo_server()), &fast), over_ipv6], 3).unwrap();
    for (index, local, expected) in [(0, "127.0.0.1:0", 10), (1, "[::1]:0", 60)] {
        let client = udp(local);
        let to = relay.local_addr(index).to_string();
        let shortest = (0..5).map(|_| ping(&client, &to)).min().unwrap();
        assert!(shortest >= Duration::from_millis(expected), "{shortest:?}");
        assert!(shortest < Duration::from_millis(expected + 40), "{shortest:?}");
    }
    assert!(relay.stop().reports.iter().all(|report| report.forward.link.delivered == 5 && report.clients == 1));
}

#[test]
fn excess_clients_are_rejected_without_affecting_others() {
    let (relay, address) = relay(&LinkConfig::default());
    let clients: Vec<_> = (0..100).map(|_| udp("127.0.0.1:0")).collect();
    for client in &clients {
        client.send_to(b"hello", &address).unwrap();
        // In order, so that it is known which clients are served.
        std::thread::sleep(Duration::from_millis(1));
    }
    for (index, client) in clients.iter().enumerate() {
        client.set_read_timeout(Some(Duration::from_millis(if index < CLIENTS_MAX { 10_000 } else { 1 }))).unwrap();
        let answer = client.recv_from(&mut [0; 16]);
        assert_eq!(answer.is_ok(), index < CLIENTS_MAX, "client {index}: {answer:?}");
    }
    let report = relay.stats().remove(0);
    assert_eq!((report.clients, report.turned_away), (CLIENTS_MAX as u64, 100 - CLIENTS_MAX as u64));
    clients[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    ping(&clients[0], &address);
}

#[test]
fn a_cut_link_drops_packets_until_restored() {
    let (relay, address) = relay(&LinkConfig::default());
    let client = udp("127.0.0.1:0");
    ping(&client, &address);
    relay.running().cut(0).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    client.send_to(b"lost", &address).unwrap();
    let silence = client.recv_from(&mut [0; 16]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    assert_eq!(relay.stats()[0].forward.link.vanished, 1);
    relay.running().restore(0).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    ping(&client, &address);
}

#[test]
fn datagrams_without_a_server_or_from_unknown_sources_are_dropped() {
    let relay = Relay::start(vec![link(None, &LinkConfig::default())], 3).unwrap();
    let client = udp("127.0.0.1:0");
    client.send_to(b"early", relay.local_addr(0)).unwrap();
    let start = Instant::now();
    while relay.stats()[0].forward.ignored == 0 && start.elapsed() < Duration::from_secs(10) {}
    assert_eq!(relay.stats()[0].forward.ignored, 1);

    let server = udp("127.0.0.1:0");
    relay.set_server(0, server.local_addr().unwrap()).unwrap();
    client.send_to(b"hello", relay.local_addr(0)).unwrap();
    let (_, upstream) = server.recv_from(&mut [0; 16]).unwrap();
    udp("127.0.0.1:0").send_to(b"forged", upstream).unwrap();
    server.send_to(b"answer", upstream).unwrap();
    let mut buffer = [0; 16];
    let (bytes, _) = client.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..bytes], b"answer");
    assert_eq!(relay.stats()[0].backward.ignored, 1);
}

#[test]
fn batches_keep_their_marks_and_sizes() {
    let mut server = net::UdpSocket::open(&UdpSocketOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let config = LinkConfig { delay: millis(3), ..LinkConfig::default() };
    let relay = Relay::start(vec![link(Some(server.local_addr().unwrap()), &config)], 3).unwrap();
    let mut client = net::UdpSocket::open(&UdpSocketOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    // Three batches with different sizes and marks, each with a shorter last datagram.
    let marks = [Some(Ecn::Ect0), None, Some(Ecn::Ect1)];
    let mut expected = Vec::new();
    for (round, ecn) in marks.into_iter().enumerate() {
        let size = 1200 - 300 * round;
        let contents: Vec<u8> = (0..size * 10 + 77).map(|at| (at / size) as u8).collect();
        expected.extend(contents.chunks(size).map(|datagram| (datagram.to_vec(), ecn)));
        let transmit = Transmit {
            destination: relay.local_addr(0),
            source_ip: None,
            ecn,
            contents: &contents,
            segment_size: Some(size),
        };
        client.send(&transmit).unwrap();
    }
    let mut received = Vec::new();
    let mut buffer = vec![0; RECV_BUFFER_BYTES];
    let start = Instant::now();
    while received.len() < expected.len() && start.elapsed() < Duration::from_secs(10) {
        let mut metas = [RecvMeta::default()];
        if server.recv(&mut [&mut buffer], &mut metas).is_ok() {
            received.extend(metas[0].datagrams(&buffer).map(|datagram| (datagram.to_vec(), metas[0].ecn)));
        }
    }
    assert_eq!(received, expected);
}

#[test]
fn start_errors_name_the_link_and_address() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let config = LinkConfig::default();
    let error = Relay::start(vec![RelayLink { listen, ..link(None, &config) }], 1).err().unwrap().to_string();
    assert!(error.contains("link test") && error.contains(&listen.to_string()), "{error}");
    let config = LinkConfig { rate: Some(Rate::ZERO), ..config };
    let error = Relay::start(vec![link(None, &config)], 1).err().unwrap().to_string();
    assert!(error.contains("rate"), "{error}");
    let error = Relay::start(vec![link(None, &LinkConfig::default()); 65], 1).err().unwrap().to_string();
    assert!(error.contains("64"), "{error}");
}
