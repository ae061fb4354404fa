//! Claims about failures, acknowledgement schemes, coding, schedulers and classes of service.

use crate::claims::context::Context;
use crate::claims::decision::{Decider, Decision};

pub(super) const DECIDERS: [(&str, Decider); 8] = [
    ("004-25", transfers_continue_after_failures),
    ("004-26", distributed_schemes_have_more_throughput),
    ("004-27", central_schemes_leave_less_to_order),
    ("004-28", coding_avoids_retransmissions),
    ("004-29", a_central_scheduler_is_a_ceiling),
    ("004-30", old_information_costs),
    ("004-31", local_memory_relieves_the_shared_one),
    ("004-32", classes_of_service_run_in_parallel),
];

fn transfers_continue_after_failures(context: &Context) -> Decision {
    let found = context.study("004-failures");
    Decision::by_checks(
        &found,
        &[
            "1-bus: data still arrive with one of 4 processors left",
            "1-bus: throughput falls no faster than the number of processors",
            "1-bus: data still arrive with one of 6 channels left",
            "1-bus: throughput falls no faster than the number of channels",
        ],
        "the remaining parts carry at least their share",
        "the remaining parts carry less than their share",
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
            "25 MIPS: one window for all needs less resequencing",
        ],
        "with slow processors; with fast ones the schemes are equal; in both cases DRDA costs more resequencing",
        "a central scheme has more throughput or more resequencing",
    )
    .with_cell("DRDA, 25 MIPS", &found, "DRDA", "throughput")
    .with_cell("CRCA", &found, "CRCA", "throughput")
}

fn central_schemes_leave_less_to_order(context: &Context) -> Decision {
    let found = context.study("004-schemes");
    Decision::by_checks(
        &found,
        &[
            "25 MIPS: one window for all needs less resequencing",
            "2 MIPS: one window for all needs less resequencing",
            "25 MIPS: DRDA needs no messages between processors, the others do",
        ],
        "fewer packets wait for resequencing at the host, at the cost of messages between processors; latency is not \
         lower with fast processors",
        "central schemes do not reduce resequencing",
    )
    .with_cell("delay of DRDA, 25 MIPS", &found, "DRDA", "delay per segment")
    .with_cell("of CRCA", &found, "CRCA", "delay per segment")
    .with_cell("messages per packet, CRCA", &found, "CRCA", "messages between processors")
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
        "up to a bit error rate of 1e-7",
        "the code does not avoid most retransmissions",
    );
    let explanation = format!(
        "{}; a rate of 1e-6 needs two of six channels for parity (with one: {})",
        decision.explanation, far.detail
    );
    Decision { explanation, ..decision }
}

fn a_central_scheduler_is_a_ceiling(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-central"),
        &["a slow device is a ceiling", "a device of 1 us is idle"],
        "one packet per service time; a device of a microsecond has no effect",
        "the device is not a ceiling",
    )
}

fn old_information_costs(context: &Context) -> Decision {
    Decision::by_checks(
        &context.study("004-stale"),
        &[
            "2-bus, queue and rotation: information 10 ms old is worse than none",
            "1-bus, queue and rotation: information 10 ms old",
        ],
        "a scheduler far from the interfaces has older information, and information that is too old is worse than \
         none: all decisions follow the same outdated state",
        "old information costs nothing",
    )
}

fn local_memory_relieves_the_shared_one(context: &Context) -> Decision {
    let found = context.study("004-hardware");
    Decision::by_checks(
        &found,
        &["local memories relieve the busiest one"],
        "a packet crosses one more bus, and the shared memory has fewer accesses",
        "the busiest memory has as many accesses",
    )
}

fn classes_of_service_run_in_parallel(context: &Context) -> Decision {
    let found = context.study("004-classes");
    let (shared, apart) = ("all messages share 4 processors", "small messages have 1 processor, bulk data 3");
    Decision::by_checks(
        &found,
        &[
            "1-bus: a dedicated processor makes small messages faster",
            "2-bus: a dedicated processor makes small messages",
        ],
        "with their own processor they do not wait behind bulk data",
        "their own processor does not help",
    )
    .with_cell("bulk, all share, 1-bus", &found, shared, "bulk throughput")
    .with_cell("bulk with a dedicated processor for small messages", &found, apart, "bulk throughput")
}
