//! Old Dominion University report, the machine with distributed memory (Touchstone-like): gateways
//! in a closed linear array, one ring each.
//!
//! | module | contents |
//! |---|---|
//! | `paper` | the tables and the numbers in the text |
//! | `setup` | an experiment and its assumptions |
//! | `model` | the machine |
//! | `flow` | flow control of the generators |
//! | `experiment` | replicated runs and tables of them |
//! | `assumptions` | parameters that the report does not give, and their effect |
//! | `table_5`, `table_6`, `predictions`, `crossbar` | the studies |

mod assumptions;
mod crossbar;
mod experiment;
mod flow;
mod model;
mod paper;
mod predictions;
mod setup;
mod table_5;
mod table_6;

#[cfg(test)]
mod tests;

use crate::study::Study;

/// Returns the studies of this machine.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(table_5::Table5),
        Box::new(table_6::Table6),
        Box::new(predictions::Table7),
        Box::new(predictions::Table8),
        Box::new(crossbar::Crossbar),
    ]
}
