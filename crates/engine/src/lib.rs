//! Processors and placements: runs the protocol on real threads and sockets.
//!
//! ```text
//!   application threads                          driver (one thread, or whoever is inside a call)
//!   ConnectionHandle, SendHandle, RecvHandle     turn: todo → receive → timers → events, plans → seal → send
//!            │   ▲                                        │   ▲
//!            ▼   │  wakers                                ▼   │
//!        cells: outbox, inbox, accepted, …  ◀───────▶  slots: quic::Connection
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`engine`] | [`Engine`]: starting, stopping, waiting; where handles come from: start here |
//! | [`handle`] | what the application holds of a connection and of streams, as `poll` functions |
//! | `driver` | the duty cycle |
//! | `stage` | batches sealed and opened on several processors, and in order |
//! | `processor` | processors that serve paths: their sockets, sealing and opening |
//! | `slot`, `messages` | one connection as the driver keeps it |
//! | `cells` | what both sides share |
//! | `receive`, `port`, `sleep`, `wake`, `asleep`, `primitives` | buffers, sockets, sleeping and waking |
//! | `slab`, `timers`, `sync` | tables, deadlines, locks |
//! | `crew` | threads of the other processors, or their turns in the hands of whoever steps the engine |
//! | `clock` | the system's time, or one that is set by hand: [`Engine::start_stepped`] |
//! | [`journals`] | a folder with everything that went into each connection |
//! | `meter` | where the time goes, if asked for |
//!
//! Every call of a handle exists once, as a function that either succeeds or leaves a waker. Blocking is
//! [`Engine::block_on`]: under [`Placement::Thread`] it parks the caller, under [`Placement::Inline`] it lets the caller run the
//! driver.
#![forbid(unsafe_code)]

mod arrival;
mod asleep;
mod cells;
mod clock;
pub mod config;
mod crew;
mod driver;
pub mod engine;
pub mod error;
mod halves;
pub mod handle;
mod inbound;
mod inline;
pub mod journals;
mod messages;
mod meter;
pub mod placement;
mod port;
mod primitives;
mod processor;
mod receive;
mod shared;
mod slab;
mod sleep;
mod slot;
mod socket;
mod stage;
mod sync;
mod timers;
mod wake;

pub use clock::ManualClock;
pub use config::EngineConfig;
pub use engine::{ConnectOptions, Engine, Given, SOCKETS_MAX, Steps};
pub use error::{AcceptStreamError, Closed, DatagramError, MessageError, OpenError, ReadError, StartError, WriteError};
pub use halves::SplitStats;
pub use handle::{ConnectionHandle, Opening, RecvHandle, SendHandle};
pub use journals::JournalFolder;
pub use meter::{Costs, LAP_MAX, Stage, StageKind, Traffic};
pub use placement::{PROCESSORS_MAX, Placement, PlacementError};
pub use socket::{LiveSocket, Readiness};
pub use stage::{StageStats, WorkerStats};
