//! Claims about the machine with distributed memory.

use crate::claims::context::Context;
use crate::claims::decision::{Decider, Decision, exact};

pub(super) const DECIDERS: [(&str, Decider); 6] = [
    ("004-20", adaptive_scheduling_keeps_throughput),
    ("004-21", the_network_scheduler_makes_overload_worse),
    ("004-22", it_pays_on_long_networks),
    ("004-23", queues_build_on_long_networks),
    ("004-24", latency_by_window),
    ("004-37", it_delivers_300),
];

const FIXED: &str = "fixed/fixed";
const APPLICATION: &str = "adaptive/fixed";
const BOTH: &str = "adaptive/adaptive";
const NONE: &str = "no background";
const UNIFORM: &str = "uniform 30 %";
const ONE: &str = "one channel overloaded";
const TWO: &str = "two channels overloaded";

fn adaptive_scheduling_keeps_throughput(context: &Context) -> Decision {
    let found = context.study("004-table-5");
    let left = |policy| found.ours(policy, TWO).mean / found.ours(policy, NONE).mean;
    let paper = |policy| Some(found.cell(policy, TWO).1.paper? / found.cell(policy, NONE).1.paper?);
    let (adaptive, fixed) = (left(APPLICATION), left(FIXED));
    Decision::of(
        adaptive > 0.9 && fixed < 0.85,
        "neighbours take over the load of an overloaded channel; a fixed scheduler cannot move it to them",
        "the adaptive scheduler loses throughput, or the fixed one does not",
    )
    .with("remaining with two channels overloaded, adaptive", "", paper(APPLICATION), exact(adaptive))
    .with("fixed", "", paper(FIXED), exact(fixed))
    .fitted()
}

fn the_network_scheduler_makes_overload_worse(context: &Context) -> Decision {
    let found = context.study("004-table-6");
    let array = context.study("004-crossbar");
    let worse = [ONE, TWO].iter().all(|case| found.ours(BOTH, case).mean < found.ours(APPLICATION, case).mean);
    // With all network units reachable by moves that take no time: a remaining loss is not caused
    // by the array.
    let vanishes = [ONE, TWO].map(|case| array.check(&format!("{case}: with a crossbar whose moves take no time")));
    let is_the_array = vanishes.iter().all(|check| check.holds);
    let order = found.check("part of the loss is reordering");
    let decision = Decision::of(
        worse && is_the_array,
        "it makes overload worse in the linear array, and not in a crossbar",
        if worse {
            format!(
                "the adaptive network scheduler does make overload worse, but not because of the linear array: with \
                 every network unit reachable at no cost it still does ({}). {}: {}",
                vanishes[0].detail,
                if order.holds { "Part of it is reordering" } else { "It is not reordering either" },
                order.detail
            )
        } else {
            "the adaptive network scheduler does not make overload worse".to_owned()
        },
    );
    decision
        .with_cell("one overloaded, network scheduler fixed", &found, APPLICATION, ONE)
        .with_cell("adaptive", &found, BOTH, ONE)
        .with_cell("two overloaded, fixed", &found, APPLICATION, TWO)
        .with_cell("adaptive", &found, BOTH, TWO)
}

fn it_pays_on_long_networks(context: &Context) -> Decision {
    let found = context.study("004-table-7");
    let rows = |policy: &str| format!("{UNIFORM}: {policy}");
    Decision::by_checks(
        &found,
        &[
            "uniform 30 %: the adaptive network scheduler pays on the longest network",
            "two channels overloaded: the adaptive network scheduler pays on the longest network",
        ],
        "a prediction: the printed values were not used",
        "a prediction: in this model the gain is negligible at every length",
    )
    .with_cell("100 km, network scheduler fixed", &found, &rows(APPLICATION), "100 km")
    .with_cell("adaptive", &found, &rows(BOTH), "100 km")
}

fn queues_build_on_long_networks(context: &Context) -> Decision {
    let found = context.study("004-table-7");
    Decision::by_checks(
        &found,
        &[
            "uniform 30 %: queues at the network units are longer on the longest network",
            "two channels overloaded: queues at the network units are longer on the longest network",
        ],
        "a prediction: the same load waits longer where the token rotation is longer; moving packets shortens the \
         queues slightly",
        "a prediction: queues do not grow with the length",
    )
}

fn latency_by_window(context: &Context) -> Decision {
    let found = context.study("004-table-8");
    let mut decision = Decision::not_decidable(
        "the printed values were not used, so there is nothing to compare with; the prediction is below",
    );
    for case in [NONE, UNIFORM, ONE, TWO] {
        decision = decision
            .with_cell(format!("{case}: 4000 bytes"), &found, case, "4000 bytes")
            .with_cell("8000", &found, case, "8000 bytes")
            .with_cell("14000", &found, case, "14000 bytes");
    }
    decision
}

fn it_delivers_300(context: &Context) -> Decision {
    let found = context.study("004-table-6");
    Decision::of(
        found.ours(APPLICATION, NONE).mean >= 300.0,
        "only without background load; with 30 % background the paper's own table is below, and so is the model",
        "the model stays below",
    )
    .with_cell("no background", &found, APPLICATION, NONE)
    .with_cell("30 % uniform", &found, APPLICATION, UNIFORM)
}
