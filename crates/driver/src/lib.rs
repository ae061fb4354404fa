//! The duty cycle that runs connections: the turn of a driver, generic over the transport protocol,
//! the sockets, the clock and the other processors. Sans-IO: this crate starts no thread, polls no
//! descriptor and reads no clock.
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
//! | [`protocol`] | the traits that a transport protocol implements |
//! | [`mod@env`] | the environment: clock, sockets, measurements |
//! | [`socket`] | sockets, and the state of their send buffers |
//! | [`offload`] | the interface to other processors, and the points of a turn at which it is used |
//! | [`workers`] | the workers of a driver, as its offload |
//! | [`pipeline`] | a model of other processors, as the offload of a simulated driver |
//! | [`worker`], [`crypto_pool`], [`path_worker`], [`receive_worker`], [`intake`] | the turns of workers: common parts, and the four kinds |
//! | [`placement`] | the assignment of work to processors |
//! | [`in_flight`] | batches that a worker processes |
//! | [`shared`] | the state that handles and drivers share: requests, connections to accept |
//! | [`inlet`] | batches that another driver's socket received |
//! | [`activity`] | the activities of a driver's processor |
//! | `entry`, `run_queue`, [`timers`], `slab` | a connection in the driver's table, the order of visits, deadlines |
//! | [`sync`] | locks and sets of wakers |
#![forbid(unsafe_code)]

pub mod activity;
pub mod crypto_pool;
pub mod driver;
mod entry;
pub mod env;
pub mod in_flight;
pub mod inlet;
pub mod intake;
pub mod offload;
pub mod path_worker;
pub mod pipeline;
pub mod placement;
pub mod protocol;
pub mod receive_worker;
mod run_queue;
mod send_error;
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
pub use pipeline::Pipeline;
pub use placement::Placement;
pub use protocol::{Connection, ConnectionKey, EndReason, Protocol, Route};
pub use shared::{Application, Shared};
pub use socket::{LocalSocket, SendError, Socket};
