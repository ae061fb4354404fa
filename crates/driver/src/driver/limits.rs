//! Limits of a turn that other modules and crates rely on.

/// Size in bytes below which a batch is small. Opening it takes less time than waking the
/// application. Sending a request of at most this size takes less time than opening the received
/// batches. Larger data is bulk: it waits until the received acknowledgements are processed and for
/// further writes of the application, and is sent in full batches.
pub const INTERACTIVE_MAX: usize = 16 << 10;

/// Limit of batches that one receive call returns.
pub const RECV_BATCHES_MAX: usize = 16;

/// Limit of receive calls for one socket in one turn: with batches of 64 KiB at most 2 MiB, well
/// under a millisecond of work.
pub const RECV_CALLS_PER_TURN: usize = 2;

/// Limit of packets of a plan: the largest segmented send of the system.
pub const PLAN_PACKETS_MAX: usize = 64;

/// Limit of the sockets of a driver: a connection stores the sockets it waits for in this many
/// bits.
pub const SOCKETS_MAX: usize = 64;
