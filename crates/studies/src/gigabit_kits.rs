//! The Gigabit Kits report 2000: packets over TCP with small socket buffers on classical IP over ATM.
//!
//! | module | contents |
//! |---|---|
//! | `paper` | the printed rates, and the setup |
//! | `exchange` | the experiment: two hosts that run the real TCP/IP stack in virtual time |
//! | `fit` | the one fitted cost |
//! | `assumptions` | parameters that the report does not give, and their effect |
//! | `grid` | the study |

mod assumptions;
mod exchange;
mod fit;
mod grid;
pub(crate) mod paper;

#[cfg(test)]
mod tests;

use crate::study::Study;

/// Returns the studies of this report.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![Box::new(grid::Grid)]
}
