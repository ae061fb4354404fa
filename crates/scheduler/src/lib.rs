//! Multipath packet schedulers: the strategy that selects the path of the next packets.
//!
//! The crate is sans-I/O and independent of the connection. A scheduler receives one [`PathView`]
//! per path and one [`Demand`], and returns a [`Choice`]. Encryption, acknowledgements, loss
//! detection and duplicate removal belong to the connection. Equal inputs in the same order always
//! give equal choices; the [`trace`] relies on this.
//!
//! The calling contract: time never goes backwards. `choose` is called again after every batch it
//! permitted and whenever a path, the demand or the time changed. `reinjects` is called when a path
//! may send and there is no new data.
//!
//! | module | holds |
//! |---|---|
//! | `scheduler` | the trait [`Scheduler`], its answer [`Choice`], the limits |
//! | `strategy` | [`Strategy`]: the strategies by name |
//! | `view` | [`PathView`], [`Demand`], [`Straggler`]: the inputs |
//! | `earliest`, `estimate` | [`EarliestDelivery`], the default, and its arrival estimates |
//! | `lowest_rtt`, `round_robin`, `redundant` | the other strategies |
//! | `candidates` | the eligible paths, common to all strategies |
//! | [`trace`] | recording and replay of decisions |
//!
//! Start with [`Scheduler`], then [`EarliestDelivery`].
#![forbid(unsafe_code)]

mod candidates;
mod earliest;
mod estimate;
mod lowest_rtt;
mod redundant;
mod round_robin;
mod scheduler;
mod strategy;
#[cfg(test)]
mod tests;
pub mod trace;
mod view;

pub use earliest::{BULK_DATAGRAMS, EarliestDelivery, MEASURE_DATAGRAMS};
pub use lowest_rtt::LowestRtt;
pub use redundant::Redundant;
pub use round_robin::{RoundRobin, TURN_DATAGRAMS};
pub use scheduler::{BATCH_DATAGRAMS, Choice, PATHS_MAX, Scheduler};
pub use strategy::{ParseStrategyError, Strategy};
pub use trace::Traced;
pub use view::{Demand, PathView, Straggler};
