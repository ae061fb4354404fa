//! Failures, schemes, codes, schedulers, classes of service.

use crate::claims::{Context, Decider, Decision};

pub(super) const DECIDERS: [(&str, Decider); 8] = [
    ("004-25", failures_are_survived),
    ("004-26", distributed_schemes_have_more_throughput),
    ("004-27", central_schemes_leave_less_to_order),
    ("004-28", coding_avoids_retransmissions),
    ("004-29", a_central_scheduler_is_a_ceiling),
    ("004-30", old_information_costs),
    ("004-31", local_memory_relieves_the_shared_one),
    ("004-32", classes_of_service_run_in_parallel),
];

fn failures_are_survived(context: &Context) -> Decision {
    let found = context.study("004-failures");
    Decision::by_checks(
        &found,
        &[
            "1-bus: data still arrive with one of 4 processors left",
            "1-bus: throughput falls no faster than the number of processors",
            "1-bus: data still arrive with one of 6 channels left",
            "1-bus: throughput falls no faster than the number of channels",
        ],
        "what is left carries at least its share",
        "what is left carries less than its share",
    )
    .with_cell("three processors failed", &found, "3 processors failed", "throughput")
    .with_cell("five channels failed", &found, "5 channels failed", "throughput")
}

fn distributed_schemes_have_more_throughput(context: &Context) -> Decision {
    let found = context.study("004-schemes");
    Decision::by_checks(
        &found,
        &[
            "25 MIPS: no scheme has more throughput than DRDA",
            "2 MIPS: no scheme has more throughput than DRDA",
            "25 MIPS: one window for all leaves less to put in order",
        ],
        "with slow processors; with fast ones the schemes are alike, and so is the price in order to restore",
        "a central scheme has more, or leaves more to order",
    )
    .with_cell("DRDA, 25 MIPS", &found, "DRDA", "throughput")
    .with_cell("CRCA", &found, "CRCA", "throughput")
}

fn central_schemes_leave_less_to_order(context: &Context) -> Decision {
    let found = context.study("004-schemes");
    Decision::by_checks(
        &found,
        &[
            "25 MIPS: one window for all leaves less to put in order",
            "2 MIPS: one window for all leaves less to put in order",
            "25 MIPS: DRDA needs no messages between processors, the others do",
        ],
        "fewer packets wait for order at the host, for messages between processors; latency is not lower with fast processors",
        "central schemes leave no less to order",
    )
    .with_cell("delay of DRDA, 25 MIPS", &found, "DRDA", "delay per segment")
    .with_cell("of CRCA", &found, "CRCA", "delay per segment")
    .with_cell("messages a packet, CRCA", &found, "CRCA", "messages between processors")
}

fn coding_avoids_retransmissions(context: &Context) -> Decision {
    let found = context.study("004-coding");
    let far = found.check("2000 km, 1e-6: one of six for parity avoids");
    let decision = Decision::by_checks(
        &found,
        &[
            "2000 km, 1e-7: one of six for parity avoids",
            "20000 km, 1e-7: one of six for parity avoids",
            "two of six for parity: with 2 channels broken, all data arrive",
        ],
        "up to one error in ten million bits",
        "the code does not avoid most of them",
    );
    let explanation = format!("{}; one in a million asks for two of six (one: {})", decision.explanation, far.detail);
    Decision { explanation, ..decision }
}

fn a_central_scheduler_is_a_ceiling(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-central"),
        &["a slow device is a ceiling", "a device of 1 us is idle"],
        "one packet in each of its service times; a device of a microsecond is not felt",
        "the device is no ceiling",
    )
}

fn old_information_costs(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-stale"),
        &[
            "2-bus, queue and rotation: news of 10 ms ago is worse than none",
            "1-bus, queue and rotation: news of 10 ms ago",
        ],
        "who decides far from the interfaces hears later, and what is too old is worse than nothing: all follow the same old news",
        "old information costs nothing",
    )
}

fn local_memory_relieves_the_shared_one(context: &Context) -> Decision {
    let found = context.study("004-hardware");
    Decision::by_checks(
        &found,
        &["local memories relieve the busiest one"],
        "a packet crosses one bus more, and the memory of all is asked for less",
        "the busiest memory has as many accesses",
    )
}

fn classes_of_service_run_in_parallel(context: &Context) -> Decision {
    let found = context.study("004-classes");
    let (shared, apart) = ("all share 4 processors", "small messages have one, bulk 3");
    Decision::by_checks(
        &found,
        &[
            "1-bus: a processor of their own makes small messages faster",
            "2-bus: a processor of their own makes small messages",
        ],
        "a processor of their own spares them the bulk before them",
        "a processor of their own does not help",
    )
    .with_cell("bulk, all share, 1-bus", &found, shared, "bulk throughput")
    .with_cell("bulk beside it", &found, apart, "bulk throughput")
}
