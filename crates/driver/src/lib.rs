//! The duty cycle that runs connections: the turn of a driver, generic over the transport protocol,
//! the sockets, the clock and the other processors. Sans-IO: no thread is started here, no
//! descriptor polled, no clock read.
//!
//! ```text
//!   handles ── cells, Shared ──▶ Driver::turn: todo ─▶ receive ─▶ timers ─▶ visits: events, plans ─▶ seal ─▶ send
//!                                  │    ▲                                     │
//!                                  ▼    │                                     ▼
//!                                Protocol, Connection                      Offload: workers seal, open, serve sockets
//! ```
//!
//! The live engine runs drivers on threads, over sockets of the system. A simulation runs the same
//! code in virtual time.
//!
//! | module | content |
//! |---|---|
//! | [`mod@driver`] | [`Driver`]: the turn. Start there |
//! | [`protocol`] | what a transport protocol provides |
//! | [`mod@env`] | what the surroundings provide: clock and measurements |
//! | [`socket`] | sockets, and what is known about their room |
//! | [`offload`] | other processors, and at which points of a turn they come in |
//! | [`workers`] | the workers of a driver, as its offload |
//! | [`worker`], [`crypto_pool`], [`path_worker`], [`receive_worker`] | turns of workers: what is common, and the three kinds |
//! | [`placement`] | which processors run what |
//! | [`in_flight`] | batches on their way through workers |
//! | [`shared`] | what handles and drivers share: work to do, connections to accept |
//! | [`inlet`] | batches that arrived at another driver's socket |
//! | [`activity`] | what a driver does at a time |
//! | `entry`, `run_queue`, [`timers`], `slab` | a connection in the driver's table, whose turn it is, deadlines |
//! | [`sync`] | locks and sets of wakers |
#![forbid(unsafe_code)]

pub mod activity;
pub mod crypto_pool;
pub mod driver;
mod entry;
pub mod env;
pub mod in_flight;
pub mod inlet;
pub mod offload;
pub mod path_worker;
pub mod placement;
pub mod protocol;
pub mod receive_worker;
mod run_queue;
pub mod shared;
mod slab;
pub mod socket;
pub mod sync;
pub mod timers;
pub mod worker;
pub mod workers;

pub use activity::{Activity, ActivityKind};
pub use driver::{
    Driver, DriverLimits, DriverSocket, Flush, INTERACTIVE_MAX, PLAN_PACKETS_MAX, Place, RECV_BATCHES_MAX,
    RECV_CALLS_PER_TURN, SOCKETS_MAX, Work,
};
pub use env::{Clock, Env};
pub use inlet::Inlet;
pub use offload::{NoOffload, Offload};
pub use placement::Placement;
pub use protocol::{Connection, ConnectionKey, EndReason, Protocol, Route};
pub use shared::{Application, Shared};
pub use socket::{LocalSocket, SendError, Socket};
