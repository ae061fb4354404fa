//! Ruetsche and Kaiserswerth 1992: TCP/IP on transputers.

use super::context::Context;
use super::decision::{Decider, Decision, exact};

/// The decider of each claim.
pub(super) const DECIDERS: [(&str, Decider); 16] = [
    ("002-01", standard_tcp_reaches_100_mbps),
    ("002-02", four_are_slightly_better_than_two),
    ("002-03", the_split_gains_1_7),
    ("002-04", copying_costs_twice_the_protocol),
    ("002-05", overlapped_copies_triple_throughput),
    ("002-06", the_interface_limits_to_30),
    ("002-07", replicated_state_is_safe),
    ("002-08", shared_state_costs_little),
    ("002-09", two_memories_may_be_slower),
    ("002-10", a_software_checksum_is_ruinous),
    ("002-11", the_timer_never_acknowledges),
    ("002-12", faster_processors_pipeline_less),
    ("002-13", it_exceeds_other_implementations),
    ("002-14", layers_do_not_scale),
    ("002-15", t9000_passes_30000),
    ("002-16", the_host_interface_decides),
];

const SCENARIO_1: &str = "scenario 1: the application on the adapter";
const SCENARIO_2: &str = "scenario 2: the workstation copies in parallel with the protocol";
const COPY_AT_BUS_RATE: &str = "copying at 33 Mb/s";

fn standard_tcp_reaches_100_mbps(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    let copies = context.study("002-interface");
    let limit = copies.check("the copy is the limit");
    Decision::of(
        found.check("scenario 2 exceeds 3300").holds && limit.holds,
        format!(
            "scenario 2 exceeds it, with the number of pokes calibrated to it (the paper's value is on a lost page); \
             in the whole system the copy is the limit: {}",
            limit.detail
        ),
        "the model does not reach it, or the protocol limits the whole system",
    )
    .with_cell("scenario 2", &found, SCENARIO_2, "throughput")
}

fn four_are_slightly_better_than_two(context: &Context) -> Decision {
    let found = context.study("002-placement");
    let rate = |row, column| found.ours(row, column).mean;
    let gain =
        |column| rate("four: separate IP and TCP, as in the prototype", column) / rate("two: one per side", column);
    let (one_way, both_ways) = (gain("one direction"), gain("both directions"));
    let of_our_tcp = context.study("002-stack").ours("one direction, scenario 2", "four against two, our TCP");
    Decision::of(
        [one_way, both_ways, of_our_tcp.mean].iter().all(|gain| (1.0..1.15).contains(gain)),
        "TCP's processor has most of the work, and moving IP to another one removes a tenth of it",
        "the gain is not small",
    )
    .with("four processors relative to two, one direction", "", None, exact(one_way))
    .with("both directions", "", None, exact(both_ways))
    .with("our TCP, one direction", "", None, of_our_tcp)
}

fn the_split_gains_1_7(context: &Context) -> Decision {
    let found = context.study("002-duplex");
    let alone = "both directions, protocol only: no socket layer, no pokes, no network limit";
    Decision::of(
        found.is_within(alone, "gain"),
        "for the protocol work alone, to which the printed factor refers; the pokes that the split requires, the \
         socket layer and the line reduce it",
        "the protocol work alone gains a different factor",
    )
    .with_cell("the protocol alone", &found, alone, "gain")
    .with_cell(
        "scenario 2 with all costs",
        &found,
        "both directions, scenario 2 with socket layer and pokes",
        "gain",
    )
}

fn copying_costs_twice_the_protocol(context: &Context) -> Decision {
    let found = context.study("002-table-1");
    let receive = found.ours("receive side", "ratio");
    let transmit = found.ours("transmit side", "ratio");
    Decision::of(
        (1.5..2.5).contains(&receive.mean) && transmit.mean > 1.5,
        "on the receive side; on the transmit side the factor is three, because the protocol takes less time there",
        "copying does not cost about twice the protocol",
    )
    .with_cell("receive side", &found, "receive side", "ratio")
    .with("transmit side", "", None, transmit)
}

fn overlapped_copies_triple_throughput(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    Decision::of(
        found.is_within(SCENARIO_2, "gain"),
        "the copy takes longer than the protocol and runs in parallel; the number of pokes was calibrated to \
         scenario 2, not to this gain",
        "the gain differs",
    )
    .with_cell("scenario 2 relative to scenario 1", &found, SCENARIO_2, "gain")
    .with_cell("scenario 1", &found, SCENARIO_1, "throughput")
}

fn the_interface_limits_to_30(context: &Context) -> Decision {
    let found = context.study("002-interface");
    let expected = "as expected in the paper";
    let rate = found.ours(expected, "throughput");
    let copy = found.check("the copy is the limit");
    let with_calls = found.ours("50 us", COPY_AT_BUS_RATE).mean;
    Decision::of(
        copy.holds && (30.0..=33.0).contains(&rate.mean),
        format!("{}; adapter calls of 50 us would reduce it to {with_calls:.1} Mb/s", copy.detail),
        "the copy does not limit the system",
    )
    .with_cell("whole system", &found, expected, "throughput")
    .with_cell("with calls of 50 us", &found, "50 us", COPY_AT_BUS_RATE)
}

fn replicated_state_is_safe(context: &Context) -> Decision {
    const KNOWN: &str = "of these, acknowledgement known at the receive side";
    let found = context.study("002-shared-state");
    let safe = found.check("without re-reading the data are still right");
    let (trusting, looking) = (found.ours("own copy trusted", KNOWN), found.ours("re-reads", KNOWN));
    Decision::of(
        safe.holds && looking.mean < 0.1 * trusting.mean,
        format!(
            "{}; re-reading leaves only those whose acknowledgement arrives while the answer is in transit",
            safe.detail
        ),
        "data are wrong, or re-reading does not help",
    )
    .with("unnecessary and known to be so, own copy trusted", "per 1,000 segments", None, trusting)
    .with("re-reading", "per 1,000 segments", None, looking)
}

fn shared_state_costs_little(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    let share = found.check("shared state by pokes takes less than a quarter");
    Decision::of(share.holds, format!("share of the receive processor: {}", share.detail), share.detail.clone())
        .with_cell("scenario 2", &found, SCENARIO_2, "throughput")
}

fn two_memories_may_be_slower(context: &Context) -> Decision {
    const CYCLE: &str = "cycle time per word";
    let found = context.study("002-memories");
    Decision::by_checks(
        &found,
        &["two memories need half the speed of one"],
        "the slowest memories at which the line reaches its full rate",
        "the required speed of one memory per direction is not half",
    )
    .with_cell("one memory for both directions", &found, "one memory", CYCLE)
    .with_cell("one memory per direction", &found, "two memories", CYCLE)
}

fn a_software_checksum_is_ruinous(context: &Context) -> Decision {
    let found = context.study("002-checksum");
    Decision::of(
        found.check("the checksum in software is ruinous").holds,
        "less than a tenth of the throughput remains",
        "more than a tenth of the throughput remains",
    )
    .with_cell("with the checksum in software", &found, "scenario 2, checksum in software", "throughput")
}

fn the_timer_never_acknowledges(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    let check = found.check("in steady state the timer never acknowledges");
    Decision::of(check.holds, check.detail.clone(), check.detail.clone()).with_cell(
        "scenario 2",
        &found,
        SCENARIO_2,
        "throughput",
    )
}

fn faster_processors_pipeline_less(context: &Context) -> Decision {
    const LAYERS: &str = "four against two, one direction";
    const SIDES: &str = "two against one, both directions";
    let found = context.study("002-t9000");
    let (old, new) = ("T425", "T9000, ten times as fast, messages five times");
    let (layers, sides) = ([old, new].map(|row| found.ours(row, LAYERS)), [old, new].map(|row| found.ours(row, SIDES)));
    Decision::of(
        layers[1].mean < layers[0].mean && layers[1].mean < 1.02 && sides[1].mean > 1.2,
        "with processors ten times and messages five times as fast, separating the layers no longer pays; separating \
         sender and receiver still does, though less than before",
        "the model contradicts it",
    )
    .with("separate layers, T425", "", None, layers[0])
    .with("T9000", "", None, layers[1])
    .with("separate sender and receiver, T425", "", None, sides[0])
    .with("T9000", "", None, sides[1])
}

fn it_exceeds_other_implementations(_: &Context) -> Decision {
    Decision::not_decidable(
        "a comparison of printed figures for different protocols, packets and machines; none of the others can be \
         run here",
    )
}

fn layers_do_not_scale(context: &Context) -> Decision {
    const SEVEN: f64 = 7.0;
    let found = context.study("002-placement");
    let rate = |row| found.ours(row, "both directions").mean;
    let speedup = rate("seven: one per process") / rate("one");
    let replicated = context.study("000-speedup").ours("DES, TCP, MD5, IP, FDDI", "speedup");
    Decision::of(
        speedup / SEVEN < 0.5,
        "when divided by layers, the load is as uneven as the layers are; whole packets on separate processors scale \
         where most of the work is outside the lock",
        "the work is divided evenly",
    )
    .with("one processor for each of seven processes", "", None, exact(speedup))
    .with("twelve processors by packets (Nahum et al. 1996, DES)", "", None, replicated)
}

fn t9000_passes_30000(context: &Context) -> Decision {
    let found = context.study("002-t9000");
    let (removed, kept) = ("header extraction removes all of ip_demux", "two T9000, header extraction removes nothing");
    let (_, cell) = found.cell(kept, "throughput");
    Decision::of(
        cell.paper.is_some_and(|paper| found.ours(removed, "throughput").mean > paper),
        "with header hardware that removes all of ip_demux; without it, the model stays just below",
        "the model stays below",
    )
    .with_cell("header hardware removes all of ip_demux", &found, removed, "throughput")
    .with_cell("it removes nothing", &found, kept, "throughput")
}

fn the_host_interface_decides(context: &Context) -> Decision {
    const FREE: &str = "copying takes no time";
    let interface = context.study("002-interface");
    let without = context.study("002-scenarios").ours_in(SCENARIO_1, "throughput", "Mb/s");
    // By duration of a call, in increasing order.
    let calls = interface.curve(FREE);
    let pays = calls.partition_point(|(_, rate)| rate.mean >= without.mean);
    let at_bus_rate = interface.curve(COPY_AT_BUS_RATE)[0].1;
    let (Some(last), Some(first)) = (pays.checked_sub(1).map(|index| calls[index]), calls.get(pays)) else {
        return Decision::of(
            false,
            "",
            "the gain over an adapter that does all the work exists for none, or for all, of the call durations tried",
        )
        .with("the adapter does all the work", "Mb/s", None, without)
        .with("the workstation copies, calls take no time", "Mb/s", None, calls[0].1);
    };
    let prototype = if at_bus_rate.mean < without.mean { "has vanished" } else { "exists" };
    Decision::of(
        true,
        format!(
            "the gain over an adapter that does all the work vanishes where a call takes between {} and {} us at \
             each end; with the prototype's bus it {prototype} even without call costs ({:.0} of {:.0} Mb/s)",
            last.0, first.0, at_bus_rate.mean, without.mean
        ),
        "",
    )
    .with("the adapter does all the work", "Mb/s", None, without)
    .with("the workstation copies, calls take no time", "Mb/s", None, calls[0].1)
    .with(format!("calls of {} us", last.0), "Mb/s", None, last.1)
    .with(format!("calls of {} us", first.0), "Mb/s", None, first.1)
}
