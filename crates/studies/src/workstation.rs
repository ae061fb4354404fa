//! Document 004: TCP over parallel rings from a multiprocessor workstation.
//!
//! | module | what |
//! |---|---|
//! | `paper`, `prose`, `config` | the paper's tables; numbers in its text; a machine with what the paper does not say |
//! | `model` | two machines and the rings between them, run once: `machine`, `sender`, `network`, `receiver`, `timer` are its parts |
//! | `runs`, `assumptions` | replications; what was assumed and what hangs on it |
//! | `table_1` ... `table_4`, `readings` | the tables; other readings of Table 3 |
//! | `sweeps`, `least` | windows, segments, processors, buses; how many of what; what fails |
//! | `rtt` | round trips and would-be timeouts |
//! | `schedulers`, `schemes`, `coding` | beyond the paper's tables: central, old news, who acknowledges, classes, coding |

mod assumptions;
mod coding;
mod config;
mod least;
mod machine;
mod model;
mod network;
mod paper;
mod prose;
mod readings;
mod receiver;
mod rtt;
mod runs;
mod schedulers;
mod schemes;
mod sender;
mod sweeps;
mod table_1;
mod table_2;
mod table_3;
mod table_4;
#[cfg(test)]
mod tests;
mod timer;

use crate::Study;
pub(crate) use paper::two_bus_window_kbit;
pub(crate) use prose::prose;

/// The studies of this document's workstation.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(table_1::Table1),
        Box::new(table_2::MemorySpeed),
        Box::new(table_3::Comparison),
        Box::new(table_4::SendCall),
        Box::new(sweeps::Windows),
        Box::new(sweeps::Hardware),
        Box::new(rtt::RoundTrips),
        Box::new(least::Least),
        Box::new(least::Failures),
        Box::new(coding::Coding),
        Box::new(schedulers::Central),
        Box::new(schedulers::Stale),
        Box::new(schemes::Schemes),
        Box::new(schemes::Classes),
    ]
}
