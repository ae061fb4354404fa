//! What document 000 does not say: one list for its studies, tried on each one's headline figure.

use measure::Estimate;

use super::model::{Setup, replicate, scaled};
use super::paper::{Stack, Throughput};
use super::speedup::{Assumed, setup_with};
use crate::Choice;
use crate::study::Options;

/// A figure of a study that shows how much hangs on a choice: of the setup that these assumptions and options make.
#[derive(Clone, Copy)]
pub(super) struct Headline {
    /// With its unit.
    pub(super) name: &'static str,
    pub(super) ours: fn(&Assumed, &Options) -> Estimate,
}

impl Headline {
    /// `choice`, which might be `value` as well, with `change`.
    pub(super) fn or(self, choice: Choice, value: &'static str, change: impl Fn(&mut Assumed)) -> Choice {
        let mut assumed = Assumed::default();
        change(&mut assumed);
        choice.or(value, self.name, move |options| (self.ours)(&assumed, options))
    }
}

/// How many times faster than one all processors of the paper are, with `stack` of its stacks.
pub(super) fn speedup_of(stack: fn(&Throughput) -> &Stack, assumed: &Assumed, options: &Options) -> Estimate {
    let paper = Throughput::load();
    let rate = |processors| {
        let setup: Setup = setup_with(&paper, stack(&paper), processors, assumed, options);
        replicate(&setup, options).rate
    };
    scaled(rate(paper.processors_max), 1.0 / rate(1).mean)
}

/// All that the paper's stacks rest on.
pub(super) fn choices(headline: Headline) -> Vec<Choice> {
    let serial = Choice::new(
        "serial share",
        "all of the stack without security is done under the connection's lock",
        "the paper says that handling the connection's state is most of it, and prints no share; no number was fitted",
    );
    let serial = headline.or(serial, "96 %", |assumed| assumed.serial_share = 0.96);
    let serial = headline.or(serial, "80 %", |assumed| assumed.serial_share = 0.8);
    let serial = headline.or(serial, "50 %", |assumed| assumed.serial_share = 0.5);
    let hand_over = Choice::new(
        "hand_over_us",
        "0 us to pass the lock to who waits",
        "not given; in the time on one processor there is none",
    );
    let hand_over = headline.or(hand_over, "5 us", |assumed| assumed.hand_over_us = 5.0);
    let hand_over = headline.or(hand_over, "20 us", |assumed| assumed.hand_over_us = 20.0);
    let spread =
        Choice::new("spread", "ciphers and digests take their mean, give or take 10 %", "not given; caches and memory");
    let spread = headline.or(spread, "1 %", |assumed| assumed.spread = 0.01);
    let spread = headline.or(spread, "50 %", |assumed| assumed.spread = 0.5);
    vec![serial, hand_over, spread]
}
