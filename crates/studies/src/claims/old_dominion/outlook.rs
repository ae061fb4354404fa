//! Claims about prices, displays, misprints and later improvements.

use crate::claims::context::Context;
use crate::claims::decision::{Decider, Decision, exact};
use crate::claims::models::node::Node;
use crate::workstation::prose;

pub(super) const DECIDERS: [(&str, Decider); 4] = [
    ("004-33", gains_multiply),
    ("004-34", it_is_cheap),
    ("004-35", a_display_needs_472),
    ("004-36", the_misprint_is_300),
];

fn gains_multiply(context: &Context) -> Decision {
    // Processors of 75 Mb/s each, rings with 70 Mb/s available each, packets of 36 kbit.
    let node = Node { processors: 4, window: 12, processing_us: 480.0, channels: 12, channel_us: 514.0 };
    let rate = |node: Node| node.packets_per_s(&context.options);
    let gain = |node: Node| {
        let better = rate(Node { processing_us: node.processing_us / 2.0, ..node });
        exact(better.mean / rate(node).mean)
    };
    let alone = gain(Node { processors: 1, ..node });
    let (four, limited) = (gain(node), gain(Node { channels: 4, ..node }));
    Decision::of(
        (four.mean / alone.mean - 1.0).abs() < 0.1,
        "halving the work per packet gains as much with four processors as with one, so the gains multiply, as long \
         as the channels have spare capacity",
        "the gains do not multiply",
    )
    .with("gain of half the work, one processor", "", None, alone)
    .with("four processors, twelve channels", "", None, four)
    .with("four processors, four channels", "", None, limited)
}

fn it_is_cheap(_: &Context) -> Decision {
    Decision::not_decidable("prices of its time; they are not part of a model")
}

fn a_display_needs_472(_: &Context) -> Decision {
    let display = prose().display;
    let pixels = display.width_pixels * display.height_pixels;
    let mbps = pixels * display.bits_per_pixel * display.frames_per_second * 1e-6;
    Decision::of(
        (mbps - display.rate_mbps).abs() < 0.5,
        "the product is the printed number, rounded",
        "the product is not the printed number",
    )
    .with("pixels by bits by frames", "Mb/s", display.rate_mbps, exact(mbps))
}

fn the_misprint_is_300(context: &Context) -> Decision {
    let found = context.study("004-table-2");
    let rate = found.ours("20 ns per word", "throughput").mean;
    let [likely, other] = prose().misprint.readings_mbps;
    Decision::of(
        (rate - likely).abs() < (other - rate).abs() && rate > 0.9 * likely,
        format!(
            "with the fastest memory of Table 2 the machine reaches {rate:.0} Mb/s, nearer to {likely} than to {other}"
        ),
        format!("with the fastest memory of Table 2 the machine reaches {rate:.0} Mb/s, not near {likely}"),
    )
    .with_cell("1-bus with memory of 20 ns", &found, "20 ns per word", "throughput")
}
