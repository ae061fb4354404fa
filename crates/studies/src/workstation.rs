//! Old Dominion University report: TCP over parallel rings from a multiprocessor workstation.
//!
//! | module | contents |
//! |---|---|
//! | `paper`, `prose`, `config` | the report's tables; numbers in its text; a machine with the parameters that the report does not give |
//! | `model` | the state of a run: two machines and the rings between them (`machine`, `rings`, `packet`, `connection`, `resequencer`, `round_trip`) |
//! | `run` | one run: the processes of `sender`, `network`, `receiver` and `timer` |
//! | `runs`, `assumptions` | replications; parameters that the report does not give, and their effect |
//! | `table_1` ... `table_4`, `interpretations` | the tables; other interpretations of Table 3 |
//! | `sweeps`, `minimum` | windows, segments, processors, buses; the smallest configuration and failures |
//! | `rtt` | round trips and hypothetical timeouts |
//! | `stacks` | complete stacks of our own TCP, one for each ring |
//! | `schedulers`, `schemes`, `coding` | beyond the report's tables: central and outdated scheduling, acknowledgement schemes, classes of service, coding |

mod assumptions;
mod coding;
mod config;
mod connection;
mod interpretations;
mod machine;
mod minimum;
mod model;
mod network;
mod packet;
mod paper;
mod prose;
mod receiver;
mod resequencer;
mod rings;
mod round_trip;
mod rtt;
mod run;
mod runs;
mod schedulers;
mod schemes;
mod sender;
mod stacks;
mod sweeps;
mod table_1;
mod table_2;
mod table_3;
mod table_4;
#[cfg(test)]
mod tests;
mod timer;

use super::study::Study;
pub(crate) use paper::two_bus_window_kbit;
pub(crate) use prose::prose;

/// Returns the studies of the report's workstation.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![
        Box::new(table_1::Table1),
        Box::new(table_2::MemorySpeed),
        Box::new(table_3::Comparison),
        Box::new(table_4::SendCall),
        Box::new(sweeps::Windows),
        Box::new(sweeps::Hardware),
        Box::new(rtt::RoundTrips),
        Box::new(minimum::Minimum),
        Box::new(minimum::Failures),
        Box::new(stacks::Stacks),
        Box::new(coding::Coding),
        Box::new(schedulers::Central),
        Box::new(schedulers::Stale),
        Box::new(schemes::Schemes),
        Box::new(schemes::Classes),
    ]
}
