//! Ruetsche and Kaiserswerth 1992: TCP/IP as a network of processes on transputers.
//!
//! | module | contents |
//! |---|---|
//! | `paper` | Table 1 and the numbers in the text |
//! | `setup` | an experiment: costs, placement, traffic, copying |
//! | `node` | an adapter: processes, channels, shared fields |
//! | `run` | two adapters back to back, and the counters |
//! | `assumptions` | parameters that the paper does not give, and their effect |
//! | `scenarios`, `times`, `duplex`, `placement`, `checksum`, `interface`, `memories`, `t9000`, `shared_state` | the studies |
//! | `stack` | the study of our own TCP |

mod assumptions;
mod checksum;
mod duplex;
mod interface;
mod memories;
mod node;
mod paper;
mod placement;
mod run;
mod scenarios;
mod setup;
mod shared_state;
mod stack;
mod t9000;
mod times;

#[cfg(test)]
mod tests;

pub use self::paper::{PrintedProcess, printed_duplex_gain, printed_process};
use crate::study::Study;

/// Returns the studies of this paper.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(times::Times),
        Box::new(scenarios::Scenarios),
        Box::new(placement::Placements),
        Box::new(duplex::Duplex),
        Box::new(checksum::Checksum),
        Box::new(interface::Interface),
        Box::new(memories::Memories),
        Box::new(t9000::T9000),
        Box::new(shared_state::SharedState),
        Box::new(stack::Stack),
    ]
}
