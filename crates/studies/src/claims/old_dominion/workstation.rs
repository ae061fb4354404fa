//! Claims about the three workstations of Tables 1 to 3.

use crate::claims::context::Context;
use crate::claims::decision::{Decider, Decision, exact};
use crate::workstation::prose;
use crate::workstation::two_bus_window_kbit;

pub(super) const DECIDERS: [(&str, Decider); 16] = [
    ("004-01", several_hundred_mbps),
    ("004-02", throughput_scales),
    ("004-03", four_and_six_are_the_minimum),
    ("004-04", two_buses_are_better),
    ("004-05", delays_go_either_way),
    ("004-06", memory_limits_the_one_bus),
    ("004-07", the_two_bus_needs_700),
    ("004-08", there_is_a_best_window),
    ("004-09", latency_grows_with_the_window),
    ("004-10", segments_should_be_frames),
    ("004-11", nonuniform_load_spreads_round_trips),
    ("004-12", the_timer_would_fire),
    ("004-13", adaptive_scheduling_restores),
    ("004-14", a_serial_machine_needs_more),
    ("004-15", pipelining_would_help_it),
    ("004-16", nonuniform_load_does_not_affect_it),
];

const TWO_BUS: &str = "uniform, 2-bus, RR";
const ONE_BUS: &str = "uniform, 1-bus, RR";

fn several_hundred_mbps(context: &Context) -> Decision {
    let found = context.study("004-least");
    let table = context.study("004-table-3");
    Decision::by_checks(
        &found,
        &["2-bus: 4 processors and 6 rings carry about 300", "1-bus: 4 processors and 6 rings carry about 300"],
        "in both bus models",
        "the machines do not reach it",
    )
    .with_cell("2-bus", &table, TWO_BUS, "throughput")
    .with_cell("1-bus", &table, ONE_BUS, "throughput")
}

fn throughput_scales(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-least"),
        &["2-bus: as many processors as rings scale linearly", "1-bus: as many processors as rings scale linearly"],
        "up to five of each and more",
        "throughput grows less than linearly",
    )
}

fn four_and_six_are_the_minimum(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-least"),
        &[
            "2-bus: 4 processors and 6 rings carry",
            "2-bus: 5 rings are too few",
            "2-bus: 3 processors are too few",
            "1-bus: 5 rings are too few",
            "1-bus: 3 processors are too few",
        ],
        "fewer of either are not enough; for rings this depends on a parameter that was fitted to it",
        "fewer of one of them do not always reduce it; that five rings are too few was fitted",
    )
}

fn two_buses_are_better(context: &Context) -> Decision {
    let table = context.study("004-table-3");
    let hardware = context.study("004-hardware");
    let alike = table.check("uniform: 1-bus and 2-bus are alike");
    let slow = hardware.check("2-bus: processors of 2 MIPS do as well");
    Decision::of(
        alike.holds && slow.holds,
        format!("buses of a third of the rate and processors of 2 MIPS are enough ({}; {})", alike.detail, slow.detail),
        format!("throughputs differ ({}; {})", alike.detail, slow.detail),
    )
    .with_cell("2-bus", &table, TWO_BUS, "throughput")
    .with_cell("1-bus", &table, ONE_BUS, "throughput")
    .with_cell("2-bus with 2 MIPS", &hardware, "2 MIPS", "throughput")
}

fn delays_go_either_way(context: &Context) -> Decision {
    let found = context.study("004-table-3");
    Decision::by_checks(
        &found,
        &["uniform: the 2-bus has the longer delay", "nonuniform: the 2-bus has the shorter delay"],
        "the tables are right and the conclusions are not: delay is the amount in flight divided by throughput, and \
         the windows of the compared machines differ",
        "the delays do not follow the table",
    )
    .with_cell("uniform, 2-bus", &found, TWO_BUS, "delay per segment")
    .with_cell("1-bus", &found, ONE_BUS, "delay per segment")
    .with_cell("nonuniform, 2-bus, adaptive", &found, "nonuniform, 2-bus, adaptive", "delay per segment")
    .with_cell("1-bus, adaptive", &found, "nonuniform, 1-bus, adaptive", "delay per segment")
}

fn memory_limits_the_one_bus(context: &Context) -> Decision {
    let found = context.study("004-table-2");
    let mut decision = Decision::by_checks(
        &found,
        &[
            "throughput falls and delay grows",
            "from 20 to 80 ns both get worse by about 90 %",
            "the memory is the limit at 80 ns",
        ],
        "both change together, because the loop is closed",
        "memory does not limit it",
    );
    for row in ["20 ns per word", "40 ns per word", "80 ns per word"] {
        decision = decision.with_cell(row, &found, row, "throughput");
    }
    decision
}

fn the_two_bus_needs_700(context: &Context) -> Decision {
    let found = context.study("004-hardware");
    let mut decision = Decision::by_checks(
        &found,
        &["2-bus: buses of 700 Mb/s are needed", "2-bus: processors of 2 MIPS do as well"],
        "both parts of the claim hold",
        "part of the claim does not hold",
    );
    for row in ["1 MIPS", "2 MIPS", "25 MIPS"] {
        decision = decision.with_cell(format!("busy at {row}"), &found, row, "busy");
    }
    decision
}

fn there_is_a_best_window(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-windows"),
        &["2-bus: the smallest window with full throughput", "1-bus: the smallest window with full throughput"],
        "the smallest windows with full throughput are the printed ones",
        "each machine has a smallest window with full throughput, but not the printed one in both cases",
    )
}

fn latency_grows_with_the_window(context: &Context) -> Decision {
    let found = context.study("004-windows");
    let grows = ["2-bus: beyond that window, delay grows", "1-bus: beyond that window, delay grows"]
        .map(|beginning| found.check(beginning));
    let touchstone = context.study("004-table-8");
    let (small, large) = ("4000 bytes", "14000 bytes");
    let ours = [small, large].map(|window| touchstone.ours("no background", window));
    let distributed = ours[1].mean > ours[0].mean;
    let workstations = grows.iter().all(|check| check.holds);
    Decision::of(
        workstations && distributed,
        "in both workstations and in the machine with distributed memory",
        if workstations {
            "in both workstations, where the source is saturated, so that more data in flight wait longer; not in \
             the machine with distributed memory at 37 % of its capacity: there a larger window saves segments the \
             wait for a place in it"
        } else {
            "not in the workstations"
        },
    )
    .with_cell("distributed memory, 4000 bytes", &touchstone, "no background", small)
    .with_cell("14000 bytes", &touchstone, "no background", large)
}

fn segments_should_be_frames(context: &Context) -> Decision {
    let found = context.study("004-windows");
    let window_kbit = two_bus_window_kbit() as f64;
    let printed = prose().larger_segments;
    let point = |picture: &str, kbit: u32| {
        let title = format!("2-bus: {picture}");
        found.point(&title, &format!("segments of {kbit} kbit"), window_kbit).mean
    };
    let more = |kbit| point("delay per segment", kbit) / point("delay per segment", 36) - 1.0;
    let same = |kbit| (point("throughput", kbit) / point("throughput", 36) - 1.0).abs() < 0.1;
    let (two, three) = (more(72), more(108));
    Decision::of(
        same(72) && same(108) && printed.contains(two) && printed.contains(three),
        "the throughput is the same, and the delay grows by about the printed share",
        if same(72) && same(108) && two > 0.0 && three > two {
            "the throughput is the same and the delay grows, but by a different share than printed; and a segment \
             with twice the data may take longer without being slower"
        } else {
            "throughput or delay change differently"
        },
    )
    .with("more delay with 72 kbit, 2-bus", "", printed.more_delay_min, exact(two))
    .with("with 108 kbit", "", printed.more_delay_max, exact(three))
}

fn nonuniform_load_spreads_round_trips(context: &Context) -> Decision {
    let found = context.study("004-rtt");
    let spread = "standard deviation / mean, first processor";
    Decision::by_checks(
        &found,
        &[
            "2-bus: nonuniform load spreads round trips more",
            "1-bus: nonuniform load spreads round trips more",
            "the serial machine's spread is smaller than the 2-bus",
            "the serial machine's spread is smaller than the 1-bus",
        ],
        "in both parallel machines; the spread of the serial one is smaller",
        "part of the claim does not hold",
    )
    .with_cell("2-bus, nonuniform", &found, "2-bus, nonuniform", spread)
    .with_cell("uniform", &found, "2-bus, uniform", spread)
    .with_cell("serial, nonuniform", &found, "serial, nonuniform", spread)
}

fn the_timer_would_fire(context: &Context) -> Decision {
    let found = context.study("004-rtt");
    let fired = |alpha| format!("hypothetical timeouts, alpha {alpha}, all processors");
    Decision::by_checks(
        &found,
        &["2-bus, nonuniform: the timer would fire by mistake"],
        "it would, for some packets per thousand",
        "it would rarely fire",
    )
    .with_cell("2-bus, nonuniform, alpha 0.2", &found, "2-bus, nonuniform", &fired("0.2"))
    .with_cell("alpha 0.8", &found, "2-bus, nonuniform", &fired("0.8"))
    .with_cell("1-bus, nonuniform, alpha 0.2", &found, "1-bus, nonuniform", &fired("0.2"))
}

fn adaptive_scheduling_restores(context: &Context) -> Decision {
    let found = context.study("004-table-3");
    let gain = |bus: &str| {
        let rows = ["adaptive", "RR"].map(|policy| format!("nonuniform, {bus}, {policy}"));
        let [adaptive, round_robin] = [&rows[0], &rows[1]].map(|row| found.cell(row, "throughput").1.paper);
        let ours = found.ours(&rows[0], "throughput").mean / found.ours(&rows[1], "throughput").mean;
        (adaptive.zip(round_robin).map(|(adaptive, round_robin)| adaptive / round_robin), exact(ours))
    };
    let (two, one) = (gain("2-bus"), gain("1-bus"));
    Decision::by_checks(
        &found,
        &[
            "RR loses by nonuniform load, 2-bus",
            "nonuniform: adaptive above RR, 2-bus",
            "nonuniform: adaptive above RR, 1-bus",
        ],
        "in both machines, though by less than printed",
        "not in both machines",
    )
    .with("adaptive by round robin, 2-bus", "", two.0, two.1)
    .with("1-bus", "", one.0, one.1)
}

fn a_serial_machine_needs_more(context: &Context) -> Decision {
    let found = context.study("004-hardware");
    let rate = |row| found.ours(row, "throughput").mean;
    let (all, half, memory) = (rate("as in Table 1"), rate("100 MIPS"), rate("memory of 20 ns"));
    Decision::of(
        half < 0.9 * all && memory < 0.9 * all,
        "with less of either its throughput falls",
        format!(
            "with half the instructions per second it has {:.0} % of its throughput, with memory of 20 ns {:.0} %; \
             that it tolerates no fault follows from its construction",
            100.0 * half / all,
            100.0 * memory / all
        ),
    )
    .with_cell("as in Table 1", &found, "as in Table 1", "throughput")
    .with_cell("100 MIPS", &found, "100 MIPS", "throughput")
    .with_cell("memory of 20 ns", &found, "memory of 20 ns", "throughput")
}

fn pipelining_would_help_it(context: &Context) -> Decision {
    let found = context.study("004-hardware");
    let (plain, pipelined) = ("as in Table 1", "memory accesses pipelined");
    Decision::of(
        found.ours(pipelined, "throughput").mean > 1.1 * found.ours(plain, "throughput").mean,
        "with pipelined accesses it exceeds the parallel machines",
        "pipelining gains nothing",
    )
    .with_cell("as it is", &found, plain, "throughput")
    .with_cell("pipelined", &found, pipelined, "throughput")
}

fn nonuniform_load_does_not_affect_it(context: &Context) -> Decision {
    let found = context.study("004-table-3");
    let rows = ["uniform, serial, -", "nonuniform, serial, -"];
    let delay = found.ours(rows[1], "delay per segment").mean / found.ours(rows[0], "delay per segment").mean;
    let check = found.check("nonuniform load changes nothing for the serial machine");
    Decision::of(
        check.holds && (delay - 1.0).abs() < 0.1,
        "one ring of six times the rate has the same available capacity, on average and at every step",
        format!("throughput or delay change ({}; delay by {:.0} %)", check.detail, (delay - 1.0) * 100.0),
    )
    .with_cell("uniform", &found, rows[0], "throughput")
    .with_cell("nonuniform", &found, rows[1], "throughput")
    .with_cell("delay, uniform", &found, rows[0], "delay per segment")
    .with_cell("nonuniform", &found, rows[1], "delay per segment")
}
