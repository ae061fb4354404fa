//! Document 002: TCP/IP on transputers.

use super::{Context, Decider, Decision, exact};

/// What finds out about each claim.
pub(super) const DECIDERS: [(&str, Decider); 16] = [
    ("002-01", standard_tcp_reaches_100_mbps),
    ("002-02", four_are_little_better_than_two),
    ("002-03", the_split_gains_1_7),
    ("002-04", copying_costs_twice_the_protocol),
    ("002-05", overlapped_copies_triple_throughput),
    ("002-06", the_interface_limits_to_30),
    ("002-07", state_in_two_copies_is_safe),
    ("002-08", shared_state_costs_little),
    ("002-09", two_memories_may_be_slower),
    ("002-10", a_software_checksum_is_ruinous),
    ("002-11", the_timer_never_acknowledges),
    ("002-12", faster_processors_pipeline_less),
    ("002-13", it_beats_others),
    ("002-14", layers_do_not_scale),
    ("002-15", t9000_passes_30000),
    ("002-16", the_host_interface_decides),
];

const SCENARIO_1: &str = "scenario 1: the application on the adapter";
const SCENARIO_2: &str = "scenario 2: the workstation copies, beside the protocol";
const COPY_AT_BUS_RATE: &str = "copying at 33 Mb/s";

fn standard_tcp_reaches_100_mbps(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    let copies = context.study("002-interface");
    let limit = copies.check("the copy is the limit");
    Decision::of(
        found.check("scenario 2 passes more than 3300").holds && limit.holds,
        format!(
            "scenario 2 passes it, with the number of pokes chosen for that (it is on a lost page); in the whole system the copy is \
             the limit: {}",
            limit.detail
        ),
        "the model does not reach it, or the protocol is the limit of the whole system",
    )
    .with_cell("scenario 2", &found, SCENARIO_2, "throughput")
}

fn four_are_little_better_than_two(context: &Context) -> Decision {
    let found = context.study("002-placement");
    let rate = |row, column| found.ours(row, column).mean;
    let gain = |column| rate("four: IP and TCP apart, the prototype", column) / rate("two: one a side", column);
    let (one_way, both_ways) = (gain("one way"), gain("both ways"));
    Decision::of(
        (1.0..1.15).contains(&one_way) && (1.0..1.15).contains(&both_ways),
        "TCP's processor has most of the work, and moving IP away takes a tenth of it",
        "the gain is not small",
    )
    .with("four processors by two, one way", "", None, exact(one_way))
    .with("both ways", "", None, exact(both_ways))
}

fn the_split_gains_1_7(context: &Context) -> Decision {
    let found = context.study("002-duplex");
    let alone = "both ways, the protocol alone: no socket layer, no pokes, no network in the way";
    Decision::of(
        found.is_within(alone, "gain"),
        "for the protocol's work alone, which is what the printed factor counts; the pokes that the split itself costs, the \
         socket layer and the line leave less of it",
        "the protocol's work alone gains another factor",
    )
    .with_cell("the protocol alone", &found, alone, "gain")
    .with_cell("scenario 2 with all it costs", &found, "both ways, scenario 2 with socket layer and pokes", "gain")
}

fn copying_costs_twice_the_protocol(context: &Context) -> Decision {
    let found = context.study("002-table-1");
    let receive = found.ours("receive side", "ratio");
    let transmit = found.ours("transmit side", "ratio");
    Decision::of(
        (1.5..2.5).contains(&receive.mean) && transmit.mean > 1.5,
        "of the receive side; on the transmit side it is three times, for there the protocol takes less",
        "copying does not cost about twice the protocol",
    )
    .with_cell("receive side", &found, "receive side", "ratio")
    .with("transmit side", "", None, transmit)
}

fn overlapped_copies_triple_throughput(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    Decision::of(
        found.is_within(SCENARIO_2, "gain"),
        "the copy is longer than the protocol, and goes on beside it; the number of pokes was chosen for scenario 2, not for \
         this gain",
        "the gain is another one",
    )
    .with_cell("scenario 2 by scenario 1", &found, SCENARIO_2, "gain")
    .with_cell("scenario 1", &found, SCENARIO_1, "throughput")
}

fn the_interface_limits_to_30(context: &Context) -> Decision {
    let found = context.study("002-interface");
    let expected = "as the paper expects, around";
    let rate = found.ours(expected, "throughput");
    let copy = found.check("the copy is the limit");
    let with_calls = found.ours("50 us", COPY_AT_BUS_RATE).mean;
    Decision::of(
        copy.holds && (30.0..=33.0).contains(&rate.mean),
        format!("{}; calls of the adapter of 50 us would bring it down to {with_calls:.1} Mb/s", copy.detail),
        "the copy is not what limits the system",
    )
    .with_cell("whole system", &found, expected, "throughput")
    .with_cell("with calls of 50 us", &found, "50 us", COPY_AT_BUS_RATE)
}

fn state_in_two_copies_is_safe(context: &Context) -> Decision {
    const KNOWN: &str = "of these, acknowledgement known at the receive side";
    let found = context.study("002-shared-state");
    let safe = found.check("without looking again the data are right");
    let (trusting, looking) = (found.ours("own copy trusted", KNOWN), found.ours("looks again", KNOWN));
    Decision::of(
        safe.holds && looking.mean < 0.1 * trusting.mean,
        format!(
            "{}; looking again leaves only those whose acknowledgement comes while the answer is on its way",
            safe.detail
        ),
        "data are wrong, or looking again does not help",
    )
    .with("superfluous and known so, own copy trusted", "per 1,000 segments", None, trusting)
    .with("looking again", "per 1,000 segments", None, looking)
}

fn shared_state_costs_little(context: &Context) -> Decision {
    let found = context.study("002-scenarios");
    let share = found.check("shared state by pokes takes less than a quarter");
    Decision::of(
        share.holds,
        format!("of the processor that receives they take {}", share.detail),
        share.detail.clone(),
    )
    .with_cell("scenario 2", &found, SCENARIO_2, "throughput")
}

fn two_memories_may_be_slower(context: &Context) -> Decision {
    const CYCLE: &str = "cycle of a word";
    let found = context.study("002-memories");
    Decision::by_checks(
        &found,
        &["two memories do with half the speed of one"],
        "the slowest memories with which the line loses nothing",
        "a memory for each direction must be another share as fast",
    )
    .with_cell("one memory for both directions", &found, "one memory", CYCLE)
    .with_cell("a memory for each", &found, "two memories", CYCLE)
}

fn a_software_checksum_is_ruinous(context: &Context) -> Decision {
    let found = context.study("002-checksum");
    Decision::of(
        found.check("the checksum in software is ruinous").holds,
        "less than a tenth of the throughput is left",
        "more than a tenth of the throughput is left",
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
    const LAYERS: &str = "four against two, one way";
    const SIDES: &str = "two against one, both ways";
    let found = context.study("002-t9000");
    let (old, new) = ("T425", "T9000, ten times as fast, messages five times");
    let (layers, sides) = ([old, new].map(|row| found.ours(row, LAYERS)), [old, new].map(|row| found.ours(row, SIDES)));
    Decision::of(
        layers[1].mean < layers[0].mean && layers[1].mean < 1.02 && sides[1].mean > 1.2,
        "with processors ten times and messages five times as fast, layers apart pay no longer; sender and receiver apart still \
         do, though less than before",
        "the model says otherwise",
    )
    .with("layers apart, T425", "", None, layers[0])
    .with("T9000", "", None, layers[1])
    .with("sender and receiver apart, T425", "", None, sides[0])
    .with("T9000", "", None, sides[1])
}

fn it_beats_others(_: &Context) -> Decision {
    Decision::not_decidable(
        "a comparison of printed figures of unlike protocols, packets and machines; none of the others can be run here",
    )
}

fn layers_do_not_scale(context: &Context) -> Decision {
    const SEVEN: f64 = 7.0;
    let found = context.study("002-placement");
    let rate = |row| found.ours(row, "both ways").mean;
    let speedup = rate("seven: one a process") / rate("one");
    let replicated = context.study("000-speedup").ours("DES, TCP, MD5, IP, FDDI", "speedup");
    Decision::of(
        speedup / SEVEN < 0.5,
        "divided by layers the work is as uneven as the layers; whole packets on processors of their own scale where the work \
         beside the lock is long",
        "the work divides evenly",
    )
    .with("a processor for each of seven processes", "", None, exact(speedup))
    .with("twelve processors by packets (document 000, DES)", "", None, replicated)
}

fn t9000_passes_30000(context: &Context) -> Decision {
    let found = context.study("002-t9000");
    let (spared, not) = ("header extraction spares all of ip_demux", "two T9000, header extraction spares nothing");
    let (_, cell) = found.cell(not, "throughput");
    Decision::of(
        cell.paper.is_some_and(|paper| found.ours(spared, "throughput").mean > paper),
        "with what the header hardware can spare; without, the model stays just below",
        "the model stays below",
    )
    .with_cell("header hardware spares all of ip_demux", &found, spared, "throughput")
    .with_cell("it spares nothing", &found, not, "throughput")
}

fn the_host_interface_decides(context: &Context) -> Decision {
    const FREE: &str = "copying takes no time";
    let interface = context.study("002-interface");
    let without = context.study("002-scenarios").ours_in(SCENARIO_1, "throughput", "Mb/s");
    // By what a call takes, from nothing on.
    let calls = interface.curve(FREE);
    let pays = calls.partition_point(|(_, rate)| rate.mean >= without.mean);
    let at_bus_rate = interface.curve(COPY_AT_BUS_RATE)[0].1;
    let (Some(last), Some(first)) = (pays.checked_sub(1).map(|index| calls[index]), calls.get(pays)) else {
        return Decision::of(
            false,
            "",
            "with no call that was tried, or with all, the gain over an adapter that does all is there",
        )
        .with("the adapter does all", "Mb/s", None, without)
        .with("the workstation copies, calls for nothing", "Mb/s", None, calls[0].1);
    };
    let prototype = if at_bus_rate.mean < without.mean { "it has vanished" } else { "it is there" };
    Decision::of(
        true,
        format!(
            "the gain over an adapter that does all vanishes where a call takes between {} and {} us at each end; with the \
             prototype's bus {prototype} before the first call ({:.0} of {:.0} Mb/s)",
            last.0, first.0, at_bus_rate.mean, without.mean
        ),
        "",
    )
    .with("the adapter does all", "Mb/s", None, without)
    .with("the workstation copies, calls for nothing", "Mb/s", None, calls[0].1)
    .with(format!("calls of {} us", last.0), "Mb/s", None, last.1)
    .with(format!("calls of {} us", first.0), "Mb/s", None, first.1)
}
