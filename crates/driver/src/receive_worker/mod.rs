//! The receive worker of the placement `split`: it runs the receive halves of busy connections,
//! from the system call to the application.
//!
//! ```text
//!          commands: halves, updates for them ─────▶ ┌────────────────┐ ◀── sockets, to receive
//!   driver ◀─ arrivals of attached connections ────── │ receive worker │
//!          ◀─ events: reports, halves that return ─── └────────────────┘ ──▶ readers
//!     └─────▶ sockets, to send
//! ```
//!
//! The driver keeps the send halves, control, and connections whose receive half is attached:
//! connections that begin, that close, and that receive little. A receive half is detached when
//! much data arrives for it. It returns when it has become quiet, when the connection begins to
//! close, or when a packet arrives that concerns both halves, such as one from a new path.
//!
//! A command enters its ring before a plan is sent whose answer may depend on the command. The
//! driver takes events before it makes a plan.
//!
//! | file | contents |
//! |---|---|
//! | `owner` | [`ReceiveWorker`]: the driver's side; detects a worker that ends or hangs |
//! | `turn` | the worker's side: received batches in a turn |
//! | `messages` | commands |
//! | `counters` | statistics |

mod counters;
mod messages;
mod owner;
mod turn;

use units::Duration;

pub use self::counters::{ReceiveWorkerCounters, ReceiveWorkerStats};
pub use self::messages::ReceiveWorkerCommand;
pub use self::owner::ReceiveWorker;
pub use self::turn::ReceiveRole;
use crate::driver::PLANS_PER_VISIT;
use crate::worker::{HangLimit, RingSizes};

/// Maximum number of its receive halves: more busy connections than one thread can serve.
const HALVES_MAX: usize = 64;

/// The size of the ring of commands. While it is full, the driver sends nothing for the connections
/// of detached halves.
const COMMANDS_MAX: usize = 1024;

/// Number of its entries that updates leave free: for commands that detach and recall halves, and
/// for the updates of a visit.
const COMMANDS_RESERVED: usize = 2 * HALVES_MAX + PLANS_PER_VISIT + 1;

/// The size of the ring of events. While it is full, events are collected in the halves, and the
/// worker does not receive.
pub(crate) const EVENTS_MAX: usize = 512;

/// The size of the ring of arrivals: 4 MiB. While it is full, the worker does not receive.
pub(crate) const ARRIVALS_MAX: usize = 64;

const SIZES: RingSizes = RingSizes { commands: COMMANDS_MAX, events: EVENTS_MAX, arrivals: ARRIVALS_MAX };

/// Interval between liveness checks of a worker that has receive halves. A worker that began no
/// turn since the last check is woken. If it has begun none at the next check, it counts as failed.
/// A failure ends connections, so the time is longer than for a path worker. The report of a panic
/// in a connection may also take long.
pub const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

const HANG_LIMIT: HangLimit = HangLimit { interval: LIVENESS_INTERVAL, misses_max: 2 };
