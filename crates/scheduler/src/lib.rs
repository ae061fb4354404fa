//! Which path carries the next packets: small strategies behind one trait.
//!
//! Sans-IO, and blind to the connection: a scheduler sees one [`PathView`] for each path and one [`Demand`], and
//! answers with a [`Choice`]. Sealing, acknowledging, finding losses and dropping duplicates stay with the connection;
//! so the same inputs in the same order always give the same choices, which is what the [`trace`] relies on.
//!
//! The calling contract: time never goes backwards; `choose` is asked again after every batch it allowed and whenever a
//! path, the demand or the clock changed; `reinjects` is asked when a path has room and nothing else is to be sent.
//!
//! Start with [`Scheduler`], then [`EarliestDelivery`], the default.
#![forbid(unsafe_code)]

mod candidates;
mod earliest;
mod estimate;
mod lowest_rtt;
mod redundant;
mod round_robin;
mod strategy;
#[cfg(test)]
mod tests;
pub mod trace;
mod view;

pub use earliest::{BULK_DATAGRAMS, EarliestDelivery, MEASURE_DATAGRAMS};
pub use lowest_rtt::LowestRtt;
pub use redundant::Redundant;
pub use round_robin::{RoundRobin, TURN_DATAGRAMS};
pub use strategy::{ParseStrategyError, Strategy};
pub use trace::Traced;
pub use view::{Demand, PathView, Straggler};

use units::Instant;

/// Most paths one choice looks at: the bits of [`Choice::Send`]'s `copies`. Paths past them are not used.
pub const PATHS_MAX: usize = 32;

/// Most datagrams one choice allows: what one call to the system sends at most (UDP segmentation offload stops at 64).
pub const BATCH_DATAGRAMS: u64 = 64;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Send on one path.
    Send {
        /// Index into the paths given (not the path ID).
        path: usize,
        /// Most bytes to send before asking again; at least one datagram of that path.
        bytes_max: u64,
        /// Bit `i`: also send a copy on the path with index `i`. Never holds the bit of `path` itself.
        copies: u32,
    },
    /// Send nothing, although something may be waiting.
    Wait {
        /// Ask again then (a pacer lets go); `None`: when something changes, such as an acknowledgement or room in a
        /// socket.
        until: Option<Instant>,
    },
}

/// A strategy: chooses the path of the next packets, and whether late ones are sent again elsewhere.
///
/// Both calls do bounded work (at most [`PATHS_MAX`] paths), allocate nothing and never panic, whatever the views hold.
pub trait Scheduler: Send {
    /// Where the next of `demand`'s bytes go. `paths` is in the order in which they were opened; its length may change between calls.
    #[must_use]
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice;

    /// Whether to send `straggler` again on `paths[on]`, which has room and nothing else to send. The caller sees to it
    /// that the same bytes are sent again once only for each answer, and that the receiver drops the duplicate.
    #[must_use]
    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool;
}
