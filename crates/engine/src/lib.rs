//! Runs transport protocols that implement [`driver::Protocol`] on threads and devices of the
//! operating system. The crate is independent of any protocol.
//!
//! ```text
//!   application threads                          driver: one thread; under `inline`, a caller's
//!   handles                                      turn (crate `driver`), then sleep
//!            │   ▲                                        │   ▲
//!            ▼   │  wakers                                ▼   │
//!        cells (of the protocol)      ◀──────────────▶  connections
//! ```
//!
//! | module | content |
//! |---|---|
//! | `drivers` | [`Drivers`]: the drivers of an endpoint, for any protocol: starting, placing, stopping, waiting. Start here |
//! | `device` | [`Device`]: a socket or network device that a protocol provides and that announces arrivals |
//! | `event_handler` | [`EventHandler`]: work of the application in a driver's thread |
//! | `settings`, `error` | [`DriverSettings`], [`StartError`] |
//! | `live` | the driver's environment: devices, clock and meter |
//! | `driver_thread`, `inline` | a driver with its own thread, and a driver run by its callers |
//! | `worker` | the threads of workers |
//! | `sleep`, `busy_poll`, `wake`, `sleep_flag`, `primitives`, `parker` | sleeping and waking |
//! | `clock` | the system's clock, or one set by the owner: [`Drivers::start_stepped`] |
//! | `journals` | [`JournalFolder`]: writes the journals of connections to a folder |
//! | `meter` | time spent by activity, if measuring is enabled |
//!
//! A protocol implements [`Device`] for its devices, starts [`Drivers`] over them, and makes handles from
//! the cells of its connections: the crates `quic-endpoint` and `tcp-stack` do.
//!
//! The calls of handles are `poll` functions: they return a value or register a waker. To block,
//! callers use [`Drivers::block_on`]. Under [`Placement::Thread`] it parks the calling thread;
//! under [`Placement::Inline`] the calling thread runs the driver.
#![forbid(unsafe_code)]

mod busy_poll;
mod clock;
mod device;
mod driver_thread;
mod drivers;
mod error;
mod event_handler;
mod inline;
mod journals;
mod live;
mod meter;
mod parker;
mod primitives;
mod settings;
mod sleep;
mod sleep_flag;
mod wake;
mod worker;

pub use clock::ManualClock;
pub use device::{ApplicationOf, BatchOf, Device, LimitsOf, Readiness, SealedOf, SharedOf};
pub use driver::crypto_pool::{WorkerPoolStats, WorkerStats};
pub use driver::placement::{self, PROCESSORS_MAX, Placement, PlacementError};
pub use driver::receive_worker::ReceiveWorkerStats;
pub use driver::{Activity, ActivityKind, DriverLimits, SOCKETS_MAX};
pub use drivers::{Drivers, SteppedDrivers};
pub use error::StartError;
pub use event_handler::EventHandler;
pub use journals::JournalFolder;
pub use meter::{Costs, LAP_MAX, Traffic};
pub use settings::DriverSettings;
