//! Central and distributed scheduling, old information, classes of service, later improvements. All on the same simple node; only
//! ratios and orderings are claimed.

use measure::Estimate;

use crate::claims::models::node::{Messages, Node, Policy};
use crate::claims::{Context, Decider, Decision};

pub(super) const DECIDERS: [(&str, Decider); 4] = [
    ("004-29", a_central_scheduler_is_a_ceiling),
    ("004-30", old_information_costs),
    ("004-32", classes_of_service_run_in_parallel),
    ("004-33", gains_multiply),
];

/// Four protocol processors that together make 300 Mb/s of packets of 36 kbit, six rings with 70 Mb/s left each, the window
/// of the document's 2-bus machine.
fn node() -> Node {
    Node {
        processors: 4,
        window: 6,
        processing_us: 480.0,
        central_us: None,
        channels_us: vec![514.0; 6],
        policy: Policy::Shortest { age_us: 0.0 },
        messages: None,
    }
}

fn ratio(a: &Estimate, b: &Estimate) -> f64 {
    a.mean / b.mean
}

fn a_central_scheduler_is_a_ceiling(context: &Context) -> Decision {
    let options = &context.options;
    let distributed = node().run(options).packets_per_s;
    let services_us = [30.0, 120.0, 240.0, 480.0];
    let runs = services_us.map(|us| Node { central_us: Some(us), ..node() }.run(options).packets_per_s);
    // One packet a service time: where that is less than all else, it is all there is.
    let reaches = |us: f64, rate: &Estimate| rate.mean / (1e6 / us);
    let slow = reaches(services_us[3], &runs[3]);
    let wider = Node { central_us: Some(480.0), processors: 8, channels_us: vec![514.0; 12], ..node() };
    let wider = wider.run(options).packets_per_s;
    let fast = ratio(&runs[0], &distributed);
    Decision::of(
        slow > 0.97 && slow <= 1.001 && ratio(&wider, &runs[3]) < 1.01,
        format!(
            "the ceiling is one packet a service time, and twice the processors and channels do not raise it; at 30 us a packet \
             it is not felt yet ({:.0} % of a scheduler in each processor)",
            fast * 100.0
        ),
        "the central scheduler is no ceiling",
    )
    .with("packets a second, a scheduler in each processor", "1/s", None, distributed)
    .with("central, 120 us a packet", "1/s", None, runs[1])
    .with("central, 240 us", "1/s", None, runs[2])
    .with("central, 480 us", "1/s", None, runs[3])
    .with("central, 480 us, all else twice", "1/s", None, wider)
}

fn old_information_costs(context: &Context) -> Decision {
    let uneven = vec![360.0, 360.0, 514.0, 514.0, 720.0, 1000.0];
    let with = |policy| Node { policy, channels_us: uneven.clone(), ..node() }.run(&context.options);
    let ages_us = [0.0, 500.0, 2000.0, 10_000.0];
    let [fresh, half, two, ten] = ages_us.map(|age_us| with(Policy::Shortest { age_us }));
    let turns = with(Policy::RoundRobin);
    let worse = ratio(&fresh.packets_per_s, &two.packets_per_s) > 1.01;
    Decision::of(
        worse && two.packets_per_s.mean >= ten.packets_per_s.mean * 0.99,
        format!(
            "with channels of unlike load the choice gets worse with the age of what it knows; information ten milliseconds old \
             gives {:.0} % of what taking turns without any gives, for all follow the same old news",
            ratio(&ten.packets_per_s, &turns.packets_per_s) * 100.0
        ),
        "the age of the information makes no difference",
    )
    .with("packets a second, always fresh", "1/s", None, fresh.packets_per_s)
    .with("0.5 ms old", "1/s", None, half.packets_per_s)
    .with("2 ms old", "1/s", None, two.packets_per_s)
    .with("10 ms old", "1/s", None, ten.packets_per_s)
    .with("taking turns", "1/s", None, turns.packets_per_s)
    .with("delay, always fresh", "us", None, fresh.delay_us)
    .with("10 ms old", "us", None, ten.delay_us)
}

fn classes_of_service_run_in_parallel(context: &Context) -> Decision {
    // A message costs a processor half a packet's time, a channel a twentieth.
    let messages = |apart| Messages { interval_us: 2000.0, processing_us: 240.0, transmission_us: 25.0, apart };
    // The same processors and channels in all: one of each is set apart, or shared.
    let shared = Node { messages: Some(messages(false)), ..node() }.run(&context.options);
    let rest = Node { processors: 3, channels_us: vec![514.0; 5], ..node() };
    let apart = Node { messages: Some(messages(true)), ..rest }.run(&context.options);
    let (gain, price) =
        (ratio(&shared.message_us, &apart.message_us), ratio(&apart.packets_per_s, &shared.packets_per_s));
    Decision::of(
        gain > 2.0,
        format!(
            "a processor and a channel set apart spare small messages the queues of bulk: {gain:.1} times sooner; bulk keeps \
             {:.0} % of what it had with four processors and six channels",
            price * 100.0
        ),
        "small messages gain nothing by a processor of their own",
    )
    .with("a small message among bulk", "us", None, shared.message_us)
    .with("apart", "us", None, apart.message_us)
    .with("bulk, all shared", "1/s", None, shared.packets_per_s)
    .with("bulk beside it", "1/s", None, apart.packets_per_s)
}

fn gains_multiply(context: &Context) -> Decision {
    let gain = |processors: usize, channels: usize| {
        let run = |processing_us: f64| {
            let channels_us = vec![514.0; channels];
            let node = Node { processors, processing_us, channels_us, window: 12, ..node() };
            node.run(&context.options).packets_per_s
        };
        let (before, after) = (run(480.0), run(240.0));
        (after, ratio(&after, &before))
    };
    let (one, alone) = gain(1, 12);
    let (four, with_four) = gain(4, 12);
    let (few, held_back) = gain(4, 4);
    let exactly = |mean| Estimate { mean, plus_minus: None };
    Decision::of(
        (with_four / alone - 1.0).abs() < 0.1 && held_back < 0.9 * alone,
        "halving a packet's work gains four processors what it gains one, so both gains multiply; but only while the channels \
         have room: with four of them they saturate first",
        "the gains do not multiply",
    )
    .with("gain of half the work, one processor", "", None, exactly(alone))
    .with("four processors, twelve channels", "", None, exactly(with_four))
    .with("four processors, four channels", "", None, exactly(held_back))
    .with("packets a second, one", "1/s", None, one)
    .with("four", "1/s", None, four)
    .with("four with four channels", "1/s", None, few)
}
