//! Interface of every strategy: the trait, its answer and the limits.

use units::Instant;

use crate::view::{Demand, PathView, Straggler};

/// Largest number of paths considered: the bits of `copies` in [`Choice::Send`]. Further paths are
/// not used.
pub const PATHS_MAX: usize = 32;

/// Largest number of datagrams that one choice permits: the limit of one system call with UDP
/// segmentation offload.
pub const BATCH_DATAGRAMS: u64 = 64;

/// The result of a scheduling decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Send on one path.
    Send {
        /// Index into the given paths (not the path ID).
        path: usize,
        /// Largest number of bytes to send before the next decision; at least one datagram of that
        /// path.
        bytes_max: u64,
        /// Bit `i`: also send a copy on the path with index `i`. The bit of `path` itself is never
        /// set.
        copies: u32,
    },
    /// Send nothing, even though data may be waiting.
    Wait {
        /// Time of the next decision, when a pacer permits a datagram. `None` waits for a change of
        /// an input, for example an acknowledgement or a writable socket.
        until: Option<Instant>,
    },
}

/// A scheduling strategy: selects the path of the next packets, and decides whether late data is
/// resent on another path.
///
/// Both methods do bounded work (at most [`PATHS_MAX`] paths), allocate nothing and never panic,
/// for any inputs.
pub trait Scheduler: Send {
    /// Selects the path for the next bytes of `demand`. `paths` is in the order in which the paths
    /// were opened; its length may change between calls.
    #[must_use]
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice;

    /// Returns whether to resend `straggler` on `paths[on]`, which may send and has no other data.
    /// For each positive answer the caller must resend the bytes only once, and the receiver must
    /// drop the duplicate.
    #[must_use]
    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool;
}
