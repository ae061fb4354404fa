//! Gigabit Kits report 2000: classical IP over ATM with small socket buffers, and the pacer of its
//! network cards.

use serde::Deserialize;

use super::context::Context;
use super::decision::{Decider, Decision, exact};
use super::models::pacing;
use super::models::small_writes::Setup;

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

/// Rates below this are slow, in Mb/s: the report prints nothing between 2.7 and 155.
const SLOW_MBPS: f64 = 20.0;

/// The printed rates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    grid_bytes: Vec<u64>,
    rate: Vec<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    action: String,
    list: String,
    socket_buffer_bytes: u64,
    packet_bytes: u64,
    rate_mbps: f64,
}

impl Printed {
    fn read() -> Self {
        toml::from_str(include_str!("../../data/001-rates.toml")).expect("the file of rates is well-formed")
    }

    /// The rate of the model for every pair of sizes under these rules.
    fn grid(&self, nagle: bool, delayed: bool) -> Vec<(u64, u64, f64)> {
        let pairs =
            self.grid_bytes.iter().flat_map(|buffer| self.grid_bytes.iter().map(move |packet| (*buffer, *packet)));
        pairs.map(|(buffer, packet)| (buffer, packet, rate(buffer, packet, nagle, delayed))).collect()
    }
}

fn rate(buffer_bytes: u64, packet_bytes: u64, nagle: bool, delayed: bool) -> f64 {
    Setup { buffer_bytes, packet_bytes, nagle, delayed }.rate_mbps()
}

fn larger_buffers_raise_the_peak(_: &Context) -> Decision {
    let printed = Printed::read();
    let grid = printed.grid(true, true);
    let peak = |buffer: u64| grid.iter().filter(|cell| cell.0 == buffer).map(|cell| cell.2).fold(0.0, f64::max);
    let mut sizes = printed.grid_bytes.clone();
    sizes.sort_unstable();
    let peaks: Vec<_> = sizes.iter().map(|size| peak(*size)).collect();
    // A saturated peak does not grow because of rounding.
    let grows = peaks.is_sorted_by(|a, b| *b >= *a * 0.999);
    let (least, most) = (peaks[0], peaks[peaks.len() - 1]);
    Decision::of(
        grows && most > 1.5 * least,
        "in a textbook TCP the best rate grows with the buffers until the processor is saturated; the 300 Mb/s at \
         saturation are an input",
        "in a textbook TCP the best rate does not grow with the buffers",
    )
    .with("best rate with the smallest buffers", "Mb/s", None, exact(least))
    .with("with the largest", "Mb/s", 300.0, exact(most))
    .fitted()
}

fn the_pair_of_sizes_decides(_: &Context) -> Decision {
    let printed = Printed::read();
    let grid = printed.grid(true, true);
    let most = grid.iter().map(|cell| cell.2).fold(0.0, f64::max);
    let least = grid.iter().map(|cell| cell.2).fold(f64::INFINITY, f64::min);
    let rates = || printed.rate.iter().map(|rate| rate.rate_mbps);
    let paper = rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min);
    let is_right = |row: &&Rate| {
        let ours = rate(row.socket_buffer_bytes, row.packet_bytes, true, true);
        (ours < SLOW_MBPS) == (row.list == "slowest")
    };
    let right = printed.rate.iter().filter(is_right).count();
    Decision::of(
        most / least > 100.0,
        "with Nagle's algorithm and delayed acknowledgements a textbook TCP has the same cliff; which pairs are slow \
         depends on how the application reads, so not every pair is on the printed side",
        "a textbook TCP has no such cliff",
    )
    .with("fastest relative to slowest pair", "", paper, exact(most / least))
    .with(format!("rows of {} on the printed side", printed.rate.len()), "", None, exact(right as f64))
}

fn slow_pairs_wait_for_the_timer(_: &Context) -> Decision {
    let printed = Printed::read();
    let slow = |nagle, delayed| printed.grid(nagle, delayed).iter().filter(|cell| cell.2 < SLOW_MBPS).count();
    let (both, without_nagle, without_delay) = (slow(true, true), slow(false, true), slow(true, false));
    let buffer = 16_384;
    let ms = |mbps: f64| buffer as f64 * 8.0 / 1e3 / mbps;
    let row = printed.rate.iter().find(|row| row.socket_buffer_bytes == buffer && row.packet_bytes == buffer);
    let lost = ms(rate(buffer, buffer, true, true)) - ms(rate(buffer, buffer, true, false));
    Decision::of(
        (lost / 200.0 - 1.0).abs() < 0.05 && both > 0 && without_delay == 0,
        format!(
            "a packet that fills the buffer loses one period of the timer, and no pair is slow without delayed \
             acknowledgements; without Nagle's algorithm {without_nagle} of {both} pairs stay slow, those whose \
             packets are larger than the buffer, and they lose several periods per packet"
        ),
        "the lost time does not match the timer",
    )
    .with(
        "time of a packet of 16384 bytes with buffers of that size",
        "ms",
        row.map(|row| ms(row.rate_mbps)),
        exact(lost),
    )
    .with("slow pairs", "", None, exact(both as f64))
    .with("without Nagle's algorithm", "", None, exact(without_nagle as f64))
    .with("without delayed acknowledgements", "", None, exact(without_delay as f64))
}

fn two_tables_are_one(_: &Context) -> Decision {
    let printed = Printed::read();
    let rows = |action: &str, list: &str| -> Vec<_> {
        let of = |row: &&Rate| row.action == action && row.list == list;
        printed.rate.iter().filter(of).map(|row| (row.socket_buffer_bytes, row.packet_bytes, row.rate_mbps)).collect()
    };
    let equal = |list| rows("rw", list).iter().zip(&rows("r", list)).filter(|(a, b)| a == b).count();
    let (slowest, fastest) = (equal("slowest"), equal("fastest"));
    Decision::of(
        slowest == rows("rw", "slowest").len() && fastest < slowest,
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
