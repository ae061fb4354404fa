//! How evenly connections share an endpoint: what the least and the most served of them have when
//! half of everything has arrived, as a share of what each would have if all were served alike,
//! under every placement. With a writer and a reader on threads of their own the system's scheduler
//! has its part in it, so this holds for a machine at rest.
//!
//! `cargo bench -p litz --bench fairness` measures; `cargo test -p litz --benches` only runs each
//! case a little, so that none rots. Arguments behind `--`: `rounds=5`, `connections=64`,
//! `kib=1024` (of each connection).
#![expect(clippy::print_stdout, reason = "the table is the result")]

#[path = "../tests/world.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};

use bytes::Bytes;
use litz::Placement;

use world::{Arm, Wire, World, serve};

/// The value of argument `name=value`.
fn argument(name: &str, otherwise: usize) -> usize {
    let value = std::env::args().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    value.unwrap_or(otherwise)
}

fn main() {
    // Cargo passes this when benchmarks, not tests, are asked for.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = argument("rounds", if measuring { 5 } else { 1 });
    let connections = argument("connections", if measuring { 64 } else { 4 });
    let len = argument("kib", if measuring { 1024 } else { 64 }) << 10;
    println!(
        "{connections} connections, {} KiB each, {rounds} rounds; shares at half, 100 % is an equal one",
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
            let arm = Arm { wire, placement };
            let round = |_| {
                let shares = shares_at_half(&World::new(arm), connections, len);
                let percent = |bytes: usize| bytes as f64 * 200.0 / len as f64;
                let (least, most) = (shares.iter().min(), shares.iter().max());
                (percent(*least.expect("there are some")), percent(*most.expect("there are some")))
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

/// Bytes of a stream on their way, at most. Few, so that no queue overflows: this measures who gets
/// the processors, not about congestion control.
const WINDOW: u64 = 32 << 10;

/// Lets `count` connections carry `len` bytes each, with a writer and a reader on threads of their
/// own, and returns what each had received when half of all had. All of it has arrived in the end.
fn shares_at_half(world: &World, count: usize, len: usize) -> Vec<usize> {
    let received: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let (total, half) = (AtomicUsize::new(0), count * len / 2);
    let at_half = OnceLock::new();
    // Starting threads takes as long as carrying much of it.
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
                            // One of the readers crosses the line. What others count before it
                            // looks belongs to both halves.
                            if before < half && before + chunk.len() >= half {
                                let all = received.iter().map(|bytes| bytes.load(Ordering::Relaxed));
                                at_half.set(all.collect()).expect("the line is crossed once");
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
    at_half.into_inner().expect("half of it comes before all of it")
}
