//! Document 004: whole protocol processes side by side.
//!
//! | module | claims about |
//! |---|---|
//! | [`channels`] | coding across channels |
//! | [`outlook`] | prices, displays, misprints |
//! | [`schedulers`] | central and distributed scheduling, old information, classes of service, later improvements |

mod channels;
mod outlook;
mod schedulers;

use super::Decider;

/// What finds out about each claim.
pub(super) fn deciders() -> impl Iterator<Item = (&'static str, Decider)> {
    channels::DECIDERS.into_iter().chain(outlook::DECIDERS).chain(schedulers::DECIDERS)
}
