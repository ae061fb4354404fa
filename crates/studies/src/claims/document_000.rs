//! Document 000: packets of one connection on many processors.

use super::{Context, Decider, Decision, Found, exact};

/// What finds out about each claim.
pub(super) const DECIDERS: [(&str, Decider); 7] = [
    ("000-01", one_connection_gains_nothing),
    ("000-02", the_connection_is_the_limit),
    ("000-03", more_connections_help),
    ("000-04", dearer_is_slower_and_scales_better),
    ("000-05", a_digest_scales_to_eight),
    ("000-06", ciphers_scale_to_twelve),
    ("000-07", what_a_digest_and_ciphers_cost),
];

/// Rows of the study, from the cheapest stack to the dearest.
const STACKS: [&str; 4] =
    ["TCP, IP, FDDI", "TCP, MD5, IP, FDDI", "DES, TCP, MD5, IP, FDDI", "3DES, TCP, MD5, IP, FDDI"];

/// Where nobody's processor is chosen by connection.
const ANY: &str = "without security, packets of any connection";

fn stacks(context: &Context) -> Found {
    context.study("000-speedup")
}

fn one_connection_gains_nothing(context: &Context) -> Decision {
    let speedup = stacks(context).ours(STACKS[0], "speedup");
    Decision::of(
        speedup.mean < 2.0,
        "twelve processors wait for one lock; that all of this stack is under it is an assumption, but half of it beside the \
         lock would still bring no more than two",
        "the bare stack gains by more processors",
    )
    .with("speedup of twelve processors", "", None, speedup)
}

fn the_connection_is_the_limit(context: &Context) -> Decision {
    let found = stacks(context);
    let bound = found.check("each speedup is its bound");
    let held = found.ours(STACKS[0], "lock held, twelve processors");
    let dearest = found.ours(STACKS[3], "lock held, twelve processors");
    Decision::of(
        bound.holds && held.mean > 99.0 && dearest.mean < 50.0,
        "where the lock is held all the time the speedup is the packet's time by the time under it, whatever the stack; \
         how much of the bare stack is the connection's state is not printed and was taken as all",
        "the speedups are not what the lock allows",
    )
    .with("lock held without security", "%", None, held)
    .with("with 3DES and MD5", "%", None, dearest)
    .with_cell("speedup with MD5", &found, STACKS[1], "speedup")
    .with("packet's time by serial time", "", None, found.ours(STACKS[1], "bound: packet by serial time"))
}

fn more_connections_help(context: &Context) -> Decision {
    let found = context.study("000-connections");
    let gains: Vec<_> = ["1", "2", "4", "8", "12"].map(|count| found.ours(count, ANY)).into();
    let grows = gains.is_sorted_by(|a, b| a.mean < b.mean);
    Decision::of(
        grows && gains[4].mean > 4.0,
        "each connection has a lock of its own; packets of any connection still meet at them by chance, so twelve do not bring \
         twelve times",
        "more connections bring nothing",
    )
    .with("throughput of two connections by one", "", None, gains[1])
    .with("of four", "", None, gains[2])
    .with("of twelve", "", None, gains[4])
}

fn dearer_is_slower_and_scales_better(context: &Context) -> Decision {
    let found = stacks(context);
    let rates = STACKS.map(|stack| found.ours(stack, "one processor"));
    let speedups = STACKS.map(|stack| found.ours(stack, "speedup"));
    let slower = rates.is_sorted_by(|a, b| a.mean > b.mean);
    let better = speedups.is_sorted_by(|a, b| a.mean < b.mean);
    let mut decision = Decision::of(
        slower && better,
        "what is added is done beside the lock, so it costs time and leaves the serial part as it is",
        "the orders of throughput and of speedup are not opposite",
    );
    for (stack, (rate, speedup)) in STACKS.iter().zip(rates.into_iter().zip(speedups)) {
        decision = decision.with(format!("{stack}:"), "Mb/s", None, rate).with("speedup", "", None, speedup);
    }
    decision
}

fn a_digest_scales_to_eight(context: &Context) -> Decision {
    let found = stacks(context);
    let speedup = found.ours(STACKS[1], "speedup");
    let bound = found.ours(STACKS[1], "bound: packet by serial time").mean;
    let printed = found.cell(STACKS[1], "speedup").1.paper;
    // A packet's time by the printed speedup is what may be under the lock.
    let beside = printed.map_or_else(String::new, |printed| {
        format!("; the printed {printed} needs {:.0} % of that stack beside the lock", (1.0 - bound / printed) * 100.0)
    });
    Decision::of(
        (7.0..=8.5).contains(&speedup.mean),
        format!("the bound of a bare stack that is serial as a whole is {bound:.1}{beside}"),
        "the speedup is not about eight",
    )
    .with_cell("speedup of twelve processors", &found, STACKS[1], "speedup")
}

fn ciphers_scale_to_twelve(context: &Context) -> Decision {
    let found = stacks(context);
    let [des, triple] = [STACKS[2], STACKS[3]].map(|stack| found.ours(stack, "speedup"));
    let serial = found.ours(STACKS[0], "one processor").mean;
    let [by_des, by_triple] = [STACKS[2], STACKS[3]].map(|stack| serial / found.ours(stack, "one processor").mean);
    Decision::of(
        des.mean >= 11.0 && triple.mean >= 11.0,
        format!(
            "their packets take {by_des:.0} and {by_triple:.0} times the serial part, which is all of the bare stack"
        ),
        "their speedups are not almost linear",
    )
    .with("DES and MD5", "", None, des)
    .with("3DES and MD5", "", None, triple)
}

fn what_a_digest_and_ciphers_cost(context: &Context) -> Decision {
    let found = stacks(context);
    let [bare, md5, des, triple] = STACKS.map(|stack| found.ours(stack, "one processor").mean);
    // "Nearly" an order: at most a quarter of an order off.
    let is_nearly = |ratio: f64, orders: f64| (ratio.log10() - orders).abs() < 0.25;
    let (digest, cipher, three) = (bare / md5, bare / des, des / triple);
    Decision::of(
        is_nearly(digest, 1.0) && is_nearly(cipher, 2.0) && (three - 3.0).abs() < 0.3,
        "the printed throughputs are that far apart",
        format!(
            "the digest and 3DES cost what is said, but the cipher costs {cipher:.0} times, {:.1} orders of magnitude, which is \
             not nearly two",
            cipher.log10()
        ),
    )
    .with("bare stack by MD5", "", None, exact(digest))
    .with("bare stack by DES and MD5", "", None, exact(cipher))
    .with("DES by 3DES", "", 3.0, exact(three))
}
