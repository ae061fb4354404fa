//! A flood of SYNs with forged addresses, from a device of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use litz::tcp::{Count, IpDevice, Listen, MemoryTun, TcpConfig, TcpStack, TcpStackConfig, TcpStream};
use tcp::{Connection, Plan, SuperPacket, Tuple};
use units::{Instant, Seq32};

use crate::listening::Listening;
use crate::world::pattern;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Maximum number of half-open connections of the server.
const HALF_OPEN_MAX: usize = 64;

/// The server's own address on the device of the flood.
const FLOODED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// Returns a SYN of client number `number`, with an empty offload header.
fn syn(number: u64) -> Vec<u8> {
    let source = Ipv4Addr::from_bits(Ipv4Addr::new(172, 16, 0, 0).to_bits() + (number / 50_000) as u32);
    let tuple = Tuple { local: (source, 10_000 + (number % 50_000) as u16).into(), remote: (FLOODED, 80).into() };
    let mut connection = Connection::connect(Instant::ZERO, TcpConfig::default(), tuple, Seq32::new(number as u32), 0);
    let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
    assert!(connection.poll_plan(Instant::ZERO, 1, &mut plan));
    plan.seal(&mut packet);
    let mut bytes = vec![0; 10];
    packet.packets(|packet| bytes.extend_from_slice(packet));
    bytes
}

/// Returns two stacks, and a device over which the server is flooded.
fn world() -> (TcpStack, Listening, MemoryTun) {
    let [one, other] = MemoryTun::pair();
    let flooded = MemoryTun::new();
    let client = TcpStack::start(TcpStackConfig::new(IpDevice::memory(one, CLIENT), &[CLIENT])).expect("a stack");
    let config = TcpStackConfig::new(IpDevice::memory(other, SERVER), &[SERVER])
        .with_device(IpDevice::memory(flooded.clone(), FLOODED), &[FLOODED]);
    let bounds = Listen::default().with_half_open_max(HALF_OPEN_MAX);
    (client, Listening::start_with(config, 80, bounds), flooded)
}

/// Sends SYNs until `stop` is set, and counts the answers in `answers`.
fn flood(device: &MemoryTun, stop: &AtomicBool, answers: &AtomicU64) {
    for number in 0.. {
        device.inject(syn(number));
        while device.take_written().is_some() {
            answers.fetch_add(1, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if number % 64 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Ends the flood, even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_syns_takes_bounded_memory_and_lets_connections_go_on_and_begin() {
    const FLOOD: u64 = 20_000;
    let (client, server, device) = world();
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let bytes = pattern(20 << 20, 1);
    let first = client.connect((SERVER, 80).into()).expect("connected");
    let established = server.accept().expect("a client");
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| flood(&device, &stop, &answers));
        // The transfer continues during the flood.
        let sending = scope.spawn(|| (&first).write_all(&bytes).map(|()| first.finish()));
        let mut received = Vec::new();
        (&established).read_to_end(&mut received).expect("the end");
        assert!(received == bytes);
        sending.join().expect("no panic").expect("the peer reads");
        while answers.load(Ordering::Relaxed) < FLOOD {
            assert!(server.connection_count() <= HALF_OPEN_MAX + 2, "{} connections", server.connection_count());
            std::thread::yield_now();
        }
        // A client connects while the half-open connections are at their bound, through a cookie.
        assert!(server.count_of(Count::CookiesSent) >= FLOOD / 2, "{}", server.count_of(Count::CookiesSent));
        assert_eq!(server.count_of(Count::CookiesAccepted), 0);
        let second = client.connect((SERVER, 80).into()).expect("connected");
        (&second).write_all(b"hello").expect("the peer reads");
        second.finish();
        let accepted = server.accept().expect("a client");
        assert_eq!(server.count_of(Count::CookiesAccepted), 1);
        (&accepted).write_all(&bytes[..1 << 20]).expect("the peer reads");
        accepted.finish();
        let [mut request, mut answer] = [Vec::new(), Vec::new()];
        (&second).read_to_end(&mut answer).expect("the end");
        (&accepted).read_to_end(&mut request).expect("the end");
        assert!(request == b"hello" && answer == bytes[..1 << 20]);
    });
}

#[test]
fn peers_wait_while_the_backlog_is_full() {
    let [one, other] = MemoryTun::pair();
    let client = TcpStack::start(TcpStackConfig::new(IpDevice::memory(one, CLIENT), &[CLIENT])).expect("a stack");
    let config = TcpStackConfig::new(IpDevice::memory(other, SERVER), &[SERVER]);
    let server = Listening::start_with(config, 80, Listen::default().with_backlog(2));
    let connect = || client.connect((SERVER, 80).into());
    let mut connected: Vec<TcpStream> = (0..2).map(|_| connect().expect("connected")).collect();
    std::thread::scope(|scope| {
        // A peer whose SYN arrives together with the last segment of the previous handshake is
        // still accepted.
        let waiting = scope.spawn(|| {
            while server.count_of(Count::BacklogDrops) == 0 {
                connected.push(connect().expect("connected"));
            }
            connected
        });
        while server.count_of(Count::BacklogDrops) == 0 {
            std::thread::yield_now();
        }
        let before = server.connection_count();
        assert!((2..=3).contains(&before), "{before}");
        // It connects once the application has accepted: its SYN is repeated.
        let mut accepted = Vec::new();
        while !waiting.is_finished() {
            accepted.extend(server.listener.accept_timeout(Duration::from_millis(1)).expect("it listens"));
        }
        assert!(!accepted.is_empty(), "no peer connects before");
        let connected = waiting.join().expect("no panic");
        assert_eq!(connected.len(), before + 1);
    });
}
