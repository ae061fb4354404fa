//! Parameters that Nahum et al. 1996 do not give. All studies share the list; alternatives are
//! evaluated on the main figure of each study.

use measure::Estimate;

use super::model::{Setup, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{Assumed, setup_with};
use crate::choices::Choice;
use crate::study::Options;

/// A figure of a study that shows its sensitivity to a choice, as a function of these assumptions
/// and options.
#[derive(Clone, Copy)]
pub(super) struct MainFigure {
    /// The name with its unit.
    pub(super) name: &'static str,
    pub(super) ours: fn(&Assumed, &Options) -> Estimate,
}

impl MainFigure {
    /// Adds the alternative `value`, made by `change`, to `choice`.
    pub(super) fn or(self, choice: Choice, value: &'static str, change: impl Fn(&mut Assumed)) -> Choice {
        let mut assumed = Assumed::default();
        change(&mut assumed);
        choice.or(value, self.name, move |options| (self.ours)(&assumed, options))
    }
}

/// Returns the speedup of all processors of the paper over one, for one of its stacks.
pub(super) fn speedup_of(stack: fn(&Throughput) -> &Stack, assumed: &Assumed, options: &Options) -> Estimate {
    let paper = Throughput::load();
    let rate = |processors| {
        let setup: Setup = setup_with(&paper, stack(&paper), processors, assumed, options);
        replicate(&setup, options).rate
    };
    scaled(rate(paper.processors_max), 1.0 / rate(1).mean)
}

/// Returns all assumptions about the paper's stacks.
pub(super) fn choices(main_figure: MainFigure) -> Vec<Choice> {
    let serial = Choice::new(
        "serial share",
        "all of the stack without security is done under the connection's lock",
        "the paper says that handling the connection's state dominates and prints no share; nothing was fitted",
    );
    let serial = main_figure.or(serial, "96 %", |assumed| assumed.serial_share = 0.96);
    let serial = main_figure.or(serial, "80 %", |assumed| assumed.serial_share = 0.8);
    let serial = main_figure.or(serial, "50 %", |assumed| assumed.serial_share = 0.5);
    let handoff = Choice::new(
        "handoff_us",
        "0 us to pass the lock to a waiting processor",
        "not given; it is not part of the time on one processor",
    );
    let handoff = main_figure.or(handoff, "5 us", |assumed| assumed.handoff_us = 5.0);
    let handoff = main_figure.or(handoff, "20 us", |assumed| assumed.handoff_us = 20.0);
    let spread = Choice::new(
        "spread",
        "ciphers and digests take their mean time +-10 %",
        "not given; caches and memory cause variation",
    );
    let spread = main_figure.or(spread, "1 %", |assumed| assumed.spread = 0.01);
    let spread = main_figure.or(spread, "50 %", |assumed| assumed.spread = 0.5);
    vec![serial, handoff, spread]
}
