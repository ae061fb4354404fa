//! The goodput of an established TCP connection while its host is flooded with SYNs from forged
//! addresses, beside the goodput while the same flood goes to a device that nothing serves, so that making
//! it costs the same. Runs alternate. The flood comes over a device of its own, as fast as one thread
//! makes it, or at a given rate.
//!
//! `cargo bench -p litz --bench tcp_flood` measures. `cargo test -p litz --benches` only runs each case
//! briefly.
#![expect(clippy::print_stdout, reason = "a benchmark reports")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use litz::tcp::{Count, IpDevice, MemoryTun, TcpConfig, TcpStack, TcpStackConfig, TcpStream};
use net::tun::TunDevice;
use tcp::{Connection, Plan, SuperPacket, Tuple};
use units::{Instant, Seq32};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const FLOODED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// SYNs a second. Zero: as many as one thread makes.
const RATES: [u64; 3] = [10_000, 100_000, 0];

/// SYNs of so many forged clients, each with an empty offload header.
fn syns() -> Vec<Vec<u8>> {
    let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
    let mut syn = |number: u32| {
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(172, 16, 0, 0).to_bits() + number);
        let tuple = Tuple { local: (source, 10_000).into(), remote: (FLOODED, 80).into() };
        let mut connection = Connection::connect(Instant::ZERO, TcpConfig::default(), tuple, Seq32::new(number), 0);
        assert!(connection.poll_plan(Instant::ZERO, 1, &mut plan));
        plan.seal(&mut packet);
        let mut bytes = vec![0; 10];
        packet.packets(|packet| bytes.extend_from_slice(packet));
        bytes
    };
    (0..100_000).map(&mut syn).collect()
}

/// Sends SYNs until `stop`. `rate`: so many a second; zero: as many as possible.
fn flood(mut device: MemoryTun, is_served: bool, syns: &[Vec<u8>], rate: u64, stop: &AtomicBool) {
    let (start, mut buffer) = (Clock::now(), [0; 256]);
    for number in 0_u64.. {
        device.inject(syns[number as usize % syns.len()].clone());
        if is_served {
            while device.take_written().is_some() {}
        } else {
            device.read(&mut buffer).expect("it was injected");
        }
        while rate > 0 && start.elapsed().as_secs_f64() * (rate as f64) < number as f64 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Bytes a second that `reader` gets.
fn goodput(received: &AtomicU64, time: Duration) -> f64 {
    let (start, before) = (Clock::now(), received.load(Ordering::Relaxed));
    std::thread::sleep(time);
    (received.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64()
}

fn read_all(stream: &TcpStream, received: &AtomicU64) {
    while let Ok(Some(bytes)) = stream.read_chunk() {
        received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (time, runs) = if measuring { (Duration::from_secs(2), 5) } else { (Duration::from_millis(100), 1) };
    let [one, other] = MemoryTun::pair();
    let device = MemoryTun::new();
    let client = TcpStack::start(TcpStackConfig::new(IpDevice::memory(one, CLIENT), &[CLIENT])).expect("a stack");
    let config = TcpStackConfig::new(IpDevice::memory(other, SERVER), &[SERVER])
        .with_device(IpDevice::memory(device.clone(), FLOODED), &[FLOODED]);
    let server = TcpStack::start(config).expect("a stack");
    let listener = server.listen(80).expect("the port is free");
    let sending = client.connect((SERVER, 80).into()).expect("connected");
    let receiving = listener.accept().expect("a client");
    let (syns, received, is_over) = (syns(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| read_all(&receiving, &received));
        scope.spawn(|| {
            let chunk = bytes::Bytes::from(vec![7; 256 << 10]);
            while !is_over.load(Ordering::Relaxed) {
                sending.write_chunk(chunk.clone()).expect("the peer reads");
            }
            (&sending).flush().expect("nothing is buffered");
            sending.reset();
        });
        for rate in RATES {
            let (mut quiet, mut flooded, mut answered) = (0.0, 0.0, 0);
            for _ in 0..runs {
                let mut during = |device: MemoryTun, is_served| {
                    let (stop, before) = (AtomicBool::new(false), server.count_of(Count::CookiesSent));
                    let goodput = std::thread::scope(|scope| {
                        scope.spawn(|| flood(device, is_served, &syns, rate, &stop));
                        let goodput = goodput(&received, time);
                        stop.store(true, Ordering::Relaxed);
                        goodput
                    });
                    answered += server.count_of(Count::CookiesSent) - before;
                    goodput
                };
                quiet += during(MemoryTun::new(), false);
                flooded += during(device.clone(), true);
            }
            let gigabits = |rate: f64| rate * 8.0 / 1e9 / f64::from(runs);
            let syns = answered as f64 / (f64::from(runs) * time.as_secs_f64());
            println!(
                "{rate} SYNs a second ({syns:.0} answered): {:.2} Gb/s, with the flood elsewhere {:.2} Gb/s: {:.0} %",
                gigabits(flooded),
                gigabits(quiet),
                100.0 * flooded / quiet
            );
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
