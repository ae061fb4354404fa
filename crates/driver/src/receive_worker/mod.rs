//! The receive worker of the placement `split`: it has the receive halves of busy connections, from
//! the system call to the application.
//!
//! ```text
//!          commands: halves, updates for them ─────▶ ┌────────────────┐ ◀── sockets, to receive
//!   driver ◀─ arrivals of attached connections ────── │ receive worker │
//!          ◀─ events: reports, halves that return ─── └────────────────┘ ──▶ readers
//!     └─────▶ sockets, to send
//! ```
//!
//! The driver keeps the send halves, control, and connections whose receive half is attached: those
//! that begin, that end, that receive little. A receive half is detached when much arrives for it.
//! It returns when that is over, when the end of the connection begins, or when a packet arrives
//! that concerns both halves, such as one from a new path.
//!
//! A command is in its ring before a plan leaves that may cause what the command is about; events
//! are taken before a plan is made.
//!
//! | file | contents |
//! |---|---|
//! | `owner` | [`ReceiveWorker`]: the driver's end; detects a worker that dies or hangs |
//! | `turn` | the worker's end: what it does with arrivals in a turn |
//! | `messages` | commands and events |
//! | `counters` | what it did, counted |

mod counters;
mod messages;
mod owner;
mod turn;

use units::Duration;

pub use self::counters::{ReceiveWorkerCounters, ReceiveWorkerStats};
pub use self::messages::ReceiveWorkerCommand;
pub use self::owner::ReceiveWorker;
pub use self::turn::ReceiveRole;
use crate::worker::{HangLimit, RingSizes};

/// Receive halves that are there at a time, at most: more busy connections than one thread can
/// serve.
const HALVES_MAX: usize = 64;

/// Commands a ring holds. While it is full nothing is sent for the connections of the halves that
/// are there.
const COMMANDS_MAX: usize = 1024;

/// Places of it that are left for halves to be taken and returned.
const COMMANDS_RESERVED: usize = 2 * HALVES_MAX;

/// Events a ring holds. While it is full they gather in the halves, and nothing is received.
pub(crate) const EVENTS_MAX: usize = 512;

/// Arrivals a ring holds: 4 MiB. While it is full nothing is received.
pub(crate) const ARRIVALS_MAX: usize = 64;

const SIZES: RingSizes = RingSizes { commands: COMMANDS_MAX, events: EVENTS_MAX, arrivals: ARRIVALS_MAX };

/// So often a worker that has halves is looked at. One that did no turn is woken, and if it still
/// has done none when it is looked at again it is taken for dead. Connections end by that, so it
/// takes longer than with a path worker; a panic in one connection may take long to be reported,
/// too.
pub const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

const HANG_LIMIT: HangLimit = HangLimit { interval: LIVENESS_INTERVAL, misses_max: 2 };
