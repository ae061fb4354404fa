//! The serial part of a send() call.

use crate::claims::{Context, Decider, Decision, Found};

pub(super) const DECIDERS: [(&str, Decider); 3] = [
    ("004-17", the_serial_part_is_the_bound),
    ("004-18", hardware_checksums_raise_the_bound),
    ("004-19", two_processors_gain_1_71),
];

const DEAREST: &str = "4500 bytes, 20 ns, 25 MIPS, software";
const CHEAPEST: &str = "500 bytes, 20 ns, 25 MIPS, hardware";

fn found(context: &Context) -> Found {
    context.study("004-table-4")
}

fn the_serial_part_is_the_bound(context: &Context) -> Decision {
    let found = found(context);
    Decision::by_checks(
        &found,
        &["the serial part bounds the speedup"],
        "many calls on many processors come as near to the serial part's bound as they can; the times of both parts are the paper's",
        "the bounds are others",
    )
    .with_cell("least", &found, DEAREST, "speedup")
    .with_cell("most", &found, CHEAPEST, "speedup")
}

fn hardware_checksums_raise_the_bound(context: &Context) -> Decision {
    Decision::by_checks(
        &found(context),
        &[
            "a checksum in hardware raises the bound, 500 bytes",
            "a checksum in hardware raises the bound, 4500 bytes",
            "larger packets lower it, software",
            "larger packets lower it, hardware",
        ],
        "hardware and software, small and large packets",
        "the bounds come in another order",
    )
}

fn two_processors_gain_1_71(context: &Context) -> Decision {
    Decision::by_checks(
        &found(context),
        &["two processors do two calls"],
        "two serial parts and one parallel part are not the printed sum: the slip is the paper's",
        "the printed gain may be right",
    )
}
