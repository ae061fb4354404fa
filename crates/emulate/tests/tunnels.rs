//! Links between network namespaces, with the kernel's own traffic over them. Needs root.
//!
//! ```text
//!   namespace a            this process             namespace b
//!   10.77.0.1 ── TUN l0 ── forward, backward ── TUN l0 ── 10.77.0.2
//! ```
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests run real clocks and sockets")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use emulate::{Direction, Namespace, Running, Side, TunLink, Tunnels};
use net::{DatagramSocket, Ecn, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocketOptions};
use netem::{Change, CoDel, Discipline, LineState, LinkConfig, Schedule};
use support::{Namespaces, count, echo, inside, ip, ping, udp};
use units::{Rate, Ratio};

fn millis(millis: u64) -> units::Duration {
    units::Duration::from_millis(millis)
}

/// Both directions are equal.
fn link(namespaces: &Namespaces, config: &LinkConfig) -> TunLink {
    let side = |namespace: &Namespace, addresses: [&str; 2]| Side {
        namespace: Some(namespace.name().to_owned()),
        addresses: addresses.map(|address| address.parse().unwrap()).into(),
    };
    TunLink {
        name: "l0".into(),
        left: side(&namespaces.left, ["10.77.0.1/24", "fd77::1/64"]),
        right: side(&namespaces.right, ["10.77.0.2/24", "fd77::2/64"]),
        mtu: 1500,
        forward: config.clone(),
        backward: config.clone(),
    }
}

fn start(namespaces: &Namespaces, config: &LinkConfig) -> Running {
    Tunnels::start(vec![link(namespaces, config)], 7).unwrap()
}

/// Limit of pings until one is not delayed by other work on the machine.
const PINGS_MAX: usize = 500;

#[test]
fn a_ping_takes_about_both_delays() {
    let Some(namespaces) = Namespaces::new() else { return };
    let running = start(&namespaces, &LinkConfig { delay: millis(20), ..LinkConfig::default() });
    for (left, right) in [("10.77.0.1:0", "10.77.0.2:700"), ("[fd77::1]:0", "[fd77::2]:700")] {
        let server = udp_in(&namespaces.right, right);
        let echoing = std::thread::spawn(move || echo(&server));
        let socket = udp_in(&namespaces.left, left);
        let mut round_trips = Vec::new();
        // On a busy machine a ping may be late, and so may be the next ones, but not all of them.
        while round_trips.len() < 20
            || (round_trips.len() < PINGS_MAX && round_trips.iter().all(|time| *time >= Duration::from_millis(42)))
        {
            round_trips.push(ping(&socket, right));
        }
        socket.send_to(b"stop", right).unwrap();
        echoing.join().unwrap();
        let shortest = round_trips.iter().min().unwrap();
        assert!(*shortest >= Duration::from_millis(40), "{round_trips:?}");
        assert!(*shortest < Duration::from_millis(42), "{round_trips:?}");
    }
    let ended = running.stop();
    assert!(ended.fault.is_none(), "{ended:?}");
    assert_eq!(ended.reports[0].name, "l0");
    // At least 20 pings and a stop, on two families; the kernel may add neighbour and group discovery.
    assert!(ended.reports[0].forward.link.delivered >= 42, "{ended:?}");
    // The devices are removed with the link.
    wait_until_gone("l0", &["-netns", namespaces.left.name(), "link"]);
    wait_until_gone("l0", &["-netns", namespaces.right.name(), "link"]);
}

/// Waits until `ip` shows no such device. A command that a concurrent test starts has a copy of every
/// descriptor before it is executed, and the kernel removes a device with its last descriptor.
fn wait_until_gone(device: &str, arguments: &[&str]) {
    let start_of_wait = Instant::now();
    while ip(arguments).contains(device) {
        assert!(start_of_wait.elapsed() < Duration::from_secs(60), "{device} was not removed");
    }
}

/// A socket of the standard library in a namespace; it stays there, wherever it is used.
fn udp_in(namespace: &Namespace, address: &'static str) -> std::net::UdpSocket {
    inside(namespace, move || udp(address))
}

/// A socket as opened by `litz`, with segmentation offload.
fn segmenting(namespace: &Namespace, address: &'static str) -> net::UdpSocket {
    let open = move || net::UdpSocket::open(&UdpSocketOptions::new(address.parse().unwrap())).unwrap();
    inside(namespace, open)
}

#[test]
fn a_udp_batch_is_delivered_as_its_segments() {
    const SEGMENT_BYTES: usize = 1200;
    const SEGMENTS: usize = 40;
    let Some(namespaces) = Namespaces::new() else { return };
    // 10 Mb/s: each segment leaves separately, one millisecond after the last.
    let running = start(&namespaces, &LinkConfig { rate: Some(Rate::from_mbps(10)), ..LinkConfig::default() });
    for (left, right) in [("10.77.0.1:0", "10.77.0.2:701"), ("[fd77::1]:0", "[fd77::2]:701")] {
        let before = running.stats()[0].forward.link.delivered;
        let mut sender = segmenting(&namespaces.left, left);
        let mut receiver = segmenting(&namespaces.right, right);
        assert!(sender.max_gso_segments() >= SEGMENTS);
        // Each segment has its number in every byte; the last one is shorter.
        let contents: Vec<u8> = (0..SEGMENT_BYTES * SEGMENTS - 200).map(|at| (at / SEGMENT_BYTES) as u8).collect();
        let transmit = Transmit {
            destination: right.parse().unwrap(),
            source_ip: None,
            ecn: Some(Ecn::Ect0),
            contents: &contents,
            segment_size: Some(SEGMENT_BYTES),
        };
        let start = Instant::now();
        sender.send(&transmit).unwrap();
        assert_eq!(sender.counters().gso_fallbacks, 0, "the device supports batches");
        let mut received = Vec::new();
        let mut buffer = vec![0; RECV_BUFFER_BYTES];
        while received.len() < SEGMENTS && start.elapsed() < Duration::from_secs(10) {
            let mut metas = [RecvMeta::default()];
            match receiver.recv(&mut [&mut buffer], &mut metas) {
                Ok(_) => {
                    assert_eq!(metas[0].ecn, Some(Ecn::Ect0));
                    received.extend(metas[0].datagrams(&buffer).map(<[u8]>::to_vec));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        let expected: Vec<_> = contents.chunks(SEGMENT_BYTES).map(<[u8]>::to_vec).collect();
        assert_eq!(received, expected, "{right}");
        // 40 packets of 1228 bytes at 10 Mb/s take 39 ms.
        assert!(start.elapsed() >= Duration::from_millis(38), "{:?}", start.elapsed());
        assert!(running.stats()[0].forward.link.delivered >= before + SEGMENTS as u64);
    }
}

/// Sends for `span` from left to right, and returns the received bytes and the time.
fn tcp_transfer(namespaces: &Namespaces, span: Duration) -> (u64, Duration) {
    let listener = inside(&namespaces.right, || TcpListener::bind("10.77.0.2:702").unwrap());
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let (mut total, mut first) = (0, None);
        loop {
            match stream.read(&mut buffer).expect("data or the end") {
                0 => return (total, first.map_or(Duration::ZERO, |first: Instant| first.elapsed())),
                bytes => {
                    assert!(buffer[..bytes].iter().all(|&byte| byte == 0x5a), "TCP delivers the sent data");
                    total += bytes as u64;
                    first.get_or_insert_with(Instant::now);
                }
            }
        }
    });
    let mut stream = inside(&namespaces.left, || TcpStream::connect("10.77.0.2:702").unwrap());
    let start = Instant::now();
    while start.elapsed() < span {
        stream.write_all(&[0x5a; 1 << 16]).unwrap();
    }
    drop(stream);
    receiving.join().unwrap()
}

#[test]
fn kernel_tcp_reaches_nine_tenths_of_the_rate_and_never_exceeds_it() {
    let Some(namespaces) = Namespaces::new() else { return };
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        delay: millis(5),
        queue_delay: Some(millis(50)),
        ..LinkConfig::default()
    };
    let running = start(&namespaces, &config);
    let (bytes, span) = tcp_transfer(&namespaces, Duration::from_secs(3));
    let mbps = bytes as f64 * 8.0 / span.as_secs_f64() / 1e6;
    let report = running.stop().reports.remove(0);
    assert!((90.0..100.0).contains(&mbps), "{mbps:.1} Mb/s: {report:?}");
    // Super-packets were segmented: no packet is larger than the MTU.
    let stats = report.forward.link;
    assert!(stats.offered_bytes <= stats.offered * 1500 && stats.offered >= bytes / 1448, "{stats:?}");
    assert_eq!(report.forward.refused, 0);
}

#[test]
fn kernel_tcp_detects_corruption_by_valid_checksums() {
    let Some(namespaces) = Namespaces::new() else { return };
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(50)),
        delay: millis(2),
        loss: Ratio::new(1, 1000),
        corrupt: Ratio::new(1, 200),
        duplicate: Ratio::new(1, 200),
        reorder: Ratio::new(1, 200),
        reorder_by: millis(1),
        discipline: Discipline::CoDel(CoDel { ecn: true, ..CoDel::default() }),
        ..LinkConfig::default()
    };
    let running = start(&namespaces, &config);
    // The receiver checks every byte.
    let (bytes, _) = tcp_transfer(&namespaces, Duration::from_secs(2));
    let stats = running.stop().reports.remove(0).forward.link;
    assert!(bytes > 500_000, "{bytes} bytes");
    assert!(stats.corrupted > 0 && stats.duplicated > 0 && stats.reordered > 0 && stats.lost > 0, "{stats:?}");
}

#[test]
fn a_silently_cut_link_drops_everything_until_restored() {
    let Some(namespaces) = Namespaces::new() else { return };
    let running = start(&namespaces, &LinkConfig { delay: millis(1), ..LinkConfig::default() });
    let server = udp_in(&namespaces.right, "10.77.0.2:703");
    let echoing = std::thread::spawn(move || echo(&server));
    let socket = udp_in(&namespaces.left, "10.77.0.1:0");
    ping(&socket, "10.77.0.2:703");

    running.cut(0).unwrap();
    let vanished_before = running.stats()[0].forward.link.vanished;
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for _ in 0..3 {
        socket.send_to(b"lost", "10.77.0.2:703").unwrap();
    }
    let silence = socket.recv_from(&mut [0; 16]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    assert!(running.stats()[0].forward.link.vanished >= vanished_before + 3);

    running.restore(0).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    ping(&socket, "10.77.0.2:703");

    // Other settings can be changed while packets pass, in one direction alone.
    running.change(0, Direction::Backward, Change::Delay(millis(50))).unwrap();
    assert!(ping(&socket, "10.77.0.2:703") >= Duration::from_millis(51));
    let error = running.change(0, Direction::Both, Change::Rate(Some(Rate::ZERO))).unwrap_err();
    assert!(error.to_string().contains("rate"), "{error}");
    let error = running.change(1, Direction::Both, Change::Rate(None)).unwrap_err();
    assert!(error.to_string().contains("no such link"), "{error}");
    socket.send_to(b"stop", "10.77.0.2:703").unwrap();
    echoing.join().unwrap();
}

#[test]
fn counted_losses_match_the_missing_packets() {
    const DATAGRAMS: u64 = 2000;
    let Some(namespaces) = Namespaces::new() else { return };
    let running = start(&namespaces, &LinkConfig { loss: Ratio::new(1, 10), ..LinkConfig::default() });
    let counting = count(udp_in(&namespaces.right, "10.77.0.2:704"));
    let sender = udp_in(&namespaces.left, "10.77.0.1:0");
    for _ in 0..DATAGRAMS {
        sender.send_to(&[1; 32], "10.77.0.2:704").unwrap();
        std::thread::sleep(Duration::from_micros(50));
    }
    let stats = running.stats()[0].forward.link;
    running.change(0, Direction::Forward, Change::Loss(Ratio::ZERO)).unwrap();
    sender.send_to(b"end", "10.77.0.2:704").unwrap();
    let received = counting.join().unwrap();
    assert!((DATAGRAMS / 20..DATAGRAMS / 5).contains(&stats.lost), "{stats:?}");
    // The lost packets may include other packets of the kernel.
    let missing = DATAGRAMS - received;
    assert!(missing <= stats.lost && stats.lost - missing <= stats.offered - DATAGRAMS, "{missing} missing: {stats:?}");
}

#[test]
fn two_links_run_simultaneously_with_different_delays() {
    let Some(namespaces) = Namespaces::new() else { return };
    let one = link(&namespaces, &LinkConfig { delay: millis(5), ..LinkConfig::default() });
    let mut other = link(&namespaces, &LinkConfig { delay: millis(30), ..LinkConfig::default() });
    other.name = "l1".into();
    other.left.addresses = vec!["10.78.0.1/24".parse().unwrap()];
    other.right.addresses = vec!["10.78.0.2/24".parse().unwrap()];
    let running = Tunnels::start(vec![one, other], 7).unwrap();
    for (left, right, from, to) in
        [("10.77.0.1:0", "10.77.0.2:705", 10, 59), ("10.78.0.1:0", "10.78.0.2:705", 60, 1000)]
    {
        let server = udp_in(&namespaces.right, right);
        let echoing = std::thread::spawn(move || echo(&server));
        let socket = udp_in(&namespaces.left, left);
        let shortest = (0..5).map(|_| ping(&socket, right)).min().unwrap();
        assert!((Duration::from_millis(from)..Duration::from_millis(to)).contains(&shortest), "{shortest:?}");
        socket.send_to(b"stop", right).unwrap();
        echoing.join().unwrap();
    }
    assert!(running.stats().iter().all(|report| report.forward.link.delivered > 0));
}

#[test]
fn sockets_can_bind_before_the_links_run_and_time_starts_with_the_clock() {
    let Some(namespaces) = Namespaces::new() else { return };
    let silent = Schedule::once([(millis(300), Change::State(LineState::Silent))]).unwrap();
    let config = LinkConfig { delay: millis(20), schedule: Some(silent), ..LinkConfig::default() };
    let tunnels = Tunnels::open(vec![link(&namespaces, &config)], 7).unwrap();
    let (server, socket) = (udp_in(&namespaces.right, "10.77.0.2:706"), udp_in(&namespaces.left, "10.77.0.1:0"));
    socket.send_to(b"early", "10.77.0.2:706").unwrap();
    server.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    let mut buffer = [0; 64];
    assert_eq!(server.recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock, "no link runs");
    // More than the schedule's 300 ms have passed, but not on this clock.
    let clock = net::MonotonicClock::start();
    let running = tunnels.run(clock).unwrap();
    let (bytes, _) = server.recv_from(&mut buffer).expect("the packet waited in the device");
    assert_eq!(&buffer[..bytes], b"early");
    assert!(clock.now().since_start() >= millis(20));
    std::thread::sleep(Duration::from_millis(350));
    socket.send_to(b"late", "10.77.0.2:706").unwrap();
    assert!(server.recv_from(&mut buffer).is_err());
    assert_eq!(running.stats()[0].forward.link.vanished, 1);
}

#[test]
fn create_pair_does_not_touch_existing_namespaces() {
    let Some(_namespaces) = Namespaces::new() else { return };
    let name = |number: u32, side| format!("litz-pair-{}-{number}-{side}", std::process::id());
    // Concurrent tests use numbers too, so some of the next ones are taken.
    let others: Vec<_> = (0..40).step_by(2).map(|number| Namespace::create(&name(number, "b")).unwrap()).collect();
    let pairs: Vec<_> = (0..4).map(|_| Namespace::create_pair("litz-pair").unwrap()).collect();
    let made: Vec<_> = pairs.iter().flatten().map(|namespace| namespace.name().to_owned()).collect();
    assert!(made.iter().all(|made| others.iter().all(|other| other.name() != made)), "{made:?}");
    drop((pairs, others));
    let left = ip(&["netns"]);
    assert!(!left.contains(&format!("litz-pair-{}-", std::process::id())), "{left}");
}

#[test]
fn a_removed_device_is_reported_and_failures_leave_no_devices() {
    let Some(namespaces) = Namespaces::new() else { return };
    let running = start(&namespaces, &LinkConfig::default());
    assert!(!running.has_fault());
    ip(&["-netns", namespaces.left.name(), "link", "delete", "l0"]);
    let start_of_wait = Instant::now();
    while !running.has_fault() && start_of_wait.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(running.has_fault());
    assert!(running.cut(0).unwrap_err().to_string().contains("ended"));
    assert!(matches!(running.stop().fault, Some((0, _))));

    let mut duplicates = vec![link(&namespaces, &LinkConfig::default()), link(&namespaces, &LinkConfig::default())];
    let error = Tunnels::start(duplicates.clone(), 7).expect_err("one name for two devices").to_string();
    assert!(error.contains("l0") && error.contains(namespaces.left.name()), "{error}");
    wait_until_gone("l0", &["-netns", namespaces.left.name(), "link"]);

    duplicates.truncate(1);
    duplicates[0].right.namespace = Some("litz-no-such-namespace".into());
    let error = Tunnels::start(duplicates.clone(), 7).expect_err("no such namespace").to_string();
    assert!(error.contains("litz-no-such-namespace"), "{error}");
    duplicates[0].right.namespace = duplicates[0].left.namespace.clone();
    let error = Tunnels::start(duplicates, 7).expect_err("one namespace").to_string();
    assert!(error.contains("name two"), "{error}");
    // Concurrent tests create devices too, each for a short time in this namespace.
    let ours = format!("litz{:x}.", std::process::id() & 0xff_ffff);
    wait_until_gone(&ours, &["link"]);
}
