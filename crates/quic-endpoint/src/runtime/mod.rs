//! QUIC on threads and sockets, below the handles of applications: starting, connecting, accepting and
//! waiting, with `poll` functions. To block, callers use [`Engine::block_on`].
//!
//! ```text
//!   application threads                          driver: one thread; under `inline`, a caller's
//!   handles                                      turn (crate `driver`), then sleep (crate `engine`)
//!            │   ▲                                        │   ▲
//!            ▼   │  wakers                                ▼   │
//!        cells (crate `quic-driver`)  ◀──────────────▶  connections
//! ```
//!
//! | file | content |
//! |---|---|
//! | `engine` | [`Engine`]: starting, connecting, accepting |
//! | `config` | [`EngineConfig`] |
//! | `device`, `socket`, `replaceable` | datagram sockets that announce arrivals |
//! | `receive` | receive buffers |

mod config;
mod device;
mod engine;
mod receive;
mod replaceable;
mod socket;

pub use self::config::EngineConfig;
pub use self::engine::{
    ConnectOptions, ConnectionHandle, Engine, Incoming, PendingOpen, RecvHandle, RetryError, SendHandle, SteppedEngine,
    SteppedEnv,
};
pub use self::replaceable::{ReplaceableSocket, SocketSwitch};
pub use self::socket::LiveSocket;
