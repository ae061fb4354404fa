//! Document 004: whole protocol processes side by side.
//!
//! | module | claims about |
//! |---|---|
//! | [`outlook`] | prices, displays, misprints, later improvements |
//! | [`send_call`] | the serial part of a send() call |
//! | [`touchstone`] | the machine with distributed memory |
//! | [`variants`] | failures, schemes, codes, schedulers, classes of service |
//! | [`workstation`] | the three workstations of Tables 1 to 3 |

mod outlook;
mod send_call;
mod touchstone;
mod variants;
mod workstation;

use super::Decider;

/// What finds out about each claim.
pub(super) fn deciders() -> impl Iterator<Item = (&'static str, Decider)> {
    let machines = workstation::DECIDERS.into_iter().chain(touchstone::DECIDERS);
    machines.chain(send_call::DECIDERS).chain(variants::DECIDERS).chain(outlook::DECIDERS)
}
