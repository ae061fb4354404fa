//! Gigabit Kits report 2000: classical IP over ATM with small socket buffers, and the pacer of its
//! network cards.

use super::context::Context;
use super::decision::{Decider, Decision, exact};
use super::models::pacing;
use crate::gigabit_kits::paper::{Action, List, Printed, Rate};

/// The decider of each claim.
pub(super) const DECIDERS: [(&str, Decider); 8] = [
    ("001-01", larger_buffers_raise_the_peak),
    ("001-02", the_pair_of_sizes_decides),
    ("001-03", slow_pairs_wait_for_the_timer),
    ("001-04", two_tables_are_one),
    ("001-05", dma_is_faster_than_the_kernel),
    ("001-06", the_pacer_sets_the_rate),
    ("001-07", applications_speak_tcp),
    ("001-08", pacing_steadies_the_rate),
];

fn larger_buffers_raise_the_peak(context: &Context) -> Decision {
    let grid = context.study("001-grid");
    let peak = |buffer: usize| {
        let row = format!("rw, buffer {buffer}");
        let packets = Printed::load().grid_bytes;
        packets.iter().map(|packet| grid.ours(&row, &format!("packet {packet}")).mean).fold(0.0, f64::max)
    };
    let mut sizes = Printed::load().grid_bytes;
    sizes.sort_unstable();
    let peaks: Vec<_> = sizes.iter().map(|size| peak(*size)).collect();
    let (least, most) = (peaks[0], peaks[peaks.len() - 1]);
    let is_most = peaks.iter().all(|peak| *peak <= most);
    Decision::of(
        is_most && most > 1.5 * least,
        "the largest buffers have the best rate; the 300 Mb/s are an input. Between, the best rate falls where no \
         packet of the grid fits the buffer without a wait for the timer",
        "the largest buffers do not have the best rate",
    )
    .with("best rate with the smallest buffers", "Mb/s", None, exact(least))
    .with("with the largest", "Mb/s", 300.0, exact(most))
    .fitted()
}

fn the_pair_of_sizes_decides(context: &Context) -> Decision {
    let grid = context.study("001-grid");
    let rules = "rw, Nagle's algorithm and delayed acknowledgements";
    let (most, least) = (grid.ours(rules, "fastest pair").mean, grid.ours(rules, "slowest pair").mean);
    let printed = Printed::load();
    let rates = || printed.rate.iter().map(|rate| rate.rate_mbps);
    let paper = rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min);
    let sides = "the slow rows are the printed ones";
    let has_cliff = most / least > 100.0;
    let decision = Decision::by_checks(
        &grid,
        &[sides],
        "our TCP with the classic profile has the same cliff, and the same pairs are slow",
        "in our TCP other pairs are slow",
    );
    let decision = if has_cliff { decision } else { Decision::of(false, "", "our TCP has no such cliff") };
    decision.with("fastest relative to slowest pair", "", paper, exact(most / least))
}

fn slow_pairs_wait_for_the_timer(context: &Context) -> Decision {
    let grid = context.study("001-grid");
    Decision::by_checks(
        &grid,
        &["without Nagle's algorithm no pair is slow", "without delayed acknowledgements no pair is slow"],
        "a packet that fills a buffer of 16384 bytes loses one period of the timer, and no pair is slow if either \
         rule is absent",
        "pairs are slow also without one of the rules",
    )
    .with_cell(
        "time of a packet of 16384 bytes with buffers of that size",
        &grid,
        "rw, buffer 16384, packet 16384",
        "time of a packet",
    )
}

fn two_tables_are_one(_: &Context) -> Decision {
    let printed = Printed::load();
    let rows = |action: Action, list: List| -> Vec<_> {
        let of = |row: &&Rate| row.action == action && row.list == list;
        printed.rate.iter().filter(of).map(|row| (row.socket_buffer_bytes, row.packet_bytes, row.rate_mbps)).collect()
    };
    let equal = |list| rows(Action::Rw, list).iter().zip(&rows(Action::R, list)).filter(|(a, b)| a == b).count();
    let (slowest, fastest) = (equal(List::Slowest), equal(List::Fastest));
    Decision::of(
        slowest == rows(Action::Rw, List::Slowest).len() && fastest < slowest,
        "all rows of the two slowest tables are equal to the last digit, so one is a copy: two experiments would \
         differ",
        "the tables differ",
    )
    .with("equal rows of the slowest", "", 8.0, exact(slowest as f64))
    .with("of the fastest", "", None, exact(fastest as f64))
}

fn dma_is_faster_than_the_kernel(_: &Context) -> Decision {
    Decision::not_decidable(
        "it needs the network cards: neither the kernel's cost per byte nor that of their DMA is printed",
    )
}

fn the_pacer_sets_the_rate(_: &Context) -> Decision {
    Decision::not_decidable(
        "it needs the network cards: any two printed rates determine the two constants of a line through them, the \
         unit of the setting is not given, and a model does not predict outliers",
    )
}

fn applications_speak_tcp(_: &Context) -> Decision {
    Decision::not_decidable("an inventory of programs of its time and an opinion")
}

fn pacing_steadies_the_rate(context: &Context) -> Decision {
    let (bursts, paced) = (pacing::run(false, &context.options), pacing::run(true, &context.options));
    Decision::of(
        paced.lost.mean < bursts.lost.mean && paced.variation.mean < bursts.variation.mean,
        "first half: evenly spaced cells lose less at a small buffer and vary less than bursts of the same rate; the \
         second half, that the cards' own interface is faster still, needs the cards",
        "first half: evenly spaced cells do no better than bursts at a small buffer",
    )
    .with("loss with bursts", "", None, bursts.lost)
    .with("with paced cells", "", None, paced.lost)
    .with("variation of the rate with bursts", "", None, bursts.variation)
    .with("paced", "", None, paced.variation)
}
