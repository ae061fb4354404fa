//! Path workers: each serves the sockets of its paths, from the system call to the sealed and the
//! opened batch.
//!
//! ```text
//!          commands: plans to send, leases ─────▶ ┌─────────────┐ ◀─▶ sockets of its paths
//!   driver ◀─ arrivals, opened if it has a lease ─ │ path worker │
//!          ◀─ events: reports of what leaves ───── └─────────────┘
//! ```
//!
//! What belongs to a connection as a whole stays with the driver: it decides, numbers and absorbs.
//! The worker seals a plan and sends it. The report that it leaves is put into the ring before the
//! system call, so no acknowledgement overtakes it. A batch that arrives is opened here once the
//! driver has granted a lease of the keys; the driver then finds its connection. A worker without
//! work on its own paths seals for the driver's ([`crypto_pool`](crate::crypto_pool)).
//!
//! | file | contents |
//! |---|---|
//! | `owner` | [`PathWorker`]: the driver's end, and how it detects a worker that dies or hangs |
//! | `turn` | the worker's end: what it does with plans and arrivals in a turn |
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

/// Plans a path worker has at a time, at most: one that leaves, one that is sealed next, and two to
/// bridge what the driver does meanwhile. They leave within a fraction of a millisecond.
const SENDS_MAX: usize = 4;

/// Leases on their way to it, at most. A lease that finds no room is granted with the next batch.
const LEASES_ON_THE_WAY_MAX: usize = 32;

/// Commands a ring holds: all of the above, and answers to packets that belong to no connection.
const COMMANDS_MAX: usize = COMMANDS_RESERVED + LEASES_ON_THE_WAY_MAX + 8;

/// Places of the ring of commands that answers and leases leave free: for plans, and for questions
/// whether all have left, of which there is one after a plan at most.
const COMMANDS_RESERVED: usize = 2 * SENDS_MAX + 1;

/// Events a ring holds: each command makes two at most, and so does a socket that has room again.
const EVENTS_MAX: usize = 2 * COMMANDS_MAX + 2 * crate::driver::SOCKETS_MAX;

/// Arrivals a ring holds: 4 MiB. While it is full, nothing is received.
pub(crate) const ARRIVALS_MAX: usize = 64;

/// A worker that waits for room in the ring of arrivals is woken when so many are left there: it
/// has work again before the driver runs out of it, and is not woken for every batch.
const ARRIVALS_LOW: usize = ARRIVALS_MAX / 2;

const _: () = assert!(ARRIVALS_LOW + RECV_BATCHES_MAX <= ARRIVALS_MAX, "a worker that is woken finds room");

const SIZES: RingSizes = RingSizes { commands: COMMANDS_MAX, events: EVENTS_MAX, arrivals: ARRIVALS_MAX };

/// A worker that does no turn for so long while it has work is taken for dead. Longer than any
/// machine makes a thread wait that is not stuck; shorter than what a peer takes for a dead path.
pub const HANG_AFTER: Duration = Duration::from_millis(200);

const HANG_LIMIT: HangLimit = HangLimit { interval: HANG_AFTER, misses_max: 1 };
