//! Parameters that Ruetsche and Kaiserswerth 1992 do not give, or give on lost pages. All studies
//! of this network share the list; alternatives are evaluated on the main figure of each study.

use measure::Estimate;

use super::paper::Table1;
use super::run::run;
use super::setup::{Application, Costs, Mover, Setup};
use crate::choices::Choice;
use crate::study::Options;

/// A figure of a study that shows its sensitivity to a choice.
#[derive(Clone, Copy)]
pub(super) struct MainFigure {
    /// The name with its unit.
    pub(super) name: &'static str,
    pub(super) setup: Setup,
    pub(super) figure: fn(&Setup, &Options) -> Estimate,
}

impl MainFigure {
    /// Returns the throughput of `setup`.
    pub(super) const fn rate(name: &'static str, setup: Setup) -> Self {
        Self { name, setup, figure: |setup, options| run(setup, options).rate() }
    }

    /// Adds the alternative `value`, made by `change`, to `choice`.
    pub(super) fn or(self, choice: Choice, value: &'static str, change: impl Fn(&mut Setup)) -> Choice {
        let Self { name, mut setup, figure } = self;
        change(&mut setup);
        choice.or(value, name, move |options| figure(&setup, options))
    }
}

/// Returns all assumptions of the network.
pub(super) fn choices(table: &Table1, main_figure: MainFigure) -> Vec<Choice> {
    let mut all = protocol(main_figure);
    all.extend(machine(table, main_figure));
    all
}

fn protocol(main_figure: MainFigure) -> Vec<Choice> {
    let base = main_figure.setup;
    let pokes = Choice::new(
        "pokes",
        format!(
            "{} of one word per segment received, {} per segment sent; the former is fitted to scenario 2's 3300 \
             segments/s",
            base.pokes, base.pokes_back
        ),
        "the number is on a lost page; two fields change per segment: the next expected one and the window. It is \
         the largest at which the model exceeds 3300",
    );
    let pokes = main_figure.or(pokes, "1 and 1", |setup| (setup.pokes, setup.pokes_back) = (1, 1));
    let pokes = main_figure.or(pokes, "3 and 1", |setup| (setup.pokes, setup.pokes_back) = (3, 1));
    let pokes = main_figure.or(pokes, "4 and 4", |setup| (setup.pokes, setup.pokes_back) = (4, 4));
    let window =
        Choice::new("window", format!("{} segments", base.window), "not given; as many as fit in 65,535 bytes");
    let set_window =
        |window: u32| move |setup: &mut Setup| (setup.window, setup.acknowledge_every) = (window, window.div_ceil(2));
    let window = main_figure.or(window, "4 segments", set_window(4));
    let window = main_figure.or(window, "8 segments", set_window(8));
    let every = Choice::new(
        "acknowledge_every",
        format!("{} segments, half of the window", base.acknowledge_every),
        "the paper says a share of the window and does not give it",
    );
    let every = main_figure.or(every, "1 segment", |setup| setup.acknowledge_every = 1);
    let every = main_figure.or(every, "2 segments", |setup| setup.acknowledge_every = 2);
    let every = main_figure.or(every, "12 segments", |setup| setup.acknowledge_every = 12);
    let mut all = vec![pokes, window, every];
    if matches!(base.application, Application::OnWorkstation { .. }) {
        let socket = Choice::new(
            "lower half of the socket layer",
            "the times of user_task and write without copying, as in scenario 1",
            "in scenario 2 it stays on the adapter and only the copying moves to the workstation; its times are not \
             given",
        );
        let socket = main_figure.or(socket, "nothing", |setup| setup.application = Application::None);
        all.push(main_figure.or(socket, "nothing, and 4 pokes", |setup| {
            (setup.application, setup.pokes) = (Application::None, 4);
        }));
    }
    all
}

fn machine(table: &Table1, main_figure: MainFigure) -> Vec<Choice> {
    let mover = Choice::new(
        "moving packets to the network",
        "the interface, in parallel with the processor",
        "Table 1 assigns the time to driver_send, but in the text the interface reads the transmit memory; with the \
         processor, four processors would be far better than two (002-placement)",
    );
    let mover = main_figure.or(mover, "the processor", |setup| setup.mover = Mover::Processor);
    let mover = main_figure.or(mover, "the processor, without pokes", |setup| {
        (setup.mover, setup.pokes, setup.pokes_back) = (Mover::Processor, 0, 0);
    });
    let poked = Choice::new(
        "poked_us",
        "0 us on the processor that is poked",
        "Table 1 has one number for a poke, which is taken as its total",
    );
    let poked = main_figure.or(poked, "5 us", |setup| setup.poked_us = 5.0);
    let poked = main_figure.or(poked, "18.6 us", |setup| setup.poked_us = 18.6);
    let switch = Choice::new(
        "switch_us",
        "0 us between processes",
        "a transputer takes about 1 us, which the measurements of Table 1 include",
    );
    let switch = main_figure.or(switch, "1 us", |setup| setup.switch_us = 1.0);
    let switch = main_figure.or(switch, "5 us", |setup| setup.switch_us = 5.0);
    let handoff = Choice::new(
        "handoff_us",
        "0 us to pass a packet's address between processors, beyond the times of Table 1",
        "Table 1 was measured on the prototype and includes this cost. With fewer processors some of it would vanish; \
         how much is not known",
    );
    let handoff = main_figure.or(handoff, "5 us at both ends", |setup| setup.handoff_us = 5.0);
    let handoff = main_figure.or(handoff, "10 us", |setup| setup.handoff_us = 10.0);
    let handoff = main_figure.or(handoff, "18.6 us, like a poke", |setup| setup.handoff_us = 18.6);
    let mut all = vec![mover, poked, switch, handoff];
    let printed = Costs::of_scenario_1(table);
    if main_figure.setup.costs.tcp_recv_us < printed.tcp_recv_us {
        let lower = Choice::new(
            "scenario 2's lower times",
            format!("{} % below scenario 1, except for pokes", table.scenario_2.percent_lower),
            "the print is damaged; 40 would make tcp_recv faster than the rest of the paper allows",
        );
        let by = table.scenario_2.percent_lower;
        let percent = move |percent: f64| {
            move |setup: &mut Setup| {
                setup.costs = setup.costs.with_processors_times((100.0 - percent) / (100.0 - by));
            }
        };
        let lower = main_figure.or(lower, "0 %", percent(0.0));
        all.push(main_figure.or(lower, "40 %", percent(40.0)));
    }
    all
}
