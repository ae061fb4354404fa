//! Nahum et al. 1996: packets of one connection on many processors.

use super::context::{Context, Found};
use super::decision::{Decider, Decision, exact};

/// The decider of each claim.
pub(super) const DECIDERS: [(&str, Decider); 7] = [
    ("000-01", one_connection_gains_nothing),
    ("000-02", the_connection_is_the_limit),
    ("000-03", more_connections_help),
    ("000-04", higher_cost_lowers_throughput_and_raises_speedup),
    ("000-05", a_digest_scales_to_eight),
    ("000-06", ciphers_scale_to_twelve),
    ("000-07", cost_of_digest_and_ciphers),
];

/// Rows of the study, from the stack with the lowest to that with the highest cost per packet.
const STACKS: [&str; 4] =
    ["TCP, IP, FDDI", "TCP, MD5, IP, FDDI", "DES, TCP, MD5, IP, FDDI", "3DES, TCP, MD5, IP, FDDI"];

/// The column in which connections are not assigned to processors.
const ANY: &str = "without security, packets of any connection";

fn stacks(context: &Context) -> Found {
    context.study("000-speedup")
}

/// Returns the same results with our own TCP.
fn our_stacks(context: &Context) -> Found {
    context.study("000-stacks")
}

/// Name of the column of speedups of our own TCP as the sender.
const OUR_SPEEDUP: &str = "speedup, send side";

fn one_connection_gains_nothing(context: &Context) -> Decision {
    let speedup = stacks(context).ours(STACKS[0], "speedup");
    let of_our_tcp = our_stacks(context).ours(STACKS[0], OUR_SPEEDUP);
    Decision::of(
        speedup.mean < 2.0 && of_our_tcp.mean < 2.0,
        "twelve processors wait for one lock; it is an assumption that the whole stack runs under it, but with half \
         of it outside the lock the speedup would still not exceed two",
        "the stack without security gains from more processors",
    )
    .with("speedup of twelve processors", "", None, speedup)
    .with("with our own TCP", "", None, of_our_tcp)
}

fn the_connection_is_the_limit(context: &Context) -> Decision {
    let found = stacks(context);
    let bound = found.check("each speedup is its bound");
    let held = found.ours(STACKS[0], "lock held, twelve processors");
    let most_expensive = found.ours(STACKS[3], "lock held, twelve processors");
    Decision::of(
        bound.holds && held.mean > 99.0 && most_expensive.mean < 50.0,
        "where the lock is always held, the speedup is the packet time divided by the time under the lock, for every \
         stack; the paper does not print how much of the stack without security is connection state, so all of it \
         was assumed",
        "the speedups differ from the bounds set by the lock",
    )
    .with("lock held without security", "%", None, held)
    .with("with 3DES and MD5", "%", None, most_expensive)
    .with_cell("speedup with MD5", &found, STACKS[1], "speedup")
    .with("packet's time by serial time", "", None, found.ours(STACKS[1], "bound: packet time / serial time"))
}

fn more_connections_help(context: &Context) -> Decision {
    let found = context.study("000-connections");
    let gains: Vec<_> = ["1", "2", "4", "8", "12"].map(|count| found.ours(count, ANY)).into();
    let grows = gains.is_sorted_by(|a, b| a.mean < b.mean);
    Decision::of(
        grows && gains[4].mean > 4.0,
        "each connection has its own lock; packets of different connections still contend for the same lock at \
         random, so twelve connections give less than twelve times the throughput",
        "more connections do not raise the throughput",
    )
    .with("throughput of two connections relative to one", "", None, gains[1])
    .with("of four", "", None, gains[2])
    .with("of twelve", "", None, gains[4])
}

fn higher_cost_lowers_throughput_and_raises_speedup(context: &Context) -> Decision {
    let found = stacks(context);
    let rates = STACKS.map(|stack| found.ours(stack, "one processor"));
    let speedups = STACKS.map(|stack| found.ours(stack, "speedup"));
    let slower = rates.is_sorted_by(|a, b| a.mean > b.mean);
    let better = speedups.is_sorted_by(|a, b| a.mean < b.mean);
    let mut decision = Decision::of(
        slower && better,
        "the added work runs outside the lock, so it costs time and leaves the serial part unchanged",
        "the orders of throughput and of speedup are not opposite",
    );
    for (stack, (rate, speedup)) in STACKS.iter().zip(rates.into_iter().zip(speedups)) {
        decision = decision.with(format!("{stack}:"), "Mb/s", None, rate).with("speedup", "", None, speedup);
    }
    decision
}

fn a_digest_scales_to_eight(context: &Context) -> Decision {
    let (found, of_our_tcp) = (stacks(context), our_stacks(context));
    let speedups = [found.ours(STACKS[1], "speedup"), of_our_tcp.ours(STACKS[1], OUR_SPEEDUP)];
    let bound = found.ours(STACKS[1], "bound: packet time / serial time").mean;
    let printed = found.cell(STACKS[1], "speedup").1.paper;
    // The packet time divided by the printed speedup is the time that may be spent under the lock.
    let outside = printed.map_or_else(String::new, |printed| {
        format!(
            "; the printed {printed} requires {:.0} % of that stack to run outside the lock",
            (1.0 - bound / printed) * 100.0
        )
    });
    Decision::of(
        speedups.iter().all(|speedup| (7.0..=8.5).contains(&speedup.mean)),
        format!("the bound is {bound:.1} if the stack without security is entirely serial{outside}"),
        "the speedup is not close to eight",
    )
    .with_cell("speedup of twelve processors", &found, STACKS[1], "speedup")
    .with_cell("with our own TCP", &of_our_tcp, STACKS[1], OUR_SPEEDUP)
}

fn ciphers_scale_to_twelve(context: &Context) -> Decision {
    let found = stacks(context);
    let [des, triple] = [STACKS[2], STACKS[3]].map(|stack| found.ours(stack, "speedup"));
    let ours = our_stacks(context);
    let [our_des, our_triple] = [STACKS[2], STACKS[3]].map(|stack| ours.ours(stack, OUR_SPEEDUP));
    let serial = found.ours(STACKS[0], "one processor").mean;
    let [by_des, by_triple] = [STACKS[2], STACKS[3]].map(|stack| serial / found.ours(stack, "one processor").mean);
    Decision::of(
        [des, triple, our_des, our_triple].iter().all(|speedup| speedup.mean >= 11.0),
        format!(
            "their packets take {by_des:.0} and {by_triple:.0} times the serial part, the whole stack without security"
        ),
        "their speedups are not almost linear",
    )
    .with("DES and MD5", "", None, des)
    .with("3DES and MD5", "", None, triple)
    .with("DES and MD5 with our own TCP", "", None, our_des)
    .with("3DES and MD5 with our own TCP", "", None, our_triple)
}

fn cost_of_digest_and_ciphers(context: &Context) -> Decision {
    let found = stacks(context);
    let [bare, md5, des, triple] = STACKS.map(|stack| found.ours(stack, "one processor").mean);
    // "Nearly" an order of magnitude: at most a quarter of an order off.
    let is_nearly = |ratio: f64, orders: f64| (ratio.log10() - orders).abs() < 0.25;
    let (digest, cipher, three) = (bare / md5, bare / des, des / triple);
    Decision::of(
        is_nearly(digest, 1.0) && is_nearly(cipher, 2.0) && (three - 3.0).abs() < 0.3,
        "the printed throughputs have these ratios",
        format!(
            "MD5 and 3DES have the stated costs, but DES costs a factor of {cipher:.0}, {:.1} orders of magnitude, \
             which is not nearly two",
            cipher.log10()
        ),
    )
    .with("without security relative to MD5", "", None, exact(digest))
    .with("without security relative to DES and MD5", "", None, exact(cipher))
    .with("DES relative to 3DES", "", 3.0, exact(three))
}
