//! Path workers: each serves the sockets of its paths, and seals and opens batches there.
//!
//! ```text
//!          commands: plans to send, leases ─────▶ ┌─────────────┐ ◀─▶ sockets of its paths
//!   driver ◀─ arrivals, opened if it has a lease ─ │ path worker │
//!          ◀─ events: reports of sent plans ────── └─────────────┘
//! ```
//!
//! The driver keeps the state of the connection as a whole: it decides, numbers packets and absorbs
//! batches. The worker seals a plan and sends it. It puts the report into the ring before the
//! system call, so no acknowledgement overtakes the report. The worker opens received batches once
//! the driver has granted a lease of the keys; the driver then finds the connection. A worker
//! without work for its own paths seals for the driver's paths
//! ([`crypto_pool`](crate::crypto_pool)).
//!
//! | file | contents |
//! |---|---|
//! | `owner` | [`PathWorker`]: the driver's side; detects a worker that ends or hangs |
//! | `turn` | the worker's side: plans and received batches in a turn |
//! | `messages` | commands and events |

mod messages;
mod owner;
mod turn;

use units::Duration;

pub use self::messages::{PathWorkerCommand, PathWorkerEvent};
pub use self::owner::PathWorker;
pub(crate) use self::owner::StateChange;
pub use self::turn::PathRole;
use crate::driver::RECV_BATCHES_MAX;
use crate::worker::{HangLimit, RingSizes};

/// Maximum number of plans of a path worker: one that is being sent, one that is sealed next, and
/// two for the time until the driver makes more. They are sent within a fraction of a millisecond.
const SENDS_MAX: usize = 4;

/// Maximum number of leases in the ring of commands. If there is no space, the lease is granted
/// with the next batch.
const LEASES_QUEUED_MAX: usize = 32;

/// The size of the ring of commands: the reserved entries, leases, and answers to packets that
/// belong to no connection.
const COMMANDS_MAX: usize = COMMANDS_RESERVED + LEASES_QUEUED_MAX + 8;

/// Number of entries of the ring of commands that answers and leases leave free: for plans, for
/// requests to report when all are sent, of which there is at most one after a plan, and for the
/// request to receive.
const COMMANDS_RESERVED: usize = 2 * SENDS_MAX + 2;

/// Size of the ring of events: each command causes at most two, and so does a socket that has space
/// again.
const EVENTS_MAX: usize = 2 * COMMANDS_MAX + 2 * crate::driver::SOCKETS_MAX;

/// The size of the ring of arrivals: 4 MiB. While it is full, the worker does not receive.
pub(crate) const ARRIVALS_MAX: usize = 64;

/// Number of remaining arrivals at which a worker that waits for space in the ring is woken. The
/// worker then has work again before the driver has processed all, and is not woken for every
/// batch.
const ARRIVALS_LOW: usize = ARRIVALS_MAX / 2;

const _: () = assert!(ARRIVALS_LOW + RECV_BATCHES_MAX <= ARRIVALS_MAX, "a worker that is woken finds space");

const SIZES: RingSizes = RingSizes { commands: COMMANDS_MAX, events: EVENTS_MAX, arrivals: ARRIVALS_MAX };

/// Time after which a worker with work that begins no turn counts as failed. It is longer than the
/// scheduling delay of any working machine, and shorter than the time after which a peer declares a
/// path failed.
pub const HANG_AFTER: Duration = Duration::from_millis(200);

const HANG_LIMIT: HangLimit = HangLimit { interval: HANG_AFTER, misses_max: 1 };
