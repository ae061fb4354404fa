//! What document 002 does not say, or says on pages that are lost, and what the headline figure becomes with other choices.

use super::paper::Table1;
use super::run::run;
use super::setup::{Application, Mover, Setup};
use crate::outcome::{Assumption, Sensitivity};
use crate::study::Options;

/// All of them, held against scenario 2's throughput.
pub(super) fn all(table: &Table1, options: &Options) -> Vec<Assumption> {
    let base = Setup::scenario_2(table);
    let scenario_2 = |value: &str, setup: Setup| sensitivity(value, "scenario 2, segments/s", &setup, options);
    let mut all = protocol(&base, &scenario_2);
    all.extend(machine(table, &base, &scenario_2));
    all
}

type Try<'a> = dyn Fn(&str, Setup) -> Sensitivity + 'a;

fn protocol(base: &Setup, scenario_2: &Try<'_>) -> Vec<Assumption> {
    let pokes = |pokes| Setup { pokes, ..*base };
    let window = |window: u32| Setup { window, acknowledge_every: window.div_ceil(2), ..*base };
    let every = |acknowledge_every| Setup { acknowledge_every, ..*base };
    vec![
        Assumption {
            key: "pokes".to_owned(),
            value: format!(
                "{} of one word for each segment received, fitted to scenario 2's 3300 segments/s",
                base.pokes
            ),
            reason: "the number is on a lost page; two fields change for each: what is expected next and the \
                     window. It is the most at which the model is faster than 3300"
                .to_owned(),
            sensitivity: vec![scenario_2("1", pokes(1)), scenario_2("3", pokes(3)), scenario_2("4", pokes(4))],
        },
        Assumption {
            key: "lower half of the socket layer".to_owned(),
            value: "what user_task and write take but for copying, as in scenario 1".to_owned(),
            reason: "in scenario 2 it stays on the adapter and only copying goes to the workstation; its times are \
                     not given"
                .to_owned(),
            sensitivity: vec![
                scenario_2("nothing, 2 pokes", Setup { application: Application::None, ..*base }),
                scenario_2("nothing, 4 pokes", Setup { application: Application::None, ..pokes(4) }),
            ],
        },
        Assumption {
            key: "window".to_owned(),
            value: format!("{} segments", base.window),
            reason: "not given; as many as fit into 65,535 bytes".to_owned(),
            sensitivity: vec![scenario_2("4 segments", window(4)), scenario_2("8 segments", window(8))],
        },
        Assumption {
            key: "acknowledge_every".to_owned(),
            value: format!("{} segments, half of the window", base.acknowledge_every),
            reason: "the paper has a share of the window and does not say which".to_owned(),
            sensitivity: vec![
                scenario_2("1 segment", every(1)),
                scenario_2("2 segments", every(2)),
                scenario_2("12 segments", every(12)),
            ],
        },
    ]
}

fn machine(table: &Table1, base: &Setup, scenario_2: &Try<'_>) -> Vec<Assumption> {
    let poked = |poked_us| Setup { poked_us, ..*base };
    let switch = |switch_us| Setup { switch_us, ..*base };
    let hand_over = |hand_over_us| Setup { hand_over_us, ..*base };
    let percent = |percent: f64| {
        let costs = super::setup::Costs::of_scenario_1(table).with_processors_times(1.0 - percent / 100.0);
        Setup { costs, ..*base }
    };
    vec![
        Assumption {
            key: "who moves packets to the network".to_owned(),
            value: "the interface, beside the processor".to_owned(),
            reason: "Table 1 books the time to driver_send, but the text has the interface read the transmit \
                     memory; the processor would make four processors far better than two (002-placement)"
                .to_owned(),
            sensitivity: vec![
                scenario_2("the processor, four processors", Setup { mover: Mover::Processor, ..*base }),
                scenario_2("the processor, without pokes", Setup { mover: Mover::Processor, pokes: 0, ..*base }),
            ],
        },
        Assumption {
            key: "scenario 2's lower times".to_owned(),
            value: format!("{} % below scenario 1, pokes excepted", table.scenario_2.percent_lower),
            reason: "the print is damaged; 40 would make tcp_recv faster than anything else in the paper allows"
                .to_owned(),
            sensitivity: vec![scenario_2("0 %", percent(0.0)), scenario_2("40 %", percent(40.0))],
        },
        Assumption {
            key: "poked_us".to_owned(),
            value: "0 us of the processor that is poked".to_owned(),
            reason: "Table 1 has one number for a poke; it is taken for all of it".to_owned(),
            sensitivity: vec![scenario_2("5 us", poked(5.0)), scenario_2("18.6 us", poked(18.6))],
        },
        Assumption {
            key: "switch_us".to_owned(),
            value: "0 us between processes".to_owned(),
            reason: "a transputer takes about 1 us, and Table 1 was measured with it".to_owned(),
            sensitivity: vec![scenario_2("1 us", switch(1.0)), scenario_2("5 us", switch(5.0))],
        },
        Assumption {
            key: "hand_over_us".to_owned(),
            value: "0 us for a packet's address between processors".to_owned(),
            reason: "Table 1 was measured on the prototype, which hands over; that is in its times".to_owned(),
            sensitivity: vec![scenario_2("5 us at both ends", hand_over(5.0)), scenario_2("18.6 us", hand_over(18.6))],
        },
    ]
}

/// What a figure becomes under another assumption.
pub(super) fn sensitivity(value: &str, figure: &str, setup: &Setup, options: &Options) -> Sensitivity {
    Sensitivity { value: value.to_owned(), figure: figure.to_owned(), ours: run(setup, options).rate() }
}
