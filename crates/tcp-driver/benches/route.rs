//! Nanoseconds from the bytes of an arriving segment to the connection's key and the opened segment:
//! what the driver does with each packet before the serial step of TCP.
//!
//! `cargo bench -p litz-tcp-driver --bench route`
#![expect(clippy::print_stdout, reason = "a benchmark reports")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant as Clock;

use bytes::Bytes;
use driver::protocol::{Begun, ConnectionKey, OpenJob, Protocol, Route};
use driver::{Shared, shared::Common};
use tcp::{HostSecret, TcpConfig};
use tcp_driver::{Limits, Listen, ListeningPorts, LocalAddress, OpenSegment, Received, Tcp};
use units::{Instant, Seq32};
use wire::tcp::{Flags, Header, Options, Timestamps};
use wire::{checksum, ip};

const PACKETS: usize = 1_000_000;
const RUNS: usize = 7;
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A segment of client number `client`.
fn segment(client: usize, flags: Flags) -> Bytes {
    let source = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 0).to_bits() + (client / 1000) as u32);
    let ip = ip::Header {
        source: source.into(),
        destination: LOCAL.into(),
        protocol: ip::Protocol::TCP,
        hop_limit: 64,
        dscp: 0,
        ecn: None,
        id: 0,
        may_fragment: false,
    };
    let header = Header {
        source_port: 10_000 + (client % 1000) as u16,
        destination_port: 80,
        seq: Seq32::new(7),
        flags,
        window: 1000,
        options: Options { timestamps: Some(Timestamps { value: 1, echo: 1 }), ..Options::default() },
        ..Header::default()
    };
    let mut bytes = Vec::new();
    ip.emit(header.len(), &mut bytes);
    let start = bytes.len();
    header.emit(&mut bytes);
    let pseudo = checksum::pseudo_header(ip.source, ip.destination, ip.protocol, header.len() as u32);
    wire::tcp::fill_checksum(&mut bytes[start..], pseudo);
    bytes.into()
}

/// A protocol with so many connections.
fn with_connections(count: usize) -> Tcp {
    let now = Instant::ZERO;
    let address = LocalAddress { ip: LOCAL.into(), device: 0 };
    let protocol = Tcp::new(TcpConfig::default(), HostSecret::new([7; 32]), vec![address]);
    let common = Arc::new(Common::new(1));
    let local = vec![(LOCAL, 0).into()];
    let shared = Arc::new(Shared::new(Waker::noop().clone(), local, Limits::default(), common, 0));
    let ports = Arc::<ListeningPorts>::default();
    ports.listen(&shared, 80, Listen::default()).expect("the port is free");
    let mut protocol = protocol.with_listening(ports);
    for client in 0..count {
        let syn = Received::new(segment(client, Flags::SYN), None, true);
        let Begun::Connection(mut connection, _) = protocol.accept(now, &shared, 0, syn, false, false) else {
            panic!("a SYN begins a connection");
        };
        protocol.update_routes(ConnectionKey(client as u32), &mut connection);
    }
    protocol
}

fn measure(connections: usize) {
    let protocol = with_connections(connections);
    // Packets of neighbours in time are of unrelated connections.
    let order = |number: usize| number.wrapping_mul(7919) % connections;
    let packets: Vec<Bytes> = (0..connections).map(|number| segment(order(number), Flags::ACK)).collect();
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        let mut job = OpenSegment::default();
        let start = Clock::now();
        for number in 0..PACKETS {
            let mut batch = Received::new(packets[number % connections].clone(), None, true);
            let (_, route) = protocol.route(&batch);
            assert!(matches!(route, Route::Known(_)), "the connection exists");
            job.open(&mut batch);
            black_box(&job);
            job.clear();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / PACKETS as f64);
    }
    println!("{connections} connections: {best:.0} ns for each packet, the least of {RUNS} runs");
}

fn main() {
    for connections in [1, 100, 10_000] {
        measure(connections);
    }
}
