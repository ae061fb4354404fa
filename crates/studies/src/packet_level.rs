//! Document 000: packets of a connection on many processors, behind one lock.
//!
//! | module | what |
//! |---|---|
//! | `paper` | the stacks of the paper, and our own measured costs |
//! | `model` | processors that take packets through a stack's steps |
//! | `assumptions` | what is not given, and what it matters |
//! | `curves` | a table and a picture of the same numbers |
//! | `speedup`, `connections`, `order`, `today` | the studies |

mod assumptions;
mod connections;
mod curves;
mod model;
mod order;
mod paper;
mod speedup;
mod today;

#[cfg(test)]
mod tests;

use crate::study::Study;

/// The studies of this document.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![Box::new(speedup::Speedup), Box::new(connections::Connections), Box::new(order::Order), Box::new(today::Today)]
}
