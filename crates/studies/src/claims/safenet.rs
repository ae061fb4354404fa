//! The SAFENET evaluation, University of Virginia: three levels over an FDDI ring.

use super::context::Context;
use super::decision::{Decider, Decision, exact};

/// The decider of each claim.
pub(super) const DECIDERS: [(&str, Decider); 7] = [
    ("003-01", each_level_costs_throughput),
    ("003-02", latency_is_a_line),
    ("003-03", multicast_is_as_fast),
    ("003-04", multicast_has_higher_latency),
    ("003-05", the_maximum_is_the_setting),
    ("003-06", fixed_latency_is_not_the_networks),
    ("003-07", throughput_has_an_asymptote),
];

const LEVELS: [&str; 3] = ["MAC (FDDI)", "transport (XTP)", "user (Ada)"];
const MULTICAST: &str = "multicast: latency with one receiver, throughput with two";

fn each_level_costs_throughput(context: &Context) -> Decision {
    let found = context.study("003-levels");
    let rates = LEVELS.map(|level| found.ours(level, "asymptote"));
    let mut decision = Decision::of(
        rates.is_sorted_by(|a, b| a.mean > b.mean),
        "each level adds work per byte; of the three asymptotes, that at user level was not used for calibration",
        "the order of the levels differs",
    );
    for level in LEVELS {
        decision = decision.with_cell(level, &found, level, "asymptote");
    }
    decision
}

fn latency_is_a_line(context: &Context) -> Decision {
    let found = context.study("003-levels");
    let check = found.check("latency is linear");
    Decision::of(
        check.holds && LEVELS.iter().all(|level| found.is_within(level, "a") && found.is_within(level, "b")),
        format!("{}; five of the six printed constants are inputs; the slope at MAC level is a result", check.detail),
        format!("{}, or the lines differ", check.detail),
    )
    .with_cell("slope at MAC level", &found, LEVELS[0], "a")
}

fn multicast_is_as_fast(context: &Context) -> Decision {
    let found = context.study("003-multicast");
    let (one, two) = (found.ours("unicast", "asymptote"), found.ours(MULTICAST, "asymptote"));
    Decision::of(
        (two.mean / one.mean - 1.0).abs() < 0.05,
        "a frame passes every station, so a second receiver adds no work for the sender",
        "a second receiver reduces throughput",
    )
    .with_cell("unicast", &found, "unicast", "asymptote")
    .with_cell("multicast to two", &found, MULTICAST, "asymptote")
}

fn multicast_has_higher_latency(context: &Context) -> Decision {
    let found = context.study("003-multicast");
    let step = |column| found.ours(MULTICAST, column).mean - found.ours("unicast", column).mean;
    let printed = |column| Some(found.cell(MULTICAST, column).1.paper? - found.cell("unicast", column).1.paper?);
    let (fixed, per_byte) = (step("b"), step("a"));
    let share = per_byte / found.ours("unicast", "a").mean;
    Decision::of(
        found.is_within(MULTICAST, "b") && fixed > 1.0 && share.abs() < 0.02,
        "the printed lines agree; the wait is an input of the model, which shows that it can be fixed without \
         reducing throughput",
        "the lines of the model differ in another way",
    )
    .with("more fixed latency", "ms", printed("b"), exact(fixed))
    .fitted()
    .with("more latency per byte", "us/byte", printed("a"), exact(per_byte))
}

fn the_maximum_is_the_setting(context: &Context) -> Decision {
    let found = context.study("003-rate");
    let setting = found.check("with messages of many frames the setting is the limit");
    let host = found.check("with messages of one frame the host is the limit");
    let (frame, frames) = ("4475 bytes", "65536 bytes");
    let (limited, free) = ("12 Mb/s, burst of 10000 bytes", "no limit");
    let decision = match (setting.holds, host.holds) {
        (true, true) => Decision::not_decidable(
            "both explanations give the number: messages of many frames are limited by the setting, messages of one \
             frame by the host, and the paper does not give its longest message",
        ),
        (false, false) => Decision::not_decidable(format!(
            "neither explanation gives the number: messages of many frames are not limited by the setting ({}), nor \
             messages of one frame by the host ({})",
            setting.detail, host.detail
        )),
        (is_setting, _) => Decision::of(is_setting, "raising the setting moves the maximum", "the host is the limit"),
    };
    decision
        .with_cell("one frame, with the setting", &found, frame, limited)
        .with_cell("without", &found, frame, free)
        .with_cell("64 KiB, with the setting", &found, frames, limited)
        .with_cell("without", &found, frames, free)
}

fn fixed_latency_is_not_the_networks(context: &Context) -> Decision {
    let found = context.study("003-levels");
    let (mac, transport) = (found.ours(LEVELS[0], "b"), found.ours(LEVELS[1], "b"));
    let share = 1.0 - mac.mean / transport.mean;
    Decision::of(
        share > 0.9,
        format!("{:.0} % of it is added above MAC level; both constants are inputs", share * 100.0),
        "the network causes a large part of it",
    )
    .with_cell("fixed latency at MAC level", &found, LEVELS[0], "b")
    .with_cell("at transport level", &found, LEVELS[1], "b")
}

fn throughput_has_an_asymptote(context: &Context) -> Decision {
    let found = context.study("003-levels");
    let check = found.check("throughput rises towards its asymptote");
    Decision::of(check.holds, format!("it rises {}", check.detail), check.detail.clone()).with_cell(
        "asymptote at MAC level",
        &found,
        LEVELS[0],
        "asymptote",
    )
}
