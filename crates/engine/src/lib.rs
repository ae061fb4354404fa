//! Runs QUIC on threads and sockets of the operating system.
//!
//! ```text
//!   application threads                          driver: one thread; under `inline`, a caller's
//!   ConnectionHandle, SendHandle, RecvHandle     turn (crate `driver`), then sleep
//!            │   ▲                                        │   ▲
//!            ▼   │  wakers                                ▼   │
//!        cells (crate `quic-driver`)  ◀──────────────▶  connections
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`engine`] | [`Engine`]: starting, stopping, waiting, connecting, accepting. Start here |
//! | [`config`], [`error`] | [`EngineConfig`], and the errors of this crate |
//! | `live` | the driver's environment: sockets, clock and meter |
//! | `driver_thread`, `inline` | a driver with its own thread, and a driver run by its callers |
//! | `worker` | the threads of workers |
//! | `sleep`, `wake`, `sleep_flag`, `primitives`, `parker` | sleeping and waking |
//! | `receive`, `socket` | receive buffers, and sockets that announce arrivals |
//! | `clock` | the system's clock, or one set by the owner: [`Engine::start_stepped`] |
//! | [`journals`] | writing the journals of all connections to a folder |
//! | `meter` | time spent by activity, if measuring is enabled |
//!
//! The calls of handles are `poll` functions: they return a value or register a waker. To block,
//! callers use [`Engine::block_on`]. Under [`Placement::Thread`] it parks the calling thread; under
//! [`Placement::Inline`] the calling thread runs the driver.
#![forbid(unsafe_code)]

mod clock;
pub mod config;
mod driver_thread;
pub mod engine;
pub mod error;
mod inline;
pub mod journals;
mod live;
mod meter;
mod parker;
mod primitives;
mod receive;
mod replaceable;
mod sleep;
mod sleep_flag;
mod socket;
mod wake;
mod worker;

pub use clock::ManualClock;
pub use config::EngineConfig;
pub use driver::crypto_pool::{WorkerPoolStats, WorkerStats};
pub use driver::placement::{self, PROCESSORS_MAX, Placement, PlacementError};
pub use driver::receive_worker::ReceiveWorkerStats;
pub use driver::{Activity, ActivityKind};
pub use engine::{
    ConnectOptions, ConnectionHandle, Engine, Incoming, PendingOpen, RecvHandle, RetryError, SOCKETS_MAX, SendHandle,
    SteppedEngine, SteppedEnv,
};
pub use error::{AcceptStreamError, Closed, DatagramError, MessageError, OpenError, ReadError, StartError, WriteError};
pub use journals::JournalFolder;
pub use meter::{Costs, LAP_MAX, Traffic};
pub use quic_driver::PathEvent;
pub use replaceable::{ReplaceableSocket, SocketSwitch};
pub use socket::{LiveSocket, Readiness};
