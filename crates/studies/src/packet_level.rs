//! Nahum et al. 1996: packets of one connection on many processors, with one lock.
//!
//! | module | contents |
//! |---|---|
//! | `paper` | the stacks of the paper, and our own measured costs |
//! | `model` | processors that take packets through the steps of a stack |
//! | `assumptions` | parameters that the paper does not give, and their effect |
//! | `curves` | a table and a plot of the same numbers |
//! | `speedup`, `connections`, `order`, `own_costs` | the studies on the model |
//! | `stacks` | the study on our own TCP |

mod assumptions;
mod connections;
mod curves;
mod model;
mod order;
mod own_costs;
mod paper;
mod speedup;
mod stacks;

#[cfg(test)]
mod tests;

pub use self::paper::{PrintedStack, printed_stack};

use crate::study::Study;

/// Returns the studies of this paper.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(speedup::Speedup),
        Box::new(connections::Connections),
        Box::new(order::Reordering),
        Box::new(own_costs::OwnCosts),
        Box::new(stacks::Stacks),
    ]
}
