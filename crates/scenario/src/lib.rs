//! Scenarios: links, faults, workload and checks in a file, to be run in any world.
#![forbid(unsafe_code)]

mod apps;
pub mod capacity;
pub mod check;
pub mod content;
pub mod faults;
pub mod memory;
pub mod model;
pub mod outcome;
pub mod parse;
pub mod proof;
pub mod recorder;
pub mod report;
pub mod suite;
#[cfg(test)]
mod testing;
pub mod world;
