//! What the death of one of four processors of paths costs: goodput after it, over goodput before, in memory.
//!
//! `cargo bench -p litz-engine --bench degradation` measures; `cargo test -p litz-engine --benches` only runs it a little. On a
//! machine with fewer processors than paths they share what there is, and the loss of one costs less than its share.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

#[path = "../tests/trouble/mod.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use quic::PathState;
use trouble::over_paths::World;
use trouble::{Fault, LEN, Trouble, healthy};

const PATHS: usize = 4;

/// Megabits a second of so many transfers.
fn goodput(world: &World, transfers: usize) -> f64 {
    let begun = world.client.now();
    (0..transfers).for_each(|_| world.transfer());
    (transfers * LEN * 8) as f64 / world.client.now().saturating_since(begun).as_nanos() as f64 * 1000.0
}

fn main() {
    // Cargo passes this when benchmarks, not tests, are asked for.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (rounds, transfers) = if measuring { (5, 40) } else { (1, 1) };
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let trouble = Trouble::new(Fault::Panic, u64::MAX, 1);
        let world = World::new(PATHS, &trouble, &healthy());
        goodput(&world, transfers / 4);
        let before = goodput(&world, transfers);
        trouble.come();
        // The transfer in which it dies, and whatever that costs.
        let meanwhile = goodput(&world, 1);
        world.wait_for("one path is dead", |paths| {
            paths.iter().filter(|path| path.state == PathState::Active).count() == PATHS - 1
        });
        let after = goodput(&world, transfers);
        println!(
            "round {round}: {before:.0} Mb/s before, {meanwhile:.0} while it dies, {after:.0} after: {:.2}; nothing lost",
            after / before
        );
        ratios.push(after / before);
        world.stop();
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {rounds}: {:.2}", ratios[ratios.len() / 2]);
}
