//! Claims about the serial part of a `send()` call.

use crate::claims::context::{Context, Found};
use crate::claims::decision::{Decider, Decision};

pub(super) const DECIDERS: [(&str, Decider); 3] = [
    ("004-17", the_serial_part_is_the_bound),
    ("004-18", hardware_checksums_raise_the_bound),
    ("004-19", two_processors_gain_1_71),
];

const MOST_EXPENSIVE: &str = "4500 bytes, 20 ns, 25 MIPS, software";
const LEAST_EXPENSIVE: &str = "500 bytes, 20 ns, 25 MIPS, hardware";

fn found(context: &Context) -> Found {
    context.study("004-table-4")
}

fn the_serial_part_is_the_bound(context: &Context) -> Decision {
    let found = found(context);
    Decision::by_checks(
        &found,
        &["the serial part bounds the speedup"],
        "many calls on many processors reach the bound set by the serial part; the times of both parts are the paper's",
        "the bounds differ",
    )
    .with_cell("least", &found, MOST_EXPENSIVE, "speedup")
    .with_cell("most", &found, LEAST_EXPENSIVE, "speedup")
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
        "for hardware and software checksums, small and large packets",
        "the order of the bounds differs",
    )
}

fn two_processors_gain_1_71(context: &Context) -> Decision {
    Decision::by_checks(
        &found(context),
        &["two processors execute two calls"],
        "two serial parts and one parallel part do not add up to the printed sum: the error is in the paper",
        "the printed gain may be right",
    )
}
