//! The cost of losing one of four path workers: the ratio of goodput after and before its panic,
//! over sockets in memory.
//!
//! `cargo bench -p litz-quic-endpoint --bench degradation` measures. `cargo test -p litz-quic-endpoint --benches`
//! only runs one short round. On a machine with fewer cores than paths the workers share the cores,
//! and the loss of one costs less than its share.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

#[path = "../tests/all/faulty_keys/mod.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod faulty_keys;

use faulty_keys::multipath::EnginePair;
use faulty_keys::{FaultKind, LEN, WorkerFault, no_fault};
use quic::PathState;

const PATHS: usize = 4;

/// The goodput of this many transfers in Mb/s.
fn goodput(pair: &EnginePair, transfers: usize) -> f64 {
    let begun = pair.client.now();
    (0..transfers).for_each(|_| pair.transfer());
    (transfers * LEN * 8) as f64 / pair.client.now().saturating_since(begun).as_nanos() as f64 * 1000.0
}

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (rounds, transfers) = if measuring { (5, 40) } else { (1, 1) };
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let fault = WorkerFault::new(FaultKind::Panic, u64::MAX, 1);
        let pair = EnginePair::new(PATHS, &fault, &no_fault());
        goodput(&pair, transfers / 4);
        let before = goodput(&pair, transfers);
        fault.trigger();
        // The transfer during which the worker panics.
        let meanwhile = goodput(&pair, 1);
        pair.wait_for("one path has failed", |paths| {
            paths.iter().filter(|path| path.state == PathState::Active).count() == PATHS - 1
        });
        let after = goodput(&pair, transfers);
        println!(
            "round {round}: {before:.0} Mb/s before, {meanwhile:.0} during the failure, {after:.0} after: {:.2}; no data lost",
            after / before
        );
        ratios.push(after / before);
        pair.stop();
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {rounds}: {:.2}", ratios[ratios.len() / 2]);
}
