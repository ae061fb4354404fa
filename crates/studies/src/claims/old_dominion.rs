//! Old Dominion University report: whole protocol processes in parallel.
//!
//! | module | claims about |
//! |---|---|
//! | [`outlook`] | prices, displays, misprints, later improvements |
//! | [`send_call`] | the serial part of a `send()` call |
//! | [`touchstone`] | the machine with distributed memory |
//! | [`variants`] | failures, acknowledgement schemes, coding, schedulers, classes of service |
//! | [`workstation`] | the three workstations of Tables 1 to 3 |

mod outlook;
mod send_call;
mod touchstone;
mod variants;
mod workstation;

use super::decision::Decider;

/// Returns the decider of each claim.
pub(super) fn deciders() -> impl Iterator<Item = (&'static str, Decider)> {
    let machines = workstation::DECIDERS.into_iter().chain(touchstone::DECIDERS);
    machines.chain(send_call::DECIDERS).chain(variants::DECIDERS).chain(outlook::DECIDERS)
}
