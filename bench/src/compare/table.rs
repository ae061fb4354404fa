//! The table of medians.

use std::collections::BTreeSet;

use super::figures::SHOWN;
use super::run::{Run, value_name};
use super::statistics::Spread;

/// Prints the median of every figure of every contender, with the lowest and the highest value.
pub fn print(runs: &[Run]) {
    println!("{:<18} {:<24} {:<14} {:>10}   [min .. max]", "test", "figure", "contender", "median");
    let cases: BTreeSet<_> = runs.iter().map(|run| run.case).collect();
    let contenders: BTreeSet<_> = runs.iter().map(|run| run.contender).collect();
    for &case in &cases {
        for (label, read) in SHOWN {
            for &contender in &contenders {
                let of = runs.iter().filter(|run| run.case == case && run.contender == contender);
                let Some(Spread { median, min, max }) = Spread::of(of.filter_map(read)) else { continue };
                let (case, contender) = (case.to_string(), value_name(&contender));
                println!("{case:<18} {label:<24} {contender:<14} {median:>10.3}   [{min:.3} .. {max:.3}]");
            }
        }
    }
}
