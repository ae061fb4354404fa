//! The effect of a flood of garbage on a transfer: the ratio of goodput while 100,000 datagrams a
//! second are sent to the receiver's port to goodput while the same flood is sent to another socket
//! of the same machine. The two runs alternate, so that other load affects both equally. The first
//! part caps the transfer below the capacity of the processors, as a link does. The second part has
//! no cap, so that all costs of the flood show.
//!
//! `cargo bench -p litz --bench flood` measures. `cargo test -p litz --benches` only runs each case
//! briefly. Arguments after `--`: `rounds=8`, `seconds=2`, `rate=100000` (datagrams a second),
//! `cap=1000` (Mb/s of the first part).
#![expect(clippy::print_stdout, reason = "the table is the result")]

#[path = "../tests/garbage.rs"]
mod garbage;
#[path = "../tests/world.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use garbage::{FLOOD_RATE, Kind, Plan, Run, Target, transfer};
use units::{Duration, Rate};

/// The value of argument `name=value`.
fn argument(name: &str, otherwise: u64) -> u64 {
    let value = std::env::args().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    value.unwrap_or(otherwise)
}

const KINDS: [Kind; 3] = [Kind::Noise, Kind::Addressed, Kind::Forged];

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = argument("rounds", if measuring { 8 } else { 1 });
    let span = if measuring { Duration::from_secs(argument("seconds", 2)) } else { Duration::from_millis(100) };
    let rate = argument("rate", FLOOD_RATE);
    println!("{rate} datagrams/s of 30 to 1400 bytes, {rounds} rounds of {span}; medians");
    println!(
        "{:<10} {:>10} {:>14} {:>14} {:>7} {:>7} {:>7} {:>10} {:>7} {:>8} {:>9} {:>9}",
        "garbage",
        "cap",
        "flood/Mb/s",
        "base/Mb/s",
        "ratio",
        "least",
        "most",
        "taken/s",
        "taken",
        "lost",
        "stray/s",
        "forged/s"
    );
    let cap = Rate::from_mbps(argument("cap", 1_000));
    let variants = [Some(cap), None].into_iter().flat_map(|cap| KINDS.map(|kind| (cap, kind)));
    for (cap, kind) in variants {
        let run = |target| transfer(Plan { kind, target, rate, cap, span });
        let pairs: Vec<[Run; 2]> = (0..rounds).map(|_| [Target::Receiver, Target::Elsewhere].map(run)).collect();
        let ratios = sorted(pairs.iter().map(|[at, baseline]| at.goodput() / baseline.goodput()));
        let goodput = |index: usize| median(&sorted(pairs.iter().map(|pair| pair[index].goodput())));
        let taken = sorted(pairs.iter().map(|[at, _]| at.taken as f64 / at.span.as_secs_f64()));
        let share = sorted(pairs.iter().map(|[at, _]| at.taken as f64 / at.offered.max(1) as f64));
        let each_second = |count: fn(&Run) -> u64| {
            median(&sorted(pairs.iter().map(|[at, _]| count(at) as f64 / at.span.as_secs_f64())))
        };
        let lost = sorted(pairs.iter().map(|[at, _]| at.lost as f64));
        println!(
            "{:<10} {:>10} {:>14.0} {:>14.0} {:>7.2} {:>7.2} {:>7.2} {:>10.0} {:>6.0}% {:>8.0} {:>9.0} {:>9.0}",
            format!("{kind:?}").to_lowercase(),
            cap.map_or("none".to_owned(), |cap| cap.to_string()),
            goodput(0),
            goodput(1),
            median(&ratios),
            ratios[0],
            ratios[ratios.len() - 1],
            median(&taken),
            median(&share) * 100.0,
            median(&lost),
            each_second(|run| run.stray),
            each_second(|run| run.unauthentic),
        );
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
