//! Document 004, the machine with distributed memory (Touchstone-like): gateways in a closed line, a ring each.
//!
//! | module | what |
//! |---|---|
//! | `paper` | the tables and what the text gives |
//! | `setup` | an experiment, and what it assumes |
//! | `model` | the machine |
//! | `flow` | which generators are stopped |
//! | `experiment` | setups run as often as asked, tables of them |
//! | `assumptions` | what is not given, and what it matters |
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

/// The studies of this machine.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(table_5::Table5),
        Box::new(table_6::Table6),
        Box::new(predictions::Table7),
        Box::new(predictions::Table8),
        Box::new(crossbar::Crossbar),
    ]
}
