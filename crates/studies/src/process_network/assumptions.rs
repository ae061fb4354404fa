//! What document 002 does not say, or says on pages that are lost: one list for all studies of this network, tried on each one's
//! headline figure.

use measure::Estimate;

use super::paper::Table1;
use super::run::run;
use super::setup::{Application, Costs, Mover, Setup};
use crate::Choice;
use crate::study::Options;

/// A figure of a study that shows how much hangs on a choice.
#[derive(Clone, Copy)]
pub(super) struct Headline {
    /// With its unit.
    pub(super) name: &'static str,
    pub(super) setup: Setup,
    pub(super) figure: fn(&Setup, &Options) -> Estimate,
}

impl Headline {
    /// The throughput of `setup`.
    pub(super) const fn rate(name: &'static str, setup: Setup) -> Self {
        Self { name, setup, figure: |setup, options| run(setup, options).rate() }
    }

    /// `choice`, which might be `value` as well, with `change`.
    pub(super) fn or(self, choice: Choice, value: &'static str, change: impl Fn(&mut Setup)) -> Choice {
        let Self { name, mut setup, figure } = self;
        change(&mut setup);
        choice.or(value, name, move |options| figure(&setup, options))
    }
}

/// All that the network rests on.
pub(super) fn choices(table: &Table1, headline: Headline) -> Vec<Choice> {
    let mut all = protocol(headline);
    all.extend(machine(table, headline));
    all
}

fn protocol(headline: Headline) -> Vec<Choice> {
    let base = headline.setup;
    let pokes = Choice::new(
        "pokes",
        format!(
            "{} of one word for each segment received, {} for each sent, the former fitted to scenario 2's 3300 segments/s",
            base.pokes, base.pokes_back
        ),
        "the number is on a lost page; two fields change for each: what is expected next and the window. It is the most at which the \
         model is faster than 3300",
    );
    let pokes = headline.or(pokes, "1 and 1", |setup| (setup.pokes, setup.pokes_back) = (1, 1));
    let pokes = headline.or(pokes, "3 and 1", |setup| (setup.pokes, setup.pokes_back) = (3, 1));
    let pokes = headline.or(pokes, "4 and 4", |setup| (setup.pokes, setup.pokes_back) = (4, 4));
    let window =
        Choice::new("window", format!("{} segments", base.window), "not given; as many as fit into 65,535 bytes");
    let set_window =
        |window: u32| move |setup: &mut Setup| (setup.window, setup.acknowledge_every) = (window, window.div_ceil(2));
    let window = headline.or(window, "4 segments", set_window(4));
    let window = headline.or(window, "8 segments", set_window(8));
    let every = Choice::new(
        "acknowledge_every",
        format!("{} segments, half of the window", base.acknowledge_every),
        "the paper has a share of the window and does not say which",
    );
    let every = headline.or(every, "1 segment", |setup| setup.acknowledge_every = 1);
    let every = headline.or(every, "2 segments", |setup| setup.acknowledge_every = 2);
    let every = headline.or(every, "12 segments", |setup| setup.acknowledge_every = 12);
    let mut all = vec![pokes, window, every];
    if matches!(base.application, Application::OnWorkstation { .. }) {
        let socket = Choice::new(
            "lower half of the socket layer",
            "what user_task and write take but for copying, as in scenario 1",
            "in scenario 2 it stays on the adapter and only copying goes to the workstation; its times are not given",
        );
        let socket = headline.or(socket, "nothing", |setup| setup.application = Application::None);
        all.push(headline.or(socket, "nothing, and 4 pokes", |setup| {
            (setup.application, setup.pokes) = (Application::None, 4);
        }));
    }
    all
}

fn machine(table: &Table1, headline: Headline) -> Vec<Choice> {
    let mover = Choice::new(
        "who moves packets to the network",
        "the interface, beside the processor",
        "Table 1 books the time to driver_send, but the text has the interface read the transmit memory; the processor would make four \
         processors far better than two (002-placement)",
    );
    let mover = headline.or(mover, "the processor", |setup| setup.mover = Mover::Processor);
    let mover = headline.or(mover, "the processor, without pokes", |setup| {
        (setup.mover, setup.pokes, setup.pokes_back) = (Mover::Processor, 0, 0);
    });
    let poked = Choice::new(
        "poked_us",
        "0 us of the processor that is poked",
        "Table 1 has one number for a poke; it is taken for all of it",
    );
    let poked = headline.or(poked, "5 us", |setup| setup.poked_us = 5.0);
    let poked = headline.or(poked, "18.6 us", |setup| setup.poked_us = 18.6);
    let switch = Choice::new(
        "switch_us",
        "0 us between processes",
        "a transputer takes about 1 us, and Table 1 was measured with it",
    );
    let switch = headline.or(switch, "1 us", |setup| setup.switch_us = 1.0);
    let switch = headline.or(switch, "5 us", |setup| setup.switch_us = 5.0);
    let hand_over = Choice::new(
        "hand_over_us",
        "0 us for a packet's address between processors, beyond what Table 1 holds",
        "Table 1 was measured on the prototype, which hands over; that is in its times. Fewer processors would be spared some of it, \
         which is not known",
    );
    let hand_over = headline.or(hand_over, "5 us at both ends", |setup| setup.hand_over_us = 5.0);
    let hand_over = headline.or(hand_over, "10 us", |setup| setup.hand_over_us = 10.0);
    let hand_over = headline.or(hand_over, "18.6 us, as a poke", |setup| setup.hand_over_us = 18.6);
    let mut all = vec![mover, poked, switch, hand_over];
    let printed = Costs::of_scenario_1(table);
    if headline.setup.costs.tcp_recv_us < printed.tcp_recv_us {
        let lower = Choice::new(
            "scenario 2's lower times",
            format!("{} % below scenario 1, pokes excepted", table.scenario_2.percent_lower),
            "the print is damaged; 40 would make tcp_recv faster than anything else in the paper allows",
        );
        let by = table.scenario_2.percent_lower;
        let percent = move |percent: f64| {
            move |setup: &mut Setup| {
                setup.costs = setup.costs.with_processors_times((100.0 - percent) / (100.0 - by));
            }
        };
        let lower = headline.or(lower, "0 %", percent(0.0));
        all.push(headline.or(lower, "40 %", percent(40.0)));
    }
    all
}
