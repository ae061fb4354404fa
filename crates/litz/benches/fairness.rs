//! Fairness between the connections of an endpoint, under every placement: the bytes that the
//! slowest and the fastest connection have received when half of all bytes have arrived, relative
//! to equal shares. Writers and readers have threads, so the result also depends on the scheduler
//! of the system. Run it on an idle machine.
//!
//! `cargo bench -p litz --bench fairness` measures. `cargo test -p litz --benches` only runs each
//! case briefly. Arguments after `--`: `rounds=5`, `connections=64`, `kib=1024` (of each
//! connection).
#![expect(clippy::print_stdout, reason = "the table is the result")]

#[path = "../tests/world.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};

use bytes::Bytes;
use litz::Placement;

use world::{Variant, Wire, World, serve};

/// The value of argument `name=value`.
fn argument(name: &str, otherwise: usize) -> usize {
    let value = std::env::args().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    value.unwrap_or(otherwise)
}

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = argument("rounds", if measuring { 5 } else { 1 });
    let connections = argument("connections", if measuring { 64 } else { 4 });
    let len = argument("kib", if measuring { 1024 } else { 64 }) << 10;
    println!(
        "{connections} connections, {} KiB each, {rounds} rounds; shares at half of all bytes, 100 % is equal",
        len >> 10
    );
    println!("{:<8} {:<16} {:>12} {:>14} {:>12}", "wire", "placement", "least of all", "median least", "most of all");
    let placements = [
        Placement::Thread,
        Placement::Inline,
        Placement::Split,
        Placement::Packet(2),
        Placement::Path(2),
        Placement::Connection(2),
    ];
    for wire in [Wire::Udp, Wire::Memory] {
        for placement in placements.into_iter().filter(|placement| wire == Wire::Udp || placement.driver_count() == 1) {
            let variant = Variant { wire, placement };
            let round = |_| {
                let shares = shares_at_half(&World::new(variant), connections, len);
                let percent = |bytes: usize| bytes as f64 * 200.0 / len as f64;
                let (least, most) = (shares.iter().min(), shares.iter().max());
                (percent(*least.expect("there are some")), percent(*most.expect("there are connections")))
            };
            let (mut least, mut most): (Vec<f64>, Vec<f64>) = (0..rounds).map(round).unzip();
            least.sort_by(f64::total_cmp);
            most.sort_by(f64::total_cmp);
            println!(
                "{:<8} {:<16} {:>10.0} % {:>12.0} % {:>10.0} %",
                format!("{wire:?}").to_lowercase(),
                placement.to_string(),
                least[0],
                least[least.len() / 2],
                most[most.len() - 1],
            );
        }
    }
}

/// Limit of the bytes of a stream in flight. It is low, so that no queue overflows: this benchmark
/// measures how processors are shared, not congestion control.
const WINDOW: u64 = 32 << 10;

/// Transfers `len` bytes over each of `count` connections, with a writer thread and a reader thread
/// for each. Returns the number of bytes that each connection had received when half of all bytes
/// had arrived.
fn shares_at_half(world: &World, count: usize, len: usize) -> Vec<usize> {
    let received: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let (total, half) = (AtomicUsize::new(0), count * len / 2);
    let at_half = OnceLock::new();
    // Without a common start, many bytes are transferred while threads are still being started.
    let begin = Barrier::new(count);
    let mut config = world.config();
    config.transport.stream_window = WINDOW;
    config.transport.stream_window_max = WINDOW;
    serve(
        world,
        config,
        |server| {
            std::thread::scope(|scope| {
                for index in 0..count {
                    let connection = server.accept().unwrap();
                    let (received, total, at_half) = (&received, &total, &at_half);
                    scope.spawn(move || {
                        let mut recv = connection.accept_uni().unwrap();
                        while let Some(chunk) = recv.read_chunk().unwrap() {
                            received[index].fetch_add(chunk.len(), Ordering::Relaxed);
                            let before = total.fetch_add(chunk.len(), Ordering::Relaxed);
                            // Exactly one reader reaches the half. Bytes that other readers count
                            // before it reads the counters belong to both halves.
                            if before < half && before + chunk.len() >= half {
                                let all = received.iter().map(|bytes| bytes.load(Ordering::Relaxed));
                                at_half.set(all.collect()).expect("one reader reaches the half");
                            }
                        }
                        assert_eq!(received[index].load(Ordering::Relaxed), len);
                        connection.open_uni().unwrap().finish().unwrap();
                        connection.closed();
                    });
                }
            });
        },
        |client, address| {
            let connections: Vec<_> = (0..count).map(|_| world.connect(client, address)).collect();
            assert_eq!(client.connection_count(), count);
            std::thread::scope(|scope| {
                for connection in &connections {
                    let begin = &begin;
                    scope.spawn(move || {
                        let mut send = connection.open_uni().unwrap();
                        begin.wait();
                        for from in (0..len).step_by(64 << 10) {
                            send.write_chunk(Bytes::from(vec![7; (len - from).min(64 << 10)])).unwrap();
                        }
                        send.finish().unwrap();
                        assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
                    });
                }
            });
            for connection in &connections {
                connection.close(0, "done");
            }
        },
    );
    at_half.into_inner().expect("the transfer has reached the half")
}
