//! Document 004: TCP over parallel rings from a multiprocessor workstation.
//!
//! | module | what |
//! |---|---|
//! | `paper`, `config` | the paper's facts; a machine with what the paper does not say |
//! | `model` | two machines and the rings between them, run once: `machine`, `sender`, `network`, `receiver` are its parts |
//! | `runs`, `assumptions` | replications; what was assumed and what hangs on it |
//! | `table_1` ... `table_3` | the tables |

mod assumptions;
mod config;
mod machine;
mod model;
mod network;
mod paper;
mod receiver;
mod runs;
mod sender;
mod table_1;
mod table_2;
mod table_3;

use crate::Study;

/// The studies of this document's workstation.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![Box::new(table_1::Table1), Box::new(table_2::MemorySpeed), Box::new(table_3::Comparison)]
}
